// The examples of docs/javascript.md run.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import * as pq from "../dist/index.js";
import { Bridge } from "./bridge.mjs";

const root = new URL("..", import.meta.url).pathname;
const text = await readFile(join(root, "../../docs/javascript.md"), "utf8");
const blocks = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, block]) => block);
const imports = /^import (.*) from "(.*)";\n/gm;
const readme = /```js\n(.*?)```/s.exec(await readFile(join(root, "README.md"), "utf8"))[1];
const named = (name) => blocks.find((block) => block.startsWith(`// ${name}\n`));

let bridge;
let dir;
before(async () => {
  bridge = await Bridge.start();
  await mkdir(join(root, "bin"), { recursive: true });
  dir = await mkdtemp(join(root, "bin/docs-")); // below the package, so that it finds itself and nats.js
});
after(async () => {
  await bridge.stop();
  await rm(dir, { recursive: true });
});

// Runs a program, and returns it with the lines that it prints.
async function run(t, name, program, ...args) {
  const path = join(dir, name);
  await writeFile(path, program);
  const child = spawn(process.execPath, [path, ...args], { env: { ...process.env, NATS_URL: bridge.url }, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  t.after(() => child.kill("SIGKILL"));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return { child, ended, line: async () => (await lines.next()).value };
}

test("the worker survives a kill, and stops at SIGTERM", async (t) => {
  const first = await run(t, "worker.mjs", named("worker.js"));
  const push = await run(t, "push.mjs", named("producer.js"), "eve", "3");
  assert.equal(await first.line(), "to eve, delivery 1");
  first.child.kill("SIGKILL");

  const second = await run(t, "worker.mjs", named("worker.js"));

  assert.equal(await second.line(), "to eve, delivery 2");
  assert.equal(await push.line(), "done sent to eve");
  const full = await run(t, "push.mjs", named("producer.js"), "full", "0");
  for (const n of [1, 2, 3]) assert.equal(await second.line(), `to full, delivery ${n}`);
  assert.equal(await full.line(), "dead the mailbox is full");
  second.child.kill("SIGTERM");
  assert.equal(await second.ended, 0);
});

test("the other examples run as one program", async (t) => {
  const snippets = blocks.filter((block) => !block.startsWith("// "));
  assert.ok(snippets.length >= 7, "does the test still see the examples?");
  const used = snippets.flatMap((block) => [...block.matchAll(imports)]).filter(([, , from]) => from === "@pqbridge/client");
  const imported = new Set(used.flatMap(([, names]) => names.match(/\w+/g)));
  for (const name of imported) assert.ok(name in pq, name);
  const program = `
    import assert from "node:assert/strict";
    import { connect } from "@nats-io/transport-node";
    import * as pq from "@pqbridge/client";
    const { Client, ${[...imported].join(", ")} } = pq;
    const spans = [];
    const span = { recordException() {}, end() {} };
    const trace = { getTracer: () => ({ startActiveSpan: (name, _, parent, f) => (spans.push([name, parent]), f(span)) }) };
    const context = { active: () => "active" };
    const propagation = { extract: (_, headers, getter) => getter.get(headers, "traceparent") };
    const nc = await connect({ servers: process.env.NATS_URL });
    const client = new Client(nc);
    const jobs = client.priorityQueue("jobs");
    await jobs.configure({ maxDeliver: 1 });
    setTimeout(() => void worker.run(), 0);
    ${snippets.join("\n").replaceAll(imports, "")}
    const running = tracedWorker.run();
    await worker.close();
    await jobs.call("traced", { headers: { traceparent: "parent" } });
    await tracedWorker.close();
    await running;
    assert.ok(spans.some(([name, parent]) => name === "jobs " && parent === "parent"));
    assert.equal(failed.length, 0);
    console.log("ran");
    await nc.close();
  `;
  const { line, ended } = await run(t, "snippets.mjs", program);
  let last;
  for (let next; (next = await line()) !== undefined; ) last = next;
  assert.equal(await ended, 0);
  assert.equal(last, "ran");
});

test("the README and the guide of the project show the same worker", async () => {
  for (const page of ["README.md", "docs/guide.md"]) {
    assert.ok((await readFile(join(root, "../..", page), "utf8")).includes(readme), page);
  }
});

test("the worker of the README does its job", async (t) => {
  const program = readme.replace("connect({", "connect({ servers: process.env.NATS_URL,");
  const { line } = await run(t, "readme.mjs", program.replace('"jobs"', '"readme"'));
  assert.equal(await line(), "eve");
});

// The examples of docs/javascript.md run.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { connect } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";
import { Bridge, patience, start } from "./bridge.mjs";

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
  await symlink(dirname(process.env.PQBRIDGE), join(dir, "bin"));
});
after(async () => {
  await bridge.stop();
  await rm(dir, { recursive: true });
});

// Runs a program, and returns it with the lines that it prints.
async function run(t, name, program, env = { ...process.env, NATS_URL: bridge.url }) {
  const path = join(dir, name);
  await writeFile(path, program);
  const child = spawn(process.execPath, [path], { env, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  t.after(() => child.kill("SIGKILL"));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return { child, ended, line: async () => (await lines.next()).value };
}

const walk = /\n## A worker that survives a kill\n(.*?)\n## /s.exec(text)[1];

test("the blocks of the walk, pasted into one shell, print what the page says", async (t) => {
  for (const name of ["worker.js", "producer.js"]) await writeFile(join(dir, name), named(name));
  const env = { ...process.env, NATS_URL: bridge.url, PATH: dirname(process.execPath) + delimiter + process.env.PATH };
  const shell = spawn("bash", { cwd: dir, env, detached: true, stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => {
    try {
      process.kill(-shell.pid, "SIGKILL"); // its programs too
    } catch {} // all have ended
  });
  const lines = createInterface(shell.stdout)[Symbol.asyncIterator]();
  let printed = 0;
  for (const [, kind, block] of walk.matchAll(/```(sh|text)\n(.*?)```/gs)) {
    if (kind === "sh") shell.stdin.write(block);
    else for (const line of block.trim().split("\n")) assert.equal((await lines.next()).value, line, `line ${++printed}`);
  }
  assert.ok(printed >= 9, "does the test still see the blocks?");

  shell.stdin.end("wait $worker; echo it ended with $?\n"); // after a kill with SIGTERM, the last block
  assert.equal((await lines.next()).value, "it ended with 0");
});

test("the login of the page is that of a worker of docs/access.md", async (t) => {
  const [, access] = /```conf\n(.*?)```/s.exec(await readFile(join(root, "../../docs/access.md"), "utf8"));
  await writeFile(join(dir, "nats.conf"), `listen: "127.0.0.1:-1"\n${access}`);
  const secrets = Object.fromEntries([...access.matchAll(/\$(\w+_PASSWORD)/g)].map(([, name]) => [name, "secret"]));
  const env = { ...process.env, ...secrets };
  const begin = (command, ...args) => {
    const child = start("sh", ["-c", `exec ${command} 2>&1`, "sh", ...args], env);
    t.after(() => child.stdin.end());
    return child;
  };
  const nats = begin('"$NATS_SERVER" -c "$1"', join(dir, "nats.conf"));
  for await (const line of createInterface(nats.stdout)) {
    if ((env.NATS_URL = /Listening for client connections on (\S+)/.exec(line)?.[1])) break;
  }
  nats.stdout.resume();
  Object.assign(env, { PQ_NATS_URL: env.NATS_URL, PQ_NATS_USER: "bridge", PQ_NATS_PASSWORD: "secret" });
  Object.assign(env, { PQ_DATA_DIR: join(dir, "data"), PQ_HTTP_ADDR: "off", PQ_LOG_LEVEL: "error" });
  begin('"$PQBRIDGE"').stdout.resume();
  const nc = await connect({ servers: env.NATS_URL, user: "admin", pass: "secret" });
  t.after(() => nc.close());
  await new pq.Client(nc, { timeout: patience }).priorityQueue("jobs").push("for the worker");

  const working = `
    import { Worker } from "@pqbridge/client";
    const worker = new Worker(jobs, (job) => console.log(job.json()));
    process.once("SIGTERM", () => worker.close());
    await worker.run();
    await nc.close();`;
  const { child, ended, line } = await run(t, "login.mjs", named("login.js") + working, env);

  assert.equal(await line(), "for the worker");
  child.kill("SIGTERM");
  assert.equal(await ended, 0);
});

// Each example with what the page says is there: a client, and a queue of its own. In that, a worker does what is called.
function runnable(snippet, n) {
  const own = imported(snippet).filter((name) => name !== "assert");
  return `{
    const { ${["Client", ...own.filter((name) => name !== "Client")].join(", ")} } = pq;
    const jobs = client.priorityQueue("example-${n}");
    const helper = new pq.Worker(jobs, () => "sent");
    ${snippet.includes(".call(") ? "void helper.run();" : ""}
    {
      ${snippet.replaceAll(imports, "")}
      ${snippet.includes("tracedWorker") ? traced : ""}
    }
    await helper.close();
  }`;
}

const traced = `
  const running = tracedWorker.run();
  await jobs.call("traced", { headers: { traceparent: "parent" } });
  await tracedWorker.close();
  await running;
  assert.deepEqual(spans, [["example-" + jobs.name.split("-")[1] + " ", "parent"]]);
`;

function imported(snippet) {
  const used = [...snippet.matchAll(imports)].filter(([, , from]) => from === "@pqbridge/client");
  return used.flatMap(([, names]) => names.match(/\w+/g));
}

test("the other examples run", async (t) => {
  const snippets = blocks.filter((block) => !block.startsWith("// "));
  assert.ok(snippets.length >= 17, "does the test still see the examples?");
  for (const name of snippets.flatMap(imported)) assert.ok(name in pq, name);
  const program = `
    import assert from "node:assert/strict";
    import { connect } from "@nats-io/transport-node";
    import * as pq from "@pqbridge/client";
    const { connectOptions } = pq;
    const spans = [];
    const span = { recordException() {}, end() {} };
    const trace = { getTracer: () => ({ startActiveSpan: (name, _, parent, f) => (spans.push([name, parent]), f(span)) }) };
    const context = { active: () => "active" };
    const propagation = { extract: (_, headers, getter) => getter.get(headers, "traceparent") };
    const nc = await connect({ servers: process.env.NATS_URL });
    const client = new pq.Client(nc);
    ${snippets.map(runnable).join("\n").replaceAll(", connectOptions }", " }")}
    console.log("ran");
    await nc.close();
  `;
  const { line, ended } = await run(t, "snippets.mjs", program);
  let last;
  for (let next; (next = await line()) !== undefined; ) last = next;
  assert.equal(await ended, 0);
  assert.equal(last, "ran");
});

test("the README of the project shows the same worker", async () => {
  assert.ok((await readFile(join(root, "../../README.md"), "utf8")).includes(readme));
});

test("the worker of the README does its job, and ends at SIGTERM", async (t) => {
  const { child, ended, line } = await run(t, "readme.mjs", readme.replace('"jobs"', '"readme"'));
  assert.equal(await line(), "eve");
  child.kill("SIGTERM");
  assert.equal(await ended, 0);
});

test("a connection as the page makes it is at another server a minute after its own has frozen", () => {
  const { pingInterval, maxPingOut, timeout, reconnectTimeWait } = pq.connectOptions;
  const again = timeout; // nats.js tries the frozen one first, which accepts connections and says nothing
  assert.ok(pingInterval * (maxPingOut + 1) + again + reconnectTimeWait <= 60_000);
});

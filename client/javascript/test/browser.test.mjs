// The client in Chromium, over WebSocket, bundled as programs for browsers are.
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { build } from "esbuild";
import { start } from "./bridge.mjs";

const { env } = process;
const names = env.PQ_TEST_CHROMIUM ? [env.PQ_TEST_CHROMIUM] : ["chromium", "chromium-browser", "google-chrome"];
const paths = env.PATH.split(delimiter).flatMap((dir) => names.map((name) => resolve(dir, name)));
const chromium = paths.find(existsSync);
const skip = !chromium && "needs Chromium: install it, or name it in PQ_TEST_CHROMIUM";

// What the page does; it tells the test by a request.
const program = `
  import { wsconnect } from "@nats-io/nats-core";
  import { Client, Worker } from "@pqbridge/client";

  async function main() {
    const nc = await wsconnect({ servers: new URLSearchParams(location.search).get("nats") });
    const jobs = new Client(nc, { timeout: "1m" }).priorityQueue("jobs");
    await jobs.push("last", { priority: 9 });
    const outcomes = await jobs.pushMany([{ value: "second", priority: 2 }, { value: "first", priority: 1n }]);
    const first = await jobs.pop();
    const second = await jobs.lease();
    await second.ack();
    const [last] = await jobs.popBatch(5);

    const worker = new Worker(jobs, (job) => "hello " + job.json());
    const ended = worker.run();
    const answer = await jobs.call("eve", { wait: "1m" });
    await worker.close();
    await ended;
    await nc.close();
    return [isSecureContext, outcomes.length, first.json(), second.json(), last.json(), answer];
  }

  main().catch((err) => err.stack).then((body) => fetch("/done", { method: "POST", body: JSON.stringify(body) }));
`;

// A page without https has less of the web's interfaces, unless it is of this machine.
for (const [host, secure] of [["127.0.0.1", true], ["page.test", false]]) {
  test(`queues and a worker work in Chromium over WebSocket, in a page of ${host}`, { skip }, (t) => run(t, host, secure));
}

async function run(t, host, secure) {
  const dir = await mkdtemp(join(tmpdir(), "pqbridge-browser-"));
  t.after(() => rm(dir, { recursive: true, force: true, maxRetries: 10 }));
  // Runs a program until the test ends, with what it logs in its standard output.
  const begin = (program, args, env) => {
    const child = start("sh", ["-c", 'exec "$0" "$@" 2>&1', program, ...args], env);
    t.after(async () => {
      child.stdin.end();
      if (child.exitCode === null) await once(child, "exit");
    });
    return child;
  };

  assert.ok(env.NATS_SERVER, "NATS_SERVER is not set: want the path of nats-server, as make test-javascript has it");
  const config = join(dir, "nats.conf");
  await writeFile(config, 'listen: "127.0.0.1:-1", websocket { listen: "127.0.0.1:-1", no_tls: true }');
  const nats = begin(env.NATS_SERVER, ["-c", config]);
  const urls = {};
  for await (const line of createInterface(nats.stdout)) {
    const listens = /Listening for (client|websocket) \w+ on (?:ws:\/\/)?(\S+)/.exec(line);
    if (listens) urls[listens[1]] = listens[2];
    if (urls.client && urls.websocket) break;
  }
  assert.ok(urls.websocket, "the NATS server did not start");
  nats.stdout.resume();
  const options = { PQ_NATS_URL: `nats://${urls.client}`, PQ_DATA_DIR: join(dir, "data"), PQ_HTTP_ADDR: "off", PQ_LOG_LEVEL: "error" };
  begin(env.PQBRIDGE, [], { ...env, ...options }).stdout.resume();

  const stdin = { contents: program, resolveDir: new URL(".", import.meta.url).pathname };
  const bundle = await build({ stdin, bundle: true, write: false, format: "esm", target: "es2022" });
  let done;
  const answered = new Promise((resolve) => (done = resolve));
  const pages = createServer(async (request, response) => {
    if (request.method === "POST") done(JSON.parse(await text(request)));
    const script = request.url === "/page.js";
    response.setHeader("Content-Type", script ? "text/javascript" : "text/html");
    response.end(script ? bundle.outputFiles[0].text : "<script type=module src=/page.js></script>");
  });
  await once(pages.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    pages.closeAllConnections();
    pages.close();
  });

  const page = `http://${host}:${pages.address().port}/?nats=ws://${urls.websocket}`;
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP page.test 127.0.0.1", `--user-data-dir=${join(dir, "profile")}`];
  begin(chromium, [...flags, page]).stdout.resume();

  assert.deepEqual(await answered, [secure, 2, "first", "second", "last", "hello eve"]);
}

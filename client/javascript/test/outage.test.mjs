import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ClosedConnectionError } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";
import { Bridge } from "./bridge.mjs";

let bridge;
before(async () => (bridge = await Bridge.start()));
after(() => bridge.stop());

test("a worker, a push and a wait outlast the bridge and NATS", async (t) => {
  const client = await bridge.client({ timeout: "2m" });
  const jobs = client.priorityQueue("jobs");
  const began = [];
  let release;
  const held = new Promise((resolve) => (release = resolve));
  const worker = new pq.Worker(jobs, async (job) => {
    began.push(job.json());
    if (job.json() === "first") await held;
    return began.length;
  }, { concurrency: 2 });
  const running = worker.run();
  t.after(() => worker.close());
  const calls = [jobs.call("first", { wait: "2m" })];
  while (began.length === 0) await new Promise((resolve) => setTimeout(resolve, 10));

  await bridge.kill();
  release(); // its acknowledgement has nobody to answer it
  calls.push(jobs.call("second", { wait: "2m" }));
  await bridge.restart();

  assert.equal((await Promise.all(calls)).length, 2);
  await worker.close();
  await running;
  assert.deepEqual(began.sort(), ["first", "second"]);
});

test("nothing is sent once the connection is closed", async () => {
  const nc = await bridge.connect();
  const jobs = new pq.Client(nc).priorityQueue("closed");
  const worker = new pq.Worker(jobs, () => 1);
  const running = worker.run();
  await jobs.len();
  await nc.close();

  await assert.rejects(running, (err) => err instanceof pq.PQError && err.cause instanceof ClosedConnectionError);
  await assert.rejects(jobs.push("x"), pq.NotSentError);
});

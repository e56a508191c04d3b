import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import * as pq from "../dist/index.js";
import { Bridge } from "./bridge.mjs";

let bridge;
let client;
let queues = 0;

before(async () => {
  bridge = await Bridge.start();
  client = await bridge.client();
});
after(() => bridge.stop());

const queue = () => client.priorityQueue(`work-${++queues}`);

// Runs a worker until the test ends.
function work(t, jobs, handler, options) {
  const worker = new pq.Worker(jobs, handler, options);
  const ended = worker.run();
  t.after(async () => {
    await worker.close();
    await ended;
  });
  return worker;
}

// Resolves with the first argument of a call.
function event() {
  let happened;
  const promise = new Promise((resolve) => (happened = resolve));
  return { promise, happened };
}

test("a call returns what the handler returned", async (t) => {
  const jobs = queue();
  work(t, jobs, { greet: (job) => ({ text: `hello ${job.json().name}` }), "*": () => Buffer.from("bytes") }, { concurrency: 3 });

  assert.deepEqual(await jobs.call({ name: "eve" }, { type: "greet", wait: "1m" }), { text: "hello eve" });
  assert.deepEqual(Buffer.from(await jobs.call(1, { wait: "1m" })), Buffer.from("bytes"));
});

test("a job that fails comes back after the backoff, and dies with its reason", async (t) => {
  const jobs = queue();
  await jobs.configure({ maxDeliver: 2, backoff: ["1ms"] });
  const tries = [];
  work(t, jobs, (job) => {
    tries.push([job.deliveries, job.lastTry]);
    throw new Error("disk full");
  });

  await assert.rejects(jobs.call("x", { wait: "1m" }), (err) => {
    assert.ok(err instanceof pq.JobFailedError);
    assert.deepEqual([err.reason, err.error, err.deliveries], ["max_deliver", "disk full", 2]);
    return true;
  });
  assert.deepEqual(tries, [[1, false], [2, true]]);
});

test("all jobs are done once by many loops", async (t) => {
  const jobs = queue();
  const outcomes = await jobs.pushMany(Array.from({ length: 3000 }, (_, i) => ({ value: i, priority: i })));
  assert.ok(outcomes.every((o) => !o.error));
  const done = new Set();
  const all = event();
  work(t, jobs, (job) => {
    assert.ok(!done.has(job.json()));
    done.add(job.json());
    if (done.size === 3000) all.happened();
  }, { concurrency: 64 });

  await all.promise;
});

test("close gives a job back uncounted", async (t) => {
  const jobs = queue();
  await jobs.push("x");
  const begun = event();
  const worker = new pq.Worker(jobs, async (job, { signal }) => {
    begun.happened();
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    signal.throwIfAborted();
  });
  const ended = worker.run();
  await begun.promise;

  await worker.close({ timeout: 0 });
  await ended;

  const delivery = await jobs.lease();
  assert.equal(delivery.deliveries, 1);
});

test("a lost lease ends the signal, and nothing is sent", async (t) => {
  const jobs = queue();
  const { id } = await jobs.push("x");
  const lost = event();
  work(t, jobs, async (job, { signal }) => {
    if (job.deliveries > 1) return;
    await jobs.remove(id);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    lost.happened(signal.reason);
  }, { ackWait: 100 });

  assert.ok((await lost.promise) instanceof pq.LeaseLostError);
});

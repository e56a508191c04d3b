// Leases of a worker by a clock that the tests move, without a bridge.
import assert from "node:assert/strict";
import { test } from "node:test";
import { json, LeaseLostError, UnavailableError, Worker } from "../dist/index.js";
import { milliseconds } from "../dist/duration.js";
import { receive } from "../dist/item.js";
import { Lease, Leases } from "../dist/lease.js";
import { Reporter } from "../dist/reporter.js";

// A lease whose job is being done. Its requests are answered by `reply`, which may throw.
function leased(t, { ackWait = "1s", reply = () => undefined } = {}) {
  let now = 0;
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.mock.method(performance, "now", () => now);
  const requests = [];
  const logged = [];
  const connection = {
    ready: () => new Promise(() => undefined),
    async request(request, ms) {
      requests.push({ text: new TextDecoder().decode(request.payload), at: now, ms });
      return reply();
    },
  };
  const queue = { name: "jobs", fifo: false, fetchOf: () => ({}), client: { codec: json, timeout: 10_000, connection } };
  const log = (text) => logged.push(text);
  const logger = { warn: log, error: log };
  const worker = new Worker(queue, () => undefined, { ackWait, logger });
  const leases = new Leases(queue, new Reporter("jobs", logger), milliseconds(ackWait));
  const lease = new Lease(leases, receive([["Pq-Id", "1"]], new Uint8Array(), "pq.jobs.ack.token"), 0);
  lease.begin(0);

  // Moves the clock, and the timers after it: later ones run late.
  const pass = async (ms, timers = ms) => {
    now += ms;
    t.mock.timers.tick(timers);
    await new Promise(setImmediate);
  };
  return { lease, worker, pass, requests, logged };
}

test("progress is sent at most once a second, the latest one", async (t) => {
  const { lease, pass, requests } = leased(t, { ackWait: "1m" });
  for (let i = 1; i <= 400; i++) {
    lease.job.progress(i);
    await pass(10);
  }
  await pass(1000);

  assert.deepEqual(requests.map(({ text, at }) => [text, at]), [["1", 10], ["101", 1010], ["201", 2010], ["301", 3010], ["400", 5000]]);
});

test("a renewal that comes too late waits a second for its reply", async (t) => {
  const { pass, requests } = leased(t);
  await pass(333, 0);
  await pass(667 + 200, 334);

  assert.deepEqual(requests.map(({ ms }) => ms), [1000]);
});

test("a blocked event loop is told from an outage of NATS", async (t) => {
  let fails = true;
  const { lease, pass, logged } = leased(t, { reply() {
    if (fails) throw new UnavailableError("no bridge");
  } });
  for (let i = 0; i < 60; i++) await pass(15);
  fails = false;
  await pass(50);
  assert.deepEqual(logged, ["cannot extend a lease, trying again"]);
  assert.ok(!lease.signal.aborted);

  await pass(1000, 400);
  assert.match(logged.at(-1), /blocks the event loop/);
});

test("a renewal that fails is logged once a minute", async (t) => {
  let n = 0;
  const { pass, logged } = leased(t, { reply() {
    if (n++ % 2 === 0) throw new UnavailableError("no bridge");
  } });
  for (let i = 0; i < 1300; i++) await pass(50);

  assert.deepEqual(logged, Array(2).fill("cannot extend a lease, trying again"));
});

test("a lease that is lost is logged each time", async (t) => {
  const { lease, pass, logged } = leased(t, { reply() {
    throw new LeaseLostError("gone", { code: 409 });
  } });
  await pass(400);

  assert.match(logged[0], /^lost the lease/);
  assert.ok(lease.signal.reason instanceof LeaseLostError);
});

test("a worker settles jobs for the grace that was asked, 25 seconds without, and five more", async (t) => {
  const { worker, pass } = leased(t);
  const ended = assert.rejects(worker.run(), /no permission/);

  worker.end(new Error("no permission"));
  assert.equal(worker.settler.deadline, 30_000);
  const closed = [worker.close({ timeout: "10m" })];
  assert.equal(worker.settler.deadline, 605_000);
  closed.push(worker.close({ timeout: "1s" }));
  assert.equal(worker.settler.deadline, 6000);
  closed.push(worker.close({ timeout: "1h" }));
  assert.equal(worker.settler.deadline, 6000);

  for (const ms of [1000, 5000]) await pass(ms);
  await Promise.all([...closed, ended]);
});

test("an attempt to settle a job lasts no longer than its worker settles jobs", async (t) => {
  for (const settle of [
    (settler, lease) => settler.release(lease),
    (settler, lease) => settler.settleFailed(lease, { outcome: "failed", reason: "boom" }),
    (settler, lease) => settler.settleFailed(lease, { outcome: "snoozed", delay: 0 }),
    (settler, lease) => settler.settleFailed(lease, { outcome: "dropped", reason: "boom" }),
  ]) {
    const { lease, worker, requests } = leased(t);
    await settle(worker.settler, lease);
    worker.settler.deadline = 300;
    await settle(worker.settler, lease);

    assert.deepEqual(requests.map(({ ms }) => ms), [5000, 300]);
    t.mock.restoreAll();
    t.mock.timers.reset();
  }
});

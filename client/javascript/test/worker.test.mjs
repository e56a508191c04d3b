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
  const worker = new pq.Worker(jobs, handler, { logger: null, ...options });
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
    assert.deepEqual([err.reason, err.cause, err.deliveries], ["max_deliver", "disk full", 2]);
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
  work(t, jobs, async (_, { signal }) => {
    await jobs.remove(id);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    lost.happened(signal.reason);
  }, { ackWait: 300 });

  assert.ok((await lost.promise) instanceof pq.LeaseLostError);
});

test("a handler that blocks the event loop longer than its lease costs no delivery if nobody else comes, and is logged", async (t) => {
  const jobs = queue();
  const warned = event();
  const logger = { warn: (text) => /blocks the event loop/.test(text) && warned.happened(), error() {} };
  work(t, jobs, async (job) => {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400);
    await new Promise((resolve) => setTimeout(resolve, 0));
    return job.deliveries;
  }, { ackWait: 200, logger });

  assert.equal(await jobs.call("x", { wait: "2m" }), 1);
  await warned.promise;
});

test("successors and results go with the acknowledgement, and what is refused fails the job", async (t) => {
  const [jobs, mail] = [queue(), queue()];
  await jobs.configure({ next: [mail.name], maxDeliver: 1 });
  work(t, jobs, {
    chain: (job) => {
      job.next(mail.name, { order: job.id }, { priority: 3, type: "mail" });
      return new Uint8Array([1, 2]);
    },
    stranger: (job) => job.next("stranger", 1),
    large: () => new Uint8Array(70_000),
    odd: () => 5n,
  });

  const { id } = await jobs.push("x", { type: "chain", keep: "1h" });
  const result = await jobs.result(id, { wait: "2m" });
  assert.deepEqual([result.state, result.value], ["done", new Uint8Array([1, 2])]);
  const item = await mail.pop();
  assert.deepEqual([item.json(), item.priority, item.type], [{ order: id }, 3, "mail"]);

  for (const [type, reason] of [["stranger", /refused/], ["large", /refused/], ["odd", /cannot be encoded/]]) {
    await assert.rejects(jobs.call("x", { type, wait: "2m" }), (err) => err instanceof pq.JobFailedError && reason.test(err.cause));
  }
});

test("hooks that throw end nothing", async (t) => {
  const jobs = queue();
  const seen = [];
  const fail = (name) => (job) => {
    seen.push(`${name} ${job.string()}`);
    throw new Error("a bad hook");
  };
  const on = { completed: fail("completed"), failed: async (job) => fail("failed")(job) };
  work(t, jobs, (job) => {
    if (job.json() === 1) throw new pq.Drop("no");
  }, { on });

  for (const n of [1, 2]) await jobs.call(n, { wait: "2m" }).catch(() => undefined);
  await jobs.call(3, { wait: "2m" });
  assert.deepEqual(seen.slice(0, 2), ["failed 1", "completed 2"]);
});

test("the cause of a death is one member, for Drop and for the last delivery alike", async (t) => {
  const jobs = queue();
  await jobs.configure({ maxDeliver: 2, backoff: ["1ms"] });
  work(t, jobs, (job) => {
    if (job.json() === "drop" && job.lastTry) throw new pq.Drop("no address");
    throw new Error("disk full");
  });

  for (const [value, cause] of [["drop", "no address"], ["fail", "disk full"]]) {
    const { id } = await jobs.push(value);
    const result = await jobs.result(id, { wait: "2m" });
    assert.deepEqual([result.state, result.cause, result.error.cause], ["dead", cause, cause]);
    assert.match(result.error.message, new RegExp(`failed after 2 deliveries: ${cause}$`));
  }
});

test("a call whose time is over has the id of its job, which goes on", async (t) => {
  const jobs = queue();
  const err = await jobs.call("x", { wait: "10ms" }).catch((err) => err);
  assert.ok(err instanceof pq.NotDoneError, String(err));

  work(t, jobs, () => "late");

  assert.equal((await jobs.result(err.id, { wait: "2m" })).decode(), "late");
});

test("a worker outlives what handlers may throw", async (t) => {
  const jobs = queue();
  await jobs.configure({ maxDeliver: 1 });
  const odd = new Proxy({}, { getPrototypeOf() { throw 2; } });
  const values = [null, undefined, odd, Object.create(null), { toString() { throw 1; } }];
  work(t, jobs, (job) => {
    if (job.json() < values.length) throw values[job.json()];
    return "alive";
  }, { on: { failed: (_, outcome) => { throw outcome.error; } } });

  for (const i of values.keys()) await assert.rejects(jobs.call(i, { wait: "2m" }), pq.JobFailedError);
  assert.equal(await jobs.call(values.length, { wait: "2m" }), "alive");
});

test("a handler that awaits close fails at once, and the worker ends", async () => {
  const jobs = queue();
  await jobs.configure({ maxDeliver: 1 });
  const { id } = await jobs.push("x");
  const worker = new pq.Worker(jobs, async () => {
    await new Promise(setImmediate);
    await worker.close();
  }, { logger: null });

  await worker.run();

  assert.match((await jobs.result(id)).cause, /BadRequestError: close would wait for the handler/);
});

test("a handler may close its worker without await, and a hook may await it", async () => {
  for (const inHook of [false, true]) {
    const jobs = queue();
    const { id } = await jobs.push("x", { keep: "1h" });
    const closed = event();
    const close = async () => closed.happened(await worker.close().catch((err) => err));
    const worker = new pq.Worker(jobs, () => {
      if (!inHook) void worker.close();
      return "done";
    }, { logger: null, on: { completed: inHook ? close : undefined } });

    await worker.run();

    assert.equal((await jobs.result(id)).decode(), "done");
    if (inHook) assert.equal(await closed.promise, undefined);
  }
});

test("a worker that is closed before it runs returns at once, and runs no more", async () => {
  const worker = new pq.Worker(queue(), () => 0, { logger: null });
  await worker.close();
  await worker.run();
  await assert.rejects(worker.run(), /this worker has run before/);
});

test("a handler may use its buffer again after next and progress", async () => {
  const [jobs, mail] = [queue(), queue()];
  await jobs.configure({ next: [mail.name] });
  await jobs.push("x");
  const worker = new pq.Worker(jobs, (job) => {
    const buffer = Buffer.alloc(1);
    for (buffer[0] = 1; buffer[0] <= 3; buffer[0]++) job.next(mail.name, buffer);
  }, { logger: null, on: { completed: () => worker.close() } });

  await worker.run();

  assert.deepEqual((await mail.popBatch(3)).map((item) => item.value[0]), [1, 2, 3]);
});

test("a listener that is removed and added again as it is called is called once", async () => {
  const jobs = queue();
  await jobs.push("x");
  let calls = 0;
  const listener = () => {
    if (++calls < 10) worker.off("completed", listener).on("completed", listener);
    void worker.close();
  };
  const worker = new pq.Worker(jobs, () => 0, { logger: null }).on("completed", listener);

  await worker.run();

  assert.equal(calls, 1);
});

test("a logger may be async and fail", async () => {
  const jobs = queue();
  await jobs.configure({ maxDeliver: 1 });
  await jobs.push("x");
  let heard = false;
  const warn = () => ({
    then(_, reject) {
      heard = true;
      reject(new Error("the disk of the logs is full"));
    },
  });
  const worker = new pq.Worker(jobs, () => { throw new Error("x"); }, { logger: { warn, error: warn }, on: { failed: () => worker.close() } });

  await worker.run();

  assert.ok(heard, "a rejection that nobody hears ends the process");
});

test("listeners are added and removed while the worker runs", async (t) => {
  const jobs = queue();
  const seen = [];
  const listener = (name) => (_, result) => seen.push([name, result]);
  const [first, second, third] = ["first", "second", "third"].map(listener);
  const worker = work(t, jobs, (job) => job.json(), { on: { completed: first } });

  worker.on("completed", second).on("completed", second).on("completed", third).off("completed", third);
  await jobs.call(1, { wait: "2m" });
  worker.off("completed", first);
  await jobs.call(2, { wait: "2m" });

  await worker.close();
  assert.deepEqual(seen, [["first", 1], ["second", 1], ["second", 2]]);
  for (const [name, wrong] of [["complete", first], ["completed", "text"], ["completed", function* () {}]]) {
    assert.throws(() => worker.on(name, wrong), pq.BadRequestError);
  }
});

test("a worker logs to the console each job that fails or is dropped, unless logger is null", async (t) => {
  const warned = t.mock.method(console, "warn", () => undefined).mock;
  for (const logger of [null, undefined]) {
    const jobs = queue();
    await jobs.configure({ maxDeliver: 1 });
    work(t, jobs, {
      fail() { throw new Error("disk full"); },
      drop() { throw new pq.Drop("no address"); },
    }, { logger });
    for (const type of ["fail", "drop", "unknown"]) await jobs.call("x", { type, wait: "2m" }).catch(() => undefined);
    if (logger === null) assert.equal(warned.callCount(), 0);
  }

  // The call may learn of the end of its job before the worker does.
  while (warned.callCount() < 3) await new Promise(setImmediate);
  assert.deepEqual(warned.calls.map((call) => call.arguments[0]), ["a job failed", "dropped a job", "a job failed"]);
  assert.match(warned.calls[2].arguments[1].error.message, /nobody handles jobs of type "unknown"/);
});

test("an option of a worker that is undefined is as if absent", async () => {
  const members = ["concurrency", "ackWait", "holder", "jobTimeout", "retryDelay", "max", "middleware", "logger", "on"];
  const jobs = queue();
  const done = event();
  const worker = new pq.Worker(jobs, (job) => {
    job.next("none", 1, { priority: undefined, delay: undefined, headers: undefined, group: undefined });
    done.happened();
    throw new pq.Snooze("1h");
  }, Object.fromEntries(members.map((name) => [name, undefined])));
  const ended = worker.run();
  await jobs.push("x");
  await done.promise;

  await worker.close({ timeout: undefined });
  await ended;
});

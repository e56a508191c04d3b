// Jobs that run when others have ended.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inspect } from "node:util";
import * as pq from "../dist/index.js";
import { ackRequest, successorFrame } from "../dist/delivery.js";
import { parseFrames } from "../dist/headers.js";
import { Bridge } from "./bridge.mjs";

let bridge;
let client;
let queues = 0;
const queue = () => client.priorityQueue(`joins-${++queues}`);

before(async () => {
  bridge = await Bridge.start();
  client = await bridge.client();
});
after(() => bridge.stop());

// The next job of a queue. It waits for it.
const next = (jobs) => jobs.lease({ expires: "2m" });

// Members that are served before their joiner.
const members = (...values) => values.map((value) => ({ value, priority: -1 }));

test("a joiner runs after its members, and says what became of them", async () => {
  const jobs = queue();
  const [joiner, ...pushed] = await jobs.all({ value: "report" }, members("a", "b", "c"));
  await jobs.remove(pushed[2].id);
  const [a, b] = await jobs.leaseBatch(3);

  await a.ack();
  assert.equal((await jobs.get(joiner.id)).state, "delayed");
  await b.term("no address");

  const report = await next(jobs);
  assert.equal(report.id, joiner.id);
  assert.deepEqual(report.joined, { done: 1, dead: 1, gone: 1, open: 0 });
  for (const member of [a, b]) assert.deepEqual(member.joiner, { queue: jobs.name, id: joiner.id });
});

test("an item that is neither a joiner nor a member says so", async () => {
  const jobs = queue();
  await jobs.push("x");

  const item = await jobs.pop();

  assert.deepEqual([item.joined, item.joiner], [undefined, undefined]);
  assert.doesNotMatch(inspect(item), /join/);
});

test("a joiner without members runs at once", async () => {
  const jobs = queue();
  const [{ id }] = await jobs.all({ value: "report" }, []);
  assert.equal((await next(jobs)).id, id);
});

test("all with message ids changes nothing when it is called again", async () => {
  const jobs = queue();
  const call = () => jobs.all({ value: "report", msgId: "r" }, [{ value: "a", priority: -1, msgId: "a" }]);
  const first = await call();

  const again = await call();

  assert.deepEqual(again, first.map((p) => ({ ...p, duplicate: true })));
  await (await next(jobs)).ack();
  assert.equal((await next(jobs)).joined.done, 1);
});

test("items and get say alike what has been joined", async () => {
  const jobs = queue();
  const [joiner, member] = await jobs.all({ value: "report", join: "1h" }, [{ value: "a", priority: -1, keep: "1h" }]);
  await (await next(jobs)).ack();
  await (await next(jobs)).nak();

  const { value: report } = await jobs.items().next();
  const { value: done } = await jobs.items({ state: "done", headers: { "Pq-Joiner": `${jobs.name} ${joiner.id}` } }).next();

  assert.deepEqual(report.joined, (await jobs.get(joiner.id)).joined);
  assert.equal(report.joined.done, 1);
  assert.deepEqual([done.id, done.joiner], [member.id, { queue: jobs.name, id: joiner.id }]);
  assert.equal(report.headers.get("Pq-Join"), (await jobs.get(joiner.id)).headers.get("Pq-Join"));
});

test("a member pushes further members, and the joiner waits for them too", async () => {
  const [jobs, pages] = [queue(), queue()];
  await pages.configure({ next: [jobs.name] });
  await jobs.all({ value: "report" }, members("first page"));
  const producer = await next(jobs);

  await pages.push("second page", { joiner: producer.joiner });
  await producer.ack();

  assert.equal(await jobs.lease(), null);
  await (await next(pages)).ack();
  assert.equal((await next(jobs)).joined.done, 2);
});

test("a joiner whose time is over says how many members are open", async () => {
  const jobs = queue();
  await jobs.all({ value: "report", join: "1s" }, [{ value: "slow", delay: "1h" }]);

  const report = await next(jobs);

  assert.deepEqual(report.joined, { done: 0, dead: 0, gone: 0, open: 1 });
});

test("a push to a joiner that does not wait is refused, and pushMany finds the item at fault", async () => {
  const jobs = queue();
  const [{ id }] = await jobs.all({ value: "report" }, []);
  const joiner = { queue: jobs.name, id };
  await (await next(jobs)).ack();

  await assert.rejects(jobs.push("late", { joiner }), (err) => {
    assert.ok(err instanceof pq.JoinedError && !(err instanceof pq.LeaseLostError), String(err));
    assert.deepEqual([err.code, err.reason], [409, "joined"]);
    return true;
  });
  const outcomes = await jobs.pushMany([{ value: 1 }, { value: 2 }, { value: 3, joiner }, { value: 4 }]);
  const errors = outcomes.map((o) => o.error?.name);
  assert.deepEqual(errors, [undefined, undefined, "JoinedError", "NotSentError"]);
});

test("a joiner that waits does not move", async () => {
  const jobs = queue();
  const [{ id }] = await jobs.all({ value: "report" }, members("a"));

  await assert.rejects(jobs.move(id, 3), pq.JoinsError);
  const [{ error }] = await jobs.moveIds([id], 3);

  assert.ok(error instanceof pq.JoinsError, String(error));
});

test("an open joiner waits for members until it is closed", async () => {
  const jobs = queue();
  const open = await jobs.openJoin("1h", "report", { priority: 5, type: "report" });
  await jobs.push("late", { joiner: open });
  await (await next(jobs)).ack();
  assert.equal(await jobs.lease(), null);

  await open.close();

  const report = await next(jobs);
  assert.deepEqual([report.id, report.priority, report.type], [open.id, 5, "report"]);
  assert.deepEqual(report.joined, { done: 1, dead: 0, gone: 1, open: 0 });
  await open.close(); // again
});

test("a joiner is open no longer than asked if its program dies", async () => {
  const jobs = queue();
  const { id } = await jobs.openJoin("1h", "report");

  const guards = [];
  for await (const item of jobs.items({ state: "delayed" })) if (item.id !== id) guards.push(item);

  assert.equal(guards.length, 1);
  assert.deepEqual([guards[0].joiner, guards[0].size], [{ queue: jobs.name, id }, 0]);
  assert.ok(Math.abs(guards[0].expires - Date.now() - 3_600_000) < 600_000, String(guards[0].expires));
});

test("a joiner reads what its members returned", async () => {
  const jobs = queue();
  await jobs.all({ value: "another" }, [{ value: "other", priority: -1, keep: "1h" }]);
  await jobs.all({ value: "report", priority: -2 }, [{ value: "a", priority: -3, keep: "1h" }]);
  await (await next(jobs)).ack(new Uint8Array(3000));

  const report = await next(jobs);
  const headers = { "Pq-Joiner": `${report.queue} ${report.id}` };
  const results = [];
  for (const valueBytes of [undefined, 65536]) {
    for await (const { result, resultCut = false } of jobs.items({ state: "done", headers, valueBytes })) {
      results.push([result.length, resultCut]);
    }
  }

  assert.deepEqual(results, [[1024, true], [3000, false]]);
});

test("to close a join that is not open any more is no error", async () => {
  const jobs = queue();
  const open = await jobs.openJoin("1s", "report");
  await next(jobs);

  await open.close();
});

test("openJoin with a message id changes nothing when it is called again", async () => {
  const jobs = queue();
  const first = await jobs.openJoin("1h", "report", { msgId: "r" });

  const again = await jobs.openJoin("1h", "report", { msgId: "r" });

  assert.equal(again.id, first.id);
  await again.close();
  assert.equal((await next(jobs)).joined.gone, 1);
});

test("openJoin without a message id has none for its member either", async () => {
  const jobs = queue();
  const open = await jobs.openJoin("1h", "report", { msgId: false });
  await open.close();
  assert.equal((await next(jobs)).id, open.id);
});

test("a member may be a joiner of members in the same list", async () => {
  const jobs = queue();
  const [book, chapter] = await jobs.all({ value: "book" }, [
    { value: "chapter", join: "1h", priority: -1 },
    { value: "page", joiner: 1, priority: -1 },
  ]);

  for (const want of ["page", "chapter"]) {
    const member = await next(jobs);
    assert.equal(member.json(), want);
    assert.equal(member.joiner.id, { page: chapter, chapter: book }[want].id);
    await member.ack();
  }

  assert.equal((await next(jobs)).id, book.id);
});

test("what a push returns names a joiner", async () => {
  const jobs = queue();
  const [joiner] = await jobs.all({ value: "report" }, members("a"));

  await jobs.push("b", { joiner, priority: -1 });

  for (const member of await jobs.leaseBatch(2)) await member.ack();
  assert.equal((await next(jobs)).joined.done, 2);
});

test("FIFO queues have joins", async () => {
  const jobs = client.fifoQueue("joins");
  await jobs.all({ value: "report" }, [{ value: "a" }]);
  const member = await next(jobs);
  assert.equal(member.json(), "a");
  await member.ack();
  assert.equal((await next(jobs)).joined.done, 1);
});

test("an acknowledgement pushes a joiner with its members", async () => {
  const [jobs, reports] = [queue(), queue()];
  await jobs.configure({ next: [jobs.name, reports.name] });
  await jobs.push("book");

  await (await next(jobs)).ack("split", {
    next: [
      { queue: reports.name, value: "beside" },
      { queue: reports.name, value: "report", priority: 1, join: "1h" },
      { queue: jobs.name, value: "chapter", joiner: 1 },
    ],
  });

  assert.equal((await next(reports)).json(), "beside");
  const chapter = await next(jobs);
  assert.equal(chapter.joiner.queue, reports.name);
  await chapter.ack();
  const report = await next(reports);
  assert.deepEqual([report.json(), report.id, report.joined.done], ["report", chapter.joiner.id, 1]);
});

test("jobs that share acknowledgements push joiners, and each member has its own", async (t) => {
  const jobs = queue();
  const fans = 50;
  await jobs.configure({ next: [jobs.name] });
  await jobs.pushMany(Array.from({ length: fans }, () => ({ value: "", type: "fan", priority: 9, keep: "1h" })));
  const reports = [];
  let allRan;
  const ran = new Promise((resolve) => (allRan = resolve));
  const handlers = {
    fan(job) {
      job.next(jobs.name, job.id, { type: "part" });
      const joiner = job.next(jobs.name, job.id, { type: "report", join: "1h" });
      for (let i = 0; i < 3; i++) job.next(jobs.name, job.id, { type: "part", joiner });
      return "fanned out";
    },
    part: () => "done",
    report(job) {
      reports.push([job.json(), job.joined]);
      if (reports.length === fans) allRan();
    },
  };
  const worker = new pq.Worker(jobs, handlers, { concurrency: 16, logger: null });
  const ended = worker.run();
  t.after(async () => {
    await worker.close();
    await ended;
  });

  await ran;

  assert.equal(new Set(reports.map(([fan]) => fan)).size, fans);
  for (const [fan, joined] of reports) assert.deepEqual(joined, { done: 3, dead: 0, gone: 0, open: 0 }, fan);
});

// The number of the joiner in each frame of an acknowledgement, for jobs with what they push and return.
function joinersIn(...jobs) {
  const all = jobs.map(([next, result], i) => ({
    delivery: { ackSubject: `pq.jobs.ack.${i}` },
    result: result && { bytes: new TextEncoder().encode(result), contentType: "" },
    successors: next.map((options, n) => successorFrame(pq.json, false, { queue: "q", value: 1, ...options }, n)),
  }));
  const read = () => parseFrames(ackRequest("+ACK", all).payload).map(([headers]) => new Map(headers).get("Pq-Joiner"));
  const joiners = read();
  assert.deepEqual(read(), joiners, "a request that is built again");
  return joiners;
}

test("members name the frame of their joiner, whatever shares the request", () => {
  const fan = [{ join: "1h" }, { joiner: 0 }, {}, { joiner: 0 }];
  const nested = [{}, { join: "1h" }, { joiner: 1, join: "1h" }, { joiner: 2 }];
  const named = [{ joiner: { queue: "q", id: "A" } }];

  assert.deepEqual(joinersIn([fan]), [undefined, "0", undefined, "0"]);
  assert.deepEqual(joinersIn([named, "result"], [fan, "result"], [[]], [nested], [fan]), [
    "q A",
    ...[undefined, "1", undefined, "1"],
    ...[undefined, undefined, "6", "7"],
    ...[undefined, "9", undefined, "9"],
    ...[undefined, undefined], // the results
  ]);
});

test("runHandler shows joiners and members as the handler gave them", async () => {
  const run = await pq.runHandler((job) => {
    job.next("mail", 1);
    const joiner = job.next("reports", 2, { join: "1h" });
    job.next("mail", 3, { joiner });
    return [job.joiner, job.joined];
  }, "x", { headers: { "Pq-Joiner": "reports A", "Pq-Joined": "done=1 dead=2 gone=3 open=4" } });

  assert.deepEqual(run.next.slice(1), [
    { queue: "reports", value: 2, join: "1h" },
    { queue: "mail", value: 3, joiner: 1 },
  ]);
  assert.deepEqual(run.result, [{ queue: "reports", id: "A" }, { done: 1, dead: 2, gone: 3, open: 4 }]);
});

test("joins that cannot be are refused, with what would be right", async () => {
  const jobs = queue();
  const [ref] = await queue().all({ value: 1, join: "1h" }, members("a"));
  const later = (joiner) => async () => successorFrame(pq.json, false, { queue: "q", value: 1, joiner }, 2);
  const cases = [
    [() => jobs.push("x", { join: "1ms" }), /^join: "1ms" is out of bounds: want 1000ms/],
    [() => jobs.push("x", { join: "1h", delay: "1m" }), /a joiner has a delay or expires: want neither/],
    [() => jobs.push("x", { joiner: 0 }), /^joiner: want an object with the queue and the id of one/],
    [() => jobs.push("x", { joiner: "A" }), /^joiner: want an object/],
    [() => jobs.push("x", { joiner: "" }), /^joiner: want an object/],
    [() => jobs.all({ value: 1 }, [{ value: 2, joiner: "" }]), /^joiner: want an object/],
    [() => jobs.push("x", { join: "" }), /^join: "" is not a duration/],
    [() => jobs.push("x", { joiner: { queue: jobs.name, id: "A" } }), /^invalid item id: "A"/],
    [() => jobs.push("x", { joiner: ref }), /a joiner in the queue .*setting next of the queue/],
    [() => jobs.all({ value: 1 }), /^members undefined: want an iterable/],
    [() => jobs.all({ value: 1 }, { value: 2 }), /^members {"value":2}: want an iterable/],
    [() => jobs.all(null, []), /^item null: want an object with a value/],
    [() => jobs.all({ value: 1 }, [5]), /^item 5: want an object with a value/],
    [() => jobs.all({ value: 1 }, [{ value: 2, joiner: 1 }]), /^joiner 1 of item 1: want the number of an item before it/],
    [() => jobs.all({ value: 1 }, [{ value: 2 }, { value: 3, joiner: 1 }]), /want the number of a frame before it that has the header Pq-Join/],
    [() => jobs.all({ value: 1, joiner: 0 }, []), /^joiner: want an object/],
    [async () => { throw (await jobs.pushMany([{ value: 1, joiner: 0 }]))[0].error; }, /^joiner: want an object/],
    [() => jobs.all({ value: 1, msgId: false }, [{ value: 2 }]), /Nats-Msg-Id: want one in all of a joiner and its members/],
    [() => jobs.openJoin("1ms", "x"), /^ttl: "1ms" is out of bounds/],
    [() => jobs.openJoin("1h", "x", 5), /^push option 5: want an object/],
    [later(2), /^joiner 2 of item 2: want the number of an item before it/],
    [later(-1), /^joiner -1 of item 2/],
    [later(0.5), /^joiner 0.5 of item 2/],
    [later(NaN), /^joiner NaN of item 2/],
  ];
  for (const [call, text] of cases) {
    await assert.rejects(call, (err) => {
      assert.ok(err instanceof pq.BadRequestError, String(err));
      assert.match(err.message, text);
      return true;
    });
  }
  assert.equal((await jobs.info()).delayed, 0);
});

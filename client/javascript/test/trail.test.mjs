// What became of a job, attempt by attempt, and of the jobs that it has pushed.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { headers } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";
import { parseFrames } from "../dist/headers.js";
import { Bridge } from "./bridge.mjs";

let bridge;
let client;
let queues = 0;
const name = () => `trail-${++queues}`;

before(async () => {
  bridge = await Bridge.start();
  client = await bridge.client();
});
after(() => bridge.stop());

const wait = "2m";

async function list(pages) {
  const all = [];
  for await (const item of pages) all.push(item);
  return all;
}

test("get and items have the attempts of a job across a redrive, and what it has pushed", async () => {
  const [jobs, mail] = [client.priorityQueue(name()), client.priorityQueue(name())];
  await jobs.configure({ trail: 8, maxDeliver: 2, keep: "1h", next: [mail.name] });
  const { id } = await jobs.push("x");
  const lease = () => jobs.lease({ holder: "wörker" });
  await (await lease()).nak({ reason: "größer" });
  await (await lease()).nak();
  await client.priorityQueue(`${jobs.name}-dead`).redrive();
  await (await lease()).ack(undefined, { next: Array(70).fill({ queue: mail.name, value: 1 }) });

  const item = await jobs.get(id);
  const [listed] = await list(jobs.items({ state: "done", attempts: true }));
  const [plain] = await list(jobs.items({ state: "done" }));

  assert.deepEqual(
    item.attempts.map((a) => [a.life, a.number, a.how, a.holder, a.reason, a.from <= a.to]),
    [
      [1, 1, "nak", "wörker", "größer", true],
      [1, 2, "nak", "wörker", undefined, true],
      [2, 1, "done", "wörker", undefined, true],
    ],
  );
  const first = await mail.peek();
  assert.deepEqual(item.successors[0], { queue: mail.name, id: first.id });
  assert.deepEqual([item.successors.length, item.moreSuccessors], [64, 6]);
  for (const member of ["attempts", "successors", "moreSuccessors"]) {
    assert.deepEqual(listed[member], item[member]);
    assert.equal(plain[member], undefined);
  }

  assert.deepEqual(first.parent, { queue: jobs.name, id });
  assert.equal(first.headers.get("Pq-Parent"), `${jobs.name} ${id}`);
  const [successor] = await list(mail.items({ attempts: true }));
  assert.deepEqual([successor.parent, successor.attempts], [{ queue: jobs.name, id }, []]);
});

// Passes the requests to the prefix on to the bridge, but refuses successors that name the lease of their parent, as a bridge
// from before the setting trail does.
async function olderBridge(prefix) {
  const nc = await bridge.connect();
  const older = { refused: 0 };
  const namesParent = ([headers]) => ["Pq-Queue", "Pq-Token"].every((name) => headers.some(([n]) => n === name));
  nc.subscribe(`${prefix}.>`, {
    callback(_, m) {
      const acks = m.headers?.get("Pq-Frames") && m.headers.get("Pq-Ack");
      if (acks && parseFrames(m.data).some(namesParent)) {
        older.refused++;
        const error = headers();
        error.set("Nats-Service-Error-Code", "400");
        error.set("Nats-Service-Error", "want one of them");
        nc.publish(m.reply, "", { headers: error });
      } else {
        nc.publish(m.subject.replace(prefix, "pq"), m.data, { reply: m.reply, headers: m.headers });
      }
    },
  });
  await nc.flush();
  return older;
}

for (const prefix of ["pq", "older"]) {
  test(`jobs that share acknowledgements are the parents of what they push: ${prefix}`, async (t) => {
    const [jobs, mail] = [name(), name()];
    const queue = client.priorityQueue(jobs);
    await queue.configure({ trail: 4, next: [mail] });
    const older = prefix === "pq" ? { refused: 0 } : await olderBridge(prefix);
    await queue.pushMany(Array.from({ length: 100 }, (_, value) => ({ value })));
    const [runs, mailed] = [new Map(), client.priorityQueue(mail)];
    const worker = new pq.Worker((await bridge.client({ prefix })).priorityQueue(jobs), (job) => {
      runs.set(job.id, (runs.get(job.id) ?? 0) + 1);
      job.next(mail, job.id);
    }, { concurrency: 20, logger: null });
    const ended = worker.run();
    t.after(async () => {
      await worker.close();
      await ended;
    });
    while ((await mailed.len()) < 100) await setTimeout(20);

    const pushed = await list(mailed.items());
    for (const item of pushed) assert.deepEqual(item.parent, { queue: jobs, id: JSON.parse(new TextDecoder().decode(item.value)) });
    assert.deepEqual([pushed.length, runs.size, Math.max(...runs.values())], [100, 100, 1]);
    assert.equal(older.refused > 0, prefix === "older");
  });
}

test("a result follows a chain of any length to its last job, and says where a chain breaks", async (t) => {
  const [a, b] = [client.priorityQueue(name()), client.priorityQueue(name())];
  for (const queue of [a, b]) await queue.configure({ trail: 1, keep: "1h", next: [a.name, b.name] });
  // A job pushes the rest of its value to the other queue.
  const work = (other) => (job) => {
    const [first, ...rest] = job.decode().split(",");
    if (/^\d+$/.test(first) && first > 1) job.next(other.name, String(first - 1));
    else if (first === "two") for (const value of ["x", "y"]) job.next(other.name, value);
    else if (first === "dead") throw new pq.Drop("no");
    else if (rest.length > 0) job.next(other.name, rest.join());
    return first;
  };
  const workers = [new pq.Worker(a, work(b), { logger: null }), new pq.Worker(b, work(a), { logger: null })];
  const ended = workers.map((worker) => worker.run());
  t.after(async () => {
    for (const worker of workers) await worker.close();
    await Promise.all(ended);
  });
  const follow = async (value) => a.result((await a.push(value, { msgId: value })).id, { follow: true, wait });

  for (const [value, last] of Object.entries({ alone: "alone", "a,b,end": "end", 200: "1" })) {
    const r = await follow(value);
    assert.deepEqual([r.state, r.decode()], ["done", last]);
  }
  assert.equal((await a.result({ msgId: "a,b,end" }, { follow: true })).decode(), "end");
  assert.equal((await a.result({ msgId: "a,b,end" })).decode(), "a");
  assert.equal((await follow("a,b,dead")).error.cause, "no");
  await assert.rejects(follow("a,two"), pq.ChainError);

  await follow("a,b,gone");
  await b.purge("done");
  await assert.rejects(a.result({ msgId: "a,b,gone" }, { follow: true }), (err) => {
    assert.ok(err instanceof pq.NotFoundError);
    assert.match(err.message, /^job 2 of the chain, \S+ in queue trail-\d+, is not kept, or gone: /);
    return true;
  });
});

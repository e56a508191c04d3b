import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { inspect } from "node:util";
import * as pq from "../dist/index.js";
import { Bridge } from "./bridge.mjs";

let bridge;
let client;
let queues = 0;
const queue = () => client.priorityQueue(`jobs-${++queues}`);
const bytes = (text) => new TextEncoder().encode(text);

before(async () => {
  bridge = await Bridge.start();
  client = await bridge.client();
});
after(() => bridge.stop());

test("the smallest priority comes first, and an empty queue is null", async () => {
  const jobs = queue();
  await jobs.push({ to: "eve" }, { priority: 5 });
  const { id, priority, duplicate } = await jobs.push({ to: "bob" }, { priority: -1, type: "mail" });

  const item = await jobs.pop();

  assert.deepEqual([priority, duplicate], [-1, false]);
  assert.equal(item.id, id);
  assert.deepEqual(item.json(), { to: "bob" });
  assert.equal(item.type, "mail");
  assert.equal(item.headers.get("Content-Type"), "application/json");
  assert.ok(Math.abs(item.pushedAt - Date.now()) < 3_600_000);
  assert.deepEqual((await jobs.pop({ max: true })).json(), { to: "eve" });
  assert.equal(await jobs.pop(), null);
});

test("a leased item is acknowledged once", async () => {
  const jobs = queue();
  await jobs.push(bytes("report"));

  const delivery = await jobs.lease({ ackWait: "1m", holder: "tester" });

  assert.equal(delivery.string(), "report");
  assert.equal(delivery.deliveries, 1);
  assert.equal(await jobs.lease(), null);
  await delivery.extend();
  await delivery.ack();
  await assert.rejects(delivery.ack(), pq.LeaseLostError);
  assert.equal(await jobs.len(), 0);
});

test("a message beyond max_payload is refused before it is sent, headers included", async () => {
  const jobs = queue();
  const limit = client.connection.nc.info.max_payload;
  const headers = { "X-Pad": "é" };
  const room = limit - "NATS/1.0\r\nX-Pad: é\r\n\r\n".length - 1; // é has two bytes

  await jobs.push(new Uint8Array(room - 160), { headers, msgId: false }); // 160 for a frame
  await assert.rejects(jobs.push(new Uint8Array(room + 1), { headers, msgId: false }), (err) => {
    assert.ok(err instanceof pq.TooLargeError && !err.unknown);
    assert.match(err.message, new RegExp(`${limit + 1} bytes.*${limit} at most`));
    return true;
  });
  assert.equal(await jobs.len(), 1); // the connection is still there
});

test("repeated headers, and bytes that are not UTF-8, survive in frames", async () => {
  const jobs = queue();
  const odd = new Uint8Array([0xff, 0x00, 0xfe]);
  const headers = [["X-Tag", "b"], ["X-Odd", odd], ["X-Tag", "a"], ["x-tag", "c"]];
  await jobs.push("x", { headers });
  await jobs.push("y", { headers: { "X-Tag": ["b", "a"] } });

  const delivery = await jobs.lease();
  const item = await jobs.pop();

  const sent = new Map([...delivery.headers].filter(([name]) => name === "X-Odd"));
  assert.deepEqual(sent.get("X-Odd"), odd);
  assert.deepEqual(delivery.headers.all("X-Tag"), ["b", "a"]);
  assert.equal(delivery.headers.get("x-tag"), "c");
  assert.deepEqual(item.headers.all("X-Tag"), ["b", "a"]);
});

test("priorities have 64 bits everywhere", async () => {
  const jobs = queue();
  const large = 2n ** 53n + 1n;
  const { id, priority } = await jobs.push("x", { priority: large });
  assert.equal(priority, large);
  await jobs.move(id, large + 1n);
  for await (const item of jobs.items()) assert.equal(item.priority, large + 1n);
  assert.deepEqual((await jobs.info()).priorities, { [large + 1n]: 1 });
  assert.equal((await jobs.pop()).priority, large + 1n);
});

test("pushMany returns the outcome of each, and looks for the item at fault", async () => {
  const jobs = queue();
  const items = Array.from({ length: 50 }, (_, i) => ({ value: i, msgId: `m${i}` }));
  items[30].weight = 3; // without a group: refused by the bridge

  const outcomes = await jobs.pushMany(items);

  assert.equal(outcomes.length, 50);
  outcomes.forEach((o, i) => {
    if (i < 30) assert.equal(o.duplicate, false);
    else assert.ok(o.error instanceof (i === 30 ? pq.BadRequestError : pq.NotSentError));
  });
  const again = await jobs.pushMany(items.slice(0, 30));
  assert.deepEqual(again.map((o) => [o.id, o.duplicate]), outcomes.slice(0, 30).map((o) => [o.id, true]));
});

test("bad options are refused, with what would be right", async () => {
  const jobs = queue();
  const cases = [
    [() => jobs.push("x", { priority: 1.5 }), /^priority 1.5: want/],
    [() => jobs.push("x", { priority: NaN }), /^priority NaN: want/],
    [() => jobs.push("x", { prioritty: 5 }), /^push option "prioritty": want priority, /],
    [() => jobs.push("x", 5), /^push option 5: want an object/],
    [() => jobs.call("x", { timeout: "1s" }), /^call option "timeout": want/],
    [() => jobs.pop({ wait: 1 }), /^pop option "wait": want max, expires, /],
    [() => jobs.pop({ ackWait: 1 }), /^pop option "ackWait"/],
    [() => jobs.lease({ ackwait: 1 }), /^lease option "ackwait": want .*ackWait, holder \(400\)$/],
    [() => jobs.peek({ min: true }), /^peek option "min": want max/],
    [() => jobs.items({ status: "done" }).next(), /^items option "status": want state, /],
    [() => jobs.configure({ maxDelivery: 3 }), /unknown member .*max_delivery/],
    [() => jobs.schedule({ id: "x", evry: "1h" }), /^member of a schedule "evry": want id, cron, every/],
    [() => new pq.Worker(jobs, () => 0).close({ wait: 1 }), /^close option "wait": want timeout/],
    [() => pq.runHandler(() => 0, "x", { attempt: 2 }), /^option of runHandler "attempt": want id, /],
    [() => jobs.redrive({ ids: ["x"] }), /^redrive option "ids": want max/],
    [() => jobs.redriveIds("x"), /^ids "x": want an array/],
    [() => jobs.result("x", { expires: 1 }), /^result option "expires": want wait, signal/],
    [() => jobs.push("x", { delay: "soon" }), /^delay: "soon" is not a duration: want/],
    [() => jobs.push("x", { ttl: 10 }), /^ttl: 10 is out of bounds: want 1000ms/],
    [() => jobs.push("x", { at: "tomorrow" }), /^at: "tomorrow": want/],
    [() => jobs.push("x", { delay: 1, at: new Date() }), /^delay and at: want one of them/],
    [() => jobs.push("x", { weight: 3 }), /Pq-Weight "3": want .* beside Pq-Group/],
    [() => jobs.push("x", { group: 5 }), /^header Pq-Group: 5: want a string/],
    [() => jobs.push("x", { group: "a\nb" }), /^header Pq-Group/],
    [() => jobs.push("x", { msgId: "" }), /Nats-Msg-Id has 0 bytes: want 1 to 512/],
    [() => jobs.lease({ holder: "x".repeat(129) }), /holder: .*want a string of at most 128 bytes/],
    [() => jobs.push(undefined), /^value cannot be encoded/],
    [() => client.fifoQueue("f").push("x", { priority: 1 }), /in a FIFO queue: want 0/],
    [() => client.fifoQueue("f").pop({ max: true }), /^max in a FIFO queue/],
    [() => jobs.popBatch(0), /^a batch of 0: want 1 to 1000/],
    [() => jobs.lease({ ackWait: 1 }), /^ackWait: 1 is out of bounds: want 100ms/],
    [() => jobs.get(""), /^id: "": want/],
    [() => jobs.configure({ backoff: ["x"] }), /^backoff\[0\]: "x" is not a duration/],
    [async () => client.priorityQueue("a.b"), /^queue "a.b": want 1 to 128/],
    [async () => new pq.Worker(jobs, { email: 5 }), /^handler email: 5: want a function/],
    [async () => new pq.Worker(jobs), /^handlers undefined: want a function, or an object/],
    [async () => new pq.Worker(jobs, {}), /^handlers {}: want/],
    [async () => new pq.Worker(jobs, () => 0, { ackwait: 1 }), /^worker option "ackwait": want concurrency, ackWait, /],
    [async () => new pq.Worker(jobs, () => 0, { on: { done() {} } }), /^hook "done": want completed, failed, /],
    [async () => new pq.Worker("letters", () => 0), /^queue "letters": want one such as client.priorityQueue/],
    [async () => new pq.Worker(jobs, () => 0, { middleware: () => 0 }), /^middleware .*: want an array of functions/],
    [async () => new pq.Worker(jobs, () => 0, { logger: "console" }), /^logger.warn: undefined: want a function/],
    [async () => new pq.Client(bridge.connect()), /^connection {}: want what "await connect/],
    [async () => new pq.Client(), /^connection undefined: want/],
    [async () => client.priorityQueue(5n), /^queue 5: want 1 to 128/],
    [() => client.ackAll(), /^deliveries undefined: want an iterable/],
    [() => jobs.push("x", { at: 5n }), /^at: 5: want a Date/],
    [() => jobs.push("x", { at: true }), /^at: true: want a Date/],
    [() => jobs.push("x", { at: 5000 }), /^at: 5000: want a Date/],
    [() => jobs.configure({ pauseUntil: 5000 }), /^pauseUntil: 5000: want a Date/],
    [() => jobs.schedule({ id: "x", every: "1h", until: new Date(NaN) }), /^until: null: want a Date/],
    [() => jobs.push("x", { unique: "" }), /Pq-Unique has 0 bytes: want 1 to 512/],
    [() => jobs.push("x", { group: "" }), /^bad Pq-Group: want 1 to 128 bytes/],
    [() => jobs.pop({ max: "min" }), /^max "min": want true or false/],
    [() => jobs.rank("x", { max: 0 }), /^max 0: want true or false/],
    [() => jobs.items({ max: NaN }).next(), /^max NaN: want true or false/],
    [() => jobs.result("x", { follow: "no" }), /^follow "no": want true or false/],
    [() => jobs.purge(() => "ready"), /^state: .*: JSON has no function/],
    [() => jobs.configure({ maxDeliver: Symbol("3") }), /^max_deliver: Symbol\(3\): JSON has no symbol/],
    [() => jobs.redrive({ max: "5" }), /^max "5": want an integer from 1/],
    [() => jobs.redrive({ max: 5n }), /^max 5: want an integer from 1/],
    [() => jobs.redrive({ max: -1 }), /^max -1: want an integer from 1/],
    [() => jobs.pause(NaN), /^group: NaN: want a well-formed string/],
    [() => jobs.resume(5), /^group: 5: want a well-formed string/],
    [async () => new pq.Worker(jobs, () => 0, { holder: 5 }), /^holder: 5: want a well-formed string/],
    [async () => new pq.Worker(jobs, () => 0, { max: "no" }), /^max "no": want true or false/],
    [async () => new pq.Client(client.connection.nc, { codec: "json" }), /^codec "json": want an object/],
    [() => jobs.push("x", { headers: [5] }), /^headers: 5: want pairs of name and value/],
    [() => jobs.push({ toJSON() { throw null; } }), /^value cannot be encoded: null; want/],
    [() => new pq.Client(client.connection.nc, { codec: { ...pq.json, encode: String } }).priorityQueue("x").push(1), /the codec returned no bytes/],
    [async () => new pq.Client(client.connection.nc, { timeoutMs: 1 }), /^client option "timeoutMs": want/],
    [async () => new pq.Worker(jobs, () => 0, { retryDelay: "-1s" }), /^retryDelay: "-1s" is not a duration: want/],
    [async () => new pq.Worker(jobs, () => 0, { concurrency: 0 }), /^concurrency 0: want/],
    [async () => new pq.Client(client.connection.nc, { prefix: "a b" }), /^prefix "a b": want/],
  ];
  await client.priorityQueue("leased").push("x");
  const delivery = await client.priorityQueue("leased").lease();
  cases.push([() => delivery.nak({ dealy: "1h" }), /^nak option "dealy": want delay, retryDelay, reason/]);
  cases.push([() => delivery.nak({ reason: NaN }), /^reason NaN: want a string/]);
  cases.push([() => delivery.term({}), /^reason {}: want a string/]);
  cases.push([() => delivery.ack("x", { next: "mail" }), /^next "mail": want an array/]);
  cases.push([() => delivery.ack("x", { next: [null] }), /^queue undefined: want/]);
  cases.push([() => delivery.ack("x", { then: [] }), /^ack option "then": want next/]);
  for (const [call, text] of cases) {
    await assert.rejects(call, (err) => {
      assert.ok(err instanceof pq.BadRequestError, String(err));
      assert.match(err.message, text);
      return true;
    });
  }
  assert.equal(await jobs.len(), 0);
});

test("a signal ends a wait, and a waiting pop gets the next item", async () => {
  const jobs = queue();
  const stop = new AbortController();
  const waits = jobs.pop({ expires: "1m", signal: stop.signal });
  const reason = new Error("enough");
  stop.abort(reason);
  await assert.rejects(waits, (err) => err === reason);

  const next = jobs.lease({ expires: "2m" });
  await jobs.push("x");
  assert.equal((await next).json(), "x");
});

test("headers that are options are refused, with the option to use", async () => {
  const jobs = queue();
  const options = ["Priority", "Unique", "Delay", "Group", "Weight", "Keep", "Join", "Joiner"];
  const refused = (call, name, option) => assert.rejects(call, (err) => {
    assert.ok(err instanceof pq.BadRequestError, String(err));
    assert.match(err.message, new RegExp(`^header ${name}: names that begin with Pq- are reserved${option} \\(400\\)$`));
    return true;
  });

  for (const option of options) {
    const [name, text] = [`Pq-${option}`, `, use the option ${option.toLowerCase()}`];
    await refused(jobs.push("x", { headers: { [name]: "1" } }), name, text);
    await refused(jobs.call("x", { headers: [[name, "1"]] }), name, text);
    await refused(jobs.all({ value: 1 }, [{ value: 2, headers: { [name]: "1" } }]), name, text);
  }
  await refused(jobs.push("x", { headers: { "Pq-Id": "1" } }), "Pq-Id", "");
  await jobs.push("leased");
  const delivery = await jobs.lease();
  await refused(delivery.ack(1, { next: [{ queue: "q", value: 1, headers: { "Pq-Group": "a" } }] }), "Pq-Group", ", use the option group");
});

test("a queue is paused, configured, scheduled and emptied", async () => {
  const jobs = queue();
  assert.deepEqual(await jobs.configure({ maxDeliver: 3, backoff: [1500, "2s"], keep: "1h" }), { maxDeliver: 3, backoff: ["1.5s", "2s"], keep: "1h0m0s" });
  assert.equal((await jobs.configure({ maxDeliver: null })).maxDeliver, undefined);

  const { id } = await jobs.push("x", { group: "acme" });
  await jobs.pause("acme");
  assert.equal(await jobs.pop(), null);
  await jobs.resume("acme");
  await jobs.pause();
  assert.equal(await jobs.pop(), null);
  await jobs.resume();

  assert.equal((await jobs.get(id)).state, "ready");
  await jobs.remove(id);
  await assert.rejects(jobs.remove(id), pq.NotFoundError);
  const { next, every } = await jobs.schedule({ id: "tick", every: "1h", value: { a: 1 }, priority: 2n ** 60n });
  assert.ok(new Date(next) > new Date());
  assert.equal(every, "1h0m0s");
  await jobs.schedule({ id: "tick", run: true });
  const item = await jobs.pop();
  assert.deepEqual([item.json(), item.priority, item.headers.get("Pq-Schedule")], [{ a: 1 }, 2n ** 60n, "tick"]);
  await jobs.unschedule("tick");
});

test("dead letters go back, by number and by id", async () => {
  const jobs = queue();
  const dead = client.priorityQueue(`${jobs.name}-dead`);
  const ids = [];
  for (const value of ["a", "b"]) ids.push((await jobs.push(value)).id);
  for (const _ of ids) await (await jobs.lease()).term("no address");

  const item = await dead.peek();
  assert.deepEqual([item.deadLetter.queue, item.deadLetter.reason], [jobs.name, "no address"]);
  const [back] = await dead.redriveIds([ids[0]]);
  const [failed] = await dead.redriveIds([ids[0]]);
  assert.equal(back.home, jobs.name);
  assert.ok(failed.error instanceof pq.NotFoundError);
  assert.equal(await dead.redrive(), 1);
  assert.equal(await jobs.len(), 2);
});

test("pushMany sends what comes before an item that cannot be sent", async () => {
  const jobs = queue();
  const outcomes = await jobs.pushMany([{ value: 1 }, { value: 2, priority: 0.5 }, { value: 3 }]);
  assert.deepEqual(outcomes.map((o) => o.error?.constructor), [undefined, pq.BadRequestError, pq.NotSentError]);
  assert.equal(await jobs.len(), 1);
});

test("items and get say alike what a job is, and console.log shows it", async () => {
  const jobs = queue();
  const { id } = await jobs.push({ to: "eve" }, { type: "email", group: "acme", headers: [["X-Tag", "a"], ["X-Tag", "b"]] });

  const got = await jobs.get(id);
  const { value: listed } = await jobs.items().next();

  for (const item of [got, listed]) {
    assert.deepEqual([item.type, item.group], ["email", "acme"]);
    assert.deepEqual([item.headers.all("X-Tag"), item.headers.get("Content-Type")], [["a", "b"], "application/json"]);
  }
  assert.match(inspect(got), /state: 'ready'.*value: '{"to":"eve"}'.*'X-Tag', 'b'/s);
  assert.match(inspect(listed), /'X-Tag', 'b'.*value: '{"to":"eve"}'/s);
  await jobs.push("without either", { priority: -1 });
  for (const item of [await jobs.peek(), (await jobs.items().next()).value]) assert.deepEqual([item.type, item.group], ["", ""]);
  await jobs.pop();
  await (await jobs.lease()).term("no address");
  assert.match(inspect(await jobs.result(id)), /state: 'dead'.*cause: 'no address'/s);
});

const list = async (iterable) => {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
};
const errorNames = (results) => results.map((r) => (r?.error ?? r)?.constructor.name);

test("items are ranked, released, moved and removed by id", async () => {
  const jobs = queue();
  const ids = [];
  for (const value of ["a", "b", "c"]) ids.push((await jobs.push(value, { priority: 1 })).id);

  assert.deepEqual(await jobs.rank(ids[2]), { rank: 2, atLeast: false });
  assert.deepEqual(await jobs.rank(ids[2], { max: true }), { rank: 0, atLeast: false });
  const delivery = await jobs.lease();
  await jobs.release(ids[0]);
  await assert.rejects(delivery.ack(), pq.LeaseLostError);
  await assert.rejects(jobs.release(ids[0]), pq.LeaseLostError);

  await jobs.remove(ids[2]);
  const moved = await jobs.moveIds([ids[1], ids[2], ids[0]], 9);
  assert.deepEqual(errorNames(moved), ["Object", "NotFoundError", "Object"]);
  assert.equal((await jobs.get(ids[1])).place, moved[0].place);
  assert.deepEqual(errorNames(await jobs.releaseIds([ids[0]])), ["LeaseLostError"]);
  assert.deepEqual(await jobs.removeIds([ids[0], ids[1]]), [{ id: ids[0] }, { id: ids[1] }]);
});

test("leases of several queues are acknowledged together, and a lost one spoils no other", async () => {
  const [one, two] = [queue(), client.fifoQueue("acks")];
  for (const jobs of [one, two]) await jobs.pushMany([1, 2, 3].map((value) => ({ value })));
  const deliveries = [...await one.leaseBatch(5), ...await two.leaseBatch(2)];
  assert.deepEqual(deliveries.map((d) => d.json()), [1, 2, 3, 1, 2]);
  await deliveries[1].nak();
  await deliveries[3].ack();

  const errors = await client.ackAll([...deliveries, deliveries[0]]);

  const lost = "LeaseLostError";
  assert.deepEqual(errorNames(errors), [undefined, lost, undefined, lost, undefined, lost]);
  assert.deepEqual([await one.len(), await two.len()], [1, 1]);
  await assert.rejects(client.ackAll([5]), /^BadRequestError: 5: want a delivery that lease or leaseBatch returned/);
});

test("a queue is purged, all of it or one state", async () => {
  const jobs = queue();
  await jobs.pushMany([1, 2, 3].map((value) => ({ value, delay: value === 3 ? "1h" : undefined })));
  assert.equal(await jobs.purge("delayed"), 1);
  assert.equal(await jobs.purge(), 2);
  await assert.rejects(jobs.purge("odd"), pq.BadRequestError);
});

test("queues and schedules are listed, page by page", async () => {
  const own = new pq.Client(client.connection.nc, { prefix: "pq" });
  const jobs = queue();
  await jobs.push(1);
  await client.fifoQueue("listed").push(1);
  for (const id of ["a", "b"]) await jobs.schedule({ id, every: "1h", value: new Uint8Array([1]) });

  assert.ok((await list(own.priorityQueues())).includes(jobs.name));
  assert.ok((await list(own.fifoQueues())).includes("listed"));
  const [a, b] = await list(jobs.schedules());
  assert.deepEqual([a.id, a.every, a.value, b.id], ["a", "1h0m0s", new Uint8Array([1]), "b"]);
});

test("pushMany takes any iterable", async () => {
  const jobs = queue();
  async function* later() {
    for (const value of [4, 5]) yield { value };
  }
  function* now() {
    for (const value of [1, 2, 3]) yield { value, priority: undefined, msgId: null };
  }
  assert.equal((await jobs.pushMany(now())).length, 3);
  assert.equal((await jobs.pushMany(later())).length, 2);
  assert.deepEqual((await jobs.popBatch(9, { max: null, expires: undefined })).map((item) => item.json()), [1, 2, 3, 4, 5]);
  for (const wrong of [5, null, undefined, {}]) await assert.rejects(jobs.pushMany(wrong), /^BadRequestError: items .*: want an iterable/);
  const [{ error }] = await jobs.pushMany([null]);
  assert.match(String(error), /^BadRequestError: item null: want an object with a value/);
});

test("info while an item is ready, however old it is", async () => {
  const jobs = queue();
  await jobs.push("x");
  for (let i = 0; i < 200; i++) assert.equal((await jobs.info()).ready, 1);
});

test("values and results that are buffers are bytes", async () => {
  const jobs = queue();
  const { id } = await jobs.push(new Float32Array([1.5]), { keep: "1h" });
  const delivery = await jobs.lease();
  assert.equal(new Float32Array(delivery.value.buffer)[0], 1.5);
  await delivery.extend(new DataView(new Uint8Array([1, 2]).buffer));
  assert.deepEqual((await jobs.result(id)).progress, new Uint8Array([1, 2]));
  await delivery.ack(new Uint8Array([3]).buffer);
  assert.deepEqual((await jobs.result(id)).decode(), new Uint8Array([3]));
  await assert.rejects(jobs.push(new Map([[1, 2]])), /JSON makes {} of a Map/);
});

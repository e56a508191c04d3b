// Makes the calls that JetStream's programs in JavaScript make, on the queue "jobs", and checks what they
// get. The last line says which version of the package did it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers } from "@nats-io/transport-node";

const nc = await connect({ servers: process.env.NATS_URL });
const js = jetstream(nc, { domain: "pq" });
const jsm = await jetstreamManager(nc, { domain: "pq" });

// push puts values into the queue, the first the most urgent.
async function push(...values) {
  for (const [priority, value] of values.entries()) {
    const h = headers();
    h.set("Pq-Priority", String(priority));
    const ack = await js.publish("pq.jobs.push", value, { headers: h });
    assert.equal(ack.stream, "jobs");
  }
}

// empty says that all was acknowledged. Acknowledgements without an answer take a moment.
async function empty() {
  for (let tries = 0; ; tries++) {
    const { state } = await jsm.streams.info("jobs");
    if (state.messages === 0) return;
    assert.ok(tries < 1000, `${state.messages} messages are left`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// The manager.
const account = await jsm.getAccountInfo();
assert.equal(account.domain, "pq");
const stream = await jsm.streams.info("jobs");
assert.deepEqual(stream.config.subjects, ["pq.jobs.push"]);
assert.equal(stream.config.retention, "workqueue");
assert.equal(await jsm.streams.find("pq.jobs.push"), "jobs");
const added = await jsm.consumers.add("jobs", { durable_name: "js", ack_policy: AckPolicy.Explicit, ack_wait: 60e9 });
assert.equal(added.name, "js");
assert.equal((await jsm.consumers.info("jobs", "js")).config.durable_name, "js");
const names = [];
for await (const c of jsm.consumers.list("jobs")) names.push(c.name);
assert.deepEqual(names.sort(), ["js", "max", "min"]);
await jsm.consumers.update("jobs", "js", { max_deliver: 5 });
assert.equal((await jsm.consumers.info("jobs", "js")).config.max_deliver, 5);
await assert.rejects(jsm.consumers.info("jobs", "none"), /consumer not found/);

// next, fetch and consume.
await push("a", "b", "c");
const streams = [];
for await (const s of jsm.streams.list()) streams.push(s.config.name);
assert.deepEqual(streams, ["jobs"]);
const max = await js.consumers.get("jobs", "max");
const last = await max.next();
assert.equal(last.string(), "c");
assert.equal(last.subject, "pq.jobs.push");
assert.equal(last.headers.get("Pq-Priority"), "2");
assert.deepEqual([last.info.stream, last.info.consumer, last.info.domain], ["jobs", "max", "pq"]);
assert.equal(last.info.pending, 2);
assert.equal(await last.ackAck(), true);
const own = await js.consumers.get("jobs", "js");
const fetched = [];
for await (const m of await own.fetch({ max_messages: 2, expires: 30000 })) {
  fetched.push(m.string());
  m.ack();
}
assert.deepEqual(fetched, ["a", "b"]);
await empty();
assert.equal(await own.next({ expires: 1000 }), null);
const consumed = [];
const messages = await own.consume({ max_messages: 1 });
await push("d", "e", "f");
for await (const m of messages) {
  consumed.push(m.string());
  await m.ackAck();
  if (consumed.length === 3) break;
}
await messages.close();
assert.deepEqual(consumed.sort(), ["d", "e", "f"]);
await push("g");
const first = new Promise((resolve) => {
  own.consume({ callback: (m) => { m.ack(); resolve(m.string()); } }).then((c) => first.then(() => c.close()));
});
assert.equal(await first, "g");
await empty();

// The other acknowledgements.
const min = await js.consumers.get("jobs", "min");
await push("h");
let m = await min.next();
m.nak();
m = await min.next();
assert.equal(m.info.deliveryCount, 2);
assert.equal(m.redelivered, true);
const given = Date.now();
m.nak(300);
m = await min.next();
assert.equal(m.info.deliveryCount, 3);
assert.ok(Date.now() - given >= 300, "a nak with a delay came back at once");
m.term("no good");
await empty();
const dead = await (await js.consumers.get("jobs-dead", "min")).next();
assert.equal(dead.headers.get("Pq-Dead-Reason"), "no good");
assert.equal(await dead.ackAck(), true);

// One that is at work keeps its message for longer than ack_wait.
await jsm.consumers.add("jobs", { durable_name: "short", ack_policy: AckPolicy.Explicit, ack_wait: 10e9 });
const short = await js.consumers.get("jobs", "short");
await push("i");
m = await short.next();
for (let i = 0; i < 24; i++) {
  await new Promise((resolve) => setTimeout(resolve, 500));
  m.working();
}
assert.equal(await min.next({ expires: 1000 }), null);
assert.equal(await m.ackAck(), true);

assert.equal(await jsm.consumers.delete("jobs", "js"), true);
await assert.rejects(jsm.consumers.info("jobs", "js"), /consumer not found/);
await nc.close();
const { version } = JSON.parse(readFileSync(new URL("node_modules/@nats-io/jetstream/package.json", import.meta.url)));
console.log(`@nats-io/jetstream ${version}: all calls succeeded`);

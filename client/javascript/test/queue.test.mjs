import assert from "node:assert/strict";
import { after, before, test } from "node:test";
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

import assert from "node:assert/strict";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { ClosedConnectionError, connect } from "@nats-io/transport-node";
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

test("a job that comes as its request ends goes back", async () => {
  const server = new LateServer("pq.jobs.ack.token", "a job");
  const nc = await connect({ servers: await server.listen() });
  const worker = new pq.Worker(new pq.Client(nc).priorityQueue("jobs"), () => assert.fail("it was begun"));
  const running = worker.run();
  await server.asked;
  await worker.close(); // the server does not answer that the request is cancelled

  await running;
  assert.equal(server.published.at(-1), "pq.jobs.ack.token");
  await nc.close();
  server.close();
});

// The server's side of a connection. As the subscription for the first request ends, it sends a message to it. It
// confirms what is published to the reply subject of that.
class LateServer {
  published = [];
  #server = createServer((socket) => this.#serve(socket));
  #wake;
  asked = new Promise((resolve) => (this.#wake = resolve));

  constructor(subject, value) {
    Object.assign(this, { subject, value });
  }

  async listen() {
    await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `127.0.0.1:${this.#server.address().port}`;
  }

  close() {
    this.#server.close();
  }

  async #serve(socket) {
    const send = (subject, sid, reply, value) => socket.write(`MSG ${subject} ${sid} ${reply}${value.length}\r\n${value}\r\n`);
    const subscriptions = new Map(); // sid by subject
    let first;
    socket.on("error", () => undefined);
    socket.write('INFO {"max_payload":1048576,"headers":true,"version":"2.10.0"}\r\n');
    for await (const line of createInterface(socket)) {
      const [verb, ...args] = line.split(" ");
      if (verb === "PING") socket.write("PONG\r\n");
      if (verb === "SUB") subscriptions.set(args[0], args.at(-1));
      if (verb === "UNSUB" && first?.sid === args[0]) send(first.reply, first.sid, `${this.subject} `, this.value);
      if (verb === "PUB") {
        const [subject, reply] = args;
        const sid = subscriptions.get(reply.replace(/[^.]*$/, "*"));
        this.published.push(subject);
        first ??= { reply, sid };
        this.#wake();
        if (subject === this.subject) send(reply, sid, "", "+OK");
      }
    }
  }
}

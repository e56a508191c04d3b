// Replies that are not those of a bridge, or do not come, from a NATS server that does what the test says.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { test } from "node:test";
import { connect } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";

const ofAStream = '{"stream":"jobs","seq":5}';
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// answer is given the subject and payload of each request, and returns the headers and the value of the reply.
class Server {
  requests = [];
  deaf = false; // to PING
  late; // what comes as the subscription for the first request ends
  sockets = new Set();
  #server = createServer((socket) => this.#serve(socket));

  constructor(answer = () => undefined) {
    this.answer = answer;
  }

  async queue(t, options) {
    await new Promise((resolve) => this.#server.listen(this.port ?? 0, "127.0.0.1", resolve));
    this.port = this.#server.address().port;
    const nc = await connect({ servers: `127.0.0.1:${this.port}`, maxReconnectAttempts: -1, ignoreAuthErrorAbort: true, reconnectTimeWait: 20 });
    t.after(async () => {
      await nc.close();
      this.away();
    });
    return new pq.Client(nc, options).priorityQueue("jobs");
  }

  away() {
    this.#server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  #serve(socket) {
    const ids = new Map();
    let first;
    let rest = Buffer.alloc(0);
    this.sockets.add(socket);
    socket.on("error", () => undefined);
    socket.write('INFO {"max_payload":1048576,"headers":true,"version":"2.10.0"}\r\n');
    socket.on("data", (data) => {
      rest = Buffer.concat([rest, data]);
      for (let end; (end = rest.indexOf("\r\n")) >= 0; ) {
        const [verb, ...args] = rest.subarray(0, end).toString().split(" ");
        const size = verb.endsWith("PUB") ? Number(args.at(-1)) + 2 : 0;
        if (rest.length < end + 2 + size) return;
        const payload = rest.subarray(end + 2, end + size).toString();
        rest = rest.subarray(end + 2 + size);
        if (verb === "PING" && !this.deaf) socket.write("PONG\r\n");
        if (verb === "SUB") ids.set(args[0], args.at(-1));
        if (verb === "UNSUB" && this.late && args[0] === first?.id) this.#send(socket, first, this.late);
        if (!verb.endsWith("PUB")) continue;
        const to = { reply: args[1], id: ids.get(args[1].replace(/[^.]*$/, "*")) };
        first ??= to;
        this.requests.push(args[0]);
        const found = this.answer(args[0], payload);
        if (found) this.#send(socket, to, found);
      }
    });
  }

  #send(socket, { reply, id }, message) {
    const [headers, value] = message.map((part) => Buffer.from(part));
    const sizes = headers.length > 0 ? `${headers.length} ${headers.length + value.length}` : value.length;
    socket.write(`${headers.length > 0 ? "HMSG" : "MSG"} ${reply} ${id} ${sizes}\r\n`);
    socket.write(Buffer.concat([headers, value, Buffer.from("\r\n")]));
  }
}

// The reply with one leased item in a frame.
function leased(...pairs) {
  const headers = Buffer.from(`NATS/1.0\r\n${pairs.map((pair) => `${pair}\r\n`).join("")}\r\n`);
  const start = Buffer.alloc(16);
  start.writeUInt32BE(headers.length, 8);
  return ["NATS/1.0\r\nPq-Frames: 1\r\n\r\n", Buffer.concat([start, headers])];
}

test("a server that hangs does not make a request hang", async (t) => {
  const server = new Server();
  const jobs = await server.queue(t, { timeout: 200 });
  await sleep(50); // until the client has its first PONG
  server.deaf = true;
  await assert.rejects(jobs.len(), pq.NotSentError);
  await assert.rejects(jobs.push("x"), pq.NotSentError);
  await assert.rejects(jobs.lease({ expires: 60_000, signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  assert.deepEqual(server.requests, []);
});

test("a signal that ends during the first request on a connection ends it", async (t) => {
  const jobs = await new Server().queue(t);
  await sleep(50);
  const why = new AbortController();
  const asking = jobs.result("id", { wait: 60_000, signal: why.signal });
  queueMicrotask(() => queueMicrotask(() => why.abort(new Error("given up"))));
  await assert.rejects(asking, /given up/);
});

test("a lease whose signal ends while NATS is away throws its reason", async (t) => {
  const server = new Server(() => ["", '{"len":0}']);
  const jobs = await server.queue(t);
  await jobs.len();
  server.away();
  await sleep(50);
  await assert.rejects(jobs.lease({ expires: 60_000, signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
});

test("a job that comes as its request ends goes back", async (t) => {
  const server = new Server((subject) => (subject.includes(".ack.") ? ["", "+OK"] : undefined));
  server.late = leased("Pq-Token: T", "Pq-Ack-Wait: 30s");
  const worker = new pq.Worker(await server.queue(t), () => assert.fail("it was begun"));
  const running = worker.run();
  while (server.requests.length === 0) await sleep(10);
  await worker.close(); // the server does not answer that the request is cancelled
  await running;
  assert.equal(server.requests.at(-1), "pq.jobs.ack.T");
});

test("a stream that captures the subject is no bridge", async (t) => {
  const jobs = await new Server(() => ["", ofAStream]).queue(t);
  const requests = [
    () => jobs.len(), () => jobs.info(), () => jobs.pause(), () => jobs.remove("id"), () => jobs.move("id", 1),
    () => jobs.redrive(), () => jobs.redriveIds(["id"]), () => jobs.purge(), () => jobs.schedules().next(), () => jobs.unschedule("id"), () => jobs.lease(),
  ];
  for (const request of requests) await assert.rejects(request(), pq.BadReplyError, String(request));
});

for (const reply of [["", ofAStream], leased("Pq-Token: T", "Pq-Ack-Wait: soon"), leased("Pq-Token: T", "Pq-Priority: high")]) {
  test(`a worker outlasts what is no lease: ${reply[1].toString().replace(/[^ -~]+/g, " ")}`, async (t) => {
    const sound = leased("Pq-Id: sound", "Pq-Token: T", "Pq-Ack-Wait: 30s");
    const pops = [reply, sound];
    const nexts = [reply];
    const server = new Server((subject, payload) => {
      if (payload.startsWith("+NXT")) return nexts.shift() ?? ["", ""];
      return subject.includes(".ack.") ? ["", "+OK"] : pops.shift();
    });
    const ran = [];
    const worker = new pq.Worker(await server.queue(t), (job) => void ran.push(job.id));
    const running = worker.run();
    while (nexts.length > 0 || server.requests.filter((s) => s.includes(".pop.")).length < 3) await sleep(10);
    await worker.close();
    await running;
    assert.deepEqual(ran, ["sound"]);
  });
}

for (const pair of ["Pq-Ack-Wait: soon", "Pq-Priority: high", "Pq-Priority: 1.5"]) {
  test(`a lease with ${pair}`, async (t) => {
    const jobs = await new Server(() => leased("Pq-Token: T", pair)).queue(t);
    await assert.rejects(jobs.lease(), pq.BadReplyError);
  });
}

test("the reason of a failure has half of a surrogate pair", async (t) => {
  let said;
  const pops = [leased("Pq-Id: id", "Pq-Token: T", "Pq-Ack-Wait: 30s")];
  const server = new Server((subject, payload) => {
    if (!subject.includes(".ack.")) return pops.shift();
    said = payload;
    return ["", "+OK"];
  });
  const worker = new pq.Worker(await server.queue(t), () => {
    throw new Error("\u{1f600}".slice(0, 1));
  });
  const running = worker.run();
  while (!said) await sleep(10);
  await worker.close();
  await running;
  assert.equal(said, '-NAK {"reason":"\ufffd"}');
});

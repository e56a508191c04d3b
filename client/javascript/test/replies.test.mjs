// Replies that are not those of a bridge, or do not come, from a NATS server that does what the test says.
import assert from "node:assert/strict";
import { once } from "node:events";
import { createConnection, createServer } from "node:net";
import { test } from "node:test";
import { connect, headers } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";
import { patience } from "./bridge.mjs";

const ofAStream = '{"stream":"jobs","seq":5}';
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// answer is given the subject and payload of each request, and returns the headers and the value of the reply.
class Server {
  requests = [];
  subscriptions = 0;
  deaf = false; // to PING
  refuses = false; // every login
  refused = 0;
  cancels = false; // what is not answered yet, once the client asks for that
  late; // what comes as the subscription for the first request ends
  sockets = new Set();
  #server = createServer((socket) => this.#serve(socket));

  constructor(answer = () => undefined) {
    this.answer = answer;
  }

  async queue(t, options) {
    await this.listen();
    const nc = await this.connect();
    t.after(async () => {
      await nc.close();
      this.away();
    });
    return new pq.Client(nc, options).priorityQueue("jobs");
  }

  async listen() {
    await new Promise((resolve) => this.#server.listen(this.port ?? 0, "127.0.0.1", resolve));
    this.port = this.#server.address().port;
  }

  // Connects as the page does, and more often.
  connect = (options) => connect({ ...pq.connectOptions, servers: `127.0.0.1:${this.port}`, reconnectTimeWait: 20, ...options });

  away() {
    this.#server.close();
    for (const socket of this.sockets) socket.destroy();
  }

  #serve(socket) {
    const ids = new Map();
    let [first, unanswered] = [];
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
        if (verb === "CONNECT" && this.refuses) {
          this.refused++;
          return socket.end("-ERR 'Authorization Violation'\r\n");
        }
        if (verb === "PING" && !this.deaf) socket.write("PONG\r\n");
        if (verb === "SUB") ids.set(args[0], args.at(-1));
        if (verb === "SUB") this.subscriptions++;
        if (verb === "UNSUB" && this.late && args[0] === first?.id) this.#send(socket, first, this.late);
        if (!verb.endsWith("PUB")) continue;
        const to = { reply: args[1], id: ids.get(args[1].replace(/[^.]*$/, "*")) };
        first ??= to;
        if (this.cancels && payload.startsWith('{"cancel"')) this.#send(socket, unanswered, failed(404));
        this.requests.push(args[0]);
        const found = this.answer(args[0], payload);
        if (found) this.#send(socket, to, found);
        else unanswered = to;
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

test("a connection that is made before there is a server waits for one", async (t) => {
  const server = new Server(() => ["", '{"len":7}']);
  await server.listen();
  server.away();
  const connecting = server.connect();
  const [err] = await once(createConnection(server.port, "127.0.0.1"), "error"); // as the first attempt by now
  assert.equal(err.code, "ECONNREFUSED");

  await server.listen();
  const nc = await connecting;
  t.after(() => nc.close().then(() => server.away()));
  assert.equal(await new pq.Client(nc).priorityQueue("jobs").len(), 7);
});

test("a login that is refused at the start ends the wait, with the reason", async (t) => {
  const server = new Server();
  server.refuses = true;
  await server.listen();
  t.after(() => server.away());

  await assert.rejects(server.connect(), { name: "AuthorizationError", message: /Authorization Violation/ });
});

test("a login that is refused again and again after a restart of the server ends no connection", async (t) => {
  const server = new Server(() => ["", '{"len":7}']);
  const jobs = await server.queue(t, { timeout: patience });
  assert.equal(await jobs.len(), 7);

  server.refuses = true;
  for (const socket of server.sockets) socket.destroy();
  while (server.refused < 10 && !jobs.client.connection.nc.isClosed()) await sleep(10);
  server.refuses = false;

  assert.equal(await jobs.len(), 7);
});

test("a connection leaves a server that has frozen, also if that has not read what was sent to it", async (t) => {
  const server = new Server(() => ["", '{"len":7}']);
  await server.listen();
  const nc = await server.connect({ pingInterval: 50 });
  t.after(() => nc.close().then(() => server.away()));
  const jobs = new pq.Client(nc, { timeout: patience }).priorityQueue("jobs");
  assert.equal(await jobs.len(), 7);

  for (const socket of server.sockets) socket.pause();
  for (let i = 0; i < 64; i++) nc.publish("flood", new Uint8Array(1 << 20)); // more than the system takes
  for await (const status of nc.status()) if (status.type === "reconnect") break;

  assert.equal(await jobs.len(), 7);
});

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
  assert.equal(said, '-NAK {"retry_delay":"1000ms","reason":"\ufffd"}');
});

// The reply that a request failed with a code.
const failed = (code) => [`NATS/1.0\r\nNats-Service-Error-Code: ${code}\r\nNats-Service-Error: damaged\r\n\r\n`, ""];
const lease = (token) => leased(`Pq-Id: ${token}`, `Pq-Token: ${token}`, "Pq-Ack-Wait: 1h");

// Handlers by how their job ends, and what the worker sends for it once the bridge answers 500.
const endings = [
  [() => undefined, ["+NXT", "+ACK"]],
  [() => "a result", ["+NXT", "+ACK"]],
  [() => { throw new Error("boom"); }, ["-NAK"]],
  [() => { throw new pq.Snooze("1s"); }, ["-NAK"]],
  [() => { throw new pq.Drop("no"); }, ["+TERM"]],
  [async (worker) => void (worker.close(), await sleep(0)), ["+ACK"]],
];
for (const [handler, sent] of endings) {
  test(`an acknowledgement that is answered 500 ends, is logged, and frees its slot: ${handler}`, async (t) => {
    const pops = [lease("A"), lease("B")];
    const seen = [];
    const server = new Server((subject, payload) => {
      if (!subject.includes(".ack.")) return pops.shift();
      if (!subject.endsWith(".A")) return ["", "+OK"];
      seen.push(/\+NXT|\+ACK|-NAK|\+TERM/.exec(payload)[0]);
      return failed(500);
    });
    server.cancels = true;
    const logged = [];
    const logger = { warn() {}, error: (text, { error }) => logged.push(`${text}: ${error}`) };
    const worker = new pq.Worker(await server.queue(t), ({ id }) => (id === "A" ? handler(worker) : void worker.close()), { logger });

    await worker.run(); // until the only slot has done the second job, or the first one has stopped it
    assert.deepEqual(seen, sent);
    assert.deepEqual(logged, ["cannot settle a job: it comes back when its lease is over: damaged (500)"]);
  });
}

test("a job whose acknowledgement is repeated keeps its own slot, and none of those that shared its request", async (t) => {
  const pops = ["A", "B", "C", "D", "E"].map(lease);
  let [attempts, away] = [0, true];
  const server = new Server((subject, payload) => {
    if (!subject.includes(".ack.")) return pops.shift();
    if (payload.includes("also")) return failed(503);
    if (!subject.endsWith(".A")) return payload.startsWith("+NXT") ? failed(404) : ["", "+OK"];
    attempts++;
    return away ? failed(503) : ["", "+OK"];
  });
  server.cancels = true;
  const began = [];
  let three, five;
  const [first, all] = [new Promise((resolve) => (three = resolve)), new Promise((resolve) => (five = resolve))];
  const worker = new pq.Worker(await server.queue(t), async ({ id }) => {
    if (began.push(id) === 3) three();
    if (began.length === 5) five();
    await first;
  }, { concurrency: 3, logger: null });
  const running = worker.run();

  await all;
  while (attempts < 3) await sleep(10);
  away = false;
  await worker.close();
  await running;
  assert.deepEqual(began, ["A", "B", "C", "D", "E"]);
});

// Answers a push with the id of a job, and what asks for its result with what the test says.
const pushed = (answer = () => undefined) => new Server((subject) => (subject.endsWith(".push") ? ["", '{"queue":"jobs","id":"J","priority":0}'] : answer()));
// Without a bound of its own, a request takes an hour.
const patient = { timeout: "1h" };

test("a call whose wait ends without a reply is not done, and has the id", async (t) => {
  const jobs = await pushed().queue(t, patient);
  await assert.rejects(jobs.call("x", { wait: 100 }), (err) => {
    assert.match(err.message, /^job J was not done in time, and goes on: no reply on pq.jobs.result/);
    return err instanceof pq.NotDoneError && err.id === "J" && err.cause instanceof pq.UnavailableError;
  });
});

test("a call whose wait ends while NATS is away is not done, and has the id", async (t) => {
  const server = pushed(() => void server.away());
  const jobs = await server.queue(t, patient);
  await assert.rejects(jobs.call("x", { wait: 500 }), (err) => err instanceof pq.NotDoneError && err.id === "J" && err.cause instanceof pq.PQError);
});

test("a call whose wait ends while no bridge is there is not done, and has the id", async (t) => {
  const jobs = await pushed(() => ["NATS/1.0 503\r\n\r\n", ""]).queue(t, patient);
  await assert.rejects(jobs.call("x", { wait: 200 }), (err) => err instanceof pq.NotDoneError && err.id === "J" && err.cause instanceof pq.NoBridgeError);
});

test("a call ends at once when the connection is closed, with the id", async (t) => {
  const server = pushed(() => void jobs.client.connection.nc.close());
  const jobs = await server.queue(t, patient);
  await assert.rejects(jobs.call("x"), (err) => err instanceof pq.NotDoneError && err.id === "J" && err.cause instanceof pq.PQError);
});

test("a call that is never pushed ends in its time", async (t) => {
  const server = new Server();
  const jobs = await server.queue(t, patient);
  await jobs.client.connection.nc.flush();
  server.away();
  await assert.rejects(jobs.call("x", { wait: 100 }), (err) => err instanceof pq.PQError && !(err instanceof pq.NotDoneError));
});

test("a result that is waited for ends at most a second after its time, also on the way through a chain", async (t) => {
  const jobs = await pushed().queue(t, patient);
  const [asked, done] = [[], headers()];
  done.set("Pq-Id", "J");
  done.set("Pq-State", "done");
  t.mock.method(jobs.client.connection, "request", async ({ subject }, ms) => {
    asked.push([subject.replace("pq.jobs.", ""), ms <= 1200]);
    if (subject.endsWith("result")) return { headers: done, data: new Uint8Array() };
    throw new pq.UnavailableError("no reply");
  });

  await assert.rejects(jobs.result("J", { wait: 200, follow: true }), pq.UnavailableError);
  assert.deepEqual(asked.slice(0, 2), [["result", true], ["get", true]]);
  assert.ok(asked.every(([, bounded]) => bounded));
});

test("a call checks its arguments before it pushes", async (t) => {
  const server = pushed();
  const jobs = await server.queue(t);
  const why = new Error("given up");
  const cases = [[{ wait: NaN }, /^wait: NaN is not a duration/], [{ wait: "1w" }, /^wait: "1w" is not a duration/], [{ wait: -1 }, /^wait: -1 is out/], [{ signal: 5 }, /^signal 5: want/], [{ keep: NaN }, /^keep: NaN/]];
  for (const [options, text] of cases) await assert.rejects(jobs.call("x", options), { name: "BadRequestError", message: text });
  await assert.rejects(jobs.call("x", { signal: AbortSignal.abort(why) }), (err) => err === why);
  assert.deepEqual(server.requests, []);
});

test("the signal of a call ends its push", async (t) => {
  const server = new Server();
  const jobs = await server.queue(t, patient);
  const why = new AbortController();
  const calling = jobs.call("x", { signal: why.signal });
  while (server.requests.length === 0) await sleep(10);
  why.abort(new Error("given up"));
  await assert.rejects(calling, /given up/);
});

for (const push of [(jobs) => jobs.push("x"), async (jobs) => { for (const { error } of await jobs.pushMany([{ value: 1 }, { value: 2 }])) throw error; }]) {
  test(`a push that may have counted is of unknown outcome, whatever comes later: ${push}`, async (t) => {
    const server = new Server(() => void server.away()); // carried out, but the reply is lost
    const jobs = await server.queue(t, { timeout: 500 });
    await assert.rejects(push(jobs), (err) => {
      assert.match(err.message, /an earlier attempt may have counted; the last one: .*was not sent/);
      return err instanceof pq.UnknownOutcomeError && err.unknown && err.cause instanceof pq.NotSentError;
    });
    assert.equal(server.requests.length, 1);
  });
}

test("clients of one connection share what it has", async (t) => {
  const server = new Server(() => ["", '{"len":0}']);
  const { nc } = (await server.queue(t)).client.connection;
  const status = t.mock.method(nc, "status");
  for (let i = 0; i < 20; i++) await new pq.Client(nc).priorityQueue("jobs").len();
  assert.equal(server.subscriptions, 1);
  await new pq.Client(nc, { inboxPrefix: "own" }).priorityQueue("jobs").len();
  await new pq.Client(nc, { inboxPrefix: "own" }).priorityQueue("jobs").len();
  assert.deepEqual([server.subscriptions, status.mock.callCount()], [2, 1]);
});

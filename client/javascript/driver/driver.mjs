// The driver of the JavaScript client for the table of behaviour in testenv/clients, whose package documentation defines
// the lines that it reads and prints.
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "@nats-io/transport-node";
import * as pq from "../dist/index.js";

const { env } = process;
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const fromBase64 = (text = "") => Uint8Array.from(Buffer.from(text, "base64"));
const integer = (text) => (text === undefined ? undefined : BigInt(text));
const count = (text) => (text === undefined ? undefined : Number(text));

const nc = await connect({
  ...pq.connectOptions,
  servers: env.NATS_URL,
  user: env.NATS_USER,
  pass: env.NATS_PASSWORD,
  inboxPrefix: env.PQ_INBOX_PREFIX || undefined,
});
const client = new pq.Client(nc, {
  prefix: env.PQ_PREFIX || undefined,
  fifoPrefix: env.PQ_FIFO_PREFIX || undefined,
  inboxPrefix: env.PQ_INBOX_PREFIX || undefined,
  timeout: env.PQ_TIMEOUT || undefined,
});
const leases = new Map();
const workers = new Map();
const joins = new Map();

class Unsupported extends Error {}

// The members that say how to push, and all others that commands may have.
const pushMembers = [
  ...["value", "priority", "msgId", "unique", "delay", "at", "ttl", "group", "weight", "keep", "headers", "type"],
  ...["join", "joiner"],
];
const members = new Set([
  ...["n", "op", "queue", "queues", "fifo", "items", ...pushMembers],
  ...["max", "expires", "count", "peek", "ackWait", "holder", "lease", "how", "result", "reason", "progress", "next"],
  ...["what", "state", "match", "id", "name", "settings", "schedule"],
  ...["wait", "worker", "concurrency", "jobTimeout", "retryDelay", "types", "timeout", "leases", "ids", "place", "places"],
  ...["open", "follow"],
]);

const queue = (c, name = c.queue) => (c.fifo ? client.fifoQueue(name) : client.priorityQueue(name));

function pushOptions(c) {
  const { value, priority, weight, headers = [], msgId = false, ...rest } = c;
  const pairs = headers.map(([name, v]) => [name, typeof v === "string" ? v : fromBase64(v.base64)]);
  if (rest.joiner) rest.joiner = { queue: c.queue, id: rest.joiner };
  const options = { ...rest, msgId, priority: integer(priority), weight: count(weight), headers: pairs };
  return Object.fromEntries(Object.entries(options).filter(([name, v]) => v !== undefined && pushMembers.includes(name)));
}

const item = (i) =>
  i && {
    id: i.id,
    priority: String(i.priority),
    value: base64(i.value),
    headers: [...i.headers].map(([name, v]) => [name, typeof v === "string" ? v : { base64: base64(v) }]),
    group: i.group,
  };

// Returns what the client has read of the bridge's JSON as the bridge had it, with numbers as text.
function wire(value, data = false) {
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return base64(value);
  if (Array.isArray(value)) return value.map((v) => wire(v));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, v]) => [
      data ? name : name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`),
      wire(v, ["headers", "groups", "priorities"].includes(name)),
    ]),
  );
}

// Returns members of the protocol as the client takes them.
const camel = (o) => Object.fromEntries(Object.entries(o).map(([name, v]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), v]));

const look = {
  len: async (c) => String(await queue(c).len()),
  info: async (c) => wire(await queue(c).info()),
  items: async (c) => {
    const list = [];
    for await (const { type, group, headers, ...i } of queue(c).items({ state: c.state, match: c.match })) {
      const names = [...new Set([...headers].map(([name]) => name))];
      const record = names.length > 0 ? Object.fromEntries(names.map((name) => [name, headers.all(name)])) : undefined;
      list.push(wire({ ...i, headers: record }));
    }
    return list;
  },
  rank: async (c) => {
    const { rank, atLeast } = await queue(c).rank(c.id, { max: c.max });
    return { rank: String(rank), atLeast };
  },
  queues: (c) => listed(c.fifo ? client.fifoQueues() : client.priorityQueues()),
  schedules: async (c) => (await listed(queue(c).schedules())).map((record) => wire(record)),
  get: async (c) => {
    const found = await queue(c).get(c.id);
    const { parent, attempts, successors } = found;
    const past = { ...(attempts.length > 0 && { attempts }), ...(successors.length > 0 && { successors }) };
    return { ...item(found), state: found.state, parent, ...wire(past) };
  },
};

async function listed(iterable) {
  const list = [];
  for await (const one of iterable) list.push(one);
  return list;
}

// Returns what became of each item: its error, or some members.
const results = async (list, ...members) =>
  (await list).map((r) => (r.error ? { error: errorOf(r.error) } : Object.fromEntries(members.map((name) => [name, r[name]]))));

const manage = {
  move: async (c) => {
    const priority = integer(c.priority) ?? 0;
    const [one, many] = [c.place === undefined ? c.id : { place: c.place }, c.places ? { places: c.places } : c.ids];
    return many ? results(queue(c).moveIds(many, priority), "place") : { place: await queue(c).move(one, priority) };
  },
  remove: async (c) => (c.ids ? results(queue(c).removeIds(c.ids)) : void (await queue(c).remove(c.id))),
  release: async (c) => (c.ids ? results(queue(c).releaseIds(c.ids)) : void (await queue(c).release(c.id))),
  purge: async (c) => ({ purged: String(await queue(c).purge(c.state)) }),
  redrive: async (c) => {
    if (c.ids ?? c.places) return results(queue(c).redriveIds(c.ids ?? { places: c.places }), "home");
    if (!c.id) return { redriven: String(await queue(c).redrive({ max: count(c.max) })) };
    const [{ home, error }] = await queue(c).redriveIds([c.id]);
    if (error) throw error;
    return { home };
  },
  configure: async (c) => wire(await queue(c).configure(camel(c.settings))),
  pause: (c) => queue(c).pause(c.group),
  resume: (c) => queue(c).resume(c.group),
  schedule: async (c) => {
    const { value, ...schedule } = camel(c.schedule);
    return wire(await queue(c).schedule({ id: c.name, ...schedule, ...(value === undefined ? {} : { value: fromBase64(value) }) }));
  },
  unschedule: (c) => queue(c).unschedule(c.name),
};

const settle = {
  ack: (d, c) =>
    d.ack(c.result === undefined ? undefined : fromBase64(c.result), {
      next: c.next?.map((n) => ({ queue: n.queue, value: fromBase64(n.value), priority: integer(n.priority) ?? 0 })),
    }),
  nak: (d, c) => d.nak({ delay: c.delay, retryDelay: c.retryDelay, reason: c.reason }),
  snooze: (d, c) => d.snooze(c.delay),
  term: (d, c) => d.term(c.reason),
  extend: (d, c) => d.extend(c.progress === undefined ? undefined : Buffer.from(c.progress)),
};

const operations = {
  async push(c) {
    const { id, priority, duplicate } = await queue(c).push(fromBase64(c.value), pushOptions(c));
    return { id, priority: String(priority), duplicate };
  },
  async pushMany(c) {
    const outcomes = await queue(c).pushMany(c.items.map((i) => ({ value: fromBase64(i.value), ...pushOptions(i) })));
    return outcomes.map((o) => (o.error ? { error: errorOf(o.error) } : { id: o.id, duplicate: o.duplicate }));
  },
  async all(c) {
    const [joiner, ...members] = c.items.map((i) => ({ value: fromBase64(i.value), ...pushOptions(i) }));
    return (await queue(c).all(joiner, members)).map(({ id, duplicate }) => ({ id, duplicate }));
  },
  async open(c) {
    const join = await queue(c).openJoin(c.open, fromBase64(c.value), pushOptions(c));
    joins.set(join.id, join);
    return { id: join.id };
  },
  close: (c) => joins.get(c.id).close(),
  async pop(c) {
    const { max, expires } = c;
    if (c.count) return (await queue(c).popBatch(Number(c.count), { max, expires })).map(item);
    return item(c.peek ? await queue(c).peek({ max }) : await queue(c).pop({ max, expires }));
  },
  async lease(c) {
    const { ackWait, expires, holder, max } = c;
    const options = { ackWait, expires, holder, max };
    if (c.count) return (await queue(c).leaseBatch(Number(c.count), options)).map(held);
    return held(await queue(c).lease(options));
  },
  async ackAll(c) {
    const errors = await client.ackAll(c.leases.map((name) => leases.get(name)));
    return errors.map((error) => (error ? { error: errorOf(error) } : null));
  },
  settle: (c) => known(settle, c.how)(leases.get(c.lease), c),
  look: (c) => known(look, c.what)(c),
  manage: (c) => known(manage, c.what)(c),
  async result(c) {
    const r = await queue(c).result(c.msgId ? { msgId: c.msgId } : c.id, { wait: c.wait, follow: c.follow });
    return {
      state: r.state,
      value: r.value ? base64(r.value) : null,
      error: r.deadLetter?.error ?? "",
      reason: r.deadLetter?.reason ?? "",
      progress: r.progress ? base64(r.progress) : null,
    };
  },
  async call(c) {
    return base64((await queue(c).call(fromBase64(c.value), { ...pushOptions(c), wait: c.wait })) ?? []);
  },
  work(c) {
    workers.set(c.worker, (c.queues ?? [c.queue]).map((name) => start(c, queue(c, name))));
  },
  stop: (c) => stop(workers.get(c.worker), c.timeout),
};

// Keeps a delivery, if there is one, under a name.
function held(delivery) {
  if (!delivery) return null;
  const name = String(leases.size + 1);
  leases.set(name, delivery);
  return { lease: name, ...item(delivery), deliveries: String(delivery.deliveries) };
}

function known(table, name) {
  if (!Object.hasOwn(table, name)) throw new Unsupported(`unsupported: ${name}`);
  return table[name];
}

function start(c, jobs) {
  const options = {
    concurrency: count(c.concurrency),
    ackWait: c.ackWait,
    holder: c.holder,
    jobTimeout: c.jobTimeout,
    retryDelay: c.retryDelay,
    max: c.max,
    logger: console,
  };
  const handlers = c.types && Object.fromEntries(c.types.map((type) => [type, handlerOf(c.worker, type)]));
  const worker = new pq.Worker(jobs, handlers ?? handlerOf(c.worker), options);
  worker.run().catch((err) => say({ event: "error", worker: c.worker, class: classOf(err) }));
  return worker;
}

const stop = async (list, timeout) => void (await Promise.all(list.map((worker) => worker.close({ timeout }))));

const handlerOf = (worker, handler) => async (job, { signal }) => {
  const at = () => String(Date.now());
  const joined = job.joined && Object.entries(job.joined).map(([name, n]) => `${name}=${n}`).join(" ");
  const { id, deliveries, type, parent } = job;
  const about = { type, handler, joined, parent: parent?.id };
  say({ event: "start", worker, job: id, deliveries: String(deliveries), ...about, at: at() });
  let how = "failed";
  try {
    const result = await play(job, signal);
    how = "done";
    return result;
  } catch (err) {
    if (err === signal.reason) how = endOf(err);
    throw err;
  } finally {
    say({ event: "end", worker, job: job.id, how, at: at() });
  }
};

function endOf(reason) {
  if (reason instanceof pq.StoppedError) return "stopped";
  return reason instanceof pq.TimedOutError ? "timeout" : "lost";
}

// Does what the value of a job says.
async function play(job, signal) {
  let script;
  try {
    script = JSON.parse(job.string()).do;
  } catch {
    return undefined;
  }
  for (const [step, ...args] of script ?? []) {
    if (step === "return") return args.length > 0 ? fromBase64(args[0]) : undefined;
    await known(steps, step)(job, signal, ...args);
  }
  return undefined;
}

const units = { ns: 1e-6, us: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const milliseconds = (text) => {
  const parts = [...text.matchAll(/([\d.]+)(ns|us|ms|s|m|h)/g)];
  return parts.reduce((sum, [, number, unit]) => sum + number * units[unit], 0);
};

const steps = {
  async wait(_, signal, text) {
    await delay(milliseconds(text), undefined, { signal }).catch(() => undefined);
    signal.throwIfAborted();
  },
  async block(_, signal, text) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds(text));
    await delay(0);
    signal.throwIfAborted();
  },
  thread: () => undefined,
  progress: (job, _, text) => job.progress(Buffer.from(text)),
  next: (job, _, name, value) => job.next(name, fromBase64(value)),
  member: (job, _, name, value) => job.next(name, fromBase64(value), { joiner: job.joiner }),
  all: (job, _, name, value, ...members) => {
    const joiner = job.next(name, fromBase64(value), { join: "24h" });
    for (const member of members) job.next(name, fromBase64(member), { joiner });
  },
  fail: (_, __, text, cause) => Promise.reject(new Error(text, cause && { cause: new Error(cause) })),
  snooze: (_, __, text) => Promise.reject(new pq.Snooze(text)),
  drop: (_, __, text) => Promise.reject(new pq.Drop(text)),
  retry: (_, __, text, cause) => Promise.reject(new pq.RetryAfter(text, new Error(cause))),
};

function classOf(err) {
  if (err instanceof Unsupported) return "Unsupported";
  return err instanceof pq.PQError ? err.constructor.name.replace(/Error$/, "") : "BadArgument";
}

function errorOf(err) {
  const answered = err instanceof pq.PQError && !(err instanceof pq.JobFailedError);
  const { code = 0, reason = "", unknown = false } = answered ? err : {};
  const job = err instanceof pq.NotDoneError ? err.id : undefined;
  return { class: classOf(err), code: String(code), reason, text: err.message, unknown, job };
}

async function obey(c) {
  try {
    const unknown = Object.keys(c).filter((name) => !members.has(name));
    if (unknown.length > 0) throw new Unsupported(`unsupported: ${c.op} with ${unknown}`);
    say({ n: c.n, value: (await known(operations, c.op)(c)) ?? null });
  } catch (err) {
    if (!(err instanceof pq.PQError)) console.error(err);
    say({ n: c.n, error: errorOf(err) });
  }
}

process.once("SIGTERM", async () => {
  await Promise.all([...workers.values()].map((list) => stop(list)));
  process.exit(0);
});

say({ event: "ready" });
for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  if (c.op !== "exit") {
    void obey(c);
    continue;
  }
  say({ n: c.n, value: null });
  break;
}
process.exit(0);

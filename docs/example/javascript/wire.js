// Requests to pqbridge, for producer.js and worker.js.
import { connect, createInbox, headers, NoRespondersError, TimeoutError } from "@nats-io/transport-node";

export { headers };

export const nc = await connect({
  servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222",
  maxReconnectAttempts: -1,
  ignoreAuthErrorAbort: true, // also while the server refuses the login
});

// The client keeps what is published while it reconnects. A request that was given up by then must not be sent later.
let connected = true;
(async () => {
  for await (const status of nc.status()) {
    if (status.type === "disconnect") connected = false;
    if (status.type === "reconnect") connected = true;
  }
})();

// Refusal is an error that the bridge replied with.
export class Refusal extends Error {
  constructor(code, text) {
    super(`${text} (${code})`);
    this.code = code; // 404: the queue is empty; 409: the lease is lost; 429, 503: try again
  }
}

// checked returns a reply, unless it is an error.
function checked(m) {
  const code = m.headers?.get("Nats-Service-Error-Code");
  if (code) throw new Refusal(Number(code), m.headers.get("Nats-Service-Error"));
  if (m.data.length === 0 && m.headers?.code === 503) throw new NoRespondersError(m.subject);
  return m;
}

// temporary reports whether it is worth trying again later.
export function temporary(err) {
  return [429, 503].includes(err.code) || [TimeoutError, NoRespondersError].some((c) => err instanceof c || err.cause instanceof c);
}

export async function pause(err) {
  console.error(`trying again: ${err.message}`);
  await new Promise((resolve) => setTimeout(resolve, 1000));
}

// request sends a request until it is answered. Use it for what may be done twice: a push with a message id, and
// acknowledgements.
export async function request(subject, payload, options = {}) {
  for (;;) {
    try {
      return checked(await nc.request(subject, payload, { timeout: 10_000, ...options }));
    } catch (err) {
      if (!temporary(err)) throw err;
      await pause(err);
    }
  }
}

// lease waits up to 30 s for a job. Its reply subject is where acknowledgements go. The request can be cancelled by its id.
export async function lease(queue, id) {
  if (!connected) throw new TimeoutError();
  const interval = 5_000;
  const sub = nc.subscribe(createInbox()); // for the replies to this request only
  let watchdog;
  const listen = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => sub.unsubscribe(), 2 * interval + 1000);
  };
  try {
    // The bridge notices by heartbeats that a worker is gone, and the worker that the bridge is.
    const options = { ack_wait: "30s", expires: "30s", idle_heartbeat: `${interval}ms`, id };
    nc.publish(`pq.${queue}.pop.min`, JSON.stringify(options), { reply: sub.getSubject() });
    listen();
    for await (const m of sub) {
      if (!m.headers?.has("Pq-Heartbeat")) return checked(m);
      listen();
    }
    throw new TimeoutError();
  } finally {
    clearTimeout(watchdog);
    sub.unsubscribe();
  }
}

// cancel ends a lease that waits: it ends with 404, or with the job that came just then.
export function cancel(queue, id) {
  nc.publish(`pq.${queue}.pop.min`, JSON.stringify({ cancel: id }), { reply: createInbox() });
}

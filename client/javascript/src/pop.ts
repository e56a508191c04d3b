import type { Msg } from "@nats-io/nats-core";
import { type Call, type Connection, failureIn, type Request } from "./connection.js";
import { BadReplyError, NoHeartbeatError, NotFoundError, type PQError, UnknownOutcomeError } from "./errors.js";
import { parseFrames } from "./headers.js";
import { receive, receiveMessage, type Received } from "./item.js";
import { stringify } from "./json.js";
import { randomId, utf8 } from "./codec.js";
import { type Duration, onAbort } from "./duration.js";

/** Options of a pop. */
export interface PopOptions {
  /** Takes the largest priority, the newest among equals, instead of the smallest and oldest. Not in a FIFO queue. */
  max?: boolean;
  /** How long to wait for an item, up to 1 h. The default, 0, does not wait. */
  expires?: Duration;
  /** The most bytes of items to return. An item that exceeds them stays, and the error is a TooLargeError. */
  maxBytes?: number;
  /**
   * Ends the wait. An item that is on its way by then is returned all the same; otherwise the call throws the signal's
   * reason, at most two seconds later.
   */
  signal?: AbortSignal;
}

/** Options of a lease. */
export interface LeaseOptions extends PopOptions {
  /** The length of the lease, 100 ms to 12 h. The default is the queue's setting, or 30 s. */
  ackWait?: Duration;
  /** The name of who takes the lease, which items shows: up to 128 bytes. */
  holder?: string;
}

/** A request that may bring items. */
export interface Fetch {
  subject: string;
  /** The subject that cancels it. */
  cancels: string;
  /** The subject of acknowledgements, up to the token. */
  acks: string;
  /** The members of the protocol. */
  options: Record<string, unknown>;
  /** How many items it asks for. */
  wanted: number;
  /** How long it waits for items, in milliseconds; 0 if it does not. */
  expires: number;
  /** How often the bridge confirms that it waits, in milliseconds. */
  heartbeat?: number;
  /** Ends the wait: the bridge is asked to. What comes before it does is still returned. */
  signal?: AbortSignal | undefined;
  onHeartbeat?: () => void;
  /** Makes the request of the options; by default they are the payload. */
  request?: (options: string) => Omit<Request, "subject" | "writes">;
}

/** The items that came, and why there are not more; "empty" as a NotFoundError. */
export interface Fetched {
  items: Received[];
  error?: PQError | undefined;
}

/** How late a reply may come, in milliseconds. Then the bridge was killed, or NATS lost a message. */
export const lateReply = 5000;
/** How long the bridge may take to end a request that was cancelled, in milliseconds. */
const cancelTime = 2000;

/** Sends a request that may bring items. It throws only what says that nothing was done; `error` says anything else. */
export async function fetchItems(c: Connection, f: Fetch, timeout: number): Promise<Fetched> {
  const id = f.expires > 0 ? randomId() : undefined;
  const options = { ...f.options, id };
  const request = f.request?.(stringify(options)) ?? { payload: utf8(stringify(options)) };
  const patience = f.expires > 0 ? f.expires + lateReply : timeout;
  const { call, end } = await c.send({ subject: f.subject, writes: true, ...request }, true, f.expires > 0, patience, f.signal);

  const reply = new Reply(f, call);
  const forget = onAbort(f.signal, call.interrupt);
  try {
    await reply.readAll(patience, id ? () => c.publish(f.cancels, utf8(stringify({ cancel: id }))) : undefined);
  } finally {
    forget();
    await end(reply.complete);
  }
  reply.readLate();
  return { items: reply.items, error: reply.error };
}

/** The reply to a request that may bring items, as it comes. */
class Reply {
  readonly items: Received[] = [];
  complete = false;
  error: PQError | undefined;

  constructor(readonly fetch: Fetch, readonly call: Call) {}

  async readAll(patience: number, cancel: (() => void) | undefined): Promise<void> {
    const { wanted, heartbeat = 0 } = this.fetch;
    let end = performance.now() + patience;
    let silence = heartbeat ? performance.now() + 2 * heartbeat : Infinity;
    let cancelled = !cancel;
    let why = `waited ${Math.round(patience)} ms`;
    try {
      while (this.items.length < wanted && !this.complete) {
        const m = await this.call.next(Math.min(end, silence) - performance.now(), !cancelled);
        if (m) {
          if (this.#read(m)) silence = performance.now() + 2 * heartbeat;
        } else if (this.call.interrupted && !cancelled && cancel) {
          cancelled = true;
          cancel();
          why = `it was cancelled, and nothing came for ${cancelTime} ms`;
          [end, silence] = [performance.now() + cancelTime, Infinity];
        } else {
          if (cancel && !cancelled) cancel();
          if (performance.now() < end) throw new NoHeartbeatError(`no heartbeat for ${2 * heartbeat} ms`);
          throw this.call.noReply(why);
        }
      }
      this.complete = true;
    } catch (err) {
      this.error = err as PQError;
      if (this.items.length === 0) return;
      this.error = new UnknownOutcomeError(`the reply broke off: ${this.error.text}`, { cause: err });
    }
  }

  /** Reads what came between the end of the wait and the end of the subscription. */
  readLate(): void {
    while (!this.complete && this.call.messages.length > 0) {
      try {
        this.#read(this.call.messages.shift()!);
      } catch (err) {
        this.error = err as PQError;
      }
    }
  }

  // Reads a message of the reply, and reports whether it was a heartbeat.
  #read(m: Msg): boolean {
    const header = (name: string): string => m.headers?.get(name) ?? "";
    if (header("Pq-Heartbeat")) {
      this.fetch.onHeartbeat?.();
      return true;
    }

    if (header("Pq-Frames")) this.#readFrames(m, Number(header("Pq-Frames")));
    const failure = failureIn(m, this.fetch.subject);
    const count = header("Pq-Batch-Count");
    if (count || failure) {
      this.complete = true;
      const sent = Number(count || 0);
      if (count && !failure?.unknown && sent !== this.items.length) {
        this.error = new UnknownOutcomeError(`${this.items.length} of ${sent} items arrived`);
      } else {
        this.error = failure ?? (this.items.length > 0 ? undefined : new NotFoundError("the queue is empty", { code: 404, reason: "empty" }));
      }
    } else if (!header("Pq-Frames")) {
      this.items.push(receiveMessage(m));
    }
    return false;
  }

  #readFrames(m: Msg, count: number): void {
    try {
      const frames = parseFrames(m.data);
      const fits = frames.length === count && this.items.length + count <= this.fetch.wanted;
      if (!fits) throw new RangeError(`${frames.length} frames`);
      for (const [pairs, value] of frames) {
        const r = receive(pairs, value, "");
        const token = r.bridge.get("Pq-Token");
        if (token) r.ack = this.fetch.acks + token;
        this.items.push(r);
      }
    } catch (err) {
      const text = `items cannot be read: ${(err as Error).message}`;
      throw new BadReplyError(text, { unknown: true, cause: err });
    }
  }
}

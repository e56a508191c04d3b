import {
  ClosedConnectionError, type ConnectionOptions, createInbox, DrainingConnectionError, type Msg,
  type NatsConnection, type PermissionViolationError, type Subscription,
} from "@nats-io/nats-core";
import type { NatsConnectionImpl } from "@nats-io/nats-core/internal";
import type { Codec } from "./codec.js";
import { onAbort, sleep, within } from "./duration.js";
import {
  badRequest, errorOf, NoBridgeError, NotSentError, type PQError, shown, TooLargeError, UnavailableError,
  UnknownOutcomeError,
} from "./errors.js";
import { HeaderBlock } from "./headers.js";

/**
 * What every connection should have: `await connect({ ...connectOptions, servers })`. nats-core waits for NATS, at the start
 * too, never gives up once a Client has the connection, and leaves a server that answers nothing within a minute. At the
 * start, it throws AuthorizationError at the second time that NATS refuses the login.
 */
export const connectOptions = {
  waitOnFirstConnect: true,
  ignoreAuthErrorAbort: false, // until there is a Client
  maxReconnectAttempts: -1,
  reconnectTimeWait: 500,
  pingInterval: 15_000, // after two pings without an answer, the third one ends the connection
  maxPingOut: 2,
  timeout: 10_000, // of an attempt to connect
} satisfies ConnectionOptions;

/** What requests go by: a Client. */
export interface Requester {
  readonly connection: Connection;
  readonly codec: Codec;
  /** How long a request may take, in milliseconds. */
  readonly timeout: number;
}

/** Where the requests of a queue go: a Queue. */
export interface Target {
  readonly client: Requester;
  readonly name: string;
  readonly fifo: boolean;
  /** The subject up to the verb. */
  readonly subject: string;
}

/** A request to send. */
export interface Request {
  subject: string;
  payload: Uint8Array;
  headers?: HeaderBlock | undefined;
  /** Whether it can change a queue: then its outcome is unknown if no reply comes. */
  writes: boolean;
}

/** One request under way: the messages that have come for it, and why no more will. */
export class Call {
  readonly messages: Msg[] = [];
  failure: PQError | undefined;
  /** Somebody wants the request to end: it may be cancelled at the bridge. */
  interrupted = false;
  reply = "";
  #wake: (() => void) | undefined;

  constructor(readonly subject: string, readonly writes: boolean, readonly waits: boolean) {}

  deliver(m: Msg): void {
    this.messages.push(m);
    this.#wake?.();
  }

  fail(err: PQError): void {
    this.failure ??= err;
    this.#wake?.();
  }

  interrupt = (): void => {
    this.interrupted = true;
    this.#wake?.();
  };

  /**
   * Returns the next message; undefined after some milliseconds, or if it is interrupted and that counts. Throws the
   * failure once all messages are read.
   */
  async next(ms: number, interruptible = false): Promise<Msg | undefined> {
    const ready = (): boolean => this.messages.length > 0 || !!this.failure || (interruptible && this.interrupted);
    const end = performance.now() + ms;
    for (let left = ms; !ready() && left > 0; left = end - performance.now()) {
      await within(left, new Promise<void>((resolve) => (this.#wake = resolve)));
    }
    if (!ready()) await sleep(0); // what came while something blocked the event loop is read only after the timer
    if (this.messages.length === 0 && this.failure) throw this.failure;
    return this.messages.shift();
  }

  /** Returns the error of a request to which no reply came. */
  noReply(why: string, cause?: unknown): PQError {
    const text = `no reply on ${hideToken(this.subject)}: ${why}`;
    return this.writes ? new UnknownOutcomeError(text, { cause }) : new UnavailableError(text, { cause });
  }
}

/** A subscription for the replies to requests. Each request has a subject of its own. */
class Inbox {
  readonly subscription: Subscription;
  readonly #prefix: string;
  /** By the subject for their replies. */
  readonly calls = new Map<string, Call>();
  #last = 0;
  /** Why it receives nothing. */
  refused: Error | undefined;

  constructor(nc: NatsConnection, prefix: string) {
    this.#prefix = `${createInbox(prefix)}.`;
    this.subscription = nc.subscribe(`${this.#prefix}*`, {
      callback: (err, m) => {
        if (err) this.#refuse(err);
        else this.calls.get(m.subject)?.deliver(m);
      },
    });
  }

  open(call: Call): void {
    call.reply = this.#prefix + ++this.#last;
    this.calls.set(call.reply, call);
  }

  #refuse(err: Error): void {
    this.refused = err;
    for (const call of this.calls.values()) call.fail(call.noReply(err.message, err));
  }
}

/** How many idle subscriptions are kept for requests that bring items. */
const mostIdle = 1024;
/** How long to wait, in milliseconds, until NATS has confirmed the end of a subscription. */
const drainTime = 500;

const connections = new WeakMap<NatsConnection, Map<string, Connection>>();

/**
 * A connection to NATS as clients see it; those with the same prefix of inboxes share it. It publishes only
 * while the connection is up: nats-core keeps or drops what is published meanwhile, and requests that were given up must
 * not be sent later.
 */
export class Connection {
  #state: "unknown" | "up" | "away" | "closed" = "unknown";
  readonly #changed: (() => void)[] = [];
  /** The connection whose server has confirmed that replies arrive; connections are counted by `#number`. */
  #hears = -1;
  #number = 0;
  #shared: Inbox | undefined;
  #idle: Inbox[] = [];
  readonly #calls = new Set<Call>();

  /** Returns the only one for a connection of nats-core and a prefix of inboxes. */
  static of(nc: NatsConnection, inboxPrefix = "_INBOX"): Connection {
    const all = connections.get(nc) ?? new Map<string, Connection>();
    const found = all.get(inboxPrefix) ?? new Connection(nc, inboxPrefix);
    connections.set(nc, all.set(inboxPrefix, found));
    return found;
  }

  private constructor(readonly nc: NatsConnection, readonly inboxPrefix: string) {
    // nats-core reads its options whenever it needs them: from now on, a login that is refused is tried again.
    const { options } = nc as Partial<NatsConnectionImpl>;
    if (options?.waitOnFirstConnect) options.ignoreAuthErrorAbort = true;
    void this.#watch();
    nc.flush().then(
      () => this.#state === "unknown" && this.#become("up"),
      () => undefined, // until it is back
    );
  }

  async #watch(): Promise<void> {
    for await (const status of this.nc.status()) {
      if (status.type === "disconnect") {
        this.#become("away");
        for (const call of this.#calls) if (!call.waits) call.fail(call.noReply("the connection to NATS was lost"));
      } else if (status.type === "staleConnection") {
        // A transport waits until the server has read what was sent to it, which one that has frozen does not.
        const { protocol } = this.nc as Partial<NatsConnectionImpl>;
        void protocol?.transport.close(new Error("stale connection"));
      } else if (status.type === "reconnect") {
        this.#number++;
        this.#become("up");
        for (const call of this.#calls) call.interrupt();
      } else if (status.type === "error" && isDenied(status.error)) {
        if (status.error.operation === "publish") this.#refuse(status.error);
      }
    }
    this.#become("closed");
    for (const call of this.#calls) call.fail(call.noReply("the connection to NATS is closed", new ClosedConnectionError()));
  }

  #become(state: "up" | "away" | "closed"): void {
    this.#state = state;
    for (const wake of this.#changed.splice(0)) wake();
  }

  // Ends the newest request on a subject, because the server has refused one. It says not which, so the outcome is
  // known only if there is no other.
  #refuse(err: PermissionViolationError): void {
    const calls = [...this.#calls].filter((call) => call.subject === err.subject && !call.failure);
    const text = `a request on ${hideToken(err.subject)} was refused: no permission to publish to it`;
    const kind = calls.length === 1 ? NotSentError : UnknownOutcomeError;
    calls.at(-1)?.fail(new kind(text, { cause: err }));
  }

  /** Waits until the connection is up. Throws NotSentError after some milliseconds, or if it is closed. */
  async ready(ms: number, subject: string, signal?: AbortSignal): Promise<void> {
    const end = performance.now() + ms;
    while (this.#state !== "up" || this.nc.isClosed() || this.nc.isDraining()) {
      const closed = this.#state === "closed" || this.nc.isClosed();
      if (closed) throw notSent(subject, "the connection to NATS is closed", new ClosedConnectionError());
      if (this.nc.isDraining()) throw notSent(subject, "the connection to NATS is draining", new DrainingConnectionError());
      const left = end - performance.now();
      if (left <= 0 || signal?.aborted) throw notSent(subject, "the connection to NATS is down");

      await within(left, new Promise<void>((resolve) => this.#changed.push(resolve)), signal);
    }
  }

  /**
   * Sends a request and returns its call, and what ends it: call that once, with whether all of the reply has come. With `alone`, it has a subscription for itself until then:
   * as long as somebody is subscribed, an item counts as received. Throws NotSentError and TooLargeError.
   */
  async send(r: Request, alone: boolean, waits: boolean, ms: number, signal?: AbortSignal) {
    const end = performance.now() + ms;
    const size = r.payload.length + (r.headers?.size ?? 0);
    let inbox: Inbox;
    do {
      await this.ready(end - performance.now(), r.subject, signal);
      const most = this.nc.info?.max_payload ?? Infinity;
      if (size > most) {
        const text = `a message of ${size} bytes, headers included: the NATS server takes ${most} at most`;
        throw new TooLargeError(text, { code: 413 });
      }

      inbox = this.#takeInbox(alone);
      if (this.#hears !== this.#number) {
        try {
          await this.#checkReplies(inbox, r.subject, end - performance.now(), signal);
        } finally {
          if (this.#hears !== this.#number && alone) this.#idle.push(inbox);
        }
      }
    } while (this.#hears !== this.#number);

    const call = new Call(r.subject, r.writes, waits);
    inbox.open(call);
    this.#calls.add(call);
    try {
      const headers = r.headers?.message();
      this.nc.publish(r.subject, r.payload, headers ? { reply: call.reply, headers } : { reply: call.reply });
    } catch (err) {
      this.#end(call, inbox, alone, true);
      throw notSent(r.subject, (err as Error).message, err);
    }
    return { call, end: (complete: boolean) => this.#end(call, inbox, alone, complete) };
  }

  // A server that refuses the subscription still carries out requests, whose replies nobody would get.
  async #checkReplies(inbox: Inbox, subject: string, ms: number, signal?: AbortSignal): Promise<void> {
    const number = this.#number;
    let confirmed: boolean | undefined;
    await within(ms, this.nc.flush().then(() => (confirmed = true), () => (confirmed = false)), signal);
    const denied = `no permission to receive replies on ${this.inboxPrefix}.>`;
    const advice = "give the inboxPrefix of this user to connect and to Client";
    if (inbox.refused) throw notSent(subject, `${denied}: ${advice}`, inbox.refused);
    if (confirmed === undefined) throw notSent(subject, "the NATS server does not answer");
    if (confirmed) this.#hears = number;
    else await sleep(1); // until the loss of the connection is known here
  }

  #takeInbox(alone: boolean): Inbox {
    if (alone) {
      for (let inbox; (inbox = this.#idle.pop()); ) if (!inbox.refused && !inbox.subscription.isClosed()) return inbox;
      return new Inbox(this.nc, this.inboxPrefix);
    }
    if (!this.#shared || this.#shared.refused) this.#shared = new Inbox(this.nc, this.inboxPrefix);
    return this.#shared;
  }

  // Unless the reply is complete, the subscription ends too: then NATS tells the bridge that nobody is there, and the
  // items go back. What comes before that is still delivered.
  async #end(call: Call, inbox: Inbox, alone: boolean, complete: boolean): Promise<void> {
    this.#calls.delete(call);
    if (alone && !complete && !inbox.subscription.isClosed()) {
      await within(drainTime, inbox.subscription.drain().catch(() => undefined));
    } else if (alone && complete && this.#idle.length < mostIdle) {
      this.#idle.push(inbox);
    } else if (alone) {
      inbox.subscription.unsubscribe();
    }
    inbox.calls.delete(call.reply);
  }

  /** Publishes a message whose reply nobody reads, if the connection is up. */
  publish(subject: string, payload: Uint8Array): void {
    if (this.#state === "up" && !this.nc.isClosed()) {
      this.nc.publish(subject, payload, { reply: createInbox(this.inboxPrefix) });
    }
  }

  /** Sends a request and returns the reply. Throws the error in it, and the errors of any request. */
  async request(r: Request, ms: number, signal?: AbortSignal): Promise<Msg> {
    const end = performance.now() + ms;
    const { call, end: done } = await this.send(r, false, false, ms, signal);
    const forget = onAbort(signal, call.interrupt);
    try {
      const reply = await call.next(end - performance.now(), !!signal);
      if (!reply) throw call.noReply(signal?.aborted ? "it was given up" : `waited ${Math.round(ms)} ms`);
      const failure = failureIn(reply, r.subject);
      if (failure) throw failure;
      return reply;
    } finally {
      forget();
      void done(true);
    }
  }
}

/** Returns the error in a reply, if there is one. */
export function failureIn(m: Msg, subject: string): PQError | undefined {
  const code = m.headers?.get("Nats-Service-Error-Code");
  if (code) {
    const { headers } = m;
    const unknown = headers!.get("Pq-Outcome") === "unknown";
    return errorOf(Number(code), headers!.get("Pq-Reason"), headers!.get("Nats-Service-Error"), unknown);
  }
  if (m.data.length === 0 && m.headers?.code === 503) {
    return new NoBridgeError(`no bridge listens on ${hideToken(subject)}: is pqbridge running, on this NATS server?`);
  }
  return undefined;
}

const notSent = (subject: string, why: string, cause?: unknown): NotSentError =>
  new NotSentError(`a request on ${hideToken(subject)} was not sent: ${why}`, { cause });

/** Hides the token of a lease in a subject, because it lets anybody acknowledge the item. */
export const hideToken = (subject: string): string => subject.replace(/\.ack\..*/, ".ack.<token>");

/** Reports whether a request failed in a way that no further attempt can mend. */
export function isHopeless(err: unknown): boolean {
  const { cause, code } = err as PQError;
  const ended = ["ClosedConnectionError", "DrainingConnectionError"].includes((cause as Error | undefined)?.name ?? "");
  return code === 400 || ended || (err instanceof NotSentError && isDenied(cause));
}

/** Reports whether NATS denies a permission. By name, because a program may have two versions of nats-core. */
export const isDenied = (err: unknown): err is PermissionViolationError =>
  (err as Error | undefined)?.name === "PermissionViolationError";

/** Throws BadRequestError unless a name of a queue is valid. */
export function checkQueueName(name: string): void {
  if (typeof name !== "string" || !/^[A-Za-z0-9_-]{1,128}$/.test(name)) {
    throw badRequest(`queue ${shown(name)}: want 1 to 128 letters, digits, - and _`);
  }
}

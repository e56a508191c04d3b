import { isHopeless } from "./connection.js";
import { encodeResult } from "./delivery.js";
import { type Duration, durationText, milliseconds, within } from "./duration.js";
import { badRequest, checkOptions, NotFoundError, shown } from "./errors.js";
import { builtin, defaultHolder } from "./holder.js";
import { durationIn, type Received } from "./item.js";
import {
  checkFunction, compose, type Failure, type Handler, type Handlers, type Job, type Middleware, type Outcome, outcomeOf,
  StoppedError,
} from "./job.js";
import { Lease } from "./lease.js";
import { fetchItems } from "./pop.js";
import { Pause } from "./retry.js";
import type { Queue } from "./queue.js";
import { Settler } from "./settle.js";

/** Where a Worker logs; console is one. */
export interface Logger {
  warn(text: string, fields: object): void;
  error(text: string, fields: object): void;
}

/**
 * What a Worker calls when something has become of a job. It waits for none of them: they may await its close. What they
 * throw is logged, and ends nothing.
 */
export interface Hooks<Data = unknown, Result = unknown> {
  /** The job was acknowledged. */
  completed?(job: Job<Data>, result: Result): unknown;
  /** The handler has thrown, and the job went back or became a dead letter. */
  failed?(job: Job<Data>, outcome: Failure): unknown;
  /** The lease is lost, or may be: somebody else may do the job. */
  lost?(job: Job<Data>): unknown;
  /** The worker cannot lease or settle. It tries again, unless run ends with this error. */
  error?(error: Error): unknown;
}

/** A hook that is there. */
export type Listener<E extends keyof Hooks, Data = unknown, Result = unknown> = NonNullable<Hooks<Data, Result>[E]>;

/** Options of a Worker. */
export interface WorkerOptions<Data = unknown, Result = unknown> {
  /** How many jobs are done at the same time, 1 to 10,000; the default is 1. */
  concurrency?: number;
  /**
   * The length of a lease, 100 ms to 12 h, after which others get the jobs of a worker that died. It is extended after
   * each third, so a job may take as long as it needs. The default is the queue's setting, or 30 s.
   */
  ackWait?: Duration;
  /** The name that the leases are taken with, up to 128 bytes; the default is the host and the process id. */
  holder?: string;
  /**
   * How long a job may take; the default is no limit. Then its signal ends, its lease is no longer extended, and if the
   * handler throws, the job fails with the reason "timed out".
   */
  jobTimeout?: Duration;
  /**
   * After how long a job that failed comes back if its queue has no backoff: after the first delivery, and twice as long
   * after each further one, up to a minute or retryDelay itself. The default is 1 s; 0 is at once.
   */
  retryDelay?: Duration;
  /** Takes the largest priority first. Not in a FIFO queue. */
  max?: boolean;
  /** Wraps the handlers; the first is outermost. */
  middleware?: Middleware[];
  /**
   * Logs each job that fails or is given up, and at most once a minute each other thing that goes wrong and is tried
   * again. The default is console, and null is silent.
   */
  logger?: Logger | null;
  /** Listeners: Worker.on adds more. */
  on?: Hooks<Data, Result>;
}

const workerMembers = ["concurrency", "ackWait", "holder", "jobTimeout", "retryDelay", "max", "middleware", "logger", "on"];
/** How long one request waits for a job, in milliseconds. */
const idleWait = 300_000;
/** The timeout of close unless one is given, and for how long after it jobs are still settled, in milliseconds. */
const [defaultTimeout, settleTime] = [25_000, 5000];
/** For how long a lease that is due may wait for others, in milliseconds. */
const timerSlack = 5;
/** How often the same warning is logged, in milliseconds. */
const logEvery = 60_000;

const { AsyncLocalStorage } = builtin<typeof import("node:async_hooks")>("node:async_hooks") ?? {};
/** The lease whose handler calls, where the platform can tell. */
const handling = AsyncLocalStorage && new AsyncLocalStorage<Lease | undefined>();
const as = <T>(lease: Lease | undefined, f: () => T): T => (handling ? handling.run(lease, f) : f());

/**
 * Does the jobs of a queue, each at least once, and by one worker at a time as long as that extends its leases in time.
 * It waits while there are none, and survives restarts of bridges and NATS servers.
 *
 *     const worker = new Worker(client.priorityQueue("jobs"), async (job) => send(job.json()));
 *     process.once("SIGTERM", () => worker.close());
 *     await worker.run();
 *     await nc.close(); // without this the process does not end
 *
 * One loop for each of `concurrency` does a job after the other; one of the idle ones waits at the bridge. A handler must
 * not block the event loop for long: leases are extended by it.
 */
export class Worker<Data = unknown, Result = unknown> {
  readonly queue: Queue<Data, Result>;
  readonly #options: WorkerOptions<Data, Result> & { concurrency: number; holder: string; jobTimeout: number };
  readonly #logger: Logger | null;
  readonly #listeners: Record<keyof Hooks, Set<(...args: unknown[]) => unknown>>;
  readonly #logged = new Map<string, number>();
  readonly #handler: Handler;
  readonly #stopping = new AbortController();
  /** @internal Ends when no more jobs should be leased. */
  readonly stopping = this.#stopping.signal;
  readonly #settler = new Settler(this as Worker);
  /** The jobs that are being done. */
  readonly #leases = new Set<Lease>();
  /** @internal The leases to extend. */
  readonly held = new Set<Lease>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #renewAt = Infinity;
  #killed = false;
  /** @internal In milliseconds. */
  readonly retryDelay: number;
  /** @internal When attempts to settle end, as performance.now says. */
  deadline = Infinity;
  #asked = Infinity;
  #error: Error | undefined;
  #ended: Promise<void> | undefined;
  #abandon: () => void = () => undefined;
  /** The length of the latest lease, in milliseconds, and as the bridge wrote it. */
  #length: number;
  #lengthText: string | undefined;
  /** Until the loop that waits for a job has one. */
  #waiting: Promise<void> = Promise.resolve();

  /** Throws BadRequestError for options that are not valid. */
  constructor(
    queue: Queue<Data, Result>,
    handler: Handler<Data, Result> | Handlers<Data, Result>,
    options?: WorkerOptions<Data, Result>,
  ) {
    if (!queue?.client) throw badRequest(`queue ${shown(queue)}: want one such as client.priorityQueue("jobs")`);
    const given = checkOptions("worker option", options, workerMembers);
    const { concurrency = 1, ackWait, holder = defaultHolder(), jobTimeout = 0, max, middleware = [] } = given;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > 10_000) {
      throw badRequest(`concurrency ${shown(concurrency)}: want an integer from 1 to 10000`);
    }
    if (max && queue.fifo) throw badRequest("max in a FIFO queue, which is served from one end");
    this.queue = queue;
    this.#options = { ...given, concurrency, holder, jobTimeout: milliseconds(jobTimeout, "jobTimeout") };
    this.#logger = options?.logger === undefined ? console : options.logger;
    if (this.#logger !== null) for (const level of ["warn", "error"] as const) checkFunction(`logger.${level}`, this.#logger[level]);
    this.#handler = compose(handler as Handler | Handlers, middleware);
    this.#listeners = { completed: new Set(), failed: new Set(), lost: new Set(), error: new Set() };
    const hooks = checkOptions("hook", given.on, Object.keys(this.#listeners));
    for (const [event, hook] of Object.entries(hooks)) this.on(event as keyof Hooks, hook);
    this.retryDelay = milliseconds(given.retryDelay ?? 1000, "retryDelay");
    this.#length = ackWait === undefined ? 30_000 : milliseconds(ackWait, "ackWait", 100, 12 * 3_600_000);
  }

  /** Adds a listener, unless it is there already. Throws BadRequestError. */
  on<E extends keyof Hooks>(event: E, listener: Listener<E, Data, Result>): this {
    const listeners = this.#listenersOf(event);
    checkFunction(`listener of ${event}`, listener);
    listeners.add(listener as Listener<E>);
    return this;
  }

  /** Removes a listener that is there. */
  off<E extends keyof Hooks>(event: E, listener: Listener<E, Data, Result>): this {
    this.#listenersOf(event).delete(listener as Listener<E>);
    return this;
  }

  #listenersOf(event: keyof Hooks): Set<(...args: never[]) => unknown> {
    checkOptions("event", { [event]: true }, Object.keys(this.#listeners));
    return this.#listeners[event];
  }

  /**
   * Does jobs until close is called, and returns once the jobs under way are settled. It throws if it cannot go on: an
   * error whose cause says that the connection is closed, or that NATS denies a permission, or BadRequestError if the
   * bridge refuses to lease. Whatever else goes wrong is logged, and tried again. A worker runs once.
   */
  async run(): Promise<void> {
    if (this.#ended) throw badRequest("this worker has run before: want a new one");
    const abandoned = new Promise<void>((resolve) => (this.#abandon = resolve));
    const loops = Promise.all(Array.from({ length: this.#options.concurrency }, () => this.#loop()));
    this.#ended = Promise.race([loops, abandoned]).then(() => undefined);
    await this.#ended;
    clearTimeout(this.#timer);
    if (this.#error) throw this.#error;
  }

  /**
   * Leases no more jobs, waits until those under way are done, and returns once run has. After the timeout, by default
   * 25 s, the signals of the jobs that are left end; if their handlers then throw, the jobs go back and the delivery does
   * not count. Handlers that do not end within five more seconds are left alone: their jobs come back when their leases
   * are over.
   *
   * A handler must not await it, because it waits for that handler. Where the platform can tell, in Node.js, Bun and Deno,
   * it then throws BadRequestError at once; all the same, the worker stops.
   */
  close(options?: { timeout?: Duration }): Promise<void> {
    const closed = this.#close(options);
    const lease = handling?.getStore();
    if (!lease || !this.#leases.has(lease)) return closed;

    const refused = Promise.reject(badRequest("close would wait for the handler that awaits it: call it without await"));
    for (const promise of [closed, refused]) promise.catch(() => undefined); // the handler need not await it
    return refused;
  }

  async #close(options: { timeout?: Duration } | undefined): Promise<void> {
    const given = checkOptions("close option", options, ["timeout"]);
    const timeout = milliseconds(given.timeout ?? defaultTimeout, "timeout");
    this.#stopping.abort(new StoppedError());
    if (!this.#ended) return; // run will return at once
    this.deadline = this.#asked = Math.min(this.#asked, performance.now() + timeout + settleTime);

    await within(timeout, this.#ended);
    this.#killed = true;
    for (const lease of this.#leases) lease.abort(new StoppedError());
    await within(this.deadline - performance.now(), this.#ended);
    for (const lease of this.#leases) {
      lease.lose();
      this.log("error", "a job does not end: it comes back when its lease is over", { id: lease.job.id });
    }
    this.#abandon();
    await this.#ended;
  }

  // Does one job after the other. One request acknowledges a job and leases the next.
  async #loop(): Promise<void> {
    for (let lease: Lease | undefined; (lease ??= await this.#next()); ) {
      if (this.stopping.aborted) return this.#settler.release(lease); // it came while the worker was stopping
      const outcome = await this.#do(lease);
      this.#leases.delete(lease);
      if (outcome.outcome === "done") {
        lease = await this.#settler.finish(lease, outcome.result);
        continue;
      }

      const stopped = outcome.outcome === "failed" && lease.reason instanceof StoppedError;
      if (stopped) await this.#settler.release(lease);
      else await this.#fail(lease, outcome);
      lease = undefined;
    }
  }

  #do(lease: Lease): Promise<Outcome> {
    this.#leases.add(lease);
    lease.begin(this.#options.jobTimeout);
    if (this.#killed) lease.abort(new StoppedError());

    // The signal is made when it is asked for.
    const context = { get signal() { return lease.signal; } };
    const encode = (result: unknown): void => void (lease.result = encodeResult(this.queue.client.codec, result));
    return as(lease, () => outcomeOf(this.#handler, lease.job, context, encode));
  }

  async #fail(lease: Lease, outcome: Failure): Promise<void> {
    const { id, deliveries } = lease.job;
    const settled = await this.#settler.settleFailed(lease, outcome);
    if (!settled) return;
    const text = { failed: "a job failed", dropped: "dropped a job", snoozed: undefined }[outcome.outcome];
    if (text) this.warn(text, { id, deliveries, error: outcome.error });
    this.call("failed", lease.job, outcome);
  }

  // Leases a job, and waits for one. Only one loop at a time does. Returns undefined if the worker stops.
  async #next(): Promise<Lease | undefined> {
    const before = this.#waiting;
    let release!: () => void;
    this.#waiting = new Promise((resolve) => (release = resolve));
    await before;
    try {
      for (let pause = new Pause(); !this.stopping.aborted; ) {
        try {
          const lease = await this.#tryLease();
          if (lease) return lease;
          pause = new Pause();
        } catch (err) {
          if (isHopeless(err)) this.end(err as Error);
          if (this.stopping.aborted) break;
          this.warn("cannot lease a job, trying again", { error: (err as Error).message }, true);
          this.call("error", err as Error);
          await pause.wait(this.stopping);
        }
      }
      return undefined;
    } finally {
      release();
    }
  }

  async #tryLease(): Promise<Lease | undefined> {
    const { ackWait, max = false, holder } = this.#options;
    const { connection, timeout } = this.queue.client;
    const heartbeat = Math.max(100, Math.min(5000, Math.floor(this.#length / 3)));
    const options = {
      ack_wait: durationText(ackWait, "ackWait") ?? "0s",
      expires: durationText(idleWait, "expires"),
      idle_heartbeat: durationText(heartbeat, "heartbeat"),
      holder,
      frames: true,
    };
    const fetch = this.queue.fetchOf(1, options, { max, signal: this.stopping });
    await connection.ready(Infinity, fetch.subject, fetch.signal);

    // The bridge sends each heartbeat at least an interval after the one before. When this process reads it says little.
    let began = performance.now();
    const wait = { expires: idleWait, heartbeat, onHeartbeat: () => void (began += heartbeat) };
    const { items, error } = await fetchItems(connection, { ...fetch, ...wait }, timeout);
    if (items.length === 0 && error && !(error instanceof NotFoundError)) throw error;
    return items[0] && this.hold(items[0], began);
  }

  /** @internal Returns the length of a lease, in milliseconds. They are mostly alike. */
  lengthOf({ bridge }: Received): number {
    const text = bridge.get("Pq-Ack-Wait");
    if (text !== this.#lengthText) this.#length = durationIn(bridge, "Pq-Ack-Wait") ?? this.#length;
    this.#lengthText = text;
    return this.#length;
  }

  /**
   * @internal Takes a job that was leased at that time or later. Returns undefined if somebody else may have it. Throws
   * BadReplyError.
   */
  hold(r: Received, began: number): Lease | Promise<Lease | undefined> {
    const lease = new Lease(this as Worker, r, began);
    if (performance.now() - began < lease.length) return lease;
    return lease.extendNow(this.#settler.patience(lease)).then(
      () => lease,
      (err: Error) => void this.warn("a job came too late to be begun", { id: lease.job.id, error: err.message }),
    ) as Promise<Lease | undefined>;
  }

  /** @internal Has leases extended that are due by then, with one timer for all, because most jobs end before it does. */
  renewAt(due: number): void {
    if (due >= this.#renewAt) return;
    this.#renewAt = due;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#renewDue(), due - performance.now());
  }

  #renewDue(): void {
    this.#renewAt = Infinity;
    const soon = performance.now() + 1; // a timer may end that much too early
    let next = Infinity;
    for (const lease of this.held) {
      if (lease.due <= soon) void lease.renew();
      else next = Math.min(next, lease.due);
    }
    this.renewAt(Math.max(next, soon + timerSlack));
  }

  /** @internal Stops because of an error that no further attempt can mend. */
  end(err: Error): void {
    this.#error ??= err;
    if (this.deadline === Infinity) this.deadline = performance.now() + defaultTimeout + settleTime;
    this.#stopping.abort(new StoppedError());
    this.call("error", err);
  }

  /** @internal */
  log(level: "warn" | "error", text: string, fields: object): void {
    const said = async (): Promise<void> => this.#logger?.[level](text, { queue: this.queue.name, ...fields });
    said().catch(() => undefined); // there is nowhere to say so
  }

  /** @internal Logs a warning; with `rarely`, unless the same one was logged less than a minute ago. */
  warn(text: string, fields: object, rarely = false): void {
    const now = performance.now();
    if (rarely && now - (this.#logged.get(text) ?? -Infinity) < logEvery) return;
    this.#logged.set(text, now);
    this.log("warn", text, fields);
  }

  /** @internal */
  call<E extends keyof Hooks>(event: E, ...args: Parameters<Listener<E>>): void {
    for (const listener of [...this.#listeners[event]]) {
      const called = as(undefined, async () => listener(...args));
      called.catch((error: unknown) => this.log("error", `the hook ${event} failed`, { error }));
    }
  }
}

import { cut } from "./codec.js";
import { isHopeless } from "./connection.js";
import { encodeResult } from "./delivery.js";
import { type Duration, durationText, milliseconds, within } from "./duration.js";
import { badRequest, checkOptions, NotFoundError, shown } from "./errors.js";
import { defaultHolder } from "./holder.js";
import {
  compose, type Failure, type Handler, type Handlers, type Middleware, type Outcome, outcomeOf, StoppedError,
} from "./job.js";
import { type Lease, Leases } from "./lease.js";
import { checkUTF8 } from "./names.js";
import { fetchItems } from "./pop.js";
import type { Queue } from "./queue.js";
import { as, handling, type Hooks, type Listener, type Logger, Reporter } from "./reporter.js";
import { Pause } from "./retry.js";
import { Settler } from "./settle.js";

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
  readonly #reporter: Reporter;
  readonly #handler: Handler;
  readonly #stopping = new AbortController();
  /** Those to extend. */
  readonly #leases: Leases;
  /** @internal */
  readonly settler: Settler;
  /** The jobs that are being done. */
  readonly #doing = new Set<Lease>();
  #killed = false;
  #asked = Infinity;
  #error: Error | undefined;
  #ended: Promise<void> | undefined;
  #abandon: () => void = () => undefined;
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
    if (cut(checkUTF8(holder, "holder")!, 128) !== holder || /\p{Cc}/u.test(holder)) {
      throw badRequest(`holder: ${shown(holder)}: want up to 128 bytes of UTF-8 without control characters`);
    }
    this.#options = { ...given, concurrency, holder, jobTimeout: milliseconds(jobTimeout, "jobTimeout") };
    this.#reporter = new Reporter(queue.name, options?.logger === undefined ? console : options.logger);
    this.#handler = compose(handler as Handler | Handlers, middleware);
    this.#reporter.addHooks(given.on as Hooks | undefined);
    const retryDelay = milliseconds(given.retryDelay ?? 1000, "retryDelay");
    const length = ackWait === undefined ? 30_000 : milliseconds(ackWait, "ackWait", 100, 12 * 3_600_000);
    this.#leases = new Leases(queue as Queue, this.#reporter, length);
    this.settler = new Settler(this.#leases, retryDelay, this.#stopping.signal, (err) => this.end(err));
  }

  /** Adds a listener, unless it is there already. Throws BadRequestError. */
  on<E extends keyof Hooks>(event: E, listener: Listener<E, Data, Result>): this {
    this.#reporter.on(event, listener as Listener<E>);
    return this;
  }

  /** Removes a listener that is there. */
  off<E extends keyof Hooks>(event: E, listener: Listener<E, Data, Result>): this {
    this.#reporter.off(event, listener as Listener<E>);
    return this;
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
    this.#leases.stop();
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
    if (!lease || !this.#doing.has(lease as Lease)) return closed;

    const refused = Promise.reject(badRequest("close would wait for the handler that awaits it: call it without await"));
    for (const promise of [closed, refused]) promise.catch(() => undefined); // the handler need not await it
    return refused;
  }

  async #close(options: { timeout?: Duration } | undefined): Promise<void> {
    const given = checkOptions("close option", options, ["timeout"]);
    const timeout = milliseconds(given.timeout ?? defaultTimeout, "timeout");
    this.#stopping.abort(new StoppedError());
    if (!this.#ended) return; // run will return at once
    this.settler.deadline = this.#asked = Math.min(this.#asked, performance.now() + timeout + settleTime);

    await within(timeout, this.#ended);
    this.#killed = true;
    for (const lease of this.#doing) lease.abort(new StoppedError());
    await within(this.settler.deadline - performance.now(), this.#ended);
    for (const lease of this.#doing) {
      lease.lose();
      this.#reporter.log("error", "a job does not end: it comes back when its lease is over", { id: lease.job.id });
    }
    this.#abandon();
    await this.#ended;
  }

  // Does one job after the other. One request acknowledges a job and leases the next.
  async #loop(): Promise<void> {
    for (let lease: Lease | undefined; (lease ??= await this.#next()); ) {
      if (this.#stopping.signal.aborted) return this.settler.release(lease); // it came while the worker was stopping
      const outcome = await this.#do(lease);
      this.#doing.delete(lease);
      if (outcome.outcome === "done") {
        lease = await this.settler.finish(lease, outcome.result);
        continue;
      }

      const stopped = outcome.outcome === "failed" && lease.reason instanceof StoppedError;
      if (stopped) await this.settler.release(lease);
      else await this.#fail(lease, outcome);
      lease = undefined;
    }
  }

  #do(lease: Lease): Promise<Outcome> {
    this.#doing.add(lease);
    lease.begin(this.#options.jobTimeout);
    if (this.#killed) lease.abort(new StoppedError());

    // The signal is made when it is asked for.
    const context = { get signal() { return lease.signal; } };
    const encode = (result: unknown): void => void (lease.result = encodeResult(this.queue.client.codec, result));
    return as(lease, () => outcomeOf(this.#handler, lease.job, context, encode));
  }

  async #fail(lease: Lease, outcome: Failure): Promise<void> {
    const { id, deliveries } = lease.job;
    const settled = await this.settler.settleFailed(lease, outcome);
    if (!settled) return;
    const text = { failed: "a job failed", dropped: "dropped a job", snoozed: undefined }[outcome.outcome];
    if (text) this.#reporter.warn(text, { id, deliveries, error: outcome.error });
    this.#reporter.call("failed", lease.job, outcome);
  }

  // Leases a job, and waits for one. Only one loop at a time does. Returns undefined if the worker stops.
  async #next(): Promise<Lease | undefined> {
    const before = this.#waiting;
    let release!: () => void;
    this.#waiting = new Promise((resolve) => (release = resolve));
    await before;
    try {
      for (let pause = new Pause(); !this.#stopping.signal.aborted; ) {
        try {
          const lease = await this.#tryLease();
          if (lease) return lease;
          pause = new Pause();
        } catch (err) {
          if (isHopeless(err)) this.end(err as Error);
          if (this.#stopping.signal.aborted) break;
          this.#reporter.warn("cannot lease a job, trying again", { error: (err as Error).message }, true);
          this.#reporter.call("error", err as Error);
          await pause.wait(this.#stopping.signal);
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
    const heartbeat = Math.max(100, Math.min(5000, Math.floor(this.#leases.length / 3)));
    const options = {
      ack_wait: durationText(ackWait, "ackWait") ?? "0s",
      expires: durationText(idleWait, "expires"),
      idle_heartbeat: durationText(heartbeat, "heartbeat"),
      holder,
      frames: true,
    };
    const fetch = this.queue.fetchOf(1, options, { max, signal: this.#stopping.signal });
    await connection.ready(Infinity, fetch.subject, fetch.signal);

    // The bridge sends each heartbeat at least an interval after the one before. When this process reads it says little.
    let began = performance.now();
    const wait = { expires: idleWait, heartbeat, onHeartbeat: () => void (began += heartbeat) };
    const { items, error } = await fetchItems(connection, { ...fetch, ...wait }, timeout);
    if (items.length === 0 && error && !(error instanceof NotFoundError)) throw error;
    return items[0] && this.#leases.hold(items[0], began);
  }

  /** @internal Stops because of an error that no further attempt can mend. */
  end(err: Error): void {
    this.#error ??= err;
    if (this.settler.deadline === Infinity) this.settler.deadline = performance.now() + defaultTimeout + settleTime;
    this.#stopping.abort(new StoppedError());
    this.#reporter.call("error", err);
  }
}

import {
  ackSubjectOf, Delivery, encodeProgress, mostSuccessors, type Result, type Successor, successorFrame, tokenOf,
} from "./delivery.js";
import { badRequest, LeaseLostError } from "./errors.js";
import { type Frame, frameSize, parentBytes } from "./headers.js";
import { durationIn, type Received } from "./item.js";
import { type Context, type Effects, Job, TimedOutError } from "./job.js";
import { lateReply } from "./pop.js";
import type { Queue } from "./queue.js";
import type { Reporter } from "./reporter.js";

/** How often progress is sent, in milliseconds. */
const progressEvery = 1000;
/** How long the last renewal before the end of a lease, or one after it, waits for its reply, in milliseconds. */
const lastPatience = 1000;
/** For how long a lease that is due may wait for others, in milliseconds. */
const timerSlack = 5;

/**
 * A job that a Worker has leased, and the lease, which is extended until the job is done. Times are in milliseconds.
 */
export class Lease implements Effects, Context {
  readonly job: Job;
  readonly token: string | undefined;
  /** How long it is. */
  readonly length: number;
  /** What the acknowledgement pushes, and the result of the job. */
  readonly successors: Frame[] = [];
  result: Result | undefined;
  /** Why the handler should stop. */
  reason: Error | undefined;
  #controller: AbortController | undefined;
  #delivery: Delivery | undefined;
  #timeout: ReturnType<typeof setTimeout> | undefined;
  #began: number;
  /** When the next renewal should be sent. */
  due = Infinity;
  #certainlyLost = false;
  #sending = false;
  #progress: Uint8Array | undefined;
  #progressAt = -Infinity;

  /** The lease began at that time or later. Throws BadReplyError. */
  constructor(readonly leases: Leases, readonly received: Received, began: number) {
    const { queue } = leases;
    const ackSubject = ackSubjectOf(received);
    this.token = received.bridge.get("Pq-Token") ?? tokenOf({ ackSubject });
    this.length = leases.lengthOf(received);
    this.#began = began;
    this.job = new Job(received, queue.client.codec, queue.name, this);
  }

  /** What settles it, made when it is used: an acknowledgement that is shared needs none. */
  get delivery(): Delivery {
    const { client, name, fifo } = this.leases.queue;
    return (this.#delivery ??= new Delivery(client, name, fifo, this.received));
  }

  /** The signal of the job, made when it is used, as that takes long. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.reason) this.#controller.abort(this.reason);
    return this.#controller.signal;
  }

  progress(value: unknown): void {
    this.#progress = encodeProgress(this.leases.queue.client.codec, value);
    this.#schedule();
  }

  next(successor: Successor): number {
    const n = this.successors.length;
    if (n === mostSuccessors) throw badRequest(`next: want at most ${mostSuccessors} items`);
    const { client, fifo } = this.leases.queue;
    this.successors.push(successorFrame(client.codec, fifo, successor, n));
    return n;
  }

  /** How many bytes its result and successors have. */
  get bytes(): number {
    return this.successors.reduce((n, frame) => n + frameSize(frame) + parentBytes, this.result?.bytes.length ?? 0);
  }

  /** How long to wait for the reply to an acknowledgement, in milliseconds. */
  get patience(): number {
    return Math.min(Math.max(this.length / 3, lateReply), this.leases.queue.client.timeout);
  }

  /** Extends the lease from now on, up to end; after the timeout of the job, unless that is 0, no more. */
  begin(timeout: number): void {
    this.leases.held.add(this);
    this.#schedule();
    if (timeout === 0) return;
    this.#timeout = setTimeout(() => {
      this.abort(new TimedOutError());
      this.#log("a job takes too long", { jobTimeout: timeout });
      this.#stop();
    }, Math.min(timeout, 2 ** 31 - 1));
  }

  #log(text: string, fields: object, rarely = false): void {
    const { id, deliveries } = this.job;
    this.leases.reporter.warn(text, { id, deliveries, ...fields }, rarely);
  }

  /** Asks the handler to stop. */
  abort(reason: Error): void {
    this.reason ??= reason;
    this.#controller?.abort(reason);
  }

  /** Extends no more, and reports whether the lease is certainly lost. */
  end(): boolean {
    this.#stop();
    return this.#certainlyLost;
  }

  /** Treats the lease as lost: nothing more is sent. */
  lose(): void {
    this.#certainlyLost = true;
    this.#stop();
  }

  #stop(): void {
    this.leases.held.delete(this);
    clearTimeout(this.#timeout);
  }

  // Says when to send the next renewal, or progress that waits.
  #schedule(after?: number): void {
    if (this.#sending || !this.leases.held.has(this)) return;
    const now = performance.now();
    this.due = Math.max(now, after === undefined ? this.#began + this.length / 3 : now + after);
    if (this.#progress) this.due = Math.min(this.due, Math.max(now, this.#progressAt + progressEvery));
    this.leases.renewAt(this.due);
  }

  async renew(): Promise<void> {
    const every = this.length / 3;
    const sent = performance.now();
    const until = this.#began + this.length;
    const late = sent - this.due;
    this.due = Infinity;
    if (late > every) this.#log("a lease is extended late: something blocks the event loop", { ms: Math.round(late) }, true);

    const progress = this.#progress;
    this.#progress = undefined;
    if (progress) this.#progressAt = sent;
    this.#sending = true;
    let retry: number | undefined;
    try {
      const left = until - sent;
      await this.delivery.renew(progress, left > every ? every : Math.max(left, lastPatience));
      this.#began = sent;
    } catch (err) {
      if (!this.leases.held.has(this)) return;
      this.#progress ??= progress;
      if (err instanceof LeaseLostError || performance.now() >= until) {
        this.#certainlyLost = err instanceof LeaseLostError;
        const text = "the lease could not be extended in time";
        const why = this.#certainlyLost ? (err as Error) : new LeaseLostError(text, { cause: err });
        this.#stop();
        this.abort(why);
        this.#log("lost the lease of a job that is being done", { error: why.message });
        this.leases.reporter.call("lost", this.job);
        return;
      }
      this.#log("cannot extend a lease, trying again", { error: (err as Error).message }, true);
      retry = Math.min(every / 10, 1000);
    } finally {
      this.#sending = false;
    }
    this.#schedule(retry);
  }

  /** Extends a lease before its job begins. Throws what the bridge says. */
  async extendNow(ms: number): Promise<void> {
    const sent = performance.now();
    await this.delivery.renew(undefined, ms);
    this.#began = sent;
  }
}

/** The leases of a Worker. Times are in milliseconds. */
export class Leases {
  /** Those to extend. */
  readonly held = new Set<Lease>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #renewAt = Infinity;
  #lengthText: string | undefined;

  /** length is that of the latest lease, as far as it is known. */
  constructor(readonly queue: Queue, readonly reporter: Reporter, public length: number) {}

  /** Returns the length of a lease. They are mostly alike. */
  lengthOf({ bridge }: Received): number {
    const text = bridge.get("Pq-Ack-Wait");
    if (text !== this.#lengthText) this.length = durationIn(bridge, "Pq-Ack-Wait") ?? this.length;
    this.#lengthText = text;
    return this.length;
  }

  /**
   * Takes a job that was leased at that time or later. Returns undefined if somebody else may have it. Throws
   * BadReplyError.
   */
  hold(r: Received, began: number): Lease | Promise<Lease | undefined> {
    const lease = new Lease(this, r, began);
    if (performance.now() - began < lease.length) return lease;
    return lease.extendNow(lease.patience).then(
      () => lease,
      (err: Error) => void this.reporter.warn("a job came too late to be begun", { id: lease.job.id, error: err.message }),
    ) as Promise<Lease | undefined>;
  }

  /** Has leases extended that are due by then, with one timer for all, because most jobs end before it does. */
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

  /** Extends no more. */
  stop(): void {
    clearTimeout(this.#timer);
  }
}

import { isDenied, isHopeless } from "./connection.js";
import { type AckRequest, ackRequest, mostSuccessors, nakRequest, snoozeRequest, termRequest } from "./delivery.js";
import {
  BadRequestError, InternalError, LeaseLostError, NotFoundError, NotSentError, type PQError, TooLargeError,
} from "./errors.js";
import type { Received } from "./item.js";
import type { Failure } from "./job.js";
import type { Lease, Leases } from "./lease.js";
import { fetchItems, type Fetched } from "./pop.js";
import { Pause } from "./retry.js";

/** A job that is done but not yet acknowledged. */
interface PendingAck {
  lease: Lease;
  result: unknown;
  resolve(next: Lease | undefined | PromiseLike<Lease | undefined>): void;
}

/** How many requests that acknowledge and lease are under way, how many jobs share one, and with how many bytes. */
const mostUnderWay = 2;
const mostShared = 256;
const sharedBytes = 256 * 1024;

/** Settles the jobs of a Worker. Jobs that end while requests are under way share the next one. */
export class Settler {
  #pending: PendingAck[] = [];
  #underWay = 0;

  /** When attempts to settle end, as performance.now says. */
  deadline = Infinity;

  /** fail stops the worker because of an error that no further attempt can mend. */
  constructor(
    readonly leases: Leases,
    readonly retryDelay: number,
    readonly stopping: AbortSignal,
    readonly fail: (err: Error) => void,
  ) {}

  /** Acknowledges a job that is done, with its result. Returns the next job, if there is one and the worker goes on. */
  finish(lease: Lease, result: unknown): Promise<Lease | undefined> {
    return new Promise((resolve) => {
      this.#pending.push({ lease, result, resolve });
      if (this.#pending.length === 1) queueMicrotask(() => this.#startNext());
    });
  }

  #startNext(): void {
    while (this.#pending.length > 0 && this.#underWay < mostUnderWay) {
      const batch = this.#pending.splice(0, this.#fitting());
      this.#underWay++;
      void this.#send(batch).finally(() => {
        this.#underWay--;
        this.#startNext();
      });
    }
  }

  // Returns how many of the acknowledgements go into one request. A client of another account has no tokens to share one with.
  #fitting(): number {
    let [n, bytes, frames] = [0, 0, 0];
    for (const { lease } of this.#pending) {
      bytes += lease.bytes;
      frames += lease.successors.length;
      const fits = n < mostShared && bytes <= sharedBytes && frames <= mostSuccessors;
      if (n > 0 && !(fits && lease.token)) break;
      n++;
      if (!lease.token) break;
    }
    return n;
  }

  async #send(batch: PendingAck[]): Promise<void> {
    const held = batch.filter(({ lease, resolve }) => {
      const lost = lease.end();
      if (lost) resolve(undefined);
      return !lost;
    });
    if (held.length === 0) return;
    const alone = (unknown: boolean): void => held.forEach((pending) => pending.resolve(this.#ackAlone(pending, unknown)));
    if (held.length === 1 && this.stopping.aborted) return alone(false);

    const began = performance.now();
    const { items, error, unknown } = await this.#ackAndLease(held.map((pending) => pending.lease));
    if (error) return alone(unknown);
    for (const { lease, result } of held) this.leases.reporter.call("completed", lease.job, result);
    held.forEach((pending, i) => pending.resolve(items[i] && this.#hold(items[i], began)));
  }

  #hold(r: Received, began: number): ReturnType<Leases["hold"]> | undefined {
    try {
      return this.leases.hold(r, began);
    } catch (err) {
      const text = "a job cannot be read: it comes back when its lease is over";
      this.leases.reporter.log("error", text, { error: (err as Error).message });
      return undefined;
    }
  }

  // Acknowledges jobs and leases as many. Returns an error if that may not count for some of them; then unknown says
  // whether it may.
  async #ackAndLease(leases: Lease[]): Promise<Fetched & { unknown: boolean }> {
    const { queue } = this.leases;
    const n = leases.length;
    const first = leases[0]!;
    const also = n > 1 ? `"also":${JSON.stringify(leases.slice(1).map((lease) => lease.token))}` : "";
    try {
      if (this.stopping.aborted) {
        await first.delivery.send(ackRequest(`+ACK {${also}}`, leases), first.patience);
        return { items: [], unknown: false };
      }
      const fetch = queue.fetchOf(n, { batch: n > 1 ? n : undefined, frames: true });
      const request = (options: string): AckRequest =>
        ackRequest(also ? `+NXT ${options.slice(0, -1)},${also}}` : `+NXT ${options}`, leases);
      const { connection } = queue.client;
      const fetched = await fetchItems(connection, { ...fetch, subject: first.received.ack, request }, first.patience);

      const { error, items } = fetched;
      const counts = !error || items.length > 0 || error instanceof NotFoundError || error instanceof TooLargeError;
      if (counts) return { items, unknown: false };
      throw error;
    } catch (err) {
      const error = err as PQError;
      if (n === 1 && error.reason === "done") return { items: [], unknown: false };
      const refused = [LeaseLostError, BadRequestError, NotSentError, TooLargeError].some((kind) => error instanceof kind);
      return { items: [], error, unknown: !refused };
    }
  }

  // Acknowledges a job on its own. If its result, or what it pushes, is refused, the job fails: otherwise it would be done
  // again and again, and nobody would know why.
  async #ackAlone({ lease, result }: PendingAck, unknown: boolean): Promise<undefined> {
    const extra = lease.result !== undefined || lease.successors.length > 0;
    let refused: string | undefined;
    const settled = await this.#settle(lease, unknown, async (ms) => {
      try {
        if (refused === undefined) return await lease.delivery.send(ackRequest("+ACK", [lease]), ms);
      } catch (err) {
        if (!extra || !(err instanceof BadRequestError || err instanceof TooLargeError)) throw err;
        refused = `the result, or an item to push, was refused: ${err.message}`;
        this.leases.reporter.warn("a job failed", { id: lease.job.id, error: refused });
      }
      await lease.delivery.send(nakRequest({ reason: refused!, retryDelay: this.retryDelay }), ms);
    });
    if (settled && refused === undefined) this.leases.reporter.call("completed", lease.job, result);
  }

  /** Settles a job whose handler has thrown. */
  async settleFailed(lease: Lease, outcome: Failure): Promise<boolean> {
    if (lease.end()) return false;
    return this.#settle(lease, false, (ms) => lease.delivery.send(this.#requestFor(outcome), ms));
  }

  #requestFor(outcome: Failure): AckRequest {
    if (outcome.outcome === "snoozed") return snoozeRequest(outcome.delay);
    if (outcome.outcome === "dropped") return termRequest(outcome.reason);
    const { delay, reason } = outcome;
    return nakRequest(delay === undefined ? { reason, retryDelay: this.retryDelay } : { reason, delay });
  }

  /** Returns a job that was not done to the queue. The delivery does not count. */
  async release(lease: Lease): Promise<void> {
    if (!lease.end()) await this.#settle(lease, false, (ms) => lease.delivery.send(snoozeRequest(), ms));
  }

  // Sends what ends a lease, until the bridge has said whether it counts or the deadline is over, and reports that. A 500 is
  // such an answer: nothing was done, and nothing will be. unknown says that an earlier attempt may have counted: then a lost
  // lease most likely means that it did.
  async #settle(lease: Lease, unknown: boolean, send: (ms: number) => Promise<void>): Promise<boolean> {
    const { reporter } = this.leases;
    const { id } = lease.job;
    for (const pause = new Pause(); ; await pause.wait(undefined, this.deadline - performance.now())) {
      try {
        await send(Math.min(lease.patience, this.deadline - performance.now()));
        return true;
      } catch (err) {
        const error = err as PQError;
        if (error instanceof LeaseLostError) return error.reason === "done" || this.#lost(lease, unknown);
        if (isHopeless(error) || error instanceof InternalError || performance.now() >= this.deadline) {
          reporter.log("error", "cannot settle a job: it comes back when its lease is over", { id, error: error.message });
          reporter.call("error", error);
          if (isDenied(error.cause)) this.fail(error);
          return false;
        }
        unknown ||= error.unknown;
        reporter.warn("cannot settle a job, trying again", { id, error: error.message }, true);
      }
    }
  }

  #lost(lease: Lease, unknown: boolean): boolean {
    if (unknown) return true;
    this.leases.reporter.warn("a job was done too late: its lease was over and somebody else got it", { id: lease.job.id });
    this.leases.reporter.call("lost", lease.job);
    return false;
  }
}

import { type Codec, cut, kindOf } from "./codec.js";
import { type Duration, milliseconds } from "./duration.js";
import { badRequest, shown } from "./errors.js";
import { LeasedItem, type Received } from "./item.js";
import type { Successor } from "./delivery.js";

/**
 * Thrown by a handler: the job comes back after the delay, up to ten years, instead of the queue's backoff or the
 * worker's retryDelay. The delivery counts.
 */
export class RetryAfter extends Error {
  /** In milliseconds. */
  readonly delay: number;

  constructor(delay: Duration, cause?: unknown) {
    super(cause === undefined ? "try again" : reasonOf(cause), { cause });
    this.name = "RetryAfter";
    this.delay = milliseconds(delay, "RetryAfter");
  }
}

/** Thrown by a handler: the job comes back after the delay, up to ten years. The delivery does not count. */
export class Snooze extends Error {
  /** In milliseconds. */
  readonly delay: number;

  constructor(delay: Duration) {
    super(`again in ${delay}`);
    this.name = "Snooze";
    this.delay = milliseconds(delay, "Snooze");
  }
}

/** Thrown by a handler: the job becomes a dead letter at once. The reason is cut at 256 bytes. */
export class Drop extends Error {
  override name = "Drop";
}

/** The reason of a job's signal when jobTimeout is over. */
export class TimedOutError extends Error {
  override name = "TimedOutError";
  override message = "timed out";
}

/** The reason of a job's signal when the timeout of Worker.close is over. */
export class StoppedError extends Error {
  override name = "StoppedError";
  override message = "the worker was stopped";
}

/** What a job may do beside its handler's return: a Worker sends it. */
export interface Effects {
  progress(value: unknown): void;
  /** Returns the number of the item among those of the job, from 0 on. */
  next(successor: Successor): number;
}

/** A leased item for a handler. Data is the type of its value, which nothing checks. */
export class Job<Data = unknown> extends LeasedItem<Data> {
  readonly #effects: Effects;

  /** Workers make jobs; in tests runHandler does. */
  constructor(r: Received, codec: Codec, queue: string, effects: Effects) {
    super(r, codec, queue);
    this.#effects = effects;
  }

  /** Returns the value as JSON. Throws Drop for anything else: to try again cannot help. */
  override json<T = Data>(): T {
    return orDrop(() => super.json<T>());
  }

  /** Returns the value as the codec of the client reads it. Throws Drop if it cannot. */
  override decode<T = Data>(): T {
    return orDrop(() => super.decode<T>());
  }

  /**
   * Says how far the job is, for Queue.result and items: up to 1 KiB, as a result is encoded. It is sent at most once a
   * second, the latest one. Throws BadRequestError.
   */
  progress(value: unknown): void {
    this.#effects.progress(value);
  }

  /**
   * Has the acknowledgement of the job push an item to another queue of the same kind: the job is done and the item is
   * there, or neither. The setting `next` of the job's queue must name the other one. Throws BadRequestError for what
   * cannot be pushed; if the bridge refuses it, the job fails.
   *
   * Returns the number of the item. If it has `join`, later calls take that as the `joiner` of its members.
   */
  next(queue: string, value: unknown, options: Omit<Successor, "queue" | "value"> = {}): number {
    return this.#effects.next({ ...options, queue, value });
  }
}

function orDrop<T>(read: () => T): T {
  try {
    return read();
  } catch (err) {
    throw new Drop(`the value cannot be read: ${(err as Error).message}`, { cause: err });
  }
}

/** What a handler gets beside its job. */
export interface Context {
  /**
   * Ends when the handler should stop: with a LeaseLostError as its reason when somebody else may have the job, so that
   * nothing which the handler returns is sent; with a TimedOutError after jobTimeout; with a StoppedError after the
   * timeout of Worker.close.
   */
  signal: AbortSignal;
}

/**
 * Does a job. What it returns, if anything, is the job's result: bytes as they are, everything else through the codec of
 * the client. If it throws, the job comes back after the queue's backoff, or else WorkerOptions.retryDelay, without end
 * unless the queue has max_deliver; after so many deliveries it becomes a dead letter with the error's text and those of
 * its causes. RetryAfter, Snooze and Drop do something else; they may be the cause of another error.
 */
export type Handler<Data = unknown, Result = unknown> = (job: Job<Data>, context: Context) => Result | PromiseLike<Result>;

/** Handlers by the type of the job; "*" is for all other types. */
export type Handlers<Data = unknown, Result = unknown> = Record<string, Handler<Data, Result>>;

/** Wraps handlers: it calls next, and returns what that returns. */
export type Middleware = (job: Job, context: Context, next: () => Promise<unknown>) => unknown;

/** What becomes of a job that is not done. */
export type Failure =
  | { outcome: "failed"; reason: string; delay: number | undefined; error: unknown }
  | { outcome: "snoozed"; reason: string; delay: number; error: unknown }
  | { outcome: "dropped"; reason: string; error: unknown };

/** What becomes of a job. */
export type Outcome<Result = unknown> = { outcome: "done"; result: Result } | Failure;

/** Throws BadRequestError for anything but a function, and for a generator function: to call one runs nothing. */
export function checkFunction(name: string, f: unknown): void {
  if (typeof f !== "function") throw badRequest(`${name}: ${shown(f)}: want a function`);
  if (kindOf(f).includes("Generator")) throw badRequest(`${name} is a generator, which would not run: want a function`);
}

/** Combines handlers by type and middleware, the first outermost, into one handler. Throws BadRequestError. */
export function compose(handlers: Handler | Handlers, middleware: readonly Middleware[]): Handler {
  if (!Array.isArray(middleware)) throw badRequest(`middleware ${shown(middleware)}: want an array of functions`);
  const byType = typeof handlers === "function" ? { "*": handlers } : handlers;
  const named = Object.entries(byType ?? {});
  if (named.length === 0) throw badRequest(`handlers ${shown(handlers)}: want a function, or an object of them by type`);
  for (const [name, handler] of named) checkFunction(`handler ${name}`, handler);
  for (const [i, wrap] of middleware.entries()) checkFunction(`middleware ${i}`, wrap);

  const find: Handler = (job, context) => {
    const handler = Object.hasOwn(byType, job.type) ? byType[job.type] : byType["*"];
    if (!handler) throw new Error(job.type ? `nobody handles jobs of type "${job.type}"` : "nobody handles jobs without a type");
    return handler(job, context);
  };
  return middleware.reduceRight<Handler>(
    (inner, wrap) => (job, context) => wrap(job, context, async () => inner(job, context)),
    find,
  );
}

/** Calls a handler, and says what becomes of the job, unless `finish` throws too. It does not throw. */
export async function outcomeOf(handler: Handler, job: Job, context: Context, finish?: (result: unknown) => void): Promise<Outcome> {
  try {
    let result = handler(job, context);
    if (Object(result) === result) {
      result = await result;
      if (/Generator/.test(kindOf(result))) throw new TypeError("the handler returned a generator, which has not run");
    }
    finish?.(result);
    return { outcome: "done", result };
  } catch (error) {
    try {
      return failureOf(error, context.signal.reason);
    } catch { // even to look at it throws
      return { outcome: "failed", reason: "failed", delay: undefined, error };
    }
  }
}

function failureOf(error: unknown, stopped: unknown): Failure {
  const reason = reasonOf(error) || "failed";
  for (let err = error, depth = 0; err instanceof Error && depth < 16; err = err.cause, depth++) {
    if (err instanceof Snooze) return { outcome: "snoozed", reason: err.message, delay: err.delay, error };
    if (err instanceof Drop) return { outcome: "dropped", reason: reasonOf(err), error };
    if (err instanceof RetryAfter) return { outcome: "failed", reason, delay: err.delay, error };
  }
  if (!(stopped instanceof TimedOutError)) return { outcome: "failed", reason, delay: undefined, error };
  const timedOut = error === stopped || (error as Error)?.name === "AbortError";
  return { outcome: "failed", reason: timedOut ? "timed out" : `timed out: ${reason}`, delay: undefined, error };
}

/**
 * Returns the text of what a handler threw: the message of an error, with its name unless that is just Error, and what
 * it does not say itself of the errors in it and its cause. Anything but an error is JSON.
 */
function reasonOf(error: unknown, seen = new Set<unknown>()): string {
  const { name, message, cause, errors } = (error ?? {}) as AggregateError;
  if (typeof message !== "string") return cut(typeof error === "string" ? error : jsonOf(error), 4096);
  if (seen.has(error) || seen.size === 16) return "";
  seen.add(error);

  const named = name && name !== "Error" && !(error instanceof RetryAfter || error instanceof Drop);
  const text = [named && name, message].filter(Boolean).join(": ");
  const inner = [...(Array.isArray(errors) ? errors : []), cause].filter((err) => err !== undefined && err !== null);
  const unsaid = inner.filter((err) => !err.message || !text.endsWith(err.message));
  const causes = unsaid.map((err) => reasonOf(err, seen)).filter((why) => !text.endsWith(why));
  return [text, causes.join("; ")].filter(Boolean).join(": ");
}

function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return String(value); // a bigint, or an object that contains itself
  }
}

/** What runHandler found. */
export type HandlerRun<Result = unknown> = Outcome<Result> & {
  /** What the job said about its progress, in order. */
  progress: unknown[];
  /** The items that its acknowledgement would push. */
  next: Successor[];
};

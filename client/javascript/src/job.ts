import { type Codec, cut } from "./codec.js";
import { type Duration, milliseconds, shown } from "./duration.js";
import { badRequest } from "./errors.js";
import { LeasedItem, type Received } from "./item.js";
import type { Successor } from "./delivery.js";

/**
 * Thrown by a handler: the job comes back after the delay, up to ten years, instead of the queue's backoff. The
 * delivery counts.
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
  next(successor: Successor): void;
}

/** A leased item for a handler. */
export class Job extends LeasedItem {
  readonly #effects: Effects;

  /** Workers make jobs; in tests runHandler does. */
  constructor(r: Received, codec: Codec, queue: string, effects: Effects) {
    super(r, codec, queue);
    this.#effects = effects;
  }

  /** Returns the value as JSON. Throws Drop for anything else: to try again cannot help. */
  override json<T = unknown>(): T {
    return orDrop(() => super.json<T>());
  }

  /** Returns the value as the codec of the client reads it. Throws Drop if it cannot. */
  override decode<T = unknown>(): T {
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
   */
  next(queue: string, value: unknown, options: Omit<Successor, "queue" | "value"> = {}): void {
    this.#effects.next({ ...options, queue, value });
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
 * the client. If it throws, the job comes back after the queue's backoff, and after max_deliver deliveries it becomes a
 * dead letter with the error's text. RetryAfter, Snooze and Drop do something else; they may be the cause of another error.
 */
export type Handler = (job: Job, context: Context) => unknown;

/** Handlers by the type of the job; "*" is for all other types. */
export type Handlers = Record<string, Handler>;

/** Wraps handlers: it calls next, and returns what that returns. */
export type Middleware = (job: Job, context: Context, next: () => Promise<unknown>) => unknown;

/** What becomes of a job. */
export type Outcome =
  | { outcome: "done"; result: unknown }
  | { outcome: "failed"; reason: string; delay: number | undefined; error: unknown }
  | { outcome: "snoozed"; reason: string; delay: number; error: unknown }
  | { outcome: "dropped"; reason: string; error: unknown };

/** Combines handlers by type and middleware, the first outermost, into one handler. Throws BadRequestError. */
export function compose(handlers: Handler | Handlers, middleware: readonly Middleware[]): Handler {
  const byType = typeof handlers === "function" ? { "*": handlers } : handlers;
  const named = Object.entries(byType ?? {});
  if (named.length === 0) throw badRequest(`handlers ${shown(handlers)}: want a function, or an object of them by type`);
  const wrong = named.find(([, handler]) => typeof handler !== "function");
  if (wrong) throw badRequest(`handler ${wrong[0]}: ${shown(wrong[1])}: want a function`);

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

/** Calls a handler, and says what becomes of the job. It does not throw. */
export async function outcomeOf(handler: Handler, job: Job, context: Context): Promise<Outcome> {
  try {
    return { outcome: "done", result: await handler(job, context) };
  } catch (error) {
    try {
      return failureOf(error, context.signal.reason);
    } catch { // even to look at it throws
      return { outcome: "failed", reason: "failed", delay: undefined, error };
    }
  }
}

function failureOf(error: unknown, stopped: unknown): Outcome {
  for (let err = error, depth = 0; err instanceof Error && depth < 16; err = err.cause, depth++) {
    if (err instanceof Snooze) return { outcome: "snoozed", reason: err.message, delay: err.delay, error };
    if (err instanceof Drop) return { outcome: "dropped", reason: err.message, error };
    if (err instanceof RetryAfter) return { outcome: "failed", reason: reasonOf(error), delay: err.delay, error };
  }
  const reason = reasonOf(error);
  if (!(stopped instanceof TimedOutError)) return { outcome: "failed", reason, delay: undefined, error };
  const timedOut = error === stopped || (error as Error)?.name === "AbortError";
  return { outcome: "failed", reason: timedOut ? "timed out" : `timed out: ${reason}`, delay: undefined, error };
}

/** Returns the text of what a handler threw: the message of an Error, with its name unless that is just Error. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return cut(String(error), 4096);
  const named = error.name && error.name !== "Error" && !(error instanceof RetryAfter);
  return named ? `${error.name}: ${error.message}` : error.message || "failed";
}

/** What runHandler found. */
export type HandlerRun = Outcome & {
  /** What the job said about its progress, in order. */
  progress: unknown[];
  /** The items that its acknowledgement would push. */
  next: Successor[];
};

/** What a {@link PQError} is made of. */
export interface ErrorDetails {
  /** The protocol's code, 0 if no bridge replied. */
  code?: number;
  /** The protocol's word for the meaning of the code, or "". */
  reason?: string;
  /** Whether the request may have been carried out. */
  unknown?: boolean;
  cause?: unknown;
}

/**
 * The base of all errors of this package. Its subclasses tell the meanings apart; `code` and `reason` are the words
 * of the protocol.
 */
export class PQError extends Error {
  /** The protocol's code: 400, 404, 409, 413, 429, 500 or 503; 0 if no bridge replied. */
  readonly code: number;
  /** The protocol's word for the meaning of the code, such as "full" or "done"; "" if it has none. */
  readonly reason: string;
  /** For people: the fault, and what would be right. */
  readonly text: string;
  /** Whether the request may have been carried out. */
  readonly unknown: boolean;

  constructor(text: string, details: ErrorDetails = {}) {
    super(details.code ? `${text} (${details.code})` : text, { cause: details.cause });
    this.code = details.code ?? 0;
    this.reason = details.reason ?? "";
    this.text = text;
    this.unknown = details.unknown ?? false;
  }
}

/**
 * The request is not valid: trying again cannot help. Some are found before anything is sent; then `code` is 400 too.
 */
export class BadRequestError extends PQError {}

/** There is no item, job or schedule with the id, or its outcome was not kept. Code 404. */
export class NotFoundError extends PQError {}

/** The lease is lost, or the item is settled: somebody else may have it. Nothing was done. Code 409. */
export class LeaseLostError extends PQError {}

/** The item is leased, so it cannot be moved or redriven. Code 409. */
export class LeasedError extends PQError {}

/** The joiner that a push names does not wait for members, or not any more. Nothing was pushed. Code 409. */
export class JoinedError extends PQError {}

/** The job waits for its members, so it cannot be moved; or too many joins have members to purge the queue. Code 409. */
export class JoinsError extends PQError {}

/** The message is larger than the store or the NATS server takes, or than the queue may be. Code 413. */
export class TooLargeError extends PQError {}

/** Too many requests wait, the queue is full, or at a limit: try again, more slowly. Code 429. */
export class OverloadedError extends PQError {}

/** A fault of the service or of stored data. Code 500. */
export class InternalError extends PQError {}

/**
 * The store did not answer in time, the bridge is shutting down, or a request that only reads got no reply. Try again.
 */
export class UnavailableError extends PQError {}

/** No bridge listens on the subject. */
export class NoBridgeError extends PQError {}

/** Something other than a bridge replied. If the request can change a queue, `unknown` is true. */
export class BadReplyError extends PQError {}

/**
 * The request was certainly not sent: the connection was away or is closed, or the NATS server refused it. Then `cause`
 * is nats-core's PermissionViolationError.
 */
export class NotSentError extends PQError {}

/** The request may or may not have been carried out: the bridge said so, or its reply did not arrive. */
export class UnknownOutcomeError extends PQError {
  constructor(text: string, details: ErrorDetails = {}) {
    super(text, { ...details, unknown: true });
  }
}

/** The bridge no longer confirms that a request waits. It may be gone, or the connection. */
export class NoHeartbeatError extends UnknownOutcomeError {}

/**
 * The time of a call is over and its job is not done, or nobody can tell: then `cause` says why. The job goes on: do not
 * push it again, but ask for the result of `id`.
 */
export class NotDoneError extends PQError {
  /** Says why, with the error if its state is not known. */
  constructor(readonly id: string, why: string, cause?: unknown) {
    super(`job ${id} was not done in time, and goes on: ${why}`, { cause });
  }
}

/** A chain of jobs branches or runs again, so nobody can say which job is its last. */
export class ChainError extends PQError {}

/** A job has become a dead letter. */
export class JobFailedError extends PQError {
  /** Why: the text of the Drop, or what the last failed delivery threw. */
  declare readonly cause: string;

  constructor(readonly id: string, reason: string, readonly deliveries: number, cause: string) {
    const times = deliveries === 1 ? "1 delivery" : `${deliveries} deliveries`;
    super(`job ${id} failed after ${times}: ${cause}`, { reason, cause });
  }
}

// As texts, because a minifier renames classes.
for (const [name, kind] of Object.entries({
  PQError, BadRequestError, NotFoundError, LeaseLostError, LeasedError, TooLargeError, OverloadedError, InternalError,
  UnavailableError, NoBridgeError, BadReplyError, NotSentError, UnknownOutcomeError, NoHeartbeatError, NotDoneError,
  JobFailedError, JoinedError, JoinsError, ChainError,
})) Object.defineProperty(kind.prototype, "name", { value: name, configurable: true, writable: true });

const classes: Record<number, typeof PQError> = {
  400: BadRequestError,
  404: NotFoundError,
  409: LeaseLostError,
  413: TooLargeError,
  429: OverloadedError,
  500: InternalError,
  503: UnavailableError,
};

/** Returns the error that a bridge replied with. */
export function errorOf(code: number, reason: string, text: string, unknown = false): PQError {
  let kind = unknown ? UnknownOutcomeError : classes[code] ?? PQError;
  if (reason === "leased") kind = LeasedError;
  else if (reason === "joined") kind = JoinedError;
  else if (reason === "joins") kind = JoinsError;
  return new kind(text, { code, reason, unknown });
}

/** Returns an error after an earlier attempt at the same that may have counted. */
export function afterUnknown(err: PQError, earlier: boolean): PQError {
  if (!earlier || err.unknown) return err;
  return new UnknownOutcomeError(`an earlier attempt may have counted; the last one: ${err.message}`, { cause: err });
}

/** Returns the error of a request that is refused before it is sent. */
export function badRequest(text: string, cause?: unknown): BadRequestError {
  return new BadRequestError(text, { code: 400, cause });
}

/** Describes a value in an error, cut to a line. */
export function shown(value: unknown): string {
  let text: string;
  try {
    text = ["bigint", "number"].includes(typeof value) ? String(value) : JSON.stringify(value) ?? String(value);
  } catch {
    text = typeof value;
  }
  return text.length > 60 ? `${text.slice(0, 60)}...` : text;
}

/**
 * Returns a copy of options without the members that are undefined or null, which count as absent. Throws
 * BadRequestError for options that are no object, have a member that would be ignored, or a signal that is none.
 */
export function checkOptions<T extends object>(kind: string, options: T | null | undefined, known: readonly string[]): Given<T> {
  if (typeof (options ?? {}) !== "object") throw badRequest(`${kind} ${shown(options)}: want an object`);
  const all = Object.entries<any>(options ?? {});
  const wrong = all.find(([name]) => !known.includes(name));
  if (wrong) throw badRequest(`${kind} ${shown(wrong[0])}: want ${known.join(", ")}`);
  const given = Object.fromEntries(all.filter(([, value]) => value !== undefined && value !== null));
  const flag = kind !== "redrive option" && ["max", "follow"].find((name) => name in given && typeof given[name] !== "boolean");
  if (flag) throw badRequest(`${flag} ${shown(given[flag])}: want true or false`);
  const { signal } = given;
  const isSignal = typeof signal?.aborted === "boolean" && typeof signal.addEventListener === "function";
  if (signal !== undefined && !isSignal) throw badRequest(`signal ${shown(signal)}: want an AbortSignal`);
  return given as Given<T>;
}

/** Options without null. */
export type Given<T> = { [K in keyof T]: Exclude<T[K], null> };

import { isHopeless } from "./connection.js";
import { sleep } from "./duration.js";
import { afterUnknown, NoBridgeError, NotSentError, OverloadedError, type PQError, UnavailableError, UnknownOutcomeError } from "./errors.js";

/** Reports whether a push that failed may succeed if it is repeated. */
export function mayRepeat(err: unknown, repeatable: boolean): boolean {
  if (isHopeless(err)) return false;
  if (err instanceof UnknownOutcomeError) return repeatable;
  const passing = err instanceof UnavailableError || err instanceof NoBridgeError || err instanceof NotSentError;
  return passing || (err instanceof OverloadedError && err.reason === "busy");
}

/** Pauses between attempts: 50 ms at first, twice as long after each, at most 2 s. */
export class Pause {
  #last = 0;

  async wait(signal?: AbortSignal, most = Infinity): Promise<void> {
    this.#last = Math.min(Math.max(2 * this.#last, 50), 2000);
    await sleep(Math.min(this.#last, most), signal);
  }
}

/**
 * Calls attempt, again if that may help, until the milliseconds are over or the signal ends. It is told how many are left.
 * Once the outcome of one attempt is unknown, the outcome of all is, unless one succeeds.
 */
export async function repeat<T>(
  ms: number,
  attempt: (left: number, first: boolean) => Promise<T>,
  again: (err: unknown) => boolean,
  signal?: AbortSignal,
): Promise<T> {
  const end = performance.now() + ms;
  const pause = new Pause();
  let unknown = false;
  for (let first = true; ; first = false) {
    try {
      return await attempt(end - performance.now(), first);
    } catch (err) {
      const left = end - performance.now();
      const failed = afterUnknown(err as PQError, unknown);
      unknown ||= failed.unknown;
      if (left <= 0 || signal?.aborted || !again(err)) throw failed;
      await pause.wait(signal, left);
      if (signal?.aborted || end - performance.now() <= 1) throw failed; // a timer may end that much too early
    }
  }
}

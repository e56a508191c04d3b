import { badRequest, shown } from "./errors.js";

/** A number of milliseconds, or a text such as "30s", "1m30s" or "7d", with the units ns, us, ms, s, m, h, and d (24 h). */
export type Duration = number | string;

const units: Record<string, number> = { ns: 1e-6, us: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 24 * 36e5 };
const whole = /^(0|(\d+(\.\d+)?(ns|us|ms|s|m|h|d))+)$/;

/** Ten years in milliseconds, the longest duration anywhere. */
export const tenYears = 3650 * 24 * units.h!;

/**
 * Returns a duration in milliseconds.
 *
 * Throws BadRequestError, which begins with the name, for anything that is not a duration within the bounds.
 */
export function milliseconds(value: Duration, name: string, least = 0, most = tenYears): number {
  let ms = NaN;
  if (typeof value === "number") ms = value;
  else if (typeof value === "string" && value.length <= 64 && whole.test(value)) {
    ms = 0;
    for (const [, digits, , unit] of value.matchAll(/(\d+(\.\d+)?)(ns|us|ms|s|m|h|d)/g)) ms += Number(digits) * units[unit!]!;
  }

  if (!Number.isFinite(ms)) {
    throw badRequest(`${name}: ${shown(value)} is not a duration: want milliseconds as a number, or a string such as "30s" or "1m30s"`);
  }
  if (ms < least || ms > most) {
    const limit = most === tenYears ? "ten years" : formatDuration(most);
    throw badRequest(`${name}: ${shown(value)} is out of bounds: want ${formatDuration(least)} to ${limit}`);
  }
  return ms;
}

/** Returns a duration as the protocol has it, or undefined for undefined. Throws as milliseconds does. */
export function durationText(value: Duration | undefined, name: string, least = 0, most = tenYears): string | undefined {
  return value === undefined ? undefined : formatDuration(milliseconds(value, name, least, most));
}

// Rounded to a nanosecond; toFixed because a bridge reads no exponents.
const formatDuration = (ms: number): string => `${Number.isInteger(ms) ? ms : ms.toFixed(6)}ms`;

/** Waits for some milliseconds, or until the signal ends. */
export const sleep = (ms: number, signal?: AbortSignal): Promise<void> => within(ms, new Promise(() => {}), signal);

/** Waits for a promise, but no longer than some milliseconds, or until the signal ends. */
export function within(ms: number, promise: Promise<unknown>, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      forget();
      resolve();
    };
    const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1));
    const forget = onAbort(signal, done);
    promise.then(done, done);
  });
}

// Those who wait for a signal. It has one listener for all of them, as Node warns of more than ten.
const waiting = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls wake once the signal ends, or at once if it has, until the function that it returns is called. */
export function onAbort(signal: AbortSignal | undefined, wake: () => void): () => void {
  if (signal?.aborted) wake();
  if (!signal || signal.aborted) return () => undefined;
  const all = waiting.get(signal) ?? new Set();
  if (!waiting.has(signal)) signal.addEventListener("abort", () => all.forEach((each) => each()), { once: true });
  waiting.set(signal, all.add(wake));
  return () => all.delete(wake);
}

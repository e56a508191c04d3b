import { badRequest } from "./errors.js";
import { shown } from "./duration.js";

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
  const { signal } = given;
  const isSignal = typeof signal?.aborted === "boolean" && typeof signal.addEventListener === "function";
  if (signal !== undefined && !isSignal) throw badRequest(`signal ${shown(signal)}: want an AbortSignal`);
  return given as Given<T>;
}

/** Options without null. */
export type Given<T> = { [K in keyof T]: Exclude<T[K], null> };

import { badRequest } from "./errors.js";
import { shown } from "./duration.js";

/**
 * Returns a copy of options without the members that are undefined or null, which count as absent. Throws
 * BadRequestError for options that are no object, have a member that would be ignored, or a signal that is none.
 */
export function checkOptions<T extends object>(kind: string, options: T | null | undefined, known: readonly string[]): Given<T> {
  if (typeof (options ?? {}) !== "object") throw badRequest(`${kind} ${shown(options)}: want an object`);
  const given = Object.entries<any>(options ?? {}).filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of given) {
    if (!known.includes(name)) throw badRequest(`${kind} ${shown(name)}: want ${known.join(", ")}`);
    const isSignal = typeof value.aborted === "boolean" && typeof value.addEventListener === "function";
    if (name === "signal" && !isSignal) throw badRequest(`signal ${shown(value)}: want an AbortSignal`);
  }
  return Object.fromEntries(given) as Given<T>;
}

/** Options without null. */
export type Given<T> = { [K in keyof T]: Exclude<T[K], null> };

import { badRequest } from "./errors.js";
import { shown } from "./duration.js";

/** Throws BadRequestError for options that are no object, or have a member that would be ignored. */
export function checkOptions(kind: string, options: object, known: readonly string[]): void {
  if (typeof options !== "object" || options === null) throw badRequest(`${kind} ${shown(options)}: want an object`);
  const wrong = Object.keys(options).find((name) => !known.includes(name));
  if (wrong !== undefined) throw badRequest(`${kind} ${shown(wrong)}: want ${known.join(", ")}`);
}

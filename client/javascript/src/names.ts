import { isWellFormed } from "./codec.js";
import { badRequest, shown } from "./errors.js";

/** Names a job: by its id, or by the msgId of its push within the duplicate window. */
export type JobName = string | { msgId: string };

/**
 * Names the item at a place: the `place` that an item had, or its id if it had none. One that has left the place is not
 * found, so a request with a place can be repeated, and undoes nothing that has happened to the job since.
 */
export type AtPlace = { place: string };

/** A job, and the queue that it was pushed to. */
export type JobRef = { queue: string; id: string };

/** Names a joiner, a job that waits for its members to end: see Queue.all. */
export interface JoinerRef {
  queue: string;
  id: string;
}

/** Returns the text. Throws BadRequestError for one that UTF-8 cannot carry. */
export function checkUTF8(text: string | undefined, name: string): string | undefined {
  if (text === undefined) return undefined;
  if (typeof text !== "string" || !isWellFormed(text)) throw badRequest(`${name}: ${shown(text)}: want a well-formed string`);
  return text;
}

/** Returns the members of the protocol that name a job or an item. Throws BadRequestError. */
export function nameOf(name: JobName | AtPlace): object {
  const named: Record<string, string> = typeof name === "string" ? { id: name } : name;
  const kind = ["id", "place"].find((kind) => named?.[kind] !== undefined) ?? "msgId";
  const text = checkUTF8(named?.[kind], kind);
  if (!text) throw badRequest(`${kind}: ${shown(text)}: want a string that is not empty`);
  return { [kind === "msgId" ? "msg_id" : kind]: text };
}

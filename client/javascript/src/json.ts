import { textOf } from "./codec.js";
import { BadReplyError, badRequest, shown } from "./errors.js";

/** An int64: a bigint, or a safe integer. Replies have a bigint only beyond 2^53. */
export type Priority = number | bigint;

const least = -(2n ** 63n);
const most = 2n ** 63n - 1n;

/** Returns a priority as text. Throws BadRequestError for anything but a bigint of 64 bits or a safe integer. */
export function priorityText(value: Priority): string {
  const fits = typeof value === "bigint" ? value >= least && value <= most : Number.isSafeInteger(value);
  if (!fits) throw badRequest(`priority ${shown(value)}: want a safe integer, or a bigint of 64 bits`);
  return String(value);
}

/** Returns an integer in decimal text as a number, or as a bigint beyond 2^53. Throws BadReplyError. */
export function integer(text: string): Priority {
  if (!/^-?\d+$/.test(text)) throw new BadReplyError(`not the reply of a bridge: ${shown(text)} is no integer`, { unknown: true });
  const n = Number(text);
  return Number.isSafeInteger(n) ? n : BigInt(text);
}

// Neither side of JSON knows bigint: texts that begin like this stand for one meanwhile.
const mark = `int64 ${Math.random()}:`;
const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const marked = new RegExp(`"${mark}(-?\\d+)"`, "g");

/** Parses the payload of a reply to a request that may change a queue; integers beyond 2^53 are bigint. Throws BadReplyError. */
export function parseReply(bytes: Uint8Array, writes: boolean): unknown {
  const text = textOf(bytes);
  try {
    if (!/\d{16}/.test(text)) return JSON.parse(text);
    const quoted = text.replace(tokens, (token) => (/^-?\d{16,}$/.test(token) ? `"${mark}${token}"` : token));
    return JSON.parse(quoted, (_, value) =>
      typeof value === "string" && value.startsWith(mark) ? integer(value.slice(mark.length)) : value,
    );
  } catch (err) {
    throw notABridge(bytes, writes, err);
  }
}

/** Returns the members of a reply. Throws BadReplyError. */
export function membersOf<T extends object>(bytes: Uint8Array, writes: boolean): T {
  const parsed = parseReply(bytes, writes);
  if (typeof parsed !== "object" || parsed === null || isPubAck(parsed)) throw notABridge(bytes, writes);
  return parsed as T;
}

// A stream that captures the subject replies like this; to a push, a bridge does too, with the name of the queue.
const isPubAck = (o: object): boolean => "seq" in o && !("queue" in o);

/** The error of a reply that no bridge sends. */
export const notABridge = (reply: Uint8Array, unknown: boolean, cause?: unknown): BadReplyError =>
  new BadReplyError(`something other than a bridge replied: ${shown(textOf(reply))}`, { unknown, cause });

/** Writes the payload of a request; members that are undefined are left out. Throws BadRequestError for NaN and Infinity. */
export function stringify(value: unknown): string {
  const text = JSON.stringify(value, (name, v) => {
    if (typeof v === "number" && !Number.isFinite(v)) throw badRequest(`${name}: ${v}: want a number`);
    if (/function|symbol/.test(typeof v)) throw badRequest(`${name}: ${shown(v)}: JSON has no ${typeof v}`);
    return typeof v === "bigint" ? mark + v : v;
  });
  return text.replace(marked, "$1");
}

// Their members are data, not names of the protocol.
const data = new Set(["headers", "groups", "priorities", "paused_groups", "pausedGroups"]);

/** Renames the members of what a bridge has sent: max_deliver becomes maxDeliver. */
export function camelCase<T = unknown>(value: unknown): T {
  return renamed(value, (name) => name.replace(/_(.)/g, (_, c: string) => c.toUpperCase()));
}

/** Renames members for the bridge: maxDeliver becomes max_deliver. */
export function snakeCase(value: object): Record<string, unknown> {
  return renamed(value, (name) => name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`));
}

// With `keep`, the names are data; what they stand for is not.
function renamed(value: any, rename: (name: string) => string, keep = false): any {
  if (Array.isArray(value)) return value.map((v) => renamed(v, rename));
  if (value === null || typeof value !== "object") return value;
  const members = Object.entries(value).map(([name, v]) => [keep ? name : rename(name), renamed(v, rename, !keep && data.has(name))]);
  return Object.fromEntries(members);
}

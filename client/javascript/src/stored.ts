import { fromBase64, inspect, printed } from "./codec.js";
import type { Duration } from "./duration.js";
import type { PQError } from "./errors.js";
import { ItemHeaders } from "./headers.js";
import type { State } from "./item.js";
import { camelCase, type Json, type Priority } from "./json.js";
import type { Settings } from "./settings.js";

/** Which items of a queue to list. */
export interface ItemsOptions {
  /** Items in that state; the default is ready, delayed and leased. */
  state?: Exclude<State, "dead">;
  /** Begins with the largest priority. Not in a FIFO queue. */
  max?: boolean;
  /** A text that the value, a header, the id or the holder must contain. */
  match?: string;
  /** Headers that must be there with exactly this value. */
  headers?: Record<string, string>;
  /** How many bytes of each value to return, up to 65,536; the default is 1,024. */
  valueBytes?: number;
}

/** An item in a queue, as items returns it. */
export interface StoredItem {
  id: string;
  place?: string;
  priority: Priority;
  state: State;
  pushedAt?: Date;
  due?: Date;
  expires?: Date;
  leasedAt?: Date;
  finishedAt?: Date;
  keptUntil?: Date;
  holder?: string;
  deliveries?: number;
  reason?: string;
  /** The headers that it was pushed with. */
  headers: ItemHeaders;
  /** What kind of job it is: its header Type, or "". */
  type: string;
  /** How many bytes the value has. */
  size: number;
  /** The beginning of the value; valueCut says that there is more. */
  value?: Uint8Array;
  valueCut?: boolean;
  progress?: Uint8Array;
  result?: Uint8Array;
  contentType?: string;
  [member: string]: unknown;
}

/** What became of a dead letter that redrive was given by id: where it is now, or an error. */
export interface Redriven {
  id: string;
  /** The queue it went back to, and its place there. */
  home?: string;
  place?: string;
  error?: PQError;
}

/** A queue as info describes it: counts of its items, and its settings. */
export interface QueueInfo {
  queue: string;
  ready: number;
  leased: number;
  delayed: number;
  priorities: Record<string, number> | null;
  groups?: Record<string, { ready: number; leased: number }>;
  oldestAgeS: number | null;
  nextDue: string | null;
  settings: Settings;
  [member: string]: unknown;
}

/** A schedule, and its state in replies: see the document about schedules. Every and jitter are durations. */
export interface Schedule {
  id: string;
  cron?: string;
  every?: Duration;
  zone?: string;
  priority?: Priority;
  /** Bytes go as they are, everything else through the codec of the client. In replies it is base64. */
  value?: unknown;
  headers?: Record<string, string[]>;
  jitter?: Duration;
  ifMissed?: "once" | "skip" | "all";
  overlap?: "allow" | "skip";
  until?: Date | string;
  paused?: boolean;
  /** Fires it now. */
  run?: boolean;
  [member: string]: unknown;
}

const times = ["pushedAt", "due", "expires", "leasedAt", "finishedAt", "keptUntil"];
const bytes = ["value", "progress", "result"];

/** Returns an item as a bridge lists it. */
export function readStored(stored: Json): StoredItem {
  const read = camelCase(stored);
  for (const name of times) if (name in read) read[name] = new Date(read[name]);
  for (const name of bytes) if (name in read) read[name] = fromBase64(read[name]);
  read.headers = new ItemHeaders(read.headers);
  read.type = read.headers.get("Type") ?? "";
  return Object.defineProperty(read, inspect, { value: () => printed(read) });
}

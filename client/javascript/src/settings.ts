import { type Duration, durationText } from "./duration.js";
import { badRequest, shown } from "./errors.js";
import { type Priority, snakeCase } from "./json.js";
import { timeText } from "./push.js";

/** The settings of a queue; null resets one to its default. Their bounds are in the protocol. */
export interface Settings {
  /** The length of leases that do not say one, 100 ms to 12 h; the default is 30 s. */
  ackWait?: Duration | null;
  /**
   * How long an item stays back after each delivery that failed; the last counts for all later ones. The default is
   * [].
   */
  backoff?: Duration[] | null;
  /** After how many deliveries an item becomes a dead letter; 0, the default, means never. */
  maxDeliver?: number | null;
  /** After how long items expire that are pushed without a ttl. */
  ttl?: Duration | null;
  /** The queue for dead letters; the default is the name of this one and "-dead". */
  deadLetter?: string | null;
  /** Until when pops find nothing. */
  pauseUntil?: Date | string | null;
  /** How many items may be leased at a time, all and of each group; 0, the default, means any number. */
  maxLeased?: number | null; maxLeasedPerGroup?: number | null;
  /** How many items the queue delivers in a time, such as "10/1s", all and of each group. */
  rate?: string | null; ratePerGroup?: string | null;
  /** How many items, and bytes of items, a push may leave in the queue. */
  maxItems?: number | null; maxBytes?: number | null;
  /** What becomes of pushes beyond maxItems or maxBytes: "new" ones are refused, the default, or "old" items go. */
  discard?: "new" | "old" | null;
  /** For how long a push with the same msgId is a duplicate; the default is 2 min. */
  duplicateWindow?: Duration | null;
  /**
   * The groups that pops pass over: all of them, or an object that changes some, such as {acme: true, globex: false}.
   */
  pausedGroups?: string[] | Record<string, boolean> | null;
  /** For how long jobs are kept that are done, and how many. */
  keep?: Duration | null; keepItems?: number | null;
  /** The queues that acknowledgements may push to. */
  next?: string[] | null;
  /** How many attempts are kept of each job, the first and the newest: up to 16; the default is 0. */
  trail?: number | null;
  /** The stream of JetStream from which the queue draws. */
  source?: Source | null;
}

/** The stream of JetStream that a queue draws from, and how its messages become items: see the document about sources. */
export interface Source {
  stream: string;
  /** The JetStream domain of the stream. */
  domain?: string;
  /** A subject that messages must match, with wildcards or without. */
  filter?: string;
  /** A number, or where a message has it; the default is 0. */
  priority?: Priority | SourceField;
  group?: SourceField;
  /** Where to begin: at the first message, with new ones, or at a sequence; the default is "all". */
  start?: "all" | "new" | number;
  /** What happens to a message that cannot be an item; the default is "dead_letter". */
  onBad?: "dead_letter" | "stop";
  whenFull?: "wait";
}

/** A header of a message, or a token of its subject, counted from 1. */
export interface SourceField {
  header?: string;
  token?: number;
}

/** Returns settings as the bridge takes them. Throws BadRequestError for durations and times that are not valid. */
export function settingsToSend(s: Settings): Record<string, unknown> {
  if (typeof s !== "object" || s === null) throw badRequest(`settings ${shown(s)}: want an object`);
  const sent: Record<string, unknown> = { ...s };
  for (const name of ["ackWait", "ttl", "duplicateWindow", "keep"] as const) sent[name] = s[name] && durationText(s[name], name);
  if (Array.isArray(s.backoff)) sent.backoff = s.backoff.map((d, i) => durationText(d, `backoff[${i}]`));
  if (s.pauseUntil) sent.pauseUntil = timeText(s.pauseUntil, "pauseUntil");
  return snakeCase(sent);
}

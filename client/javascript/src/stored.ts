import type { MsgHdrs } from "@nats-io/nats-core";
import { type Codec, fromBase64, inspect, printed, utf8 } from "./codec.js";
import type { Duration } from "./duration.js";
import { errorOf, JobFailedError, type PQError } from "./errors.js";
import { ItemHeaders } from "./headers.js";
import { type DeadLetter, deadLetterIn, type Joined, joinedIn, refIn, refOf, type State, timeIn } from "./item.js";
import { camelCase, parseReply, type Priority } from "./json.js";
import type { JobRef, JoinerRef } from "./names.js";
import type { Settings, Source } from "./settings.js";

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
  /** How many bytes of each value to return, and of each result, up to 65,536; the default is 1,024. */
  valueBytes?: number;
  /** Whether to return the members of Past as well. */
  attempts?: boolean;
}

/** A delivery of a job that has ended, and counts. */
export interface Attempt {
  /** The life of the job, from 1 on: a redrive begins another one. Which delivery of that life it was. */
  life: number; number: number;
  /** When the lease began, if that is known, and when the attempt ended; how: "ran out" is the time of the lease. */
  from?: Date; to: Date; how: "nak" | "term" | "ran out" | "done"; holder?: string; reason?: string;
}

/** What a job has gone through and, once it is done, pushed: as much as the setting `trail` keeps. */
export interface Past {
  /** The oldest is the first. */
  attempts: Attempt[];
  /** At most 64, and how many more there were. */
  successors: JobRef[]; moreSuccessors: number;
}

/** An item in a queue, as items returns it. */
export interface StoredItem extends Partial<Past> {
  id: string; place?: string; priority: Priority; state: State;
  pushedAt?: Date; due?: Date; expires?: Date; leasedAt?: Date; finishedAt?: Date; keptUntil?: Date;
  holder?: string; deliveries?: number; reason?: string;
  /** The headers that it was pushed with. */
  headers: ItemHeaders;
  /** What kind of job it is: its header Type, or ""; its group, or "". */
  type: string; group: string;
  /** What became of its members, if it is a joiner that no longer waits; its joiner, if it is a member. */
  joined?: Joined; joiner?: JoinerRef;
  /** The job whose acknowledgement has pushed it, if its queue has the setting `trail`. */
  parent?: JobRef;
  /** How many bytes the value has. */
  size: number;
  /** The beginning of the value; valueCut says that there is more. */
  value?: Uint8Array;
  valueCut?: boolean;
  progress?: Uint8Array; result?: Uint8Array; contentType?: string;
  /** How many bytes the result has; resultCut says that they are not all there. */
  resultSize?: number; resultCut?: boolean;
  /** The value is not kept; the headers had no room in the reply. */
  valueDropped?: boolean; headersCut?: boolean;
}

/** What became of one of several items: there is an error, or it was done. */
export interface ItemResult {
  /** The id of the job; absent beside the error of an item that was named by its place. */
  id?: string;
  /** Where the item is now, after moveIds and redriveIds; beside an error, the place that named it. */
  place?: string;
  /** The queue that a dead letter went back to. */
  home?: string;
  error?: PQError;
}

/** A queue as info describes it: counts of its items, and its settings. */
export interface QueueInfo {
  queue: string; ready: number; leased: number; delayed: number;
  /** How many jobs are kept that are done; absent for none. */
  finished?: number;
  /** Ready items by priority, of the 500 from either end if there are more than 1,000; null in a FIFO queue. */
  priorities: Record<string, number> | null;
  prioritiesMore?: boolean;
  /** The 100 largest groups, and whether there are others. */
  groups?: Record<string, { ready: number; leased: number }>;
  groupsMore?: boolean;
  /** How many groups have ready items and are passed over, at a limit or paused. */
  groupsAtLimit?: number;
  /** How long ago the oldest ready item was pushed, in seconds; null if there is none. */
  oldestAgeS: number | null;
  /** When something falls due next, as text in RFC 3339, or null. */
  nextDue: string | null;
  settings: Settings;
  /** The consumers that programs written for JetStream have created. */
  consumers?: QueueConsumer[];
  /** How far the source of the queue is drawn. */
  source?: SourceState;
}

/** A consumer of a program written for JetStream. Durations and times are text. */
export interface QueueConsumer {
  name: string; description?: string; order: "min" | "max"; created: string;
  ackWait?: string; maxDeliver?: number; maxAckPending?: number; inactiveThreshold?: string;
}

/** How far a source is drawn: the protocol says what its members mean. Times are text. */
export interface SourceState {
  source?: Source; consumer?: string; created?: string; newest?: string; waiting?: string; stopped?: string;
  sequence: Priority; drawn: number; dead: number; removed?: number; lag: number;
  former?: { stream: string; domain?: string; filter?: string; name: string; sequence: Priority; newest?: string }[];
}

/** A schedule: see the document about schedules. Every and jitter are durations. */
export interface Schedule {
  id: string; cron?: string; every?: Duration; zone?: string; priority?: Priority;
  /** Bytes go as they are, everything else through the codec of the client. */
  value?: unknown;
  headers?: Record<string, string[]>;
  jitter?: Duration; ifMissed?: "once" | "skip" | "all"; overlap?: "allow" | "skip";
  until?: Date | string; paused?: boolean;
  /** Fires it now. */
  run?: boolean;
}

/** A schedule as it is set, and its state. Times are text in RFC 3339. */
export interface ScheduleRecord extends Omit<Schedule, "run"> {
  value?: Uint8Array; every?: string; jitter?: string; until?: string;
  /** When it was set; when it fires next, unless it is paused or over; the time that it last fired for. */
  since: string; next?: string; last?: string;
  /** What became of the latest time. */
  outcome?: "pushed" | "overlapped" | "missed";
  /** How many items were pushed, and how many times were skipped. */
  fired: number; skipped: number;
}

const times = ["pushedAt", "due", "expires", "leasedAt", "finishedAt", "keptUntil"];
const bytes = ["value", "progress", "result"];

function readAttempt(a: Omit<Attempt, "from" | "to"> & { from?: string; to: string }): Attempt {
  return { ...a, ...(a.from && { from: new Date(a.from) }), to: new Date(a.to) } as Attempt;
}

/** Returns the past of a job, which a reply has in the values of two headers. Throws BadReplyError. */
export function pastIn(headers: MsgHdrs | undefined): Past {
  const [trail = [], next = []] = ["Pq-Trail", "Pq-Next"].map((name) => headers?.values(name));
  const attempts = trail.map((value) => readAttempt(parseReply(utf8(value), false) as never));
  const successors = next.flatMap((value) => refOf(value) ?? []);
  return { attempts, successors, moreSuccessors: Number(next.find((value) => value.startsWith("+")) ?? 0) };
}

/** Returns an item as a bridge lists it. */
export function readStored(stored: object): StoredItem {
  const read = camelCase<Record<string, unknown>>(stored);
  for (const name of times) if (name in read) read[name] = new Date(read[name] as string);
  if (read.attempts) read.attempts = (read.attempts as never[]).map(readAttempt);
  for (const name of bytes) if (name in read) read[name] = fromBase64(read[name] as string);
  const headers = new ItemHeaders(read.headers as Record<string, string[]> | undefined);
  const [joined, joiner, parent] = [joinedIn(headers), refIn(headers, "Pq-Joiner"), refIn(headers, "Pq-Parent")];
  const about = { ...(joined && { joined }), ...(joiner && { joiner }), ...(parent && { parent }) };
  const known = { headers, type: headers.get("Type") ?? "", group: headers.get("Pq-Group") ?? "", ...about };
  const item = Object.assign(read as unknown as StoredItem, known);
  return Object.defineProperty(item, inspect, { value: () => printed(item) });
}

/** Returns a schedule as a bridge lists it. */
export function readSchedule(record: object): ScheduleRecord {
  const { value, ...rest } = camelCase<Omit<ScheduleRecord, "value"> & { value?: string }>(record);
  return value === undefined ? rest : { ...rest, value: fromBase64(value) };
}

/** Returns what became of one of several items. */
export function readResult(result: object): ItemResult {
  const { code, errorReason = "", error = "", ...done } = camelCase<Wire>(result);
  return code ? { ...done, error: errorOf(code, errorReason, error) } : done;
}

type Wire = Omit<ItemResult, "error"> & { code?: number; errorReason?: string; error?: string };

/** What became of a job. */
export class JobResult<Result = unknown> {
  /** The id of the job. */
  readonly id: string;
  /** "ready", "delayed" or "leased", "done" once it is acknowledged, or "dead" if it is a dead letter. */
  readonly state: State;
  /** What the job returned, as bytes; undefined without a result. */
  readonly value: Uint8Array | undefined;
  /** The type of the value, or "". */
  readonly contentType: string;
  /** How far a leased job is, if it has said so. */
  readonly progress: Uint8Array | undefined;
  /** How often it was delivered; of a dead letter since it is one. */
  readonly deliveries: number;
  /** When it was acknowledged, if it is done. */
  readonly finishedAt: Date | undefined;
  /** How it died, if it is dead. */
  readonly deadLetter: DeadLetter | undefined;
  /** Why, if it is dead: the text of the Drop, or what the last failed delivery threw. */
  readonly cause: string | undefined;
  readonly #codec: Codec;

  constructor(headers: Map<string, string>, payload: Uint8Array, codec: Codec) {
    const progress = headers.get("Pq-Progress");
    this.#codec = codec;
    this.id = headers.get("Pq-Id") ?? "";
    this.state = headers.get("Pq-State") as State;
    this.value = headers.has("Pq-Result-Size") ? payload : undefined;
    this.contentType = headers.get("Content-Type") ?? "";
    this.progress = progress === undefined ? undefined : fromBase64(progress);
    this.deliveries = Number(headers.get("Pq-Deliveries") ?? 0);
    this.finishedAt = timeIn(headers, "Pq-Finished-At");
    this.deadLetter = deadLetterIn(headers);
    const { reason = "", error } = this.deadLetter ?? {};
    if (this.state === "dead") this.cause = (/^(max_deliver|terminated)$/.test(reason) && error) || reason;
  }

  /**
   * Returns the value as the codec of the client reads it; bytes without a type as they are. Throws what the codec
   * throws.
   */
  decode<T = Result>(): NoInfer<T> {
    const { value } = this;
    return (value === undefined || this.contentType !== this.#codec.contentType ? value : this.#codec.decode(value)) as T;
  }

  /** The error of a job that is dead, otherwise undefined. */
  get error(): JobFailedError | undefined {
    const { reason = "", deliveries = 0 } = this.deadLetter ?? {};
    return this.cause === undefined ? undefined : new JobFailedError(this.id, reason, deliveries, this.cause);
  }

  /** @internal */
  [inspect](): object {
    return printed(this);
  }
}

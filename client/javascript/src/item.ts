import type { Msg } from "@nats-io/nats-core";
import { type Codec, inspect, printed, textOf } from "./codec.js";
import { type HeaderValue, ItemHeaders } from "./headers.js";
import { integer, type Priority } from "./json.js";
import { milliseconds } from "./duration.js";
import { BadReplyError } from "./errors.js";
import type { JobRef, JoinerRef } from "./names.js";

/** The state of an item, or of a job that is over. */
export type State = "ready" | "delayed" | "leased" | "done" | "dead";

/** How a dead letter died. */
export interface DeadLetter {
  /** The queue that it came from. */
  queue: string;
  /** "max_deliver", "terminated", or the text that a worker gave it up with. */
  reason: string;
  at: Date | undefined;
  deliveries: number;
  /** The last reason that a worker gave, or "". */
  error: string;
}

/** What became of the members of a joiner, in numbers. */
export interface Joined {
  /** Were acknowledged. */
  done: number;
  /** Became dead letters. */
  dead: number;
  /** Left their queues in another way: removed, popped, purged or expired. */
  gone: number;
  /** Had not ended when the time of the joiner was over. */
  open: number;
}

/** What a message with an item says: its headers, its value and where it is acknowledged. */
export interface Received {
  own: [string, HeaderValue][];
  bridge: Map<string, string>;
  value: Uint8Array;
  ack: string;
}

const originHeaders = new Set(["Pq-Schedule", "Pq-Scheduled-At", "Pq-Source"]);
const pushHeaders = new Set(["Pq-Group", "Pq-Unique", "Pq-Keep", "Pq-Join", "Pq-Joiner", "Pq-Parent"]);

export function receive(pairs: Iterable<[string, HeaderValue]>, value: Uint8Array, ack: string): Received {
  const r: Received = { own: [], bridge: new Map(), value, ack };
  for (const [name, v] of pairs) {
    if (!name.startsWith("Pq-") || originHeaders.has(name)) r.own.push([name, v]);
    else r.bridge.set(name, typeof v === "string" ? v : textOf(v));
    if (pushHeaders.has(name)) r.own.push([name, v]);
  }
  return r;
}

/** Returns the item in a message without frames. */
export function receiveMessage(m: Msg): Received {
  const pairs: [string, string][] = [];
  for (const [name, values] of m.headers ?? []) for (const v of values) pairs.push([name, v]);
  return receive(pairs, m.data, m.reply ?? "");
}

/**
 * An item of a queue. What the message left no room for is "" or 0; then `pushedAt` is undefined.
 */
export class Item<Data = unknown> {
  /** The id of the job, which stays the same wherever the item goes. */
  readonly id: string;
  /** Where the item is now, "" if that is the id. */
  readonly place: string;
  /** The priority, 0 in a FIFO queue; a bigint only beyond 2^53. */
  readonly priority: Priority;
  /** What kind of job it is: its header Type, or "". */
  readonly type: string;
  /** Its group, or "". */
  readonly group: string;
  /** How it died, if it is a dead letter. */
  readonly deadLetter: DeadLetter | undefined;
  /** What became of its members, if it is a joiner that no longer waits. */
  readonly joined: Joined | undefined;
  /** Its joiner, if it is a member. */
  readonly joiner: JoinerRef | undefined;
  /** The job whose acknowledgement has pushed it, if its queue has the setting `trail`. */
  readonly parent: JobRef | undefined;
  readonly #codec: Codec;
  readonly #received: Received;
  #headers: ItemHeaders | undefined;
  #value: Uint8Array | undefined;

  constructor(r: Received, codec: Codec) {
    const { bridge } = r;
    this.#codec = codec;
    this.#received = r;
    this.id = bridge.get("Pq-Id") ?? "";
    this.place = bridge.get("Pq-Place") ?? "";
    this.priority = integer(bridge.get("Pq-Priority") ?? "0");
    this.type = r.own.some(([name]) => name === "Type") ? this.headers.get("Type")! : "";
    this.group = bridge.get("Pq-Group") ?? "";
    this.deadLetter = deadLetterIn(bridge);
    this.joined = joinedIn(bridge);
    this.joiner = refIn(bridge, "Pq-Joiner");
    this.parent = refIn(bridge, "Pq-Parent");
  }

  /** Returns the value as JSON, of the type that the queue has for its values: nothing checks that. Throws SyntaxError. */
  json<T = Data>(): NoInfer<T> {
    return JSON.parse(this.string());
  }

  /** The value, byte for byte. */
  get value(): Uint8Array {
    return (this.#value ??= new Uint8Array(this.#received.value)); // a copy, without the rest of the message
  }

  /** When it was pushed, by the clock of the bridge. */
  get pushedAt(): Date | undefined {
    return timeIn(this.#received.bridge, "Pq-Pushed-At");
  }

  /** The headers that it was pushed with. */
  get headers(): ItemHeaders {
    return (this.#headers ??= new ItemHeaders(this.#received.own));
  }

  /** Returns the value as text, with U+FFFD for bytes that are not UTF-8. */
  string(): string {
    return textOf(this.#value ?? this.#received.value);
  }

  /** Returns the value as the codec of the client reads it. Throws what the codec throws. */
  decode<T = Data>(): NoInfer<T> {
    return this.#codec.decode(this.value) as T;
  }

  /** @internal */
  [inspect](): object {
    return printed({ ...this, value: this.value, pushedAt: this.pushedAt, headers: this.headers });
  }
}

/** An item that is leased. */
export class LeasedItem<Data = unknown> extends Item<Data> {
  /** How many times the item was delivered, this time included; 0 if the message left no room for that. */
  readonly deliveries: number;
  /** How many deliveries the settings of the queue allow; 0 if there is no limit. */
  readonly maxDeliver: number;

  constructor(r: Received, codec: Codec, /** The name of the queue. */ readonly queue: string) {
    super(r, codec);
    this.deliveries = Number(r.bridge.get("Pq-Deliveries") ?? 0);
    this.maxDeliver = Number(r.bridge.get("Pq-Max-Deliver") ?? 0);
  }

  /** Whether this is the last delivery that maxDeliver allows: if the job fails, it becomes a dead letter. */
  get lastTry(): boolean {
    return this.maxDeliver > 0 && this.deliveries >= this.maxDeliver;
  }
}

export function timeIn(headers: Map<string, string>, name: string): Date | undefined {
  const text = headers.get(name);
  return text ? new Date(text) : undefined;
}

/** Returns the milliseconds in a header with a duration, or undefined. */
export function durationIn(headers: Map<string, string>, name: string): number | undefined {
  const text = headers.get(name);
  try {
    return text ? milliseconds(text, name) : undefined;
  } catch (err) {
    throw new BadReplyError((err as Error).message, { unknown: true, cause: err });
  }
}

/** Headers of an item. */
type Named = { get(name: string): string | undefined };

export function joinedIn(headers: Named): Joined | undefined {
  const counts = headers.get("Pq-Joined")?.matchAll(/(\w+)=(\d+)/g);
  return counts && (Object.fromEntries(Array.from(counts, ([, name, n]) => [name, Number(n)])) as unknown as Joined);
}

export const refIn = (headers: Named, name: string): JobRef | undefined => refOf(headers.get(name) ?? "");

export function refOf(value: string): JobRef | undefined {
  const [queue, id] = value.split(" ");
  return queue && id ? { queue, id } : undefined;
}

export function deadLetterIn(headers: Map<string, string>): DeadLetter | undefined {
  const queue = headers.get("Pq-Dead-Queue");
  if (!queue) return undefined;
  return {
    queue,
    reason: headers.get("Pq-Dead-Reason") ?? "",
    at: timeIn(headers, "Pq-Dead-At"),
    deliveries: Number(headers.get("Pq-Dead-Deliveries") ?? 0),
    error: headers.get("Pq-Dead-Error") ?? "",
  };
}

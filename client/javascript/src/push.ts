import { type Codec, encodeValue, kindOf, randomId } from "./codec.js";
import { type Duration, durationText } from "./duration.js";
import { badRequest, checkOptions, type PQError, shown } from "./errors.js";
import { type Frame, HeaderBlock, type HeadersInit } from "./headers.js";
import { type Priority, priorityText } from "./json.js";
import type { JoinerRef } from "./names.js";

/** What may be said about a push. */
export interface PushOptions {
  /**
   * A safe integer, or a bigint of 64 bits; the smallest comes first. The default is 0, the only one of a FIFO queue.
   */
  priority?: Priority;
  /**
   * Makes a second push with the same id a duplicate, for the queue's duplicate_window, two minutes by default: 1 to
   * 512 bytes in one line. The default is a random one, so that a push whose outcome is unknown can be repeated; with
   * false there is none, and it is not repeated.
   */
  msgId?: string | false;
  /** Makes another push with the same key a duplicate while the item is in the queue: 1 to 512 bytes in one line. */
  unique?: string;
  /** Holds the item back for that long, up to ten years. */
  delay?: Duration;
  /**
   * Holds the item back until then, at most ten years ahead: a Date, or a text in RFC 3339. Not together with delay.
   */
  at?: Date | string;
  /** How long until the item expires, 1 s to ten years, or "never". The default is the queue's setting. */
  ttl?: Duration;
  /** The group of the item, with which others take turns: 1 to 128 bytes in one line. */
  group?: string;
  /** How many items of the group have a turn together: 1 to 100, by default 1. Only with group. */
  weight?: number;
  /**
   * For how long the outcome of the job is kept once it is done: 1 s to ten years. The default is the queue's setting.
   */
  keep?: Duration;
  /**
   * Makes the item a joiner: it is held back until all its members have ended, but no longer than this, 1 s to ten years.
   * Without members it is ready at once. Not together with delay, at or ttl, and with at most 64 KiB: see Queue.all.
   */
  join?: Duration;
  /**
   * Makes the item a member of a joiner that still waits, otherwise the push throws JoinedError. The joiner is in the same
   * queue, or in one that the setting `next` names. Not together with unique.
   */
  joiner?: JoinerRef;
  /** Headers to store with the value. Content-Type is set for a value that the codec encodes, unless it is here. */
  headers?: HeadersInit;
  /** What kind of job it is, for the handlers of a Worker: the header Type. */
  type?: string;
}

/** Options of an item in a list that is pushed as a whole. */
export interface ListedOptions extends Omit<PushOptions, "joiner"> {
  /** A joiner that waits, or the index of an earlier item of the list that has `join`. */
  joiner?: JoinerRef | number;
}

/** A member for Queue.all, in a list that begins with the joiner: without `joiner`, its joiner is that one. */
export interface Member<Data = unknown> extends ListedOptions {
  /** Bytes go as they are, everything else through the codec of the client. */
  value: Data;
}

/** An item of pushMany. */
export interface PushItem<Data = unknown> extends PushOptions {
  /** Bytes go as they are, everything else through the codec of the client. */
  value: Data;
}

/** Says that a pushed item is durable. */
export interface Pushed {
  /** The name of the queue. */
  queue: string;
  /** The id of the job, which stays the same wherever the item goes. */
  id: string;
  /** The priority, 0 in a FIFO queue; a bigint only beyond 2^53. */
  priority: Priority;
  /** Nothing was pushed, because of msgId or unique: id and priority describe the push that came before. */
  duplicate: boolean;
}

/** A joiner and its members, as Queue.all returns them. */
export type AllPushed = [joiner: Pushed, ...members: Pushed[]];

/** What became of an item of pushMany: it is durable, or there is an error. */
export type PushOutcome = (Pushed & { error?: undefined }) | { error: PQError };

/** An item that is ready to be sent. */
export interface Prepared extends Frame {
  /** Whether the push may be repeated. */
  repeatable: boolean;
  /** Whether a duplicate can only be the push itself, repeated. */
  ownId: boolean;
}

const second = 1000;
export const successorMembers = ["priority", "delay", "at", "ttl", "group", "keep", "join", "joiner", "headers", "type"];
export const pushMembers = [...successorMembers, "msgId", "unique", "weight"];

/** Returns an item as it is sent. Throws BadRequestError for what cannot be sent; the bridge checks the rest. */
export function prepare(codec: Codec, value: unknown, options: PushOptions | undefined, fifo: boolean): Prepared {
  const o = checkOptions("push option", options, pushMembers);
  const headers = new HeaderBlock();
  const priority = BigInt(priorityText(o.priority ?? 0));
  if (o.delay !== undefined && o.at !== undefined) throw badRequest("delay and at: want one of them");
  if (fifo && priority !== 0n) throw badRequest(`priority ${priority} in a FIFO queue: want 0`);

  const { bytes, contentType } = encodeValue(codec, value, "value");
  headers.addAll(o.headers ?? []);
  const reserved = headers.find("Pq-");
  if (reserved) {
    const option = reserved.slice(3).toLowerCase();
    const instead = pushMembers.includes(option) ? `, use the option ${option}` : "";
    throw badRequest(`header ${reserved}: names that begin with Pq- are reserved${instead}`);
  }
  const hadId = headers.has("Nats-Msg-Id");
  const add = (name: string, text: string | undefined): void => {
    if (text !== undefined) headers.add(name, text);
  };
  if (contentType && !headers.has("Content-Type")) headers.add("Content-Type", contentType);
  add("Type", o.type);
  add("Pq-Unique", o.unique);
  add("Pq-Group", o.group);
  add("Pq-Weight", o.weight?.toString());
  add("Pq-Delay", durationText(o.delay, "delay"));
  add("Nats-Schedule", o.at === undefined ? undefined : `@at ${timeText(o.at, "at")}`);
  add("Nats-TTL", o.ttl === "never" ? o.ttl : durationText(o.ttl, "ttl", second));
  add("Pq-Keep", durationText(o.keep, "keep", second));
  add("Pq-Join", durationText(o.join, "join", second));
  add("Pq-Joiner", o.joiner === undefined ? undefined : joinerText(o.joiner));

  const random = o.msgId === undefined && !hadId;
  if (o.msgId !== false) add("Nats-Msg-Id", random ? randomId() : o.msgId);
  const ownId = random && o.unique === undefined;
  return { priority, headers, value: bytes, repeatable: headers.has("Nats-Msg-Id"), ownId };
}

function joinerText({ queue, id }: JoinerRef): string {
  if (typeof queue === "string" && typeof id === "string") return `${queue} ${id}`;
  throw badRequest("joiner: want an object with the queue and the id of one, such as job.joiner");
}

/** Returns the nth item of a list, from 0 on, as it is sent. Throws BadRequestError. */
export function prepareListed(codec: Codec, value: unknown, options: ListedOptions, fifo: boolean, n: number): Prepared {
  const { joiner, ...o } = options;
  if (typeof joiner !== "number" || n === 0) return prepare(codec, value, options as PushOptions, fifo);
  if (!(Number.isInteger(joiner) && joiner >= 0 && joiner < n)) {
    throw badRequest(`joiner ${joiner} of item ${n}: want the number of an item before it`);
  }
  return { ...prepare(codec, value, o, fifo), joinerBack: n - joiner };
}

/** Returns a time as the protocol has it. Throws BadRequestError. */
export function timeText(time: Date | string, name: string): string {
  const date = new Date(typeof time === "string" || kindOf(time) === "Date" ? time : NaN);
  if (Number.isNaN(date.getTime())) {
    throw badRequest(`${name}: ${shown(time)}: want a Date, or a string such as "2030-01-02T15:04:05Z"`);
  }
  return typeof time === "string" ? time : date.toISOString();
}

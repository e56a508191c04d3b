import { type Codec, cut, encodeValue, utf8 } from "./codec.js";
import { checkQueueName, type Request, type Requester } from "./connection.js";
import { type Duration, durationText } from "./duration.js";
import {
  BadReplyError, badRequest, BadRequestError, checkOptions, InternalError, LeaseLostError, type PQError, shown,
} from "./errors.js";
import { encodeFrames, type Frame, HeaderBlock } from "./headers.js";
import { durationIn, LeasedItem, type Received, timeIn } from "./item.js";
import { stringify } from "./json.js";
import { type ListedOptions, prepareListed, successorMembers } from "./push.js";

/**
 * What an acknowledgement pushes to another queue of the same kind: msgId, unique and weight are not possible, and one
 * whose joiner no longer waits is pushed without it.
 */
export interface Successor extends Omit<ListedOptions, "msgId" | "unique" | "weight"> {
  /** The queue, which the setting `next` of the job's queue must name. */
  queue: string;
  /** Bytes go as they are, everything else through the codec of the client. */
  value: unknown;
}

/** How many items an acknowledgement may push. */
export const mostSuccessors = 256;
/** The most bytes of progress. */
const mostProgress = 1024;
/** A reason is cut at that many bytes before it is sent; the bridge keeps less. */
const mostReason = 4096;

/**
 * A leased item. Nobody else gets it until the lease ends: end it with ack when the item is done, nak or snooze to have
 * it come back, and term to make it a dead letter.
 *
 * These, and extend, throw LeaseLostError once the item is settled or somebody else has it. They count after the lease
 * is over too, as long as nobody else got the item. After UnknownOutcomeError call the method again: LeaseLostError then
 * most likely means that the first call counted.
 */
export class Delivery<Data = unknown> extends LeasedItem<Data> {
  /** How long the lease is, in milliseconds, if the bridge has said so: it does unless ackWait was given. */
  readonly ackWait: number | undefined;
  /** When the lease is over by the bridge's clock: for people and logs. */
  readonly leaseUntil: Date | undefined;
  /** Where acknowledgements go. It ends with the token of the lease: anybody who has it can acknowledge the item. */
  readonly ackSubject: string;
  readonly #client: Requester;

  /** Of a priority queue, or of a FIFO queue. */
  constructor(client: Requester, queue: string, readonly fifo: boolean, r: Received) {
    super(r, client.codec, queue);
    this.#client = client;
    this.ackWait = durationIn(r.bridge, "Pq-Ack-Wait");
    this.leaseUntil = timeIn(r.bridge, "Pq-Lease-Until");
    this.ackSubject = ackSubjectOf(r);
  }

  /**
   * The item is done: it leaves the queue. The result is kept if the job is (see PushOptions.keep): bytes as they are,
   * undefined for none, everything else through the codec. The items of `next` are pushed in the same transaction. It
   * returns too if an earlier acknowledgement of this lease counted and the job is kept.
   *
   * Throws BadRequestError for a result of more than 64 KiB, or what PQ_MAX_RESULT of the bridge says, and for what
   * cannot be pushed; then the lease goes on.
   */
  async ack(result?: unknown, options?: { next?: Successor[] }): Promise<void> {
    const { next = [] } = checkOptions("ack option", options, ["next"]);
    if (!Array.isArray(next)) throw badRequest(`next ${shown(next)}: want an array of items to push`);
    const successors = next.map((n, i) => successorFrame(this.#client.codec, this.fifo, n, i));
    try {
      await this.send(ackRequest("+ACK", [{ delivery: this, result: encodeResult(this.#client.codec, result), successors }]));
    } catch (err) {
      if (!(err instanceof LeaseLostError && err.reason === "done")) throw err;
    }
  }

  /**
   * Returns the item to its place after a delay, by default the queue's backoff; with 0 at once. Without a backoff it is
   * there again after retryDelay, by default at once, and twice as late after each further delivery, up to a minute or
   * retryDelay itself. Only one of delay and retryDelay is possible. If this was the last delivery that the queue allows,
   * it becomes a dead letter, whose error is the last reason, cut at 1,024 bytes.
   */
  async nak(options?: { delay?: Duration | undefined; retryDelay?: Duration; reason?: string }): Promise<void> {
    await this.send(nakRequest(options));
  }

  /** Returns the item to its place after a delay, by default at once, and does not count the delivery. */
  async snooze(delay: Duration = 0): Promise<void> {
    await this.send(snoozeRequest(delay));
  }

  /** Makes the item a dead letter. The reason is cut at 256 bytes. */
  async term(reason = ""): Promise<void> {
    await this.send(termRequest(reason));
  }

  /** Restarts the lease with the length it had, and says how far the job is: up to 1 KiB, as a result is encoded. */
  async extend(progress?: unknown): Promise<void> {
    await this.renew(encodeResult(this.#client.codec, progress, "progress")?.bytes);
  }

  /** @internal */
  renew(progress?: Uint8Array, ms?: number): Promise<void> {
    const result = progress && { bytes: progress, contentType: "" };
    return this.send(ackRequest("+WPI", [{ delivery: this, result, successors: [] }]), ms);
  }

  /** @internal Sends an acknowledgement, and waits for the reply, in milliseconds. */
  async send(request: AckRequest, ms = this.#client.timeout): Promise<void> {
    if (!this.ackSubject) throw badRequest("an item without a subject of acknowledgements: want one that was leased");
    await this.#client.connection.request({ ...request, subject: this.ackSubject, writes: true }, ms);
  }
}

/** What a job returns: the bytes, and their type or "". */
export interface Result {
  bytes: Uint8Array;
  contentType: string;
}

/** Returns a result as it is sent, undefined for undefined. Throws BadRequestError. */
export function encodeResult(codec: Codec, value: unknown, name = "result"): Result | undefined {
  return value === undefined ? undefined : encodeValue(codec, value, name);
}

/** Returns progress as it is sent: a copy, as a handler may use its buffer again. Throws BadRequestError. */
export function encodeProgress(codec: Codec, value: unknown): Uint8Array {
  const bytes = encodeResult(codec, value, "progress")?.bytes ?? [];
  if (bytes.length === 0 || bytes.length > mostProgress) {
    throw badRequest(`progress of ${bytes.length} bytes: want 1 to ${mostProgress}`);
  }
  return new Uint8Array(bytes);
}

/**
 * Returns the frame that pushes an item with an acknowledgement, with a copy of its value. The item is the job's nth, from
 * 0 on. Throws BadRequestError.
 */
export function successorFrame(codec: Codec, fifo: boolean, item: Successor, n: number): Frame {
  checkQueueName(item?.queue);
  const { queue, value, ...options } = item;
  checkOptions("option of next", options, successorMembers);
  const frame = prepareListed(codec, value, { ...options, msgId: false }, fifo, n);
  frame.headers.add("Pq-Queue", queue);
  return { ...frame, value: new Uint8Array(frame.value) };
}

/** Returns the subject that acknowledges an item. Throws BadReplyError. */
export function ackSubjectOf(r: Received): string {
  if (r.ack) return r.ack;
  throw new BadReplyError("a leased item without a subject of acknowledgements", { unknown: true });
}

/** Returns the token of a lease, or undefined to a client of another account than the bridge. */
export const tokenOf = (d: Pick<Delivery, "ackSubject">): string | undefined => /\.ack\.([^.]+)$/.exec(d.ackSubject)?.[1];

/** The payload and headers of an acknowledgement. */
export type AckRequest = Pick<Request, "payload" | "headers">;

const plain = (text: string): AckRequest => ({ payload: utf8(text) });

/** Returns what Delivery.nak sends. */
export function nakRequest(options: Parameters<Delivery["nak"]>[0]): AckRequest {
  const { delay, retryDelay, reason } = checkOptions("nak option", options, ["delay", "retryDelay", "reason"]);
  const [after, retry] = [durationText(delay, "delay"), durationText(retryDelay, "retryDelay")];
  const o = { delay: after, retry_delay: retry, reason: reasonText(reason) || undefined };
  return plain(Object.values(o).some(Boolean) ? `-NAK ${stringify(o)}` : "-NAK");
}

/** Returns what Delivery.snooze sends. */
export const snoozeRequest = (delay: Duration = 0): AckRequest =>
  plain(`-NAK ${stringify({ snooze: true, delay: durationText(delay, "delay") })}`);

/** Returns what Delivery.term sends. */
export const termRequest = (reason: string): AckRequest => plain(`+TERM ${reasonText(reason)}`.trim());

function reasonText(reason = ""): string {
  if (typeof reason === "string") return cut(reason, mostReason);
  throw badRequest(`reason ${shown(reason)}: want a string`);
}

/** A lease to acknowledge, with the result of its job and the items to push. */
export interface Done {
  delivery: Pick<Delivery, "ackSubject">;
  result?: Result | undefined;
  successors: Frame[];
}

/**
 * Returns the acknowledgement of leases, the first in its subject, with what goes with them. What the others push names
 * their leases, as its parents. Bridges from before the setting `trail` refuse that, and nothing is done. As for any
 * result that is refused, each job is then acknowledged on its own: there none has to be named.
 */
export function ackRequest(payload: string, all: Done[]): AckRequest {
  const frames = all.flatMap(({ delivery, successors }, n) =>
    n === 0 ? successors : successors.map((frame) => ({ ...frame, parent: tokenOf(delivery) })),
  );
  if (frames.length > mostSuccessors) throw badRequest(`${frames.length} items to push: want at most ${mostSuccessors}`);
  if (frames.length === 0 && !all.some((done) => done.result)) return plain(payload);

  const headers = new HeaderBlock();
  headers.add("Pq-Ack", payload);
  const alone = all.length === 1 && frames.length === 0;
  for (const { delivery, result } of all) {
    if (!result) continue;
    const own = alone ? headers : new HeaderBlock();
    if (result.contentType) own.add("Content-Type", result.contentType);
    if (alone) return { payload: result.bytes, headers };
    own.add("Pq-Token", tokenOf(delivery) ?? "");
    frames.push({ priority: 0n, headers: own, value: result.bytes });
  }
  headers.add("Pq-Frames", String(frames.length));
  return { payload: encodeFrames(frames), headers };
}

/** The most leases in a request, how many bytes the token of one may have, and how many the rest. */
const mostTogether = 1000;
const [tokenBytes, otherBytes] = [84, 1024];

/** Acknowledges deliveries: see Client.ackAll. */
export async function ackAll(deliveries: Iterable<Delivery>, maxPayload: number): Promise<(PQError | undefined)[]> {
  if (typeof deliveries?.[Symbol.iterator] !== "function") throw badRequest(`deliveries ${shown(deliveries)}: want an iterable of deliveries`);
  const errors: (PQError | undefined)[] = [];
  const groups = new Map<string, [Delivery, number][]>(); // a request can acknowledge leases of one queue
  for (const d of deliveries) {
    if (!(d instanceof Delivery)) throw badRequest(`${shown(d)}: want a delivery that lease or leaseBatch returned`);
    const queue = d.ackSubject.slice(0, -(tokenOf(d)?.length ?? 0) || undefined); // without a token, it is alone
    const group = groups.get(queue) ?? [];
    group.push([d, errors.push(undefined) - 1]);
    groups.set(queue, group);
  }

  const most = Math.min(mostTogether, Math.max(1, Math.floor((maxPayload - otherBytes) / tokenBytes)));
  for (const group of groups.values()) {
    while (group.length > 0) {
      const part = group.splice(0, most);
      const acked = await ackTogether(part.map(([d]) => d));
      part.forEach(([, i], n) => (errors[i] = acked[n]));
    }
  }
  return errors;
}

async function ackTogether(held: Delivery[]): Promise<(PQError | undefined)[]> {
  const [first, ...others] = held as [Delivery, ...Delivery[]];
  try {
    if (others.length === 0) await first.ack();
    else await first.send(ackRequest(`+ACK ${JSON.stringify({ also: others.map(tokenOf) })}`, []));
    return [undefined];
  } catch (err) {
    const refused = [LeaseLostError, BadRequestError, InternalError].some((kind) => err instanceof kind);
    if (others.length === 0 || !refused) return held.map(() => err as PQError);
    return (await Promise.all(held.map((d) => ackTogether([d])))).flat(); // none counts if one is lost
  }
}

import type { Msg } from "@nats-io/nats-core";
import { pushBatch, pushMany } from "./batch.js";
import type { Client } from "./client.js";
import { isWellFormed, toBase64, utf8 } from "./codec.js";
import { Delivery } from "./delivery.js";
import { checkQueueName } from "./connection.js";
import { type Duration, durationText, milliseconds, shown } from "./duration.js";
import { BadReplyError, badRequest, errorOf, NotDoneError, NotFoundError, NotSentError } from "./errors.js";
import { HeaderBlock } from "./headers.js";
import { defaultHolder } from "./holder.js";
import { Item, receiveMessage, type Received, type State } from "./item.js";
import { camelCase, parseReply, type Priority, priorityText, snakeCase, stringify } from "./json.js";
import { type Fetch, fetchItems, lateReply } from "./pop.js";
import { checkOptions } from "./options.js";
import { prepare, type Prepared, type Pushed, type PushItem, type PushOptions, type PushOutcome } from "./push.js";
import { JobResult } from "./result.js";
import { mayRepeat, Pause, repeat } from "./retry.js";
import { type Settings, settingsToSend } from "./settings.js";
import { type ItemsOptions, type QueueInfo, readStored, type Redriven, type Schedule, type StoredItem } from "./stored.js";

/** Options of a pop. */
export interface PopOptions {
  /** Takes the largest priority, the newest among equals, instead of the smallest and oldest. Not in a FIFO queue. */
  max?: boolean;
  /** How long to wait for an item, up to 1 h. The default, 0, does not wait. */
  expires?: Duration;
  /** The most bytes of items to return. An item that exceeds them stays, and the error is a TooLargeError. */
  maxBytes?: number;
  /**
   * Ends the wait. An item that is on its way by then is returned all the same; otherwise the call throws the signal's
   * reason, at most two seconds later.
   */
  signal?: AbortSignal;
}

/** Options of a lease. */
export interface LeaseOptions extends PopOptions {
  /** The length of the lease, 100 ms to 12 h. The default is the queue's setting, or 30 s. */
  ackWait?: Duration;
  /** The name of who takes the lease, which items shows: up to 128 bytes. */
  holder?: string;
}

/** Names a job: by its id (or the place of its item), or by the msgId of its push within the duplicate window. */
export type JobName = string | { msgId: string };

/** How long one request waits for a result, in milliseconds. */
const resultWait = 30_000;
const hour = 3_600_000;
const popMembers = ["max", "expires", "maxBytes", "signal"];
const leaseMembers = [...popMembers, "ackWait", "holder"];

/** A handle of a priority queue or a FIFO queue: see Client. It has no state of its own. */
export class Queue {
  /** Use Client.priorityQueue or Client.fifoQueue. */
  constructor(
    readonly client: Client,
    readonly name: string,
    readonly fifo: boolean,
    /** The subject of its requests up to the verb. */
    readonly subject: string,
  ) {
    checkQueueName(name);
  }

  /**
   * Adds an item and returns once it is durable. Bytes go as they are, everything else through the codec. It tries
   * again, with one message id for all tries, while the outcome is unknown or a bridge is away, for as long as the
   * client's timeout.
   *
   * Throws BadRequestError, TooLargeError, OverloadedError if the queue is full, and the errors of any request.
   */
  async push(value: unknown, options: PushOptions = {}): Promise<Pushed> {
    const p = prepare(this.client.codec, value, options, this.fifo);
    if (p.priority !== 0n) p.headers.add("Pq-Priority", String(p.priority));
    return repeat(
      this.client.timeout,
      async (left, first) => {
        const pushed = await this.#pushOne(p, left);
        return { ...pushed, duplicate: pushed.duplicate && (first || !p.ownId) };
      },
      (err) => mayRepeat(err, p.repeatable),
    );
  }

  async #pushOne(p: Prepared, ms: number): Promise<Pushed> {
    if (p.headers.hasBytes) return (await pushBatch(this, [p], ms))[0]!;

    const request = { subject: `${this.subject}push`, payload: p.value, headers: p.headers, writes: true };
    const reply = await this.client.connection.request(request, ms);
    const { id, priority = 0, duplicate = false } = this.parse(reply, true);
    if (typeof id !== "string") throw notABridge(reply, true);
    return { id, priority, duplicate };
  }

  /**
   * Adds any number of items, in as few requests as the limits allow, one after the other, and returns the outcome of
   * each, in their order: first the items that are in the queue, then the ones that failed, then later ones, which were
   * not sent and have a NotSentError. An item that is refused fails alone. It tries again as push does, each request
   * for as long as the client's timeout.
   *
   * Items of one priority are served in the order of the list.
   */
  async pushMany(items: Iterable<PushItem>): Promise<PushOutcome[]> {
    return pushMany(this, [...items]);
  }

  /**
   * Removes and returns the first item, or null if the queue is empty, or stays so for `expires`. An item is lost if the
   * reply is: lease it where that matters.
   *
   * Throws UnknownOutcomeError if an item may have left the queue, TooLargeError for one that exceeds maxBytes,
   * OverloadedError if the queue is at a limit, and the errors of any request.
   */
  async pop(options: PopOptions = {}): Promise<Item | null> {
    const [r] = await this.#fetch(1, options, {});
    return r ? new Item(r, this.client.codec) : null;
  }

  /**
   * Removes and returns up to n items, 1 to 1,000, in one transaction. With `expires` it waits until it has n, or the
   * time is over. It may return fewer than there are: [] means that the queue is empty. Errors are as for pop; items
   * that came before an error are returned without it.
   */
  async popBatch(n: number, options: PopOptions = {}): Promise<Item[]> {
    if (!Number.isInteger(n) || n < 1 || n > 1000) throw badRequest(`a batch of ${shown(n)}: want 1 to 1000 items`);
    const list = await this.#fetch(n, options, n > 1 ? { batch: n, frames: true } : {});
    return list.map((r) => new Item(r, this.client.codec));
  }

  /** Returns the item that pop would return, and leaves it in the queue; null if there is none. */
  async peek(options: Pick<PopOptions, "max"> = {}): Promise<Item | null> {
    checkOptions("peek option", options, ["max"]);
    const reply = await this.#send(this.#verb("peek", options.max), "", false).catch((err) => {
      if (err instanceof NotFoundError) return null;
      throw err;
    });
    return reply && new Item(receiveMessage(reply), this.client.codec);
  }

  /**
   * Leases the item that pop would return: nobody else gets it until the lease is over. Returns null if there is none.
   * A Worker does this for you, and extends the lease while the job is done. Errors are as for pop.
   */
  async lease(options: LeaseOptions = {}): Promise<Delivery | null> {
    const { ackWait, holder } = options;
    const [r] = await this.#fetch(1, options, {
      ack_wait: durationText(ackWait, "ackWait", 100, 12 * hour) ?? "0s",
      frames: true,
      holder: checkUTF8(holder, "holder"),
    });
    return r ? new Delivery(this.client, this.name, this.fifo, r) : null;
  }

  /** @internal The request of a pop, with members of the protocol. */
  fetchOf(wanted: number, options: Record<string, unknown>, o: PopOptions = {}): Fetch {
    const subject = this.subject + this.#verb("pop", o.max);
    return { subject, cancels: subject, acks: `${this.subject}ack.`, options, wanted, expires: 0, signal: o.signal };
  }

  // Waits again if the connection was lost meanwhile, and nothing is known to have come of it.
  async #fetch(wanted: number, o: PopOptions, options: Record<string, unknown>): Promise<Received[]> {
    checkOptions(options.ack_wait ? "lease option" : "pop option", o, options.ack_wait ? leaseMembers : popMembers);
    o.signal?.throwIfAborted();
    const fetch = this.fetchOf(wanted, { ...options, max_bytes: o.maxBytes }, o);
    const wait = milliseconds(o.expires ?? 0, "expires", 0, hour);
    if (wait > 0 && wait < 1) throw badRequest(`expires: ${shown(o.expires)}: want 1ms to 1h, or 0`);
    const until = performance.now() + wait;
    for (let left = wait; ; left = Math.floor(until - performance.now())) {
      fetch.expires = left;
      fetch.options.expires = left > 0 ? durationText(left, "expires") : undefined;
      const { items, error } = await fetchItems(this.client.connection, fetch, this.client.timeout).catch((err) => {
        if (err instanceof NotSentError) o.signal?.throwIfAborted();
        throw err;
      });
      if (items.length > 0) return items;
      if (error && !(error instanceof NotFoundError)) throw error;
      o.signal?.throwIfAborted();
      if (until - performance.now() < 50) return []; // too short to ask again
    }
  }

  /** Returns how many items are ready. */
  async len(): Promise<number> {
    return (await this.query("len", undefined, false)).len;
  }

  /** Describes the queue: counts, groups, settings. */
  async info(): Promise<QueueInfo> {
    return camelCase(await this.query("info", undefined, false));
  }

  /** Changes the settings that are given, and returns all that are set. null resets one to its default. */
  async configure(settings: Settings): Promise<Settings> {
    return camelCase(await this.query("config", settingsToSend(settings), true));
  }

  /** Pauses the queue until resume, or a group of it, whose items are passed over meanwhile. */
  async pause(group?: string): Promise<void> {
    const pause = group === undefined ? { pauseUntil: "9999-12-31T00:00:00Z" } : { pausedGroups: { [group]: true } };
    await this.configure(pause);
  }

  /** Ends a pause of the queue, or of a group of it. */
  async resume(group?: string): Promise<void> {
    await this.configure(group === undefined ? { pauseUntil: null } : { pausedGroups: { [group]: false } });
  }

  /** Lists items in the order in which they would be served, page by page. They stay in the queue. */
  async *items(options: ItemsOptions = {}): AsyncGenerator<StoredItem, void, undefined> {
    const { max, match, ...rest } = options;
    const first = { ...snakeCase(rest), match: checkUTF8(match, "match"), end: max ? "max" : undefined };
    for (let after: string | undefined; ; ) {
      const page = await this.query("items", { ...first, after }, false);
      for (const stored of page.items) yield readStored(stored);
      if (page.next === null) return;
      after = page.next;
    }
  }

  /**
   * Returns an item and its state, and leaves it where it is, also if it is a dead letter or done and kept. Throws
   * NotFoundError.
   */
  async get(name: JobName): Promise<Item & { state: State }> {
    const r = receiveMessage(await this.#send("get", nameOf(name), false));
    return Object.assign(new Item(r, this.client.codec), { state: r.bridge.get("Pq-State") as State });
  }

  /** Removes an item in any state. If it is leased, its holder gets LeaseLostError. Throws NotFoundError. */
  async remove(id: string): Promise<void> {
    await this.query("remove", nameOf(id), true);
  }

  /**
   * Moves an item to the end of a priority, and returns its place there. To repeat it after UnknownOutcomeError, name
   * the item by the place it had. Throws LeasedError for a leased item, and NotFoundError.
   */
  async move(id: string, priority: Priority): Promise<string> {
    priorityText(priority);
    return (await this.query("move", { ...nameOf(id), priority }, true)).place;
  }

  /**
   * Sends up to `max` dead letters of this queue, by default 1,000, back to the queues they came from. Returns their
   * number.
   */
  async redrive(options?: { max?: number }): Promise<number>;
  /** Sends the dead letters with these ids, 1 to 1,000, back. Returns what became of each, in their order. */
  async redrive(options: { ids: string[] }): Promise<Redriven[]>;
  async redrive(options: { max?: number; ids?: string[] } = {}): Promise<number | Redriven[]> {
    checkOptions("redrive option", options, ["max", "ids"]);
    if (options.ids) {
      const { results } = await this.query("redrive", { ids: options.ids }, true);
      return results.map((r: any) => (r.code ? { id: r.id, error: errorOf(r.code, r.error_reason ?? "", r.error) } : r));
    }
    const { max = 1000 } = options;
    for (let done = 0; ; ) {
      const { redriven, more } = await this.query("redrive", { max: max - done }, true);
      done += redriven;
      if (!more || done >= max) return done;
    }
  }

  /** Creates a schedule or replaces it, or with only `paused` or `run` changes it, and returns it with its state. */
  async schedule(s: Schedule): Promise<Schedule> {
    const { value, every, jitter, until, ...rest } = s;
    if (s.priority !== undefined) priorityText(s.priority);
    const encoded = value === undefined ? undefined : prepare(this.client.codec, value, { msgId: false }, this.fifo).value;
    const sent = {
      ...snakeCase(rest),
      every: durationText(every, "every"),
      jitter: durationText(jitter, "jitter"),
      until: until instanceof Date ? until.toISOString() : until,
      value: encoded && toBase64(encoded),
    };
    return camelCase(await this.query("schedule", sent, true));
  }

  /** Removes a schedule. Its items stay. Throws NotFoundError. */
  async unschedule(id: string): Promise<void> {
    await this.query("unschedule", { id: checkUTF8(id, "id") }, true);
  }

  /**
   * Says what became of a job. With `wait` it waits until the job is done or dead, up to that long, also through
   * restarts of bridges. A job that is done is found for as long as it is kept. The signal ends a wait, at once.
   *
   * Throws NotFoundError if there is no such job, or it is over and not kept.
   */
  async result(name: JobName, options: { wait?: Duration; signal?: AbortSignal } = {}): Promise<JobResult> {
    checkOptions("result option", options, ["wait", "signal"]);
    const until = performance.now() + (options.wait === Infinity ? Infinity : milliseconds(options.wait ?? 0, "wait"));
    const pause = new Pause();
    for (let asked = nameOf(name); ; ) {
      options.signal?.throwIfAborted();
      const left = Math.max(0, Math.floor(until - performance.now()));
      try {
        const r = await this.#askResult(asked, Math.min(left, resultWait), options.signal);
        if (r.state === "done" || r.state === "dead" || performance.now() >= until) return r;
        asked = { id: r.id }; // a message id is forgotten earlier
        pause.reset();
      } catch (err) {
        options.signal?.throwIfAborted();
        if (left === 0 || !mayRepeat(err, true)) throw err;
        await pause.wait(options.signal, left);
      }
    }
  }

  async #askResult(name: object, wait: number, signal: AbortSignal | undefined): Promise<JobResult> {
    const payload = utf8(stringify({ ...name, expires: wait > 0 ? durationText(wait, "wait") : undefined }));
    const ms = wait > 0 ? wait + lateReply : this.client.timeout;
    const request = { subject: `${this.subject}result`, payload, writes: false };
    const reply = await this.client.connection.request(request, ms, signal);
    const { bridge } = receiveMessage(reply);
    const contentType = reply.headers?.get("Content-Type");
    if (contentType) bridge.set("Content-Type", contentType);
    if (!bridge.has("Pq-State")) throw notABridge(reply, false);
    return new JobResult(bridge, new Uint8Array(reply.data), this.client.codec);
  }

  /**
   * Pushes a job, waits until a worker has done it, and returns what it returned: a function call that outlasts crashes
   * of workers, bridges and NATS servers. With a msgId, it outlasts a crash of the caller too: call again with the same.
   * `wait` bounds the wait, by default it has no end. The result is kept for an hour, or as `keep` says.
   *
   * Throws JobFailedError if the job is a dead letter, NotFoundError if nobody knows what became of it, NotDoneError with
   * its id when the time is over, and the errors of push.
   */
  async call<T = unknown>(value: unknown, options: PushOptions & { wait?: Duration; signal?: AbortSignal } = {}): Promise<T> {
    const { wait, signal, ...push } = options;
    if (wait !== undefined) milliseconds(wait, "wait");
    const { id } = await this.push(value, { keep: "1h", ...push });
    const r = await this.result(id, { wait: wait ?? Infinity, signal });
    if (r.error) throw r.error;
    if (r.state !== "done") throw new NotDoneError(id, r.state);
    return r.decode<T>();
  }

  #verb(verb: string, max: boolean | undefined): string {
    if (max && this.fifo) throw badRequest("max in a FIFO queue, which is served from one end");
    return this.fifo ? verb : `${verb}.${max ? "max" : "min"}`;
  }

  async #send(verb: string, payload: string | object, writes: boolean): Promise<Msg> {
    const headers = new HeaderBlock();
    if (writes) headers.add("User-Agent", defaultHolder());
    const bytes = utf8(typeof payload === "string" ? payload : stringify(payload));
    return this.client.connection.request({ subject: this.subject + verb, payload: bytes, headers, writes }, this.client.timeout);
  }

  /** Sends a request with members of the protocol, and returns the members of the reply. */
  private async query(verb: string, payload: object | undefined, writes: boolean): Promise<any> {
    return this.parse(await this.#send(verb, payload ?? "", writes), writes);
  }

  /** @internal Returns the members of a reply. Throws BadReplyError. */
  parse(reply: Msg, writes: boolean): any {
    const parsed = parseReply(reply.data, writes);
    if (typeof parsed !== "object" || parsed === null || isPubAck(parsed)) throw notABridge(reply, writes);
    return parsed;
  }
}

// A stream that captures the subject replies like this; to a push, a bridge does too, with the name of the queue.
const isPubAck = (o: object): boolean => "seq" in o && !("queue" in o);

/** @internal */
export const notABridge = (reply: Msg, unknown: boolean): BadReplyError =>
  new BadReplyError(`something other than a bridge replied: ${shown(reply.string())}`, { unknown });

function checkUTF8(text: string | undefined, name: string): string | undefined {
  if (text === undefined) return undefined;
  if (typeof text !== "string" || !isWellFormed(text)) throw badRequest(`${name}: ${shown(text)}: want a text in UTF-8`);
  return text;
}

function nameOf(name: JobName): { id: string } | { msg_id: string } {
  const isId = typeof name === "string";
  const text = checkUTF8(isId ? name : name?.msgId, isId ? "id" : "msgId");
  if (!text) throw badRequest(`${isId ? "id" : "msgId"}: ${shown(text)}: want a text that is not empty`);
  return isId ? { id: text } : { msg_id: text };
}

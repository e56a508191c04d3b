import type { Msg, NatsConnection } from "@nats-io/nats-core";
import { push, pushMany } from "./batch.js";
import { type Codec, json, toBase64, utf8 } from "./codec.js";
import { checkQueueName, Connection, type Requester } from "./connection.js";
import { ackAll, Delivery } from "./delivery.js";
import { type Duration, durationText, milliseconds, tenYears } from "./duration.js";
import {
  badRequest, ChainError, checkOptions, type Given, JobFailedError, NotDoneError, NotFoundError, NotSentError, PQError, shown,
  UnknownOutcomeError,
} from "./errors.js";
import { HeaderBlock } from "./headers.js";
import { defaultHolder } from "./holder.js";
import { Item, receiveMessage, type Received, type State } from "./item.js";
import { OpenJoin, pushAll } from "./join.js";
import { camelCase, membersOf, type Priority, priorityText, snakeCase, stringify } from "./json.js";
import { type AtPlace, checkUTF8, type JobName, type JobRef, nameOf } from "./names.js";
import { type Fetch, fetchItems, type LeaseOptions, type PopOptions } from "./pop.js";
import {
  type AllPushed, type Member, prepare, type Pushed, type PushItem, pushMembers, type PushOptions, type PushOutcome,
  timeText,
} from "./push.js";
import { awaitResult, followResult, lateEnd } from "./result.js";
import { type Settings, settingsToSend } from "./settings.js";
import {
  type ItemResult, type ItemsOptions, JobResult, type Past, pastIn, type QueueInfo, readResult, readSchedule, readStored, type Schedule,
  type ScheduleRecord, type StoredItem,
} from "./stored.js";

/** Options of a call. */
export interface CallOptions extends PushOptions {
  /** How long to wait for the job, the push included. The default has no end. */
  wait?: Duration;
  /** Ends the wait, at once: the call throws its reason. A job that was pushed goes on. */
  signal?: AbortSignal;
}

const hour = 3_600_000;
const itemsMembers = ["state", "max", "match", "headers", "valueBytes", "attempts"];
const scheduleMembers = [
  ...["id", "cron", "every", "zone", "priority", "value", "headers", "jitter", "ifMissed", "overlap", "until", "paused", "run"],
];
const popMembers = ["max", "expires", "maxBytes", "signal"];
const leaseMembers = [...popMembers, "ackWait", "holder"];

/** Options of a Client. */
export interface ClientOptions {
  /** The first tokens of the subjects of priority queues: "pq", as PQ_SUBJECT_PREFIX of the bridge says. */
  prefix?: string;
  /** The first tokens of the subjects of FIFO queues: "q", as PQ_FIFO_PREFIX of the bridge says. */
  fifoPrefix?: string;
  /** How long a request may take that does not wait for anything, by default 10 s. */
  timeout?: Duration;
  /** The prefix of the subjects for replies, by default "_INBOX". nats-core does not tell the one it was given. */
  inboxPrefix?: string;
  /** Turns values that are not bytes into bytes and back, by default JSON. */
  codec?: Codec;
}

/**
 * Sends requests to the bridges behind a NATS connection, which it never closes: see connectOptions. Clients of one
 * connection share its subscription for replies, so a program may make as many as it likes.
 *
 * All calls throw a PQError: see its subclasses. What cannot be sent is a BadRequestError, as is what a bridge refuses.
 */
export class Client implements Requester {
  readonly connection: Connection;
  readonly codec: Codec;
  /** How long a request may take, in milliseconds. */
  readonly timeout: number;
  readonly #prefix: string;
  readonly #fifoPrefix: string;

  /** Throws BadRequestError for options that are not valid. */
  constructor(nc: NatsConnection, options: ClientOptions = {}) {
    if (typeof nc?.status !== "function") throw badRequest(`connection ${shown(nc)}: want what "await connect()" returns`);
    const given = checkOptions("client option", options, ["prefix", "fifoPrefix", "timeout", "inboxPrefix", "codec"]);
    const { prefix = "pq", fifoPrefix = "q", timeout = 10_000, inboxPrefix = "_INBOX", codec = json } = given;
    for (const [name, text] of Object.entries({ prefix, fifoPrefix, inboxPrefix })) {
      if (typeof text !== "string" || !/^[^\s.*>]+(\.[^\s.*>]+)*$/.test(text)) {
        throw badRequest(`${name} ${shown(text)}: want tokens of a subject without wildcards, such as "pq"`);
      }
    }
    if (typeof codec.encode !== "function" || typeof codec.decode !== "function") {
      throw badRequest(`codec ${shown(codec)}: want an object with contentType, encode and decode, such as json`);
    }
    this.#prefix = prefix;
    this.#fifoPrefix = fifoPrefix;
    this.timeout = milliseconds(timeout, "timeout", 1);
    this.codec = codec;
    this.connection = Connection.of(nc, inboxPrefix);
  }

  /**
   * Returns a handle of the priority queue with that name: 1 to 128 letters, digits, "-" and "_". It sends nothing: a
   * queue exists as soon as it has items or settings. The types of its values and results are for the compiler only.
   */
  priorityQueue<Data = unknown, Result = unknown>(name: string): Queue<Data, Result> {
    return new Queue(this, name, false, `${this.#prefix}.${name}.`);
  }

  /** Returns a handle of the FIFO queue with that name: see priorityQueue. It has no priorities and only one end. */
  fifoQueue<Data = unknown, Result = unknown>(name: string): Queue<Data, Result> {
    return new Queue(this, name, true, `${this.#fifoPrefix}.${name}.`);
  }

  /** Lists the names of the priority queues that have items, settings or consumers, page by page. */
  priorityQueues(): AsyncGenerator<string, void, undefined> {
    return names(new Queue(this, "all", false, `${this.#prefix}.`));
  }

  /** Lists the names of the FIFO queues: see priorityQueues. */
  fifoQueues(): AsyncGenerator<string, void, undefined> {
    return names(new Queue(this, "all", true, `${this.#fifoPrefix}.`));
  }

  /**
   * Acknowledges deliveries of any queues without results, in as few requests as possible, and returns for each, in their
   * order, undefined or the error that ack would throw. Call it again with those whose error is an UnknownOutcomeError:
   * LeaseLostError then most likely means that the first call counted.
   */
  ackAll(deliveries: Iterable<Delivery>): Promise<(PQError | undefined)[]> {
    return ackAll(deliveries, this.connection.nc.info?.max_payload ?? Infinity);
  }
}

/**
 * A handle of a priority queue or a FIFO queue: see Client. It has no state of its own. Data is the type of its values, and
 * Result what its jobs return: nothing checks that they are.
 */
export class Queue<Data = unknown, Result = unknown> {
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
  async push(value: Data, options?: PushOptions): Promise<Pushed> {
    const prepared = prepare(this.client.codec, value, options, this.fifo);
    return (await push(this, [prepared], this.client.timeout))[0]!;
  }

  /**
   * Adds any number of items, in as few requests as the limits allow, one after the other, and returns the outcome of
   * each, in their order: first the items that are in the queue, then the ones that failed, then later ones, which were
   * not sent and have a NotSentError. An item that is refused fails alone. It tries again as push does, each request
   * for as long as the client's timeout.
   *
   * Items of one priority are served in the order of the list. All are read before the first is sent.
   */
  async pushMany(items: Iterable<PushItem<Data>> | AsyncIterable<PushItem<Data>>): Promise<PushOutcome[]> {
    return pushMany(this, items);
  }

  /**
   * Adds a joiner and its members in one transaction, and returns them in this order. The joiner is ready, at its place,
   * once all members have ended: each is done, a dead letter, or gone in another way, and the joiner's `joined` has the
   * numbers. It waits for a day at most, or as long as its `join` says. Members may be joiners of later ones.
   *
   * It tries again as push does. To call it again after UnknownOutcomeError, give each item a msgId. One request has room
   * for 1,000 small members, or for 4,095 if msgId is false in all items. Push more of them, or those in other queues, with
   * the option `joiner`: from a job that is a member itself, or between openJoin and close.
   *
   * Throws what push throws, for the first item that is wrong; then nothing was pushed.
   */
  async all(joiner: PushItem<Data>, members: Iterable<Member<Data>>): Promise<AllPushed> {
    return pushAll(this, joiner, members);
  }

  /**
   * Adds a joiner that waits until it is closed, and then until its members have ended. If this program dies, it stays
   * open no longer than `open`, 1 s to ten years. The joiner's `joined` counts its being open as one member that is gone.
   * Options are those of the joiner; errors are as for push.
   */
  async openJoin(open: Duration, value: Data, options?: PushOptions): Promise<OpenJoin> {
    const { priority, msgId, ...others } = checkOptions("push option", options, pushMembers);
    const guardId = typeof msgId === "string" ? `${msgId} guard` : msgId;
    const guard = { value: new Uint8Array(0), priority, msgId: guardId, delay: tenYears, ttl: open };
    const [{ id }, member] = await pushAll(this, { ...others, priority, msgId, value }, [guard]);
    return new OpenJoin(this.name, id, () => this.remove(member!.id));
  }

  /**
   * Removes and returns the first item, or null if the queue is empty, or stays so for `expires`. An item is lost if the
   * reply is: lease it where that matters.
   *
   * Throws UnknownOutcomeError if an item may have left the queue, TooLargeError for one that exceeds maxBytes,
   * OverloadedError if the queue is at a limit, and the errors of any request.
   */
  async pop(options?: PopOptions): Promise<Item<Data> | null> {
    return (await this.popBatch(1, options))[0] ?? null;
  }

  /**
   * Removes and returns up to n items, 1 to 1,000, in one transaction. With `expires` it waits until it has n, or the
   * time is over. It may return fewer than there are: [] means that the queue is empty. Errors are as for pop; items
   * that came before an error are returned without it.
   */
  async popBatch(n: number, options?: PopOptions): Promise<Item<Data>[]> {
    const list = await this.#fetch(n, checkOptions("pop option", options, popMembers), {});
    return list.map((r) => new Item(r, this.client.codec));
  }

  /** Returns the item that pop would return, and leaves it in the queue; null if there is none. */
  async peek(options?: Pick<PopOptions, "max">): Promise<Item<Data> | null> {
    const { max } = checkOptions("peek option", options, ["max"]);
    const reply = await this.#send(this.#verb("peek", max), undefined, false).catch((err) => {
      if (err instanceof NotFoundError) return null;
      throw err;
    });
    return reply && new Item(receiveMessage(reply), this.client.codec);
  }

  /**
   * Leases the item that pop would return: nobody else gets it until the lease is over. Returns null if there is none.
   * A Worker does this for you, and extends the lease while the job is done. Errors are as for pop.
   */
  async lease(options?: LeaseOptions): Promise<Delivery<Data> | null> {
    return (await this.leaseBatch(1, options))[0] ?? null;
  }

  /**
   * Leases up to n items, 1 to 1,000, in one transaction: see popBatch. Acknowledge each of them, or all with
   * Client.ackAll.
   */
  async leaseBatch(n: number, options?: LeaseOptions): Promise<Delivery<Data>[]> {
    const o = checkOptions("lease option", options, leaseMembers);
    const ackWait = durationText(o.ackWait, "ackWait", 100, 12 * hour) ?? "0s";
    const list = await this.#fetch(n, o, { ack_wait: ackWait, frames: true, holder: checkUTF8(o.holder, "holder") });
    return list.map((r) => new Delivery(this.client, this.name, this.fifo, r));
  }

  /** @internal The request of a pop, with members of the protocol. */
  fetchOf(wanted: number, options: Record<string, unknown>, o: PopOptions = {}): Fetch {
    const subject = this.subject + this.#verb("pop", o.max);
    return { subject, cancels: subject, acks: `${this.subject}ack.`, options, wanted, expires: 0, signal: o.signal };
  }

  // Waits again if the connection was lost meanwhile, and nothing is known to have come of it.
  async #fetch(n: number, o: Given<PopOptions>, options: Record<string, unknown>): Promise<Received[]> {
    if (!Number.isInteger(n) || n < 1 || n > 1000) throw badRequest(`a batch of ${shown(n)}: want 1 to 1000 items`);
    o.signal?.throwIfAborted();
    const batch = n > 1 ? { batch: n, frames: true } : {};
    const fetch = this.fetchOf(n, { ...options, ...batch, max_bytes: o.maxBytes }, o);
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
    return (await this.#query<{ len: number }>("len")).len;
  }

  /** Describes the queue: counts, groups, settings. */
  async info(): Promise<QueueInfo> {
    return camelCase(await this.#query("info"));
  }

  /** Changes the settings that are given, and returns all that are set. null resets one to its default. */
  async configure(settings: Settings): Promise<Settings> {
    return camelCase(await this.#query("config", settingsToSend(settings), true));
  }

  /** Pauses the queue until resume, or a group of it, whose items are passed over meanwhile. */
  async pause(group?: string): Promise<void> {
    await this.#pause("9999-12-31T00:00:00Z", true, group);
  }

  /** Ends a pause of the queue, or of a group of it. */
  async resume(group?: string): Promise<void> {
    await this.#pause(null, false, group);
  }

  async #pause(pauseUntil: string | null, paused: boolean, group: string | undefined): Promise<void> {
    const name = checkUTF8(group ?? undefined, "group");
    await this.configure(name === undefined ? { pauseUntil } : { pausedGroups: { [name]: paused } });
  }

  /** Lists items in the order in which they would be served, page by page. They stay in the queue. */
  async *items(options?: ItemsOptions): AsyncGenerator<StoredItem, void, undefined> {
    const { max, match, ...rest } = checkOptions("items option", options, itemsMembers);
    const first = { ...snakeCase(rest), match: checkUTF8(match, "match"), end: max ? "max" : undefined };
    const past = rest.attempts && { attempts: [], successors: [], more_successors: 0 };
    for await (const stored of this.pages("items", "items", first)) yield readStored({ ...past, ...stored });
  }

  /**
   * Returns an item, its state and its past, and leaves it where it is, also if it is a dead letter or done and kept.
   * Throws NotFoundError.
   */
  async get(name: JobName): Promise<Item<Data> & { state: State } & Past> {
    const reply = await this.#send("get", nameOf(name), false);
    const r = receiveMessage(reply);
    return Object.assign(new Item<Data>(r, this.client.codec), { state: r.bridge.get("Pq-State") as State, ...pastIn(reply.headers) });
  }

  /** @internal Returns the job that one which is done has pushed, if it has. */
  async pushedBy(id: string, ms: number, signal?: AbortSignal): Promise<JobRef | undefined> {
    const { headers } = await this.#send("get", { id }, false, ms, signal);
    const [{ successors, moreSuccessors }, state] = [pastIn(headers), headers?.get("Pq-State")];
    const n = successors.length + moreSuccessors;
    if (n > 1 || state !== "done") throw new ChainError(`job ${id} in queue ${this.name} is ${state} and has pushed ${n}`);
    return successors[0];
  }

  /**
   * Returns how many items pop would return before this one, with `max` for pop with max. A leased or delayed item counts
   * as if it came back now. With atLeast there may be more: a rank is exact up to 10,000 items of one priority. Throws
   * NotFoundError.
   */
  async rank(id: string, options?: { max?: boolean }): Promise<{ rank: number; atLeast: boolean }> {
    const { max } = checkOptions("rank option", options, ["max"]);
    return camelCase(await this.#query("rank", { ...nameOf(id), end: max ? "max" : undefined }));
  }

  /** Removes an item in any state. If it is leased, its holder gets LeaseLostError. Throws NotFoundError. */
  async remove(id: string): Promise<void> {
    await this.#query("remove", nameOf(id), true);
  }

  /**
   * Moves an item, named by its id or place, to the end of a priority, and returns its place there. To repeat it after
   * UnknownOutcomeError, name the place it had. Throws LeasedError for a leased item, and NotFoundError.
   */
  async move(name: string | AtPlace, priority: Priority): Promise<string> {
    priorityText(priority);
    return (await this.#query<{ place: string }>("move", { ...nameOf(name), priority }, true)).place;
  }

  /**
   * Ends the lease of an item at once, for a holder that is known to be dead: the item is ready at its old place, and the
   * delivery does not count. The holder gets LeaseLostError. Throws LeaseLostError if it is not leased, and NotFoundError.
   */
  async release(id: string): Promise<void> {
    await this.#query("release", nameOf(id), true);
  }

  /**
   * Removes the items with these ids, 1 to 1,000, in one transaction. Returns for each, in their order, whether that was
   * done: one that is not there has an error, and the others are removed.
   */
  async removeIds(ids: string[]): Promise<ItemResult[]> {
    return this.#edit("remove", ids);
  }

  /** Moves items by their ids or places, 1 to 1,000, to the end of a priority, in this order: see removeIds and move. */
  async moveIds(ids: string[] | { places: string[] }, priority: Priority): Promise<ItemResult[]> {
    priorityText(priority);
    return this.#edit("move", ids, { priority });
  }

  /** Releases the items with these ids, 1 to 1,000: see removeIds and release. */
  async releaseIds(ids: string[]): Promise<ItemResult[]> {
    return this.#edit("release", ids);
  }

  /** Sends dead letters of this queue back by their ids or places, 1 to 1,000: see removeIds and move. */
  async redriveIds(ids: string[] | { places: string[] }): Promise<ItemResult[]> {
    return this.#edit("redrive", ids);
  }

  async #edit(verb: string, names: string[] | { places: string[] }, members?: object): Promise<ItemResult[]> {
    const places = Array.isArray(names) ? undefined : names?.places;
    const ids = places ?? names;
    if (!Array.isArray(ids)) throw badRequest(`ids ${shown(names)}: want an array of 1 to 1000 ids`);
    for (const id of ids) nameOf(id);
    const named = places ? { places } : { ids };
    return (await this.#query<{ results: object[] }>(verb, { ...named, ...members }, true)).results.map(readResult);
  }

  /**
   * Sends up to `max` dead letters of this queue, by default 1,000, back to the queues they came from. Returns their
   * number.
   */
  async redrive(options?: { max?: number }): Promise<number> {
    const { max = 1000 } = checkOptions("redrive option", options, ["max"]);
    if (!Number.isInteger(max) || max < 1) throw badRequest(`max ${shown(max)}: want an integer from 1 on`);
    return this.#inParts("redrive", "redriven", (done) => ({ max: max - done }), max);
  }

  /**
   * Removes all items, or those in one state, and returns how many. Settings stay, and so do jobs that are done and kept,
   * unless the state is "done".
   */
  async purge(state?: Exclude<State, "dead">): Promise<number> {
    return this.#inParts("purge", "purged", () => ({ state: state ?? undefined }));
  }

  // Asks again while the bridge says that there is more. After the first part, an error does not say that nothing was done.
  async #inParts(verb: string, member: string, payload: (done: number) => object, most = Infinity): Promise<number> {
    let done = 0;
    try {
      for (let more: unknown = true; more && (done === 0 || done < most); ) {
        const part = await this.#query<Record<string, number>>(verb, payload(done), true);
        done += part[member]!;
        more = part.more;
      }
      return done;
    } catch (err) {
      if (done === 0) throw err;
      throw new UnknownOutcomeError(`${(err as PQError).text}; before that, items ${member}: ${done}`, { cause: err });
    }
  }

  /** Creates a schedule or replaces it, or with only `paused` or `run` changes it, and returns it with its state. */
  async schedule(schedule: Schedule): Promise<ScheduleRecord> {
    const { value, every, jitter, until, ...rest } = checkOptions("member of a schedule", schedule, scheduleMembers);
    if (rest.priority !== undefined) priorityText(rest.priority);
    const encoded = value === undefined ? undefined : prepare(this.client.codec, value, { msgId: false }, this.fifo).value;
    const sent = {
      ...snakeCase(rest),
      every: durationText(every, "every"),
      jitter: durationText(jitter, "jitter"),
      until: until === undefined ? undefined : timeText(until, "until"),
      value: encoded && toBase64(encoded),
    };
    return readSchedule(await this.#query("schedule", sent, true));
  }

  /** Lists the schedules of the queue, sorted by id, page by page. */
  async *schedules(): AsyncGenerator<ScheduleRecord, void, undefined> {
    for await (const record of this.pages("schedules", "schedules")) yield readSchedule(record);
  }

  /** Removes a schedule. Its items stay. Throws NotFoundError. */
  async unschedule(id: string): Promise<void> {
    await this.#query("unschedule", { id: checkUTF8(id, "id") }, true);
  }

  /**
   * Says what became of a job. With `wait` it waits until the job is done or dead, up to that long, also through
   * restarts of bridges. A job that is done is found for as long as it is kept. The signal ends a wait, at once.
   *
   * With `follow` it goes on from a job that is done to the one that it has pushed, up to the last of a chain: one that has
   * pushed nothing, or is not done. Each queue of the chain needs the settings `keep` and `trail`: without trail, nobody
   * knows what a job has pushed, and the chain ends there.
   *
   * Throws NotFoundError if there is no such job, or it is over and not kept; ChainError if a job to follow has pushed
   * several; and what went wrong with the last request, at most a second after the wait.
   */
  async result(
    name: JobName, options?: { wait?: Duration; signal?: AbortSignal; follow?: boolean },
  ): Promise<JobResult<Result>> {
    const { wait = 0, signal, follow } = checkOptions("result option", options, ["wait", "signal", "follow"]);
    const ms = waitTime(wait);
    const late = ms > 0 ? lateEnd : this.client.timeout;
    return (follow ? followResult<Result> : awaitResult<Result>)(this, nameOf(name), performance.now() + ms, late, signal);
  }

  /**
   * Pushes a job, waits until a worker has done it, and returns what it returned: a function call that outlasts crashes
   * of workers, bridges and NATS servers. With a msgId, it outlasts a crash of the caller too: call again with the same.
   * `wait` bounds the call, by default it has no end. The result is kept for an hour, or as `keep` says.
   *
   * Throws JobFailedError if the job is a dead letter, NotFoundError if nobody knows what became of it, NotDoneError with
   * its id when the time is over, at most a second later, or nobody can be asked any more; and the errors of push.
   */
  async call<T = Result>(value: Data, options?: CallOptions): Promise<NoInfer<T>> {
    const { wait = Infinity, signal, ...o } = checkOptions("call option", options, [...pushMembers, "wait", "signal"]);
    const ms = waitTime(wait);
    const prepared = prepare(this.client.codec, value, { keep: "1h", ...o }, this.fifo);
    signal?.throwIfAborted();

    const until = performance.now() + ms;
    let id: string | undefined;
    try {
      [{ id }] = (await push(this, [prepared], Math.min(this.client.timeout, ms + lateEnd), signal)) as [Pushed];
      const r = await awaitResult(this, { id }, until, lateEnd, signal);
      if (r.error) throw r.error;
      if (r.state !== "done") throw new NotDoneError(id, `it is ${r.state}`);
      return r.decode<T>();
    } catch (err) {
      signal?.throwIfAborted();
      const known = [NotDoneError, NotFoundError, JobFailedError].some((kind) => err instanceof kind);
      throw id === undefined || known || !(err instanceof PQError) ? err : new NotDoneError(id, err.message, err);
    }
  }

  #verb(verb: string, max: boolean | undefined): string {
    if (max && this.fifo) throw badRequest("max in a FIFO queue, which is served from one end");
    return this.fifo ? verb : `${verb}.${max ? "max" : "min"}`;
  }

  #send(
    verb: string, payload: object | undefined, writes: boolean, ms = this.client.timeout, signal?: AbortSignal,
  ): Promise<Msg> {
    const headers = new HeaderBlock();
    if (writes) headers.add("User-Agent", defaultHolder());
    const request = { subject: this.subject + verb, payload: utf8(payload ? stringify(payload) : ""), headers, writes };
    return this.client.connection.request(request, ms, signal);
  }

  // Sends a request with members of the protocol, and returns the members of the reply.
  async #query<T extends object>(verb: string, payload?: object, writes = false): Promise<T> {
    return membersOf((await this.#send(verb, payload, writes)).data, writes);
  }

  /** @internal Asks for page after page, and yields what the member of each lists. */
  async *pages<T extends object>(verb: string, member: string, payload?: object): AsyncGenerator<T, void, undefined> {
    for (let after: unknown; after !== null; ) {
      const page = await this.#query<Record<string, unknown>>(verb, { ...payload, after });
      yield* page[member] as T[];
      after = page.next ?? null;
    }
  }
}

// Returns how long to wait, in milliseconds.
const waitTime = (wait: Duration): number => (wait === Infinity ? wait : milliseconds(wait, "wait"));

async function* names(all: Queue): AsyncGenerator<string, void, undefined> {
  for await (const { queue } of all.pages<{ queue: string }>("list", "queues")) yield queue;
}

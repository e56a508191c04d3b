import type { ConnectionOptions, NatsConnection } from "@nats-io/nats-core";
import { type Codec, json } from "./codec.js";
import { Connection } from "./connection.js";
import { ackAll, type Delivery } from "./delivery.js";
import { type Duration, milliseconds } from "./duration.js";
import { badRequest, checkOptions, type PQError, shown } from "./errors.js";
import { Queue } from "./queue.js";

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
 * What every connection should have: `await connect({ ...connectOptions, servers })`. nats-core never gives up while NATS
 * is away, and notices within a minute that a server answers nothing any more.
 */
export const connectOptions = {
  maxReconnectAttempts: -1,
  ignoreAuthErrorAbort: true,
  pingInterval: 20_000, // after two pings without an answer, the third one ends the connection
  maxPingOut: 2,
} satisfies ConnectionOptions;

/**
 * Sends requests to the bridges behind a NATS connection, which it never closes: see connectOptions. Clients of one
 * connection share its subscription for replies, so a program may make as many as it likes.
 *
 * All calls throw a PQError: see its subclasses. What cannot be sent is a BadRequestError, as is what a bridge refuses.
 */
export class Client {
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

async function* names(all: Queue): AsyncGenerator<string, void, undefined> {
  for await (const { queue } of all.pages<{ queue: string }>("list", "queues")) yield queue;
}

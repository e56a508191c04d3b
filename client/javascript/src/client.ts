import type { NatsConnection } from "@nats-io/nats-core";
import { type Codec, json } from "./codec.js";
import { Connection } from "./connection.js";
import { type Duration, milliseconds, shown } from "./duration.js";
import { badRequest } from "./errors.js";
import { checkOptions } from "./options.js";
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
 * Sends requests to the bridges behind a NATS connection, which it never closes. Connect with
 * `maxReconnectAttempts: -1` and `ignoreAuthErrorAbort: true`, so that nats-core does not give up.
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
    checkOptions("client option", options, ["prefix", "fifoPrefix", "timeout", "inboxPrefix", "codec"]);
    const { prefix = "pq", fifoPrefix = "q", timeout = 10_000, inboxPrefix, codec = json } = options;
    for (const [name, text] of Object.entries({ prefix, fifoPrefix, inboxPrefix: inboxPrefix ?? "_INBOX" })) {
      if (typeof text !== "string" || !/^[^\s.*>]+(\.[^\s.*>]+)*$/.test(text)) {
        throw badRequest(`${name} ${shown(text)}: want tokens of a subject without wildcards, such as "pq"`);
      }
    }
    this.#prefix = prefix;
    this.#fifoPrefix = fifoPrefix;
    this.timeout = milliseconds(timeout, "timeout", 1);
    this.codec = codec;
    this.connection = new Connection(nc, inboxPrefix);
  }

  /**
   * Returns a handle of the priority queue with that name: 1 to 128 letters, digits, "-" and "_". It sends nothing: a
   * queue exists as soon as it has items or settings.
   */
  priorityQueue(name: string): Queue {
    return new Queue(this, name, false, `${this.#prefix}.${name}.`);
  }

  /** Returns a handle of the FIFO queue with that name: see priorityQueue. It has no priorities and only one end. */
  fifoQueue(name: string): Queue {
    return new Queue(this, name, true, `${this.#fifoPrefix}.${name}.`);
  }
}

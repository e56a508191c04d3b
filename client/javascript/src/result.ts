import { type Codec, fromBase64, inspect, printed } from "./codec.js";
import { JobFailedError } from "./errors.js";
import { type DeadLetter, deadLetterIn, type State, timeIn } from "./item.js";

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

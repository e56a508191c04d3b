import { type Codec, encodeValue, json } from "./codec.js";
import { encodeProgress, encodeResult, successorFrame } from "./delivery.js";
import { type HeadersInit, ItemHeaders } from "./headers.js";
import {
  compose, type Handler, type HandlerRun, type Handlers, Job, type Middleware, type Outcome, outcomeOf,
} from "./job.js";
import { receive } from "./item.js";
import { priorityText } from "./json.js";
import { checkOptions } from "./errors.js";

/** What runHandler tells the handler about its job. */
export interface RunOptions
  extends Partial<Pick<Job, "id" | "queue" | "type" | "group" | "priority" | "deliveries" | "maxDeliver">> {
  headers?: HeadersInit;
  middleware?: Middleware[];
  codec?: Codec;
  /** Ends the job's signal. */
  signal?: AbortSignal;
}

const jobMembers = ["id", "queue", "type", "group", "priority", "headers", "deliveries", "maxDeliver"];
const runMembers = [...jobMembers, "middleware", "codec", "signal"];

/**
 * Runs a handler on a value without NATS, for tests, and says what would become of the job. It does not throw what the
 * handler throws: that is the `error` of the outcome.
 */
export async function runHandler<Data = unknown, Result = unknown>(
  handler: Handler<Data, Result> | Handlers<Data, Result>,
  value: Data | Uint8Array,
  options?: RunOptions,
): Promise<HandlerRun<Result>> {
  const o = checkOptions("option of runHandler", options, runMembers);
  const codec = o.codec ?? json;
  const run: Pick<HandlerRun, "progress" | "next"> = { progress: [], next: [] };
  const bridge: [string, string | undefined][] = [
    ["Pq-Id", o.id ?? "test"],
    ["Pq-Priority", priorityText(o.priority ?? 0)],
    ["Pq-Pushed-At", new Date().toISOString()],
    ["Pq-Deliveries", String(o.deliveries ?? 1)],
    ["Pq-Max-Deliver", o.maxDeliver?.toString()],
    ["Pq-Group", o.group],
    ["Type", o.type],
  ];
  const given = bridge.filter((pair): pair is [string, string] => pair[1] !== undefined);

  const { bytes } = encodeValue(codec, value, "value");
  const pairs = [...new ItemHeaders(o.headers)].map(([name, v]): [string, typeof v] => [name, v]);
  const job = new Job(receive([...given, ...pairs], bytes, ""), codec, o.queue ?? "test", {
    progress: (x) => void (encodeProgress(codec, x), run.progress.push(x)),
    next(successor) {
      successorFrame(codec, false, successor, run.next.length);
      return run.next.push(successor) - 1;
    },
  });
  const signal = o.signal ?? new AbortController().signal;
  const outcome = await outcomeOf(compose(handler as Handler | Handlers, o.middleware ?? []), job, { signal }, (result) => void encodeResult(codec, result));
  return { ...(outcome as Outcome<Result>), ...run };
}

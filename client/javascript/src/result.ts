import { utf8 } from "./codec.js";
import type { Target } from "./connection.js";
import { durationText } from "./duration.js";
import { NotFoundError } from "./errors.js";
import { receiveMessage } from "./item.js";
import { notABridge, stringify } from "./json.js";
import type { JobRef } from "./names.js";
import { lateReply } from "./pop.js";
import type { Queue } from "./queue.js";
import { mayRepeat, Pause } from "./retry.js";
import { JobResult } from "./stored.js";

/** How long one request waits for a result, in milliseconds. */
const resultWait = 30_000;

/** How much later than asked a wait ends whose last request gets no reply, in milliseconds. */
export const lateEnd = 1000;

/** Waits for the last job of a chain: see Queue.result. */
export async function followResult<Result>(
  queue: Queue, asked: { id?: string }, until: number, late: number, signal: AbortSignal | undefined,
): Promise<JobResult<Result>> {
  for (let link = 1; ; link++) {
    let next: JobRef | undefined;
    const done = async (id: string, ms: number): Promise<void> => void (next = await queue.pushedBy(id, ms, signal));
    const r = await awaitResult<Result>(queue, asked, until, late, signal, done).catch((err) => {
      if (link === 1 || !(err instanceof NotFoundError)) throw err;
      throw new NotFoundError(`job ${link} of the chain, ${asked.id} in queue ${queue.name}, is not kept, or gone: ${err.text}`, err);
    });
    if (!next) return r;
    queue = queue.client[queue.fifo ? "fifoQueue" : "priorityQueue"](next.queue);
    asked = { id: next.id };
  }
}

/**
 * Waits for a job until some time; the last request may end so many milliseconds later. done is called with one that is
 * done, and for how long a request about it may take.
 */
export async function awaitResult<Result>(
  queue: Target,
  asked: object,
  until: number,
  late: number,
  signal: AbortSignal | undefined,
  done?: (id: string, ms: number) => Promise<void>,
): Promise<JobResult<Result>> {
  const limit = Math.max(until, performance.now()) + late;
  for (let pause = new Pause(); ; ) {
    signal?.throwIfAborted();
    const now = performance.now();
    const left = Math.max(0, Math.floor(until - now));
    const wait = Math.min(left, resultWait);
    try {
      const ms = Math.min(wait > 0 ? wait + lateReply : Infinity, limit - now);
      const r = await askResult<Result>(queue, asked, wait, ms, signal);
      if (r.state === "done") await done?.(r.id, limit - performance.now());
      if (r.state === "done" || r.state === "dead" || performance.now() >= until) return r;
      asked = { id: r.id }; // a message id is forgotten earlier
      pause = new Pause();
    } catch (err) {
      signal?.throwIfAborted();
      if (left === 0 || performance.now() >= limit || !mayRepeat(err, true)) throw err;
      await pause.wait(signal, left);
    }
  }
}

async function askResult<Result>(
  queue: Target,
  name: object,
  wait: number,
  ms: number,
  signal: AbortSignal | undefined,
): Promise<JobResult<Result>> {
  const payload = utf8(stringify({ ...name, expires: wait > 0 ? durationText(wait, "wait") : undefined }));
  const request = { subject: `${queue.subject}result`, payload, writes: false };
  const reply = await queue.client.connection.request(request, ms, signal);
  const { bridge } = receiveMessage(reply);
  const contentType = reply.headers?.get("Content-Type");
  if (contentType) bridge.set("Content-Type", contentType);
  if (!bridge.has("Pq-State")) throw notABridge(reply.data, false);
  return new JobResult(bridge, new Uint8Array(reply.data), queue.client.codec);
}

import type { Target } from "./connection.js";
import { badRequest, JoinedError, NotSentError, type PQError, shown, TooLargeError } from "./errors.js";
import { encodeFrames, frameSize } from "./headers.js";
import { integer, membersOf, notABridge } from "./json.js";
import { type Member, type Prepared, prepareListed, type Pushed, type PushItem, type PushOutcome } from "./push.js";
import { mayRepeat, repeat } from "./retry.js";

/** The most items of a batch, and bytes: larger ones are no faster. With message ids, more items may not fit. */
const mostItems = 1024;
const mostBytes = 4 << 20;

/**
 * Pushes items in one request, all or after an error none, and again if that may help, for some milliseconds or until the
 * signal ends. A batch says less about a duplicate, so a single item goes without one if it can.
 */
export function push(queue: Target, list: Prepared[], ms: number, signal?: AbortSignal): Promise<Pushed[]> {
  return repeat(
    ms,
    async (left, first) => {
      const alone = list.length === 1 && !list[0]!.headers.hasBytes;
      if (alone && first && list[0]!.priority !== 0n) list[0]!.headers.add("Pq-Priority", String(list[0]!.priority));
      const { value: payload, headers } = list[0]!;
      const request = alone ? { verb: "push", payload, headers } : { verb: "push.batch", payload: encodeFrames(list) };
      const sent = { ...request, subject: queue.subject + request.verb, writes: true };
      const { data } = await queue.client.connection.request(sent, left, signal);
      const pushed = alone ? [readPushed(data)] : readBatch(data, list);
      return pushed.map((p, i) => ({ ...p, queue: queue.name, duplicate: p.duplicate && (first || !list[i]!.ownId) }));
    },
    (err) => mayRepeat(err, list.every((p) => p.repeatable)),
    signal,
  );
}

type Reply = Omit<Pushed, "queue">;

function readPushed(data: Uint8Array): Reply {
  const { id, priority = 0, duplicate = false } = membersOf<Partial<Pushed>>(data, true);
  if (typeof id !== "string") throw notABridge(data, true);
  return { id, priority, duplicate };
}

function readBatch(data: Uint8Array, list: Prepared[]): Reply[] {
  const { ids, duplicates } = membersOf<{ ids: string[]; duplicates?: number[] }>(data, true);
  if (!Array.isArray(ids) || ids.length !== list.length) throw notABridge(data, true);
  const again = new Set(duplicates);
  return list.map((p, i) => ({ id: ids[i]!, priority: integer(String(p.priority)), duplicate: again.has(i) }));
}

/** Pushes items in as many batches as it takes, and returns the outcome of each: see Queue.pushMany. */
export async function pushMany(queue: Target, items: Iterable<PushItem> | AsyncIterable<PushItem>): Promise<PushOutcome[]> {
  const isList = typeof items === "object" && items !== null && (Symbol.iterator in items || Symbol.asyncIterator in items);
  if (!isList) throw badRequest(`items ${shown(items)}: want an iterable of objects with a value`);
  const all: PushItem[] = [];
  for await (const item of items) all.push(item);

  const outcomes: PushOutcome[] = [];
  const sound: Prepared[] = [];
  let wrong: PQError | undefined; // of the first item that cannot be sent
  let failed: PQError | undefined;
  try {
    for (const item of all) sound.push(prepareItem(queue, item));
  } catch (err) {
    wrong = err as PQError;
  }

  for (let most = mostItems; !failed && outcomes.length < sound.length; ) {
    const at = outcomes.length;
    const batch = sound.slice(at, at + fitting(queue, sound, at, most));
    try {
      outcomes.push(...(await push(queue, batch, queue.client.timeout)));
    } catch (err) {
      const error = err as PQError;
      const ofItem = error.code === 400 || error instanceof TooLargeError || error instanceof JoinedError;
      const refused = ofItem && !error.unknown;
      if (refused && batch.length > 1) most = batch.length >> 1; // look for the item at fault
      else {
        failed = error;
        outcomes.push(...batch.map(() => ({ error })));
      }
    }
  }

  if (wrong && !failed) outcomes.push({ error: (failed = wrong) });
  while (outcomes.length < all.length) {
    outcomes.push({ error: new NotSentError(`not sent because of an earlier item: ${failed!.text}`) });
  }
  return outcomes;
}

/** Returns an item, the nth of a list that is pushed as a whole, as it is sent. Throws BadRequestError. */
export function prepareItem(queue: Target, item: Member, n = 0): Prepared {
  if (typeof item !== "object" || item === null) throw badRequest(`item ${shown(item)}: want an object with a value`);
  const { value, ...options } = item;
  return prepareListed(queue.client.codec, value, options, queue.fifo, n);
}

// Returns how many of the items from `at` on go into one request, at least one: it and its reply have limits.
function fitting(queue: Target, sound: Prepared[], at: number, most: number): number {
  const payload = queue.client.connection.nc.info?.max_payload ?? mostBytes;
  const end = Math.min(sound.length, at + most, at + Math.max(1, Math.floor((payload - 512) / 59)));
  let n = at;
  for (let bytes = 0; n < end; n++) {
    bytes += frameSize(sound[n]!);
    if (n > at && bytes > Math.min(payload, mostBytes)) break;
  }
  return n - at;
}

import { prepareItem, push } from "./batch.js";
import type { Target } from "./connection.js";
import { badRequest, NotFoundError, shown } from "./errors.js";
import type { JoinerRef } from "./names.js";
import type { AllPushed, Member, PushItem } from "./push.js";

/** How long a joiner waits for its members unless `join` says it. */
const defaultJoin = "1d";

/** Pushes a joiner and its members: see Queue.all. */
export async function pushAll(queue: Target, joiner: PushItem, members: Iterable<Member>): Promise<AllPushed> {
  if (typeof members?.[Symbol.iterator] !== "function") {
    throw badRequest(`members ${shown(members)}: want an iterable of objects with a value`);
  }
  const items = [withDefault(joiner, { join: defaultJoin }), ...Array.from(members, (m) => withDefault(m, { joiner: 0 }))];
  const list = items.map((item, n) => prepareItem(queue, item, n));
  return (await push(queue, list, queue.client.timeout)) as AllPushed;
}

// Returns an item with an option that it lacks; what is no item, as it is.
function withDefault(item: Member, option: Partial<Member>): Member {
  const [[name, value]] = Object.entries(option) as [[keyof Member, unknown]];
  return Object(item) === item ? { ...item, [name]: item[name] ?? value } : item;
}

/** A joiner to which members can be added until it is closed: give it to them as their `joiner`. See Queue.openJoin. */
export class OpenJoin implements JoinerRef {
  readonly #close: () => Promise<void>;

  /** @internal Queue.openJoin makes them. */
  constructor(readonly queue: string, readonly id: string, close: () => Promise<void>) {
    this.#close = close;
  }

  /**
   * Says that no more members will come, and returns once that is certain. It may be called again, and changes nothing once
   * the time for which it was open is over.
   */
  async close(): Promise<void> {
    await this.#close().catch((err) => {
      if (!(err instanceof NotFoundError)) throw err;
    });
  }
}

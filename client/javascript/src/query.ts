import type { Msg } from "@nats-io/nats-core";
import type { Client } from "./client.js";
import { utf8 } from "./codec.js";
import { HeaderBlock } from "./headers.js";
import { defaultHolder } from "./holder.js";
import { membersOf, notABridge, stringify } from "./json.js";

/** Sends a request, and returns the reply. */
export function send(client: Client, subject: string, payload: object | undefined, writes: boolean): Promise<Msg> {
  const headers = new HeaderBlock();
  if (writes) headers.add("User-Agent", defaultHolder());
  const bytes = utf8(payload ? stringify(payload) : "");
  return client.connection.request({ subject, payload: bytes, headers, writes }, client.timeout);
}

/** Sends a request with members of the protocol, and returns the members of the reply. */
export async function query<T extends object>(client: Client, subject: string, payload?: object, writes = false): Promise<T> {
  return membersOf<T>((await send(client, subject, payload, writes)).data, writes);
}

/** Asks for page after page, and yields what the member of each lists. */
export async function* pages<T>(client: Client, subject: string, member: string, payload?: object): AsyncGenerator<T, void, undefined> {
  for (let after: string | null | undefined; after !== null; ) {
    const page: Record<string, unknown> = await query(client, subject, { ...payload, after });
    if (!Array.isArray(page[member])) throw notABridge(utf8(stringify(page)), false);
    yield* page[member] as T[];
    after = (page.next ?? null) as string | null;
  }
}

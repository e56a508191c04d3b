import { ackRequest, Delivery, tokenOf } from "./delivery.js";
import { shown } from "./duration.js";
import { badRequest, BadRequestError, InternalError, LeaseLostError, type PQError } from "./errors.js";

/** The most leases in a request, how many bytes the token of one may have, and how many the rest. */
const mostTogether = 1000;
const [tokenBytes, otherBytes] = [84, 1024];

/** Acknowledges deliveries: see Client.ackAll. */
export async function ackAll(deliveries: Iterable<Delivery>, maxPayload: number): Promise<(PQError | undefined)[]> {
  if (typeof deliveries?.[Symbol.iterator] !== "function") throw badRequest(`deliveries ${shown(deliveries)}: want an iterable of deliveries`);
  const errors: (PQError | undefined)[] = [];
  const groups = new Map<string, [Delivery, number][]>(); // a request can acknowledge leases of one queue
  for (const d of deliveries) {
    if (!(d instanceof Delivery)) throw badRequest(`${shown(d)}: want a delivery that lease or leaseBatch returned`);
    const queue = d.ackSubject.slice(0, -(tokenOf(d)?.length ?? 0) || undefined); // without a token, it is alone
    const group = groups.get(queue) ?? [];
    group.push([d, errors.push(undefined) - 1]);
    groups.set(queue, group);
  }

  const most = Math.min(mostTogether, Math.max(1, Math.floor((maxPayload - otherBytes) / tokenBytes)));
  for (const group of groups.values()) {
    while (group.length > 0) {
      const part = group.splice(0, most);
      const acked = await ackTogether(part.map(([d]) => d));
      part.forEach(([, i], n) => (errors[i] = acked[n]));
    }
  }
  return errors;
}

async function ackTogether(held: Delivery[]): Promise<(PQError | undefined)[]> {
  const [first, ...others] = held as [Delivery, ...Delivery[]];
  try {
    if (others.length === 0) await first.ack();
    else await first.send(ackRequest(`+ACK ${JSON.stringify({ also: others.map(tokenOf) })}`, []));
    return [undefined];
  } catch (err) {
    const refused = [LeaseLostError, BadRequestError, InternalError].some((kind) => err instanceof kind);
    if (others.length === 0 || !refused) return held.map(() => err as PQError);
    return (await Promise.all(held.map((d) => ackTogether([d])))).flat(); // none counts if one is lost
  }
}

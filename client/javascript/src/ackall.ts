import { ackRequest, Delivery, tokenOf } from "./delivery.js";
import { shown } from "./duration.js";
import { badRequest, BadRequestError, InternalError, LeaseLostError, type PQError } from "./errors.js";

/** The most leases in a request, how many bytes the token of one may have, and how many the rest. */
const mostTogether = 1000;
const [tokenBytes, otherBytes] = [84, 1024];

/** Acknowledges deliveries: see Client.ackAll. */
export async function ackAll(deliveries: Iterable<Delivery>, maxPayload: number): Promise<(PQError | undefined)[]> {
  const all = [...deliveries];
  const wrong = all.findIndex((d) => !(d instanceof Delivery));
  if (wrong >= 0) throw badRequest(`delivery ${wrong}: ${shown(all[wrong])}: want what lease or leaseBatch returned`);

  const errors = all.map((): PQError | undefined => undefined);
  const groups = new Map<string, number[]>(); // a request can acknowledge leases of one queue
  all.forEach((d, i) => {
    const queue = d.ackSubject.slice(0, -(tokenOf(d)?.length ?? 0) || undefined); // without a token, it is alone
    groups.get(queue)?.push(i) ?? groups.set(queue, [i]);
  });

  const most = Math.min(mostTogether, Math.max(1, Math.floor((maxPayload - otherBytes) / tokenBytes)));
  for (const indexes of groups.values()) {
    while (indexes.length > 0) await ackTogether(all, indexes.splice(0, most), errors);
  }
  return errors;
}

// Acknowledges the deliveries with these indexes, which are of one queue, and sets their errors.
async function ackTogether(all: Delivery[], indexes: number[], errors: (PQError | undefined)[]): Promise<void> {
  const held = indexes.map((i) => all[i]!);
  try {
    if (held.length === 1) return await held[0]!.ack();
    const also = held.slice(1).map(tokenOf);
    const done = held.map((delivery) => ({ delivery, successors: [] }));
    await held[0]!.send(ackRequest(`+ACK ${JSON.stringify({ also })}`, done));
  } catch (err) {
    const error = err as PQError;
    const lists = error instanceof LeaseLostError && held.length > 1 ? error.lists : undefined;
    if (lists?.lost.length) {
      // None counts if some are lost.
      for (const n of lists.lost) if (!lists.done.includes(n)) errors[indexes[n]!] = new LeaseLostError(error.text, error);
      const rest = indexes.filter((_, n) => !lists.lost.includes(n));
      if (rest.length > 0) await ackTogether(all, rest, errors);
    } else if (held.length > 1 && [BadRequestError, LeaseLostError, InternalError].some((kind) => error instanceof kind)) {
      for (const i of indexes) await ackTogether(all, [i], errors); // perhaps only one cannot be acknowledged
    } else {
      for (const i of indexes) errors[i] = error;
    }
  }
}

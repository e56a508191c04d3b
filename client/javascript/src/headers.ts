import { type MsgHdrs, MsgHdrsImpl } from "@nats-io/nats-core";
import { inspect, isWellFormed, latin1, textOf, textOrBytes, utf8 } from "./codec.js";
import { badRequest, shown } from "./errors.js";

/** The value of a header: text, or bytes that are not UTF-8. */
export type HeaderValue = string | Uint8Array;

/**
 * Headers to push: a record of values or lists of values, without those that are undefined or null; or pairs in order, in
 * which a name may come several times.
 */
export type HeadersInit =
  | Record<string, HeaderValue | HeaderValue[] | null | undefined>
  | Iterable<readonly [string, HeaderValue]>;

/**
 * The headers of an item, in order: iterate over them as pairs of name and value. Names are compared byte by byte.
 *
 * Values that are not UTF-8 are bytes. Only items that come in frames have these: from lease and popBatch.
 * Elsewhere, nats-core replaces such bytes with U+FFFD.
 */
export class ItemHeaders implements Iterable<readonly [string, HeaderValue]> {
  readonly #pairs: [string, HeaderValue][];

  constructor(headers: HeadersInit = []) {
    this.#pairs = pairsOf(headers);
  }

  [Symbol.iterator](): Iterator<readonly [string, HeaderValue]> {
    return this.#pairs[Symbol.iterator]();
  }

  /** Returns the first value of a header as text, or undefined if there is none. */
  get(name: string): string | undefined {
    return this.all(name)[0];
  }

  /** @internal For console.log of Node. */
  [inspect](): unknown {
    return this.#pairs;
  }

  /** Returns the values of a header as text, with U+FFFD for bytes that are not UTF-8. */
  all(name: string): string[] {
    return this.#pairs.flatMap(([n, v]) => (n !== name ? [] : typeof v === "string" ? v : textOf(v)));
  }
}

function pairsOf(headers: HeadersInit): [string, HeaderValue][] {
  if (typeof headers !== "object") throw badRequest(`headers ${shown(headers)}: want an object, or pairs of name and value`);
  const list: Iterable<readonly [string, HeaderValue | HeaderValue[] | null | undefined]> =
    Symbol.iterator in headers ? (headers as Iterable<[string, HeaderValue]>) : Object.entries(headers);
  const pairs: [string, HeaderValue][] = [];
  for (const pair of list) {
    if (!Array.isArray(pair)) throw badRequest(`headers: ${shown(pair)}: want pairs of name and value`);
    const [name, value] = pair;
    for (const v of Array.isArray(value) ? value : [value ?? []].flat()) pairs.push([name, v]);
  }
  return pairs;
}

const validName = /^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/;
const start = utf8("NATS/1.0\r\n");
const lineEnd = utf8("\r\n");

/** The headers of a message that is not sent yet. */
export class HeaderBlock {
  readonly #pairs: [string, HeaderValue][] = [];
  /** Whether some value is not text, which only frames carry. */
  hasBytes = false;
  #bytes: Uint8Array | undefined;

  /** Throws BadRequestError for a name or value that NATS cannot carry, or that would end the line. */
  add(name: string, value: HeaderValue): void {
    if (!validName.test(name)) {
      throw badRequest(`header ${shown(name)}: want a name of letters, digits and any of !#$%&'*+-.^_\`|~`);
    }
    const isText = typeof value === "string";
    if (!isText && !(value instanceof Uint8Array)) {
      throw badRequest(`header ${name}: ${shown(value)}: want a string, or bytes that are not UTF-8`);
    }
    const text = isText ? value : latin1(value);
    if (/[\r\n]|^[ \t]|[ \t]$/.test(text)) {
      throw badRequest(`header ${name}: ${shown(value)}: want one line without blanks at either end`);
    }
    if (isText && !isWellFormed(value)) throw badRequest(`header ${name}: ${shown(value)} is half of a surrogate pair`);

    const kept = isText ? value : textOrBytes(value);
    this.hasBytes ||= typeof kept !== "string";
    this.#bytes = undefined;
    this.#pairs.push([name, kept]);
  }

  addAll(headers: HeadersInit): void {
    for (const [name, value] of pairsOf(headers)) this.add(name, value);
  }

  /** Returns a copy with one more header. Throws as add does. */
  with(name: string, value: HeaderValue): HeaderBlock {
    const copy = new HeaderBlock();
    copy.addAll(this.#pairs);
    copy.add(name, value);
    return copy;
  }

  has(name: string): boolean {
    return this.#pairs.some(([n]) => n === name);
  }

  /** Returns the first name that begins like this. */
  find(start: string): string | undefined {
    return this.#pairs.find(([n]) => n.startsWith(start))?.[0];
  }

  /** How many bytes the headers are in a message. */
  get size(): number {
    return this.bytes().length;
  }

  /** Returns the headers as nats-core takes them, undefined for none. */
  message(): MsgHdrs | undefined {
    if (this.#pairs.length === 0) return undefined;
    const record: Record<string, string[]> = Object.create(null);
    for (const [name, value] of this.#pairs) (record[name] ??= []).push(value as string);
    return MsgHdrsImpl.fromRecord(record);
  }

  /** Returns the headers as a frame has them. */
  bytes(): Uint8Array {
    if (this.#pairs.length === 0) return new Uint8Array(0);
    const lines = (): Uint8Array[] =>
      this.#pairs.map(([name, v]) => (typeof v === "string" ? utf8(`${name}: ${v}\r\n`) : concat([utf8(`${name}: `), v, lineEnd])));
    return (this.#bytes ??= concat([start, ...lines(), lineEnd]));
  }
}

function concat(parts: Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((n, part) => n + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** Reads the headers of a frame. Throws RangeError for what cannot be read. */
export function parseHeaders(block: Uint8Array): [string, HeaderValue][] {
  const pairs: [string, HeaderValue][] = [];
  if (block.length === 0) return pairs;
  const text = textOf(block);
  if (!text.startsWith("NATS/1.0\r\n")) throw new RangeError("headers without NATS/1.0");
  // In ASCII, characters have the places of their bytes, and one text is read much faster than many.
  const ascii = text.length === block.length && !text.includes("\ufffd");
  const find = (c: string, from: number): number => (ascii ? text.indexOf(c, from) : block.indexOf(c.charCodeAt(0), from));

  let at = start.length;
  for (;;) {
    const end = find("\r", at);
    if (end < 0) throw new RangeError("a header without an end");
    if (end === at) return pairs;
    const middle = find(":", at);
    if (middle < 0 || middle > end) throw new RangeError("a header without a colon");

    let [from, to] = [middle + 1, end];
    while (from < to && (block[from] === 32 || block[from] === 9)) from++;
    while (from < to && (block[to - 1] === 32 || block[to - 1] === 9)) to--;
    if (ascii) pairs.push([text.slice(at, middle), text.slice(from, to)]);
    else pairs.push([textOf(block.subarray(at, middle)), textOrBytes(block.subarray(from, to))]);
    at = end + 2;
  }
}

/** A frame of a message: headers and a value. */
export interface Frame {
  priority: bigint;
  headers: HeaderBlock;
  value: Uint8Array;
  /** How many frames before this one that of its joiner is, if that is in the same request. */
  joinerBack?: number;
  /** The token of the lease whose job pushes it, unless that is the one in the subject. */
  parent?: string | undefined;
}

const startBytes = 16;
const joinerBytes = "Pq-Joiner: 4095\r\n".length;
/** The most bytes of a parent. */
export const parentBytes = 96;

/** How many bytes a frame has in a message, at most. */
export const frameSize = (f: Frame): number =>
  startBytes + f.headers.size + f.value.length + (f.joinerBack ? joinerBytes : 0);

/** Returns the payload of a message with these frames. They get their numbers here, as jobs share requests. */
export function encodeFrames(frames: Frame[]): Uint8Array {
  return concat(
    frames.flatMap((f, number) => {
      let block = f.joinerBack ? f.headers.with("Pq-Joiner", String(number - f.joinerBack)) : f.headers;
      if (f.parent) block = block.with("Pq-Token", f.parent);
      const [start, headers] = [new DataView(new ArrayBuffer(startBytes)), block.bytes()];
      start.setBigInt64(0, f.priority);
      start.setUint32(8, headers.length);
      start.setUint32(12, f.value.length);
      return [new Uint8Array(start.buffer), headers, f.value];
    }),
  );
}

/** Returns the headers and values in a message. Throws RangeError if they cannot be read. */
export function parseFrames(payload: Uint8Array): [[string, HeaderValue][], Uint8Array][] {
  const list: [[string, HeaderValue][], Uint8Array][] = [];
  const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
  for (let at = 0; at < payload.length; ) {
    const headers = at + startBytes;
    const value = headers + view.getUint32(at + 8);
    const end = value + view.getUint32(at + 12);
    if (end > payload.length) throw new RangeError(`frame ${list.length} is cut short`);
    list.push([parseHeaders(payload.subarray(headers, value)), payload.subarray(value, end)]);
    at = end;
  }
  return list;
}

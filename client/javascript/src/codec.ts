import { badRequest } from "./errors.js";

/** Turns values into bytes and back. Bytes (ArrayBuffer, Buffer, any typed array, DataView) never go through it. */
export interface Codec {
  /** The type of the bytes, such as "application/json", for the header Content-Type; "" for none. */
  readonly contentType: string;
  encode(value: unknown): Uint8Array;
  decode(bytes: Uint8Array): unknown;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** JSON in UTF-8, the default. */
export const json: Codec = {
  contentType: "application/json",
  encode(value) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError(`JSON has no ${typeof value}`);
    if (text === "{}" && kindOf(value) !== "Object") throw new TypeError(`JSON makes {} of a ${kindOf(value)}`);
    return encoder.encode(text);
  },
  decode: (bytes) => JSON.parse(decoder.decode(bytes)),
};

/** Returns "Map", "Blob" and so on; unlike instanceof, also for an object of another realm. */
export const kindOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

// Returns the bytes of a buffer or a view of one. What is shared is copied, because others may change it.
function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof Uint8Array && kindOf(value.buffer) === "ArrayBuffer") return value;
  if (ArrayBuffer.isView(value)) return bytesOf(value.buffer)!.subarray(value.byteOffset, value.byteOffset + value.byteLength);
  if (kindOf(value) === "ArrayBuffer") return new Uint8Array(value as ArrayBuffer);
  return kindOf(value) === "SharedArrayBuffer" ? new Uint8Array(value as ArrayBuffer).slice() : undefined;
}

/**
 * Returns a value as bytes, and their type, "" if it was bytes already: a buffer, or a view of one. Throws
 * BadRequestError, which begins with the name.
 */
export function encodeValue(codec: Codec, value: unknown, name: string): { bytes: Uint8Array; contentType: string } {
  try {
    const given = bytesOf(value);
    const bytes = given ?? bytesOf(codec.encode(value));
    if (!bytes) throw new TypeError("the codec returned no bytes");
    return { bytes, contentType: given ? "" : codec.contentType };
  } catch (err) {
    throw badRequest(`${name} cannot be encoded: ${(err as Error | null)?.message ?? err}; want bytes, or what the codec takes`, err);
  }
}

/** Returns a text as UTF-8. Half of a surrogate pair becomes U+FFFD: see isWellFormed. */
export const utf8 = (text: string): Uint8Array => encoder.encode(text);

/** Returns the text of bytes, with U+FFFD for bytes that are not UTF-8. */
export const textOf = (bytes: Uint8Array): string => decoder.decode(bytes);

/** Returns the text of bytes, or the bytes if they are not UTF-8. */
export function textOrBytes(bytes: Uint8Array): string | Uint8Array {
  try {
    return strict.decode(bytes);
  } catch {
    return new Uint8Array(bytes); // a copy, as slice of a Buffer is none
  }
}

/** Returns 128 random bits as text. Pages without https have no randomUUID. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36).padStart(7, "0")).join("");

/** Reports whether a text has no half of a surrogate pair, which UTF-8 cannot carry. */
export const isWellFormed = (text: string): boolean => !/\p{Surrogate}/u.test(text);

/** Returns the bytes of a text in base64. */
export const fromBase64 = (text: string): Uint8Array => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** Returns a text with a character for each byte. */
export const latin1 = (bytes: Uint8Array): string => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");

/** Returns bytes in base64. */
export const toBase64 = (bytes: Uint8Array): string => btoa(latin1(bytes));

/** Cuts a text to a number of bytes, and adds "..." if it was longer. Half of a surrogate pair becomes U+FFFD. */
export function cut(text: string, most: number): string {
  const bytes = utf8(text);
  return bytes.length <= most ? textOf(bytes) : `${textOf(bytes.subarray(0, most)).replace(/\ufffd+$/, "")}...`;
}

/** The name of the method that console.log of Node asks. */
export const inspect: unique symbol = Symbol.for("nodejs.util.inspect.custom") as never;

/** Returns what console.log should print for an object: the members that are set, with text in place of bytes. */
export function printed(o: object): object {
  const set = Object.entries(o).filter(([, v]) => v !== undefined && v !== "");
  return Object.fromEntries(set.map(([name, v]) => [name, v instanceof Uint8Array ? textOrBytes(v) : v]));
}

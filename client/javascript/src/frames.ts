import { concat, HeaderBlock, type HeaderValue, parseHeaders } from "./headers.js";

/** A frame of a message: headers and a value. */
export interface Frame {
  priority: bigint;
  headers: HeaderBlock;
  value: Uint8Array;
}

const startBytes = 16;

/** How many bytes a frame has in a message. */
export const frameSize = (f: Frame): number => startBytes + f.headers.size + f.value.length;

/** Returns the payload of a message with these frames. */
export function encodeFrames(frames: Frame[]): Uint8Array {
  return concat(
    frames.flatMap((f) => {
      const [start, headers] = [new DataView(new ArrayBuffer(startBytes)), f.headers.bytes()];
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

import { cut } from "./codec.js";

const { process } = globalThis as { process?: NodeJS.Process };

/** Returns a module of Node.js, Bun or Deno, or undefined elsewhere. Not by an import, which a browser could not load. */
export function builtin<T>(id: string): T | undefined {
  return (process as { getBuiltinModule?(id: string): T } | undefined)?.getBuiltinModule?.(id);
}

/** Names this process: its host and its process id. It is the holder of a Worker's leases, and what bridges log. */
export function defaultHolder(): string {
  if (!process?.pid) return "a browser";
  const host = builtin<{ hostname?(): string }>("node:os")?.hostname?.() ?? process.env.HOSTNAME ?? "unknown host";
  return cut(`${host} pid ${process.pid}`.replace(/\p{Cc}/gu, " "), 120);
}

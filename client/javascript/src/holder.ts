import { cut } from "./codec.js";

/** Names this process: its host and its process id. It is the holder of a Worker's leases, and what bridges log. */
export function defaultHolder(): string {
  const { process } = globalThis as { process?: NodeJS.Process };
  if (!process?.pid) return "a browser";

  // Not an import, which a browser could not load. Older Node 20 has no getBuiltinModule.
  const os = (process as { getBuiltinModule?: (id: string) => unknown }).getBuiltinModule?.("node:os");
  const host = (os as { hostname?(): string } | undefined)?.hostname?.() ?? process.env.HOSTNAME ?? "unknown host";
  return cut(`${host} pid ${process.pid}`.replace(/\p{Cc}/gu, " "), 120);
}

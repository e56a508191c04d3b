import { checkOptions } from "./errors.js";
import { builtin } from "./holder.js";
import { checkFunction, type Failure, type Job } from "./job.js";

/** Where a Worker logs; console is one. */
export interface Logger {
  warn(text: string, fields: object): void;
  error(text: string, fields: object): void;
}

/**
 * What a Worker calls when something has become of a job. It waits for none of them: they may await its close. What they
 * throw is logged, and ends nothing.
 */
export interface Hooks<Data = unknown, Result = unknown> {
  /** The job was acknowledged. */
  completed?(job: Job<Data>, result: Result): unknown;
  /** The handler has thrown, and the job went back or became a dead letter. */
  failed?(job: Job<Data>, outcome: Failure): unknown;
  /** The lease is lost, or may be: somebody else may do the job. */
  lost?(job: Job<Data>): unknown;
  /** The worker cannot lease or settle. It tries again, unless run ends with this error. */
  error?(error: Error): unknown;
}

/** A hook that is there. */
export type Listener<E extends keyof Hooks, Data = unknown, Result = unknown> = NonNullable<Hooks<Data, Result>[E]>;

/** How often the same warning is logged, in milliseconds. */
const logEvery = 60_000;

const { AsyncLocalStorage } = builtin<typeof import("node:async_hooks")>("node:async_hooks") ?? {};
/** @internal The lease whose handler calls, where the platform can tell. */
export const handling = AsyncLocalStorage && new AsyncLocalStorage<object | undefined>();
export const as = <T>(lease: object | undefined, f: () => T): T => (handling ? handling.run(lease, f) : f());

/** Says what happens to the jobs of a Worker: to its logger and to its listeners. */
export class Reporter {
  readonly #logged = new Map<string, number>();
  readonly #listeners: Record<keyof Hooks, Set<(...args: unknown[]) => unknown>> = {
    completed: new Set(),
    failed: new Set(),
    lost: new Set(),
    error: new Set(),
  };

  constructor(readonly queue: string, readonly logger: Logger | null) {
    if (logger !== null) for (const level of ["warn", "error"] as const) checkFunction(`logger.${level}`, logger[level]);
  }

  addHooks(given: Hooks | undefined): void {
    const hooks = checkOptions("hook", given, Object.keys(this.#listeners));
    for (const [event, hook] of Object.entries(hooks)) this.on(event as keyof Hooks, hook);
  }

  on<E extends keyof Hooks>(event: E, listener: Listener<E>): void {
    const listeners = this.#listenersOf(event);
    checkFunction(`listener of ${event}`, listener);
    listeners.add(listener);
  }

  off<E extends keyof Hooks>(event: E, listener: Listener<E>): void {
    this.#listenersOf(event).delete(listener);
  }

  #listenersOf(event: keyof Hooks): Set<(...args: never[]) => unknown> {
    checkOptions("event", { [event]: true }, Object.keys(this.#listeners));
    return this.#listeners[event];
  }

  /** Calls the listeners of an event. */
  call<E extends keyof Hooks>(event: E, ...args: Parameters<Listener<E>>): void {
    for (const listener of [...this.#listeners[event]]) {
      const called = as(undefined, async () => listener(...args));
      called.catch((error: unknown) => this.log("error", `the hook ${event} failed`, { error }));
    }
  }

  log(level: "warn" | "error", text: string, fields: object): void {
    const said = async (): Promise<void> => this.logger?.[level](text, { queue: this.queue, ...fields });
    said().catch(() => undefined); // there is nowhere to say so
  }

  /** Logs a warning; with `rarely`, unless the same one was logged less than a minute ago. */
  warn(text: string, fields: object, rarely = false): void {
    const now = performance.now();
    if (rarely && now - (this.#logged.get(text) ?? -Infinity) < logEvery) return;
    this.#logged.set(text, now);
    this.log("warn", text, fields);
  }
}

export { type Codec, json } from "./codec.js";
export { connectOptions } from "./connection.js";
export { Delivery, type Successor } from "./delivery.js";
export type { Duration } from "./duration.js";
export {
  BadReplyError, BadRequestError, ChainError, type ErrorDetails, InternalError, JobFailedError, JoinedError, JoinsError,
  LeasedError, LeaseLostError, NoBridgeError, NoHeartbeatError, NotDoneError, NotFoundError, NotSentError,
  OverloadedError, PQError, TooLargeError, UnavailableError, UnknownOutcomeError,
} from "./errors.js";
export { type HeadersInit, type HeaderValue, ItemHeaders } from "./headers.js";
export { type DeadLetter, Item, type Joined, type State } from "./item.js";
export {
  type Context, Drop, type Failure, type Handler, type HandlerRun, type Handlers, Job, type Middleware, type Outcome,
  RetryAfter, Snooze, StoppedError, TimedOutError,
} from "./job.js";
export type { OpenJoin } from "./join.js";
export type { Priority } from "./json.js";
export type { AtPlace, JobName, JobRef, JoinerRef } from "./names.js";
export type { LeaseOptions, PopOptions } from "./pop.js";
export type { AllPushed, ListedOptions, Member, Pushed, PushItem, PushOptions, PushOutcome } from "./push.js";
export { type CallOptions, Client, type ClientOptions, Queue } from "./queue.js";
export type { Hooks, Listener, Logger } from "./reporter.js";
export { runHandler, type RunOptions } from "./run.js";
export type { Settings, Source, SourceField } from "./settings.js";
export {
  type Attempt, type ItemResult, type ItemsOptions, JobResult, type Past, type QueueConsumer, type QueueInfo, type Schedule, type ScheduleRecord,
  type SourceState, type StoredItem,
} from "./stored.js";
export { Worker, type WorkerOptions } from "./worker.js";

export { Client, type ClientOptions, connectOptions } from "./client.js";
export { type Codec, json } from "./codec.js";
export { Delivery, type Successor } from "./delivery.js";
export type { Duration } from "./duration.js";
export {
  BadReplyError, BadRequestError, type ErrorDetails, InternalError, JobFailedError, LeasedError, LeaseLostError,
  NoBridgeError, NoHeartbeatError, NotDoneError, NotFoundError, NotSentError, OverloadedError, PQError,
  TooLargeError, UnavailableError, UnknownOutcomeError,
} from "./errors.js";
export { type HeadersInit, type HeaderValue, ItemHeaders } from "./headers.js";
export { type DeadLetter, Item, type State } from "./item.js";
export {
  type Context, Drop, type Failure, type Handler, type HandlerRun, type Handlers, Job, type Middleware, type Outcome,
  RetryAfter, Snooze, StoppedError, TimedOutError,
} from "./job.js";
export type { Priority } from "./json.js";
export type { Pushed, PushItem, PushOptions, PushOutcome } from "./push.js";
export { type AtPlace, type CallOptions, type JobName, type LeaseOptions, type PopOptions, Queue } from "./queue.js";
export { runHandler, type RunOptions } from "./run.js";
export type { Settings, Source, SourceField } from "./settings.js";
export {
  type ItemResult, type ItemsOptions, JobResult, type QueueConsumer, type QueueInfo, type Schedule, type ScheduleRecord,
  type SourceState, type StoredItem,
} from "./stored.js";
export { type Hooks, type Listener, type Logger, Worker, type WorkerOptions } from "./worker.js";

"""taskiq on a queue of pqbridge: a broker, and a result backend.

    broker = PQBroker("nats://127.0.0.1:4222", queue="tasks")
    broker.with_result_backend(PQResultBackend(broker))

docs/taskiq.md of the project says how to move an application here, and what is different.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from typing import Any, Literal, TypeVar

from nats.aio.client import Client as NATS
from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, TaskiqMiddleware, TaskiqResult, middlewares
from taskiq.abc.formatter import TaskiqFormatter
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import NoResultError, TaskRejectedError
from taskiq.message import BrokerMessage, TaskiqMessage

from .client import Client, connect
from .delivery import Delivery, Renewal, repeat
from .errors import (
    BadArgumentError,
    BadRequestError,
    DeniedError,
    JobFailedError,
    LeaseLostError,
    NotDoneError,
    PQError,
    TooLargeError,
)
from .job import Drop, Outcome, RetryAfter, Snooze, text_of
from .push import PushOptions
from .queue import Queue, lease_length
from .times import Duration, Pause, clock, seconds
from .worker import give_back

_LOG = logging.getLogger("pqbridge.taskiq")
_IDLE_WAIT = 300.0  # seconds that one request waits for a job
_SETTLE_TIME = 30.0  # seconds for which a broker that stops tries to settle its jobs
_GIVE_BACK_TIME = 2.0
_MAX_PROGRESS = 1024
_REQUEUED = "X-Taskiq-requeue"  # the label that Context.requeue sets
_RETRIES = ("SimpleRetryMiddleware", "SmartRetryMiddleware")
_WHEN_SAVED = "the queue keeps results with the acknowledgement: want the acknowledgement type when_saved, not "

_T = TypeVar("_T")
_RUN: ContextVar[_Run | None] = ContextVar("pqbridge_taskiq_run", default=None)


class _Leased(bytes):
    """The bytes of a message that know their lease, so that no two deliveries are mixed up."""

    run: _Run


class _Formatter(TaskiqFormatter):
    """Wraps the formatter of a broker, because loads is the first thing that taskiq calls in a task of its own."""

    def __init__(self, inner: TaskiqFormatter) -> None:
        self._inner = inner

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        return self._inner.dumps(message)

    def loads(self, message: bytes) -> TaskiqMessage:
        run: _Run | None = getattr(message, "run", None)
        return run.begin(self._inner) if run else self._inner.loads(message=message)


class _Middleware(TaskiqMiddleware):
    """Tells the run of a task how far it is. It is the first one, so it sees what the others made of a result."""

    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        run = _RUN.get()
        if run:
            run.message, run.is_known = message, True
            mode = str(getattr(message.labels.get("ack_type"), "value", message.labels.get("ack_type", "when_saved")))
            if run.broker.keeps_results and mode.lower() != "when_saved":
                run.is_hopeless = True
                raise BadArgumentError(_WHEN_SAVED + mode)
        return message

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        run = _RUN.get()
        if run and not run.settled:
            try:
                run.outcome = run.decide(message.labels, result)
            except (TypeError, ValueError) as error:
                what = "bad delay" if isinstance(result.error, (Snooze, RetryAfter)) else "a label cannot be read"
                run.outcome = Outcome("dropped", text=f"{what}: {error}")
            if run.why or run.outcome.kind not in ("done", "dropped"):
                result.error = NoResultError()  # another run will have the result to store


class _Run:
    """One delivery of a job, from its lease to the request that ends it."""

    def __init__(self, broker: PQBroker, delivery: Delivery) -> None:
        self.broker, self.delivery = broker, delivery
        self.renewal: Renewal | None = None
        self.task: asyncio.Task[Any] | None = None  # of taskiq, once it has begun
        self.message: TaskiqMessage | None = None
        self.is_known = False  # whether this worker has the task
        self.outcome: Outcome | None = None  # once the task has ended
        self.saved: bytes | None = None  # the result as it is sent
        self.refused: Callable[[Exception], bytes] | None = None  # returns what is sent in its place
        self.content_type = ""
        self.requeued = self.settled = False
        self.reason = ""  # why the task cannot run
        self.is_hopeless = False  # whether it never can
        self.why: Literal["", "lost", "stopped"] = ""
        self.over = asyncio.Event()

    def renew(self) -> None:
        """Renew the lease from now on."""
        self.renewal = Renewal(self.delivery, self._lost, _LOG)

    def _lost(self, error: PQError) -> None:
        _LOG.warning("lost the lease of task %s: %s", self.id, error)
        self.end("lost")

    @property
    def id(self) -> str:
        return self.message.task_id if self.message else self.delivery.id

    def end(self, why: Literal["lost", "stopped"]) -> None:
        """Cancel the task. Nothing that it returns is sent."""
        self.why = self.why or why
        if self.task:
            self.task.cancel()

    def begin(self, formatter: TaskiqFormatter) -> TaskiqMessage:
        """Read the message, in the asyncio task in which taskiq does all the rest."""
        if self.why or self.settled:
            raise LeaseLostError("the lease ended before the task began: it runs elsewhere")
        _RUN.set(self)
        self.task = asyncio.current_task()
        if self.task:
            self.task.add_done_callback(self._ended)
        if self.broker.refused:
            raise BadArgumentError(self.broker.refused)
        try:
            self.message = formatter.loads(message=self.delivery.value)
        except Exception as error:
            self.reason = f"cannot read the message: {text_of(error)}"
            raise
        return self.message

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Give the job back if taskiq has ended without an acknowledgement."""
        if self.settled:
            return
        error = None if task.cancelled() else task.exception()
        if error:
            self.reason = text_of(error)
            _LOG.error("task %s ended outside of its function: %s", self.id, self.reason, exc_info=error)
        elif self.outcome and self.broker.keeps_results:
            self._refuse()
        self.broker.queue.link.spawn(self.settle(self._not_run()))

    def _refuse(self) -> str:
        """Have the worker begin nothing more, as it was started with another acknowledgement type."""
        self.broker.refused = _WHEN_SAVED + "what --ack-type says"
        _LOG.error("this worker gives back task %s, and does nothing more: %s", self.id, self.broker.refused)
        return self.broker.refused

    async def ack(self) -> None:
        """End the lease by one request, as the task has ended. This is what taskiq calls at the end."""
        if self.settled:
            return
        if self.is_known and self.outcome is None and self.broker.keeps_results:
            raise BadArgumentError(self._refuse())
        await self.settle(self.outcome or (Outcome("done") if self.is_known else self._not_run()))

    def _not_run(self) -> Outcome:
        if self.broker.refused:
            return Outcome("stopped")  # without counting the delivery: the job is not at fault
        reason = self.reason
        if not reason and self.is_known:
            reason = "taskiq ended the task without an acknowledgement"
        elif not reason and self.message:
            reason = f"this worker has no task {self.message.task_name!r}, or cannot read its labels"
        return Outcome("dropped" if self.is_hopeless else "failed", text=reason, delay=self.broker.pause)

    def decide(self, labels: dict[str, Any], result: TaskiqResult[Any]) -> Outcome:
        """Return what becomes of a job whose task has ended."""
        error = result.error
        delay = seconds(_duration(labels["delay"])) if "delay" in labels else None
        if self.requeued:
            return Outcome("snoozed", delay=delay)
        if not result.is_err or isinstance(error, NoResultError):
            return Outcome("done")

        text = (text_of(error) if error else "") or "the task was cancelled"
        if isinstance(error, Snooze):
            return Outcome("snoozed", delay=seconds(error.delay))
        if isinstance(error, RetryAfter):
            return Outcome("failed", text=text, delay=seconds(error.delay))
        retry = str(labels.get("retry_on_error", self.broker.retry_on_error)).lower() == "true"
        most = int(labels.get("max_retries", self.broker.max_retries))
        if not retry or self.delivery.deliveries >= most or isinstance(error, (Drop, TaskRejectedError)):
            return Outcome("dropped", text=text)
        return Outcome("failed", text=text, delay=self.broker.pause if delay is None else delay)

    async def settle(self, outcome: Outcome) -> None:
        """End the lease, once, unless something else has ended it."""
        if self.settled:
            return
        self.settled = True
        outcome = Outcome(self.why) if self.why else outcome
        try:
            lost = await self.renewal.stop() if self.renewal else False
            if not lost and outcome.kind != "lost":
                await self._send(outcome)
        finally:
            self.broker.held.discard(self)
            self.over.set()

    async def _send(self, outcome: Outcome) -> None:
        if outcome.kind in ("failed", "dropped"):
            what = "is a dead letter after" if outcome.kind == "dropped" else "failed at"
            _LOG.warning("task %s %s delivery %d: %s", self.id, what, self.delivery.deliveries, outcome.text)
        try:
            if outcome.kind == "done":
                await self._acknowledge()
            else:
                await self._give_back(outcome)
        except LeaseLostError as error:
            _LOG.warning("task %s was settled too late: %s", self.id, error)
        except PQError as error:
            _LOG.error("cannot settle task %s, which comes back: %s", self.id, error)

    async def _give_back(self, outcome: Outcome) -> None:
        try:
            await repeat(lambda: give_back(self.delivery, outcome), self._go_on(Pause()))
        except BadRequestError as error:  # the delay
            text = f"{outcome.text}: {error}"
            await repeat(lambda: self.delivery.term(text), self._go_on(Pause()))

    async def _acknowledge(self) -> None:
        go_on, kind = self._go_on(Pause()), self.content_type
        try:
            await repeat(lambda: self.delivery.ack(self.saved, content_type=kind), go_on)
        except (BadRequestError, TooLargeError) as error:
            if not self.refused:
                raise
            # The task has run. Another run would have no smaller result.
            _LOG.error("the result of task %s was refused: %s", self.id, error)
            small = self.refused(error)
            await repeat(lambda: self.delivery.ack(small, content_type=kind), go_on)

    def _go_on(self, pause: Pause) -> Callable[[PQError], Any]:
        async def go_on(error: PQError) -> bool:
            broker = self.broker
            if isinstance(error, DeniedError) or broker.nc.is_closed or clock() - broker.stopped_at > _SETTLE_TIME:
                _LOG.error("cannot settle task %s, which comes back: %s", self.id, error)
                return False
            _LOG.warning("cannot settle task %s, trying again: %s", self.id, error)
            await pause.wait()
            return True

        return go_on


class PQBroker(AsyncBroker):
    """Sends tasks to a priority queue, and leases them from there for `taskiq worker`.

    servers as in pqbridge.connect, by default NATS_URL; options are passed there too.
    queue is the name of the queue, prefix the beginning of the bridges' subjects.
    ack_wait is the length of a lease, which is renewed while its task runs: others get the tasks of
        a worker that dies after that time. By default what the settings of the queue say, or 30 s.
    retry_on_error and max_retries are for tasks without these labels: a task that fails comes back
        until it has been delivered max_retries times. Otherwise it is a dead letter.
    timeout bounds each request, in seconds.
    """

    def __init__(
        self,
        servers: str | list[str] | None = None,
        queue: str = "taskiq",
        *,
        prefix: str = "pq",
        ack_wait: Duration | None = None,
        retry_on_error: bool = False,
        max_retries: int = 3,
        timeout: Duration = 10.0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.retry_on_error, self.max_retries = retry_on_error, max_retries
        self._servers, self._name, self._prefix, self._options = servers, queue, prefix, options
        self._ack_wait, self._timeout = lease_length(ack_wait) or None, seconds(timeout)
        self.held: set[_Run] = set()
        self.stopped_at = math.inf
        self.refused = ""  # why this worker begins no task
        self.pause: float | None = None  # before a job that failed comes back, without a backoff
        self.nc = NATS()
        self._queue: Queue | None = None
        self.add_middlewares(_Middleware())

    @property
    def formatter(self) -> TaskiqFormatter:
        return self._formatter

    @formatter.setter
    def formatter(self, formatter: TaskiqFormatter) -> None:
        self._formatter = formatter if isinstance(formatter, _Formatter) else _Formatter(formatter)

    @property
    def queue(self) -> Queue:
        """The queue of the tasks, as pqbridge.Client has it."""
        if self._queue is None:
            raise RuntimeError("the broker has not started: call `await broker.startup()` first")
        return self._queue

    @property
    def keeps_results(self) -> bool:
        return isinstance(self.result_backend, PQResultBackend)

    async def startup(self) -> None:
        """Connect, check the settings of the queue, and start the rest of taskiq.

        Errors: BadArgumentError, which says what to change.
        """
        for middleware in self.middlewares:
            kinds = [getattr(middlewares, name, _Run) for name in _RETRIES]
            if isinstance(middleware, tuple(kinds)):
                raise BadArgumentError(
                    f"{type(middleware).__name__} sends a second copy of a task that fails. Remove it, and set"
                    " retry_on_error and max_retries: as labels, or of PQBroker for all tasks"
                )
        self.nc = await connect(self._servers, **self._options)
        self._queue = Client(self.nc, prefix=self._prefix, timeout=self._timeout).priority_queue(self._name)
        self.stopped_at = math.inf
        try:
            await self._check(self._queue)
            await super().startup()
        except BaseException:
            await self.nc.close()
            raise

    async def _check(self, queue: Queue) -> None:
        end, pause = clock() + self._timeout, Pause()
        while True:
            try:
                settings = (await queue.info()).get("settings", {})
                break
            except PQError as error:
                if not error.is_passing or clock() > end:
                    raise
                await pause.wait()

        self.pause = None if settings.get("backoff") else 1.0
        keep, window = settings.get("keep", ""), settings.get("duplicate_window", "2m")
        if self.keeps_results and (not keep or seconds(window) < seconds(keep)):
            raise BadArgumentError(
                f"queue {queue.name!r} has keep={keep or None} and duplicate_window={window}. Results are found for"
                " duplicate_window after the task was sent, and kept for keep after it ended. Set both, such as:"
                f" pq config {queue.name} keep=1h duplicate_window=2h"
            )

    async def shutdown(self) -> None:
        """Give back what has not begun, wait for tasks that run, and close the connection.

        If it is cancelled, as taskiq does after --shutdown-timeout, it cancels these tasks and
        gives them back as well.
        """
        self.stopped_at = min(self.stopped_at, clock())
        if self._queue is None:
            return await super().shutdown()
        link = self._queue.link
        try:
            for run in [r for r in self.held if r.task is None]:
                link.spawn(run.settle(Outcome("stopped")))
            for run in list(self.held):
                await run.over.wait()
            await super().shutdown()
        except asyncio.CancelledError:
            for run in self.held:
                if not run.settled:  # otherwise its outcome is on its way
                    run.end("stopped")
            if tasks := {r.task for r in self.held if r.task}:
                await asyncio.wait(tasks, timeout=_GIVE_BACK_TIME)
            raise
        finally:
            await link.wait(_GIVE_BACK_TIME)  # also for a lease that was cancelled
            await link.ping(0.5)
            await self.nc.close()
            self._queue = None

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. It is durable once this returns, and its id makes it happen once."""
        run = _RUN.get()
        if run and run.broker is self and run.id == message.task_id:
            if _REQUEUED not in message.labels:  # a retry, which would be a duplicate of this run
                raise BadArgumentError("a task sends itself again under its id: want requeue(), or retry_on_error")
            run.requeued = True  # the same job comes back, instead of a copy
            return
        await self.queue.push(message.message, **_options(message))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield one leased task after the other. Whatever goes wrong is logged, and tried again.

        Errors: PQError once the connection is closed for good, so that the worker process is started anew.
        """
        pause = Pause()
        while self.stopped_at == math.inf:
            if self.refused:
                await asyncio.Event().wait()
            run = None
            try:
                delivery = await self.queue.lease(ack_wait=self._ack_wait, expires=_IDLE_WAIT)
                if delivery:
                    run = _Run(self, delivery)
                    self.held.add(run)  # from now on, shutdown gives it back
                    await delivery.confirm()
                    run.renew()
                pause.reset()
            except PQError as error:
                _LOG.warning("cannot lease a task, trying again: %s", error)
                if run:
                    self.held.discard(run)
                    run = None
                await pause.wait()
                if self.nc.is_closed and self.stopped_at == math.inf:
                    raise
            if run:
                data = _Leased(run.delivery.value)
                data.run = run
                yield AckableMessage.model_construct(data=data, ack=run.ack)


class PQResultBackend(AsyncResultBackend[_T]):
    """Keeps results with the jobs of a PQBroker: the acknowledgement of a task has its result.

    serializer writes results, by default as JSON: PickleSerializer of taskiq takes any objects.
    """

    def __init__(self, broker: PQBroker, serializer: TaskiqSerializer | None = None) -> None:
        self._broker, self._serializer = broker, serializer
        self._content_type = "" if serializer else "application/json"

    def _encode(self, result: TaskiqResult[Any]) -> bytes:
        if self._serializer:
            return self._serializer.dumpb(result.model_dump())
        return result.model_dump_json().encode()

    async def set_result(self, task_id: str, result: TaskiqResult[_T]) -> None:
        """Have the acknowledgement of this task send its result."""
        run = _RUN.get()
        if run is None or run.id != task_id:
            raise BadArgumentError(f"the result of task {task_id}: only the worker that runs a task can save it")
        run.content_type = self._content_type
        run.refused = lambda error: self._encode(_result(error, result.execution_time))
        try:
            run.saved = self._encode(result)
        except Exception as error:  # whatever the serializer raises
            _LOG.error("the result of task %s cannot be written: %s", task_id, error)
            run.saved = run.refused(BadArgumentError(f"the result cannot be written: {text_of(error)}"))

    async def is_result_ready(self, task_id: str) -> bool:
        """Report whether a task is done, or a dead letter.

        Errors: NotFoundError if there is no such task, or its result is not kept any more.
        """
        return (await self._broker.queue.result(msg_id=task_id)).is_over

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[_T]:
        """Return the result of a task. That of a dead letter has a JobFailedError, with the reason.

        Errors: NotDoneError, and NotFoundError as above.
        """
        job = await self._broker.queue.result(msg_id=task_id)
        if not job.is_over:
            raise NotDoneError(f"task {task_id} is {job.state}, not done")
        try:
            job.raise_for_death()
        except JobFailedError as error:
            return _result(error)
        if not job.has_result:
            return _result(None)
        if self._serializer:
            return TaskiqResult[_T].model_validate(self._serializer.loadb(job.value))
        return TaskiqResult[_T].model_validate_json(job.value)

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Say how far the task is, with the next extension of its lease."""
        text, run = progress.model_dump_json().encode(), _RUN.get()
        if len(text) > _MAX_PROGRESS:
            raise BadArgumentError(f"progress of {len(text)} bytes: want at most {_MAX_PROGRESS}")
        if run and run.id == task_id and run.renewal and not run.settled:
            run.renewal.say(text)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return what a task that runs has said."""
        text = (await self._broker.queue.result(msg_id=task_id)).progress
        return TaskProgress[Any].model_validate_json(text) if text else None


def _result(error: Exception | None, execution_time: float = 0) -> TaskiqResult[Any]:
    """Return a result without a value."""
    return TaskiqResult(is_err=error is not None, return_value=None, execution_time=execution_time, error=error)


def _duration(label: Any) -> Duration:
    """Return a label in seconds, or as a text such as "10s"."""
    try:
        return float(label)
    except ValueError:
        return str(label)


def _options(message: BrokerMessage) -> PushOptions:
    """Return the options of a push, as the labels of a task say."""
    labels = message.labels
    options = PushOptions(msg_id=message.task_id, type=message.task_name)
    try:
        if "priority" in labels:
            options["priority"] = int(labels["priority"])
        if "delay" in labels:
            options["delay"] = seconds(_duration(labels["delay"]))
        if "keep" in labels:
            options["keep"] = seconds(_duration(labels["keep"]))
        int(labels.get("max_retries", 0))
    except ValueError as error:
        raise BadArgumentError(f"a label of task {message.task_name}: {error}") from error
    if "group" in labels:
        options["group"] = str(labels["group"])
    if "unique" in labels:
        options["unique"] = str(labels["unique"])
    return options

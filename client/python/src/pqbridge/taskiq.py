"""taskiq on a queue of pqbridge: a broker, and a result backend.

    broker = PQBroker("nats://127.0.0.1:4222", queue="tasks")
    broker.with_result_backend(PQResultBackend(broker))

docs/taskiq.md of the project says how to move an application here, and what is different.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

from nats.aio.client import Client as NATS
from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, TaskiqMiddleware, TaskiqResult
from taskiq.abc.formatter import TaskiqFormatter
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import NoResultError, TaskRejectedError
from taskiq.labels import LabelType
from taskiq.message import BrokerMessage, TaskiqMessage

from . import errors as e
from .client import Client, connect_within
from .delivery import Delivery, Renewal, Seldom, repeat
from .job import MAX_PROGRESS, Drop, Outcome, RetryAfter, Snooze, text_of
from .push import PushOptions
from .queue import Queue, lease_length
from .times import Duration, Pause, clock, seconds
from .worker import retry_length, settle_failed

_LOG = logging.getLogger("pqbridge.taskiq")
_IDLE_WAIT = 300.0  # seconds that one request waits for a job
_SETTLE_TIME = 5.0  # seconds for which a broker that stops tries to settle a job
_GIVE_BACK_TIME = 2.0
_REQUEUED = "X-Taskiq-requeue"  # the label that Context.requeue sets
_RETRIES = ("SimpleRetryMiddleware", "SmartRetryMiddleware")
_WHEN_SAVED = "the queue keeps results with the acknowledgement: want the acknowledgement type when_saved, not "

_T = TypeVar("_T")
_RUN: ContextVar[_Run | None] = ContextVar("pqbridge_taskiq_run", default=None)
_JOIN: ContextVar[tuple[PQBroker, list[Any]] | None] = ContextVar("pqbridge_taskiq_join", default=None)


class _Leased(bytes):
    """The bytes of a message that know their lease, so that no two deliveries are mixed up."""

    run: _Run


class _Formatter(TaskiqFormatter):
    """Wraps the formatter of a broker, because loads is the first thing that taskiq calls in a task of its own."""

    def __init__(self, inner: TaskiqFormatter) -> None:
        self._inner = inner

    def dumps(self, message: TaskiqMessage) -> BrokerMessage:
        """Write a message, without the labels that are None: taskiq makes texts of them."""
        none = [
            n for n, t in (message.labels_types or {}).items() if t == LabelType.ANY and message.labels.get(n) == "None"
        ]
        labels = {name: label for name, label in message.labels.items() if name not in none}
        return self._inner.dumps(message.model_copy(update={"labels": labels}))

    def loads(self, message: bytes) -> TaskiqMessage:
        run: _Run | None = getattr(message, "run", None)
        return run.begin(self._inner) if run else self._inner.loads(message=message)


class _Middleware(TaskiqMiddleware):
    """Tells the run of a task how far it is. It is the first one, so it sees what the others made of a result."""

    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        run = _RUN.get()
        if run:
            run.labels = message.labels
            mode = str(getattr(message.labels.get("ack_type"), "value", message.labels.get("ack_type", "when_saved")))
            if run.broker.keeps_results and mode.lower() != "when_saved":
                run.outcome = Outcome("dropped", text=_WHEN_SAVED + mode)
                raise e.BadArgumentError(run.outcome.text)
        return message

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        run = _RUN.get()
        if run and not run.settled:
            run.labels = message.labels
            run.outcome = run.decide(result.error if result.is_err else None)
            if run.why or run.outcome.kind not in ("done", "dropped"):
                result.error = NoResultError()  # another run will have the result to store


class _Run:
    """One delivery of a job, from its lease to the request that ends it."""

    def __init__(self, broker: PQBroker, delivery: Delivery) -> None:
        self.broker, self.delivery = broker, delivery
        self.renewal: Renewal | None = None
        self.task: asyncio.Task[Any] | None = None  # of taskiq, once it has begun
        self.id, self.name = delivery.id, ""  # of the task, once its message is read
        self.labels: dict[str, Any] | None = None  # once this worker is known to have the task
        self.outcome: Outcome | None = None  # once the task has ended
        self.refused: Callable[[Exception], bytes] | None = None  # returns what is sent in place of its result
        self.requeued = self.settled = False
        self.why: Literal["", "lost", "stopped"] = ""
        self.over = asyncio.Event()

    def lost(self, error: e.PQError) -> None:
        """Cancel the task, as its lease is lost."""
        _LOG.warning("lost the lease of task %s: %s", self.id, error)
        self.end("lost")

    def end(self, why: Literal["lost", "stopped"]) -> None:
        """Cancel the task. Nothing that it returns is sent."""
        self.why = self.why or why
        if self.task:
            self.task.cancel()

    def begin(self, formatter: TaskiqFormatter) -> TaskiqMessage:
        """Read the message, in the asyncio task in which taskiq does all the rest."""
        self.task = asyncio.current_task()
        if self.task:
            self.task.add_done_callback(self._ended)  # taskiq 0.12 does not acknowledge what cannot be read
        if self.why or self.settled or self.broker.refused:
            raise e.LeaseLostError(self.broker.refused or "the lease ended before the task began: it runs elsewhere")
        _RUN.set(self)
        try:
            message = formatter.loads(message=self.delivery.value)
        except Exception as error:
            self.outcome = Outcome("failed", text=f"cannot read the message: {text_of(error)}")
            raise
        self.id, self.name = message.task_id, message.task_name
        return message

    async def ack(self) -> None:
        """End the lease by one request, as the task has ended. This is what taskiq calls at the end."""
        known = self.labels is not None
        if known and not self.outcome and not self.settled and self.broker.keeps_results:
            raise e.BadArgumentError(self.broker.refuse(_WHEN_SAVED + "what --ack-type says"))
        await self.settle(self.outcome or (Outcome("done") if known else self._unsettled()))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Settle the job if taskiq has ended without an acknowledgement."""
        if self.settled:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error:
            _LOG.error("task %s ended outside of its function", self.id, exc_info=error)
        elif self.labels is not None and self.broker.keeps_results:
            self.broker.refuse(_WHEN_SAVED + "what --ack-type says")
        self.broker.queue.link.spawn(self.settle(self._unsettled(error)))

    def _unsettled(self, error: BaseException | None = None) -> Outcome:
        """Return what becomes of a job that taskiq could not run, or whose task it did not acknowledge."""
        if self.broker.refused:
            return Outcome("stopped")  # without counting the delivery: the job is not at fault
        if self.outcome and self.outcome.kind != "done":
            return self.outcome
        frames = traceback.walk_tb(error.__traceback__ if error else None)
        if self.labels is not None and all(frame.f_code.co_name != "pre_execute" for frame, _ in frames):
            # Its function may have run, as before the teardown of a dependency: it must not run each time.
            return self.decide(error or RuntimeError("taskiq ended the task without an acknowledgement"))
        text = text_of(error) if error else f"this worker has no task {self.name!r}, or cannot read its labels"
        return Outcome("failed", text=text)

    def decide(self, error: BaseException | None) -> Outcome:
        """Return what becomes of a job whose task has returned, or raised an error."""
        broker, labels, cancelled = self.broker, self.labels or {}, isinstance(error, asyncio.CancelledError)
        text = "the task was cancelled" if cancelled else text_of(error) if error else ""
        try:
            delay = _seconds(labels["delay"]) if "delay" in labels else None
            if self.requeued:
                return Outcome("snoozed", delay=delay)
            if error is None or isinstance(error, NoResultError):
                return Outcome("done")
            if isinstance(error, (Snooze, RetryAfter)):
                kind: Literal["snoozed", "failed"] = "snoozed" if isinstance(error, Snooze) else "failed"
                return Outcome(kind, text=text, delay=seconds(error.delay))
            retry = str(labels.get("retry_on_error", broker.retry_on_error)).lower() == "true"
            most = int(labels.get("max_retries", broker.max_retries))
            if retry and self.delivery.deliveries < most and not isinstance(error, (Drop, TaskRejectedError)):
                return Outcome("failed", text=text, delay=delay)
        except (TypeError, ValueError) as wrong:
            text = f"{'bad delay' if isinstance(error, (Snooze, RetryAfter)) else 'a label cannot be read'}: {wrong}"
        return Outcome("dropped", text=text)

    async def settle(self, outcome: Outcome) -> None:
        """End the lease, once, unless something else has ended it."""
        if self.settled:
            return
        self.settled = True
        try:
            lost = await self.renewal.stop() if self.renewal else False
            if not lost and self.why != "lost":
                await self._send(Outcome("stopped") if self.why else outcome)
        finally:
            self.broker.held.discard(self)
            self.over.set()

    async def _send(self, outcome: Outcome) -> None:
        """Send what ends the lease until there is an answer."""
        broker, began, pause = self.broker, clock(), Pause()

        async def go_on(error: e.PQError) -> bool:
            is_denied = isinstance(error, e.DeniedError)
            if is_denied:
                broker.refuse(str(error))  # other tasks would run again and again
            is_over = broker.nc.is_closed or clock() - max(began, broker.stopped_at) > _SETTLE_TIME
            if is_denied or is_over or isinstance(error, e.InternalError):
                _LOG.error("cannot settle task %s, which comes back: %s", self.id, error)
                return False
            _LOG.log(broker.seldom.level("settle"), "cannot settle task %s, trying again: %s", self.id, error)
            await pause.wait()
            return True

        async def once() -> None:
            if outcome.kind == "done":
                await self.delivery.ack(outcome.result, content_type=outcome.content_type)
            else:
                await settle_failed(self.delivery, outcome, broker.retry_delay)

        if outcome.kind in ("failed", "dropped"):
            what = "is a dead letter after" if outcome.kind == "dropped" else "failed at"
            _LOG.warning("task %s %s delivery %d: %s", self.id, what, self.delivery.deliveries, outcome.text)
        try:
            await repeat(once, go_on)
        except e.PQError as error:
            is_refused = isinstance(error, (e.BadRequestError, e.TooLargeError))
            if is_refused and outcome.kind == "done" and self.refused:
                # The task has run. Another run would have no smaller result.
                _LOG.error("the result of task %s was refused: %s", self.id, error)
                small, self.refused = self.refused(error), None
                await self._send(replace(outcome, result=small))
            elif is_refused and outcome.kind in ("failed", "snoozed"):  # the delay
                await self._send(Outcome("dropped", text=f"{outcome.text}: {error}".removeprefix(": ")))
            else:
                _LOG.warning("task %s was settled too late, or comes back: %s", self.id, error)


class PQBroker(AsyncBroker):
    """Sends tasks to a priority queue, and leases them from there for `taskiq worker`.

    servers as in pqbridge.connect, by default NATS_URL; options are passed there too.
    queue is the name of the queue, prefix the beginning of the bridges' subjects.
    ack_wait is the length of a lease, which is renewed while its task runs: others get the tasks of
        a worker that dies after that time. By default what the settings of the queue say, or 30 s.
    retry_on_error and max_retries are for tasks without these labels: a task that fails comes back
        until it has been delivered max_retries times. Otherwise it is a dead letter.
    retry_delay is the pause before it comes back, by default a second, unless it has the label delay
        or the queue a backoff. It doubles with each further delivery, up to a minute or itself.
    timeout bounds the start, and each request.
    """

    def __init__(
        self,
        servers: str | list[str] | None = None,
        queue: str | None = None,
        *,
        prefix: str | None = None,
        ack_wait: Duration | None = None,
        retry_on_error: bool | None = None,
        max_retries: int | None = None,
        retry_delay: Duration | None = None,
        timeout: Duration | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.retry_on_error, self.max_retries = bool(retry_on_error), 3 if max_retries is None else max_retries
        e.check_whole("max_retries", self.max_retries, 0, 2**31)
        self._servers, self._name, self._prefix, self._options = servers, queue or "taskiq", prefix or "pq", options
        self._ack_wait = lease_length(ack_wait) or None
        self._timeout = 10.0 if timeout is None else seconds(timeout, "timeout")
        self.retry_delay = retry_length(retry_delay)
        self.held: set[_Run] = set()
        self.nc, self.seldom, self._starting = NATS(), Seldom(), asyncio.Lock()
        self.stopped_at, self.refused = math.inf, ""  # when, or why, this worker began no more
        self._queue: Queue | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # on which it was started
        self._settings: dict[str, Any] | None = None  # of the queue, once this process has asked
        self.add_middlewares(_Middleware())

    @property
    def queue(self) -> Queue:
        """The queue of the tasks, as pqbridge.Client has it."""
        if self._queue is None:
            raise RuntimeError("the broker has not started: call `await broker.startup()` first")
        return self._queue

    @property
    def keeps_results(self) -> bool:
        return isinstance(self.result_backend, PQResultBackend)

    def refuse(self, why: str) -> str:
        """Have this worker begin nothing more."""
        _LOG.error("this worker gives its tasks back, and does nothing more: %s", why)
        self.refused = why
        return why

    async def startup(self) -> None:
        """Connect, check the settings of the queue if this is a worker, and start the rest of taskiq.

        Once it has started, it does nothing until shutdown.

        Errors: NotSentError without a connection within timeout, or a login; BadArgumentError, which says
        what to change.
        """
        async with self._starting:
            loop = asyncio.get_running_loop()
            if self._queue and self._loop is loop and not self.nc.is_closed:
                return
            if not isinstance(self.formatter, _Formatter):
                self.formatter = _Formatter(self.formatter)
            for middleware in self.middlewares:
                if any(kind.__name__ in _RETRIES for kind in type(middleware).__mro__):
                    raise e.BadArgumentError(
                        f"{type(middleware).__name__} sends a second copy of a task that fails. Remove it, and set"
                        " retry_on_error and max_retries: as labels, or of PQBroker for all tasks"
                    )
            # Without a bound, a worker that waits here would ignore SIGTERM.
            self.nc = await connect_within(self._timeout, self._servers, self._options)
            self._loop, self._settings, self.refused, self.stopped_at = loop, None, "", math.inf
            self.held.clear()
            try:
                self._queue = Client(self.nc, prefix=self._prefix, timeout=self._timeout).priority_queue(self._name)
                if self.is_worker_process and self.keeps_results:
                    await self._check_results()
                await super().startup()
            except BaseException:
                await self.nc.close()
                self._queue = None
                raise

    async def _check_results(self, delay: float = 0, keep: float = 0) -> None:
        """Refuse results that would not be found for as long as they are kept, as far as the settings can be read."""
        for asks in (self._settings is None, True):  # they may have changed
            try:
                settings = await self._ask() if asks else self._settings or {}
            except e.PQError as error:
                _LOG.info("cannot read the settings of queue %s: %s", self._name, error)
                return
            kept, window = settings.get("keep"), settings.get("duplicate_window", "2m")
            length = keep or seconds(kept or 0)
            if length and delay + length <= seconds(window):
                return
        self._settings = self._settings if delay or keep else None  # so that a worker asks again
        hours = math.ceil((delay + 2 * (length or 3600)) / 3600)
        labels = f" with the labels delay={delay:g} and keep={keep:g}, in seconds" if delay or keep else ""
        raise e.BadArgumentError(
            f"a result{labels} in queue {self._name!r}, which has keep={kept} and duplicate_window={window}:"
            " results are found for duplicate_window after the task was sent, and kept for keep after it ended."
            f" Want: pq config {self._name}{'' if kept else ' keep=1h'} duplicate_window={hours}h"
        )

    async def _ask(self) -> dict[str, Any]:
        settings: dict[str, Any] = (await self.queue.info()).get("settings", {})
        self._settings = settings
        return settings

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
            await self._let_go(self._queue)
            for run in list(self.held):
                await run.over.wait()
            await super().shutdown()
        except asyncio.CancelledError:
            for run in [r for r in self.held if not r.settled]:  # the outcomes of others are on their way
                run.end("stopped")
            if tasks := {r.task for r in self.held if r.task}:
                await asyncio.wait(tasks, timeout=_GIVE_BACK_TIME)
            raise
        finally:
            await link.wait(_GIVE_BACK_TIME)  # also for a lease that was cancelled
            await link.ping(0.5)
            await self.nc.close()
            self._queue = None

    async def _let_go(self, queue: Queue) -> None:
        """Give back what has not begun. Taskiq would still begin it, even after SIGTERM."""
        for _ in range(10):
            await asyncio.sleep(0)  # it begins what it has room for: a worker for one task must do that one
        for run in [r for r in self.held if r.task is None]:
            queue.link.spawn(run.settle(Outcome("stopped")))

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. It is durable once this returns, and its id makes it happen once."""
        run = _RUN.get()
        if run and run.broker is self and run.id == message.task_id:
            if _REQUEUED not in message.labels:  # a retry, which would be a duplicate of this run
                raise e.BadArgumentError("a task sends itself again under its id: want requeue(), or retry_on_error")
            run.requeued = True  # the same job comes back, instead of a copy
            return
        options = _options(message)
        if self.keeps_results and ("delay" in options or "keep" in options):
            await self._check_results(seconds(options.get("delay") or 0), seconds(options.get("keep") or 0))
        broker, tasks = _JOIN.get() or (None, [])
        if broker is self:
            tasks.append({"value": message.message, **options})
        else:
            await self.queue.push(message.message, **options)

    @contextlib.asynccontextmanager
    async def join(self, wait: Duration = "24h") -> AsyncIterator[None]:
        """Send the tasks of the block together at its end: the last one runs once all others have ended.

            async with broker.join():
                pages = [await draw.kiq(n) for n in range(3)]
                await bind.kiq([page.task_id for page in pages])

        It runs at the latest after wait, and its message has up to 64 KiB. The others, up to 4,095, have
        ended when they are done, dead letters or removed, and their results are there if they are
        kept. Nothing is sent if the block raises.

        Errors, at the end of the block: as pqbridge.Queue.all. No task was sent, unless its outcome is
        unknown.
        """
        tasks: list[Any] = []
        token = _JOIN.set((self, tasks))
        try:
            yield
        finally:
            _JOIN.reset(token)
        if tasks:
            await self.queue.all(tasks[-1] | {"join": wait}, tasks[:-1])

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield one leased task after the other. Whatever goes wrong is logged, and tried again.

        Errors: PQError once the connection is closed for good, so that the worker process is started anew.
        """
        queue, pause, self.stopped_at = self.queue, Pause(), math.inf
        try:
            while self.stopped_at == math.inf:
                if self.refused:
                    await asyncio.Event().wait()
                try:
                    if self._settings is None and self.keeps_results:
                        await self._ask()
                        await self._check_results()
                    if delivery := await queue.lease(ack_wait=self._ack_wait, expires=_IDLE_WAIT):
                        run = _Run(self, delivery)
                        self.held.add(run)  # from now on, it is given back if this ends
                        await delivery.confirm()
                        run.renewal = Renewal(delivery, run.lost, _LOG, self.seldom)
                        data = _Leased(delivery.value)
                        data.run = run
                        yield AckableMessage.model_construct(data=data, ack=run.ack)
                    pause.reset()
                except e.PQError as error:
                    if self.nc.is_closed and self.stopped_at == math.inf:
                        raise
                    _LOG.log(self.seldom.level("lease"), "cannot lease a task, trying again: %s", error)
                    self.held = {run for run in self.held if run.renewal}  # without one whose lease is over
                    await pause.wait()
        finally:
            self.stopped_at = min(self.stopped_at, clock())
            queue.link.spawn(self._let_go(queue))


class PQResultBackend(AsyncResultBackend[_T]):
    """Keeps results with the jobs of a PQBroker: the acknowledgement of a task has its result.

    serializer writes results, by default as JSON: PickleSerializer of taskiq takes any objects.
    """

    def __init__(self, broker: PQBroker, serializer: TaskiqSerializer | None = None) -> None:
        self._broker, self._serializer = broker, serializer

    def _encode(self, result: TaskiqResult[Any]) -> bytes:
        return self._serializer.dumpb(result.model_dump()) if self._serializer else result.model_dump_json().encode()

    async def set_result(self, task_id: str, result: TaskiqResult[_T]) -> None:
        """Have the acknowledgement of this task send its result."""
        run = _RUN.get()
        if run is None or run.id != task_id or run.outcome is None:
            raise e.BadArgumentError(f"the result of task {task_id}: only the worker that runs a task can save it")
        run.outcome.content_type = "" if self._serializer else "application/json"
        run.refused = lambda error: self._encode(_result(error, result.execution_time))
        try:
            run.outcome.result = self._encode(result)
        except Exception as error:  # whatever the serializer raises
            _LOG.error("the result of task %s cannot be written: %s", task_id, text_of(error))
            run.outcome.result = run.refused(e.BadArgumentError(f"the result cannot be written: {text_of(error)}"))

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
            raise e.NotDoneError(f"task {task_id} is {job.state}, not done")
        try:
            job.raise_for_death()
        except e.JobFailedError as error:
            return _result(error)
        if not job.has_result:
            return _result(None)
        if self._serializer:
            return TaskiqResult[_T].model_validate(self._serializer.loadb(job.value))
        return TaskiqResult[_T].model_validate_json(job.value)

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Say how far the task is, with the next extension of its lease."""
        text, run = progress.model_dump_json().encode(), _RUN.get()
        if len(text) > MAX_PROGRESS:
            raise e.BadArgumentError(f"progress of {len(text)} bytes: want at most {MAX_PROGRESS}")
        if run and run.id == task_id and run.renewal and not run.settled:
            run.renewal.say(text)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """Return what a task that runs has said."""
        text = (await self._broker.queue.result(msg_id=task_id)).progress
        return TaskProgress[Any].model_validate_json(text) if text else None


def _result(error: Exception | None, execution_time: float = 0) -> TaskiqResult[Any]:
    """Return a result without a value."""
    return TaskiqResult(is_err=error is not None, return_value=None, execution_time=execution_time, error=error)


def _seconds(label: Any) -> float:
    """Return a label in seconds, which may be a text such as "10s"."""
    return seconds(str(label) if str(label)[-1:].isalpha() else float(label))


_READ: dict[str, Callable[[Any], Any]] = {"priority": int, "max_retries": int, "delay": _seconds, "keep": _seconds}
"""How labels are read that are no texts."""


def _options(message: BrokerMessage) -> PushOptions:
    """Return the options of a push, as the labels of a task say."""
    options: dict[str, Any] = {"msg_id": message.task_id, "type": message.task_name}
    for name in ("priority", "delay", "keep", "group", "unique", "max_retries"):
        if name in message.labels:
            try:
                options[name] = _READ.get(name, str)(message.labels[name])
            except ValueError as error:
                text = f"label {name}={message.labels[name]!r} of task {message.task_name}: {error}"
                raise e.BadArgumentError(text) from error
    return cast(PushOptions, {name: option for name, option in options.items() if name != "max_retries"})

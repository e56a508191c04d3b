"""Workers: they do the jobs of a queue, and lose none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Literal, TypeVar, get_args

from . import errors
from .delivery import Delivery, Done, Renewal, Seldom, ack_and_lease, ack_message, ack_together, fitting, repeat
from .job import Call, Handler, Job, Middleware, NoHandlerError, Outcome, call_of, outcome_of
from .pop import Pop, Received
from .queue import Queue, check_holder, lease_length, lease_options
from .threads import Threads
from .times import TEN_YEARS, Duration, Pause, clock, seconds

_IDLE_WAIT = 300.0  # seconds that one request waits for a job
_GRACE = 25.0  # seconds for which jobs under way may end after stop
_THREAD_TIME = 2.0  # seconds that a def may go on after it was asked to end
_SETTLE_TIME = 5.0  # seconds after the grace, for which a worker that stops tries to settle its jobs
_UNSETTLED = "cannot settle job %s, which comes back: %s"
_MOST_UNDER_WAY = 2
"""Acknowledgements under way at a time: while the store syncs one, the next is on its way."""

H = TypeVar("H", bound=Handler)
F = TypeVar("F", bound=Callable[..., Any])
Event = Literal["completed", "failed", "lost", "error"]
_EVENTS: dict[str, Event] = {"done": "completed", "lost": "lost"}


@dataclass(eq=False)
class _Held:
    """A job that is leased, and whose lease is renewed. It takes a slot until it is settled."""

    delivery: Delivery
    job: Job
    renewal: Renewal = field(init=False)
    task: asyncio.Task[Any] | None = None  # of the handler
    timer: asyncio.TimerHandle | None = None  # of job_timeout
    outcome: Outcome = field(init=False)

    @property
    def done(self) -> Done:
        """What its acknowledgement sends."""
        o = self.outcome
        return Done(self.delivery, o.result, o.content_type, o.next)

    def end(self, why: Literal["lost", "timeout", "stopped"]) -> None:
        """Ask the handler to stop."""
        if not self.job.why and not (self.task and self.task.done()):
            self.job.why = why
            self.job.lost.set()
            if self.task:
                self.task.cancel()


def retry_length(retry_delay: Duration | None) -> float:
    """Return the retry_delay of a worker in seconds."""
    length = 1.0 if retry_delay is None else seconds(retry_delay, "retry_delay")
    if length > TEN_YEARS:
        raise errors.BadArgumentError(f"retry_delay {retry_delay!r}: want 0 to ten years")
    return length


async def settle_failed(delivery: Delivery, outcome: Outcome, retry_delay: float) -> None:
    """Send, once, what ends the lease of a job that is not done."""
    if outcome.kind in ("snoozed", "stopped"):
        await delivery.snooze(outcome.delay or 0)
    elif outcome.kind == "dropped":
        await delivery.term(outcome.text)
    elif outcome.delay is None:
        await delivery.nak(retry_delay=retry_delay, reason=outcome.text)
    else:
        await delivery.nak(delay=outcome.delay, reason=outcome.text)


async def _unhandled(job: Job) -> None:
    raise NoHandlerError(f"nobody handles jobs of type {job.type!r}")


_LISTENING: dict[Worker, asyncio.AbstractEventLoop] = {}
_BEFORE: dict[int, Any] = {}


@contextlib.contextmanager
def _signals(worker: Worker) -> Iterator[None]:
    """Have SIGTERM and SIGINT stop a worker, and all others that listen.

    Not by loop.add_signal_handler: Windows has none, and what was there before could not be restored.
    """
    if not _LISTENING:
        _BEFORE.update({number: signal.signal(number, _signalled) for number in (signal.SIGTERM, signal.SIGINT)})
    _LISTENING[worker] = asyncio.get_running_loop()
    try:
        yield
    finally:
        del _LISTENING[worker]
        if not _LISTENING:
            for number, handler in _BEFORE.items():
                signal.signal(number, handler or signal.SIG_DFL)


def _signalled(number: int, frame: FrameType | None) -> None:
    for worker, loop in list(_LISTENING.items()):
        loop.call_soon_threadsafe(worker._begin_stop, 0 if worker._is_stopping else _GRACE)


class Worker:
    """Does the jobs of a queue, as many at a time as it has slots, until stop.

    A job that its handler returns from is done, and what it returns is kept as the result if the
    job is. One whose handler raises comes back after the backoff of the queue, or else retry_delay,
    and is a dead letter after max_deliver deliveries, with the text of the error; Snooze, Drop and RetryAfter do
    otherwise. A lease is renewed when a third of it has passed. If it is lost, the handler is asked
    to stop (see Job), its slot stays taken until it does, and nothing that it returns is sent. Each
    job is done at least once: remember the ids of jobs that must not be done twice.

    handler does all jobs; the decorator handle has one for each type, and the decorator on adds hooks.
    concurrency is the number of slots. While one is free, one request waits for a job. Jobs that end
        while two acknowledgements are under way share the next one.
    ack_wait is the length of a lease, 100 ms to 12 h, by default what the settings of the queue say
        or else 30 s: others get the jobs of a worker that dies after that time.
    holder is the name that others see, by default this process.
    job_timeout is how long a job may take, by default any time. Then the handler is asked to stop,
        the job fails unless the handler returns, and the lease is not renewed any more.
    retry_delay is after how long a job that failed comes back if its queue has no backoff: after the
        first delivery, and twice as long after each further one, up to a minute or retry_delay
        itself. By default a second; 0 is at once.
    max takes the largest priority first.
    middleware wraps handlers, the first outermost.
    logger is by default "pqbridge.worker". It gets a warning for each job that fails or is lost, and
        an error for each that cannot be settled; what is tried again warns once a minute.

    As an async context manager, a worker runs while the block does. At its end it stops, and raises
    what run would raise.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler | None = None,
        *,
        concurrency: int = 1,
        ack_wait: Duration | None = None,
        holder: str | None = None,
        job_timeout: Duration | None = None,
        retry_delay: Duration | None = None,
        max: bool = False,
        middleware: Sequence[Middleware] = (),
        logger: logging.Logger | None = None,
    ) -> None:
        concurrency, middleware = 1 if concurrency is None else concurrency, middleware or ()
        if not isinstance(queue, Queue):
            raise TypeError(f"{queue!r:.100}: want a queue, as Client.priority_queue returns it")
        errors.check_whole("concurrency", concurrency, 1, 2**31 - 1)
        if not isinstance(middleware, (list, tuple)) or not all(map(callable, middleware)):
            raise errors.BadArgumentError(f"middleware {middleware!r:.100}: want a list of async functions")
        self._queue, self._concurrency, self._max, self._middleware = (
            queue,
            concurrency,
            errors.check_flag("max", max),
            middleware,
        )
        self._ack_wait = lease_length(ack_wait)
        self._holder = queue.holder if holder is None else check_holder(holder)
        self._job_timeout = None if job_timeout is None else seconds(job_timeout, "job_timeout")
        if self._job_timeout == 0:
            raise errors.BadArgumentError(f"job_timeout {job_timeout!r}: want more than 0, or None for any time")
        self._retry_delay = retry_length(retry_delay)
        self._log = logger or logging.getLogger("pqbridge.worker")
        self._seldom = Seldom()
        self._threads = Threads(concurrency)
        self._calls: dict[str, Call] = {}
        self._hooks: dict[Event, list[Callable[..., Any]]] = {e: [] for e in get_args(Event)}
        if handler is not None:
            self.handle("*")(handler)

        self._length = self._ack_wait  # of the latest lease, 0 while it is unknown
        self._held: set[_Held] = set()  # one for each slot that is taken
        self._done: deque[_Held] = deque()  # and not acknowledged yet
        self._sending: set[asyncio.Task[None]] = set()  # acknowledgements
        self._tasks: set[asyncio.Task[Any]] = set()  # all but those of handlers
        self._pop: Pop | None = None  # waits for a job
        self._slot = asyncio.Event()  # set when one becomes free
        self._leasing: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._settle_until = math.inf
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None

    def handle(self, type: str) -> Callable[[H], H]:
        """Decorate the handler of a type of jobs, "*" for all others, "" for those without one."""
        if not isinstance(type, str):
            raise errors.BadArgumentError(f'{type!r}: want the type of jobs, as in @worker.handle("email")')

        def add(handler: H) -> H:
            if type in self._calls:
                raise errors.BadArgumentError(f"jobs of type {type!r} have a handler already")
            self._calls[type] = call_of(handler, self._middleware, self._threads)
            return handler

        return add

    def on(self, event: Event) -> Callable[[F], F]:
        """Decorate a hook, which may be async. An event may have several; what they raise is logged.

        "completed", "failed" and "lost" call it with the job and its Outcome once that is settled:
        failed for each job that comes back or is dropped. "error" calls it with each PQError that
        the worker outlasts. A hook must not await stop, and a job takes its slot until its hooks end.
        """
        if event not in self._hooks:
            raise errors.BadArgumentError(f"a hook on {event!r}: want one of {', '.join(self._hooks)}")

        def add(hook: F) -> F:
            if not callable(hook):
                raise errors.BadArgumentError(f"a hook {hook!r:.100}: want a function")
            self._hooks[event].append(hook)
            return hook

        return add

    async def run(self, *, signals: bool = False) -> None:
        """Do jobs until stop. A worker runs once.

        With signals, SIGTERM and SIGINT stop it and all other workers that run like this. A second
        one asks the handlers to stop. This works in the main thread only. If the task is cancelled,
        the worker asks its handlers to stop, and gives their jobs back.

        Errors: BadRequestError, DeniedError or NotSentError if trying again cannot help: NATS
        denies a permission, or the connection is closed for good. All others are logged.
        """
        self._check()
        with _signals(self) if signals else contextlib.nullcontext():
            try:
                self._leasing = self._spawn(self._lease())
                await self._ended.wait()
            except asyncio.CancelledError:
                self._begin_stop(0)
                await self._ended.wait()
                raise
            finally:
                self._threads.close()
                self._ended.set()
        if self._failure:
            raise self._failure

    def _check(self) -> None:
        if self._leasing:
            raise RuntimeError("this worker has run before")
        if not self._calls:
            raise errors.BadArgumentError("no handler: want one as an argument, or decorated with handle")

    async def __aenter__(self) -> Worker:
        self._check()  # and await nothing: if this is cancelled, nobody ends the worker
        self._run = asyncio.get_running_loop().create_task(self.run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._begin_stop(0 if kind and issubclass(kind, asyncio.CancelledError) else _GRACE)
        await self._run

    async def stop(self, timeout: Duration = _GRACE) -> None:
        """Lease no more jobs, and return once run has ended.

        Jobs under way may end for as long as timeout. Then their handlers are asked to stop, and
        unfinished jobs are given back, without counting the delivery. A def that goes on for two
        more seconds is left alone: its job is given back too, and what it returns is not sent. All
        attempts to settle, and all hooks, end five seconds after the timeout; an async def that goes
        on is waited for, and has one attempt. Handlers and hooks must not await it.
        """
        task = asyncio.current_task()
        if task in self._tasks or any(held.task is task for held in self._held):
            raise RuntimeError("stop in a handler or a hook, which it would wait for: call it elsewhere")
        if self._leasing and self._leasing.get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("stop in another event loop than run: want asyncio.run_coroutine_threadsafe")
        self._begin_stop(seconds(timeout, "timeout"))
        if self._leasing:  # it has run
            await self._ended.wait()

    def _begin_stop(self, grace: float) -> None:
        self._is_stopping = True
        self._settle_until = min(self._settle_until, clock() + grace + _SETTLE_TIME)
        loop = asyncio.get_running_loop()
        loop.call_later(grace, self._end_handlers)
        loop.call_later(grace + _SETTLE_TIME, self._give_up)
        is_sent = self._pop and self._pop.interrupt()  # then a job on its way still comes
        if self._leasing and not is_sent:
            self._leasing.cancel()

    def _end_handlers(self) -> None:
        for held in list(self._held):
            held.end("stopped")
        asyncio.get_running_loop().call_later(_THREAD_TIME, self._abandon)

    def _abandon(self) -> None:
        for held in self._held:
            if held.task and not held.task.done():
                self._log.warning("the handler of job %s goes on although the worker has stopped", held.job.id)
        self._threads.abandon()

    def _give_up(self) -> None:
        self._leave(self._done)
        self._done.clear()
        for task in list(self._tasks):
            task.cancel()

    def _leave(self, unsettled: Iterable[_Held]) -> None:
        for held in unsettled:
            self._log.error(_UNSETTLED, held.job.id, "the time that stop allows has passed")
            held.renewal.end()
            self._free(held)

    def _fail(self, error: BaseException) -> None:
        """End the worker: trying again cannot help."""
        self._log.error("the worker ends: %s", error)
        self._failure = self._failure or error
        self._begin_stop(_GRACE)

    def _spawn(self, work: Coroutine[Any, Any, None], settles: Sequence[_Held] = ()) -> asyncio.Task[None]:
        """Run something in the background, which settles these jobs unless it is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._forget, settles))
        return task

    def _forget(self, unsettled: Sequence[_Held], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        crash = None if task.cancelled() else task.exception()
        self._failure = self._failure or crash
        if task.cancelled():
            self._leave(unsettled)
        if crash or (self._is_stopping and not self._tasks and not self._held):
            self._ended.set()
        elif task in self._sending:
            self._sending.remove(task)
            self._share()

    # Leasing

    async def _lease(self) -> None:
        """Lease a job whenever a slot is free, until the worker stops."""
        pause = Pause()
        while not self._is_stopping:
            self._slot.clear()
            if len(self._held) >= self._concurrency:
                await self._slot.wait()
                continue
            options = lease_options(self._ack_wait, self._holder)
            self._pop = self._queue.pop_request(self._max, _IDLE_WAIT, options, self._length or 30.0)
            try:
                leased = await self._hold(await self._pop.run(), self._ack_wait)
                for held in leased:
                    self._start(held)
                if leased:
                    pause.reset()
                else:
                    await pause.wait()
            except errors.NotFoundError:
                pause.reset()
            except errors.PQError as error:
                if self._is_hopeless(error):
                    self._fail(error)
                    break
                await self._report("cannot lease a job, trying again", error)
                await pause.wait()
            finally:
                self._pop = None

    async def _hold(self, received: Sequence[Received], ack_wait: float) -> list[_Held]:
        """Take slots for jobs, and renew their leases from now on, but for jobs that cannot begin."""
        deliveries = []
        for r in received:
            try:
                delivery = Delivery(self._queue, r, ack_wait)
                await delivery.confirm()
                deliveries.append(delivery)
            except errors.PQError as error:
                await self._report("a job cannot be read, or its lease was over before it could begin", error)
        return [self._renewed(d) for d in deliveries]

    def _renewed(self, delivery: Delivery) -> _Held:
        self._length = delivery.ack_wait = delivery.ack_wait or 30.0
        job = Job(delivery.value, delivery.all, self._queue.name, self._queue.codec)
        held = _Held(delivery, job)

        def lost(error: errors.PQError) -> None:
            self._log.warning("lost the lease of job %s, which is being done: %s", job.id, error)
            held.end("lost")

        held.renewal = Renewal(delivery, lost, self._log, self._seldom)
        say, loop = held.renewal.say, asyncio.get_running_loop()
        job.say = lambda progress: loop.call_soon_threadsafe(say, progress)
        self._held.add(held)
        return held

    # Doing

    def _start(self, held: _Held) -> None:
        """Begin a job, or give it back if the worker has stopped meanwhile."""
        if self._is_stopping:
            self._spawn(self._send_back(held, Outcome("stopped")), [held])
            return
        loop = asyncio.get_running_loop()
        call = self._calls.get(held.job.type) or self._calls.get("*") or _unhandled
        held.task = loop.create_task(call(held.job))
        if held.job.why:  # it was lost before
            held.task.cancel()
        if self._job_timeout is not None:
            held.timer = loop.call_later(self._job_timeout, self._time_out, held)
        held.task.add_done_callback(partial(self._on_done, held))

    def _time_out(self, held: _Held) -> None:
        self._log.warning("job %s takes longer than %s s", held.job.id, self._job_timeout)
        held.end("timeout")
        held.renewal.end()  # a handler that hangs must not keep it

    def _on_done(self, held: _Held, task: asyncio.Task[Any]) -> None:
        if held.timer:
            held.timer.cancel()
        if task.cancelled() and self._is_stopping and not held.job.why:
            held.job.why = "stopped"  # asyncio.run cancels all tasks at its end
        held.outcome = outcome_of(task, held.job, self._queue.codec)
        if held.outcome.kind != "done":
            self._spawn(self._send_back(held, held.outcome), [held])
            return
        self._done.append(held)
        if len(self._done) == 1:
            asyncio.get_running_loop().call_soon(self._share)  # with others that end just now

    # Settling

    def _share(self) -> None:
        """Acknowledge the jobs that are done, unless enough acknowledgements are under way."""
        while self._done and len(self._sending) < _MOST_UNDER_WAY:
            n = fitting((held.done for held in self._done), self._queue.link.nc.max_payload)
            batch = [self._done.popleft() for _ in range(n)]
            self._sending.add(self._spawn(self._acknowledge(batch), batch))

    async def _acknowledge(self, batch: list[_Held]) -> None:
        """Acknowledge jobs in one request, which leases as many unless the worker stops."""
        for held in batch.copy():
            if held.renewal.end():  # as late as possible, because jobs may have waited
                batch.remove(held)
                held.outcome.kind = "lost"
                self._finish(held)
        if not batch:
            return

        dones, received, leases = [held.done for held in batch], list[Received](), not self._is_stopping
        failures: Sequence[errors.PQError | None] = [None] * len(batch)
        try:
            if leases:
                received = await ack_and_lease(dones, self._holder)
            else:
                failures = await ack_together(dones)
        except errors.NotFoundError:
            pass
        except errors.PQError as error:
            if not isinstance(error, errors.TooLargeError) or not error.reason:  # otherwise it is about the next job
                failures = [error] * len(batch)
                if not isinstance(error, errors.LeaseLostError):
                    await self._report("cannot acknowledge a job, trying again", error)

        following = deque(await self._hold(received, batch[0].delivery.ack_wait))
        for held, failure in zip(batch, failures, strict=True):
            if isinstance(failure, errors.InternalError) and not leases:  # of a request for this job alone
                self._log.error(_UNSETTLED, held.job.id, failure)
                held.outcome.kind = "lost"
                self._finish(held)
            elif failure:
                self._spawn(self._ack_alone(held, failure.unknown or failure.code in (500, 503)), [held])
            else:
                self._finish(held, following.popleft() if following else None)

    async def _ack_alone(self, held: _Held, unknown: bool) -> None:
        outcome, message = held.outcome, ack_message("+ACK", [held.done])
        try:
            if not await self._settle(held, lambda: held.delivery.settle(*message), unknown):
                outcome.kind = "lost"
            self._finish(held)
        except (errors.BadRequestError, errors.TooLargeError) as error:
            # Otherwise it would be done again and again, and nobody would know why.
            outcome.kind, outcome.error = "failed", error
            outcome.text = f"the result, or what follows, was refused: {error}"
            await self._send_back(held, outcome)

    async def _send_back(self, held: _Held, outcome: Outcome) -> None:
        """Settle a job that is not done."""
        held.outcome, delivery, text = outcome, held.delivery, outcome.text
        if held.renewal.end():
            outcome.kind = "lost"
        if outcome.kind in ("failed", "dropped"):
            what = f"job %s {outcome.kind} at delivery %d: %s"
            self._log.warning(what, held.job.id, held.job.deliveries, text, exc_info=outcome.error)
        try:
            if outcome.kind != "lost":
                await self._settle(held, lambda: settle_failed(delivery, outcome, self._retry_delay))
        except errors.BadRequestError as error:  # the delay
            text = f"{text}: {error}"
            await self._settle(held, lambda: delivery.nak(retry_delay=self._retry_delay, reason=text))
        self._finish(held)

    async def _settle(self, held: _Held, send: Callable[[], Awaitable[Any]], unknown: bool = False) -> bool:
        """Send what ends a lease until there is an answer, and report whether it counts."""
        pause = Pause()

        async def go_on(error: errors.PQError) -> bool:
            is_answer = isinstance(error, errors.InternalError)
            if is_answer or clock() >= self._settle_until or self._is_hopeless(error):
                if isinstance(error, errors.DeniedError):
                    self._fail(error)
                self._log.error(_UNSETTLED, held.job.id, error)
                return False
            await self._report("cannot settle a job, trying again", error)
            await pause.wait()
            return True

        try:
            return await repeat(send, go_on, unknown)
        except errors.LeaseLostError as error:
            self._log.warning("job %s was settled too late: %s", held.job.id, error)
            return False

    def _finish(self, held: _Held, following: _Held | None = None) -> None:
        """Call the hooks, and then free the slot of a job, or give it to the following one."""
        event = _EVENTS.get(held.outcome.kind, "failed")
        if self._hooks[event]:
            self._spawn(self._tell(event, held, following), [held, following] if following else [held])
        else:
            self._free(held, following)

    async def _tell(self, event: Event, held: _Held, following: _Held | None) -> None:
        await self._call_hooks(event, held.job, held.outcome)
        self._free(held, following)

    def _free(self, held: _Held, following: _Held | None = None) -> None:
        self._held.discard(held)
        if following:
            self._start(following)
        elif len(self._held) < self._concurrency:
            self._slot.set()

    def _is_hopeless(self, error: errors.PQError) -> bool:
        nc = self._queue.link.nc
        closed = isinstance(error, errors.NotSentError) and (nc.is_closed or nc.is_draining)
        return closed or isinstance(error, (errors.BadRequestError, errors.DeniedError))

    # Telling

    async def _report(self, what: str, error: errors.PQError) -> None:
        self._log.log(self._seldom.level(what), "%s: %s", what, error)
        await self._call_hooks("error", error)

    async def _call_hooks(self, event: Event, *args: Any) -> None:
        for hook in self._hooks[event] if clock() < self._settle_until else ():
            try:
                returned = hook(*args)
                if inspect.isawaitable(returned):
                    await returned
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                self._log.exception("a hook of the worker failed")

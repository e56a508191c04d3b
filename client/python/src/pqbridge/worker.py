"""Workers: they do the jobs of a queue, and lose none."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .delivery import Delivery, Renewal, repeat
from .errors import (
    BadArgumentError,
    BadRequestError,
    DeniedError,
    LeaseLostError,
    NotFoundError,
    NotSentError,
    PQError,
    TooLargeError,
)
from .headers import Headers
from .job import Handler, Job, Middleware, Outcome, outcome_of, perform
from .pop import Pop, Received
from .queue import Queue, lease_length, lease_options
from .threads import Threads
from .times import Duration, Pause, clock, seconds

_IDLE_WAIT = 300.0  # seconds that one request waits for a job
_GRACE = 2.0  # seconds that a def may go on after stop has asked it to end
_SETTLE_TIME = 30.0  # seconds for which a worker that stops tries to settle its jobs

H = TypeVar("H", bound=Handler)
JobHook = Callable[[Job, Outcome], Any]


@dataclass(eq=False)
class _Held:
    """A job that is leased, and whose lease is renewed."""

    delivery: Delivery
    job: Job
    renewal: Renewal = field(init=False)
    task: asyncio.Task[Any] | None = None  # of the handler

    def end(self, why: Literal["lost", "timeout", "stopped"]) -> None:
        """Ask the handler to stop."""
        if not self.job.why:
            self.job.why = why
            self.job.lost.set()
            if self.task:
                self.task.cancel()


async def give_back(delivery: Delivery, outcome: Outcome) -> None:
    """Send, once, what ends the lease of a job that is not done."""
    if outcome.kind in ("snoozed", "stopped"):
        await delivery.snooze(outcome.delay or 0)
    elif outcome.kind == "dropped":
        await delivery.term(outcome.text)
    else:
        await delivery.nak(delay=outcome.delay, reason=outcome.text)


class Worker:
    """Does the jobs of a queue, one in each of its slots, until stop.

    A job that its handler returns from is done, and what it returns is kept as the result if the
    job is. One whose handler raises comes back after the backoff of the queue, and is a dead letter
    after max_deliver deliveries, with the text of the error; Snooze, Drop and RetryAfter do
    otherwise. A lease is renewed when a third of it has passed. If it is lost, the handler is asked
    to stop (see Job), its slot stays taken until it does, and nothing that it returns is sent. Each
    job is done at least once: remember the ids of jobs that must not be done twice.

    handler does all jobs; the decorator handle has one for each type.
    concurrency is the number of slots. An idle worker has one request that waits.
    ack_wait is the length of a lease, 100 ms to 12 h, by default what the settings of the queue say
        or else 30 s: others get the jobs of a worker that dies after that time.
    holder is the name that others see, by default this process.
    job_timeout is how long a job may take, by default any time. Then the handler is asked to stop,
        the job fails unless the handler returns, and the lease is not renewed any more.
    max takes the largest priority first.
    middleware wraps handlers, the first outermost.
    on_completed, on_failed and on_lost are called with the job and its Outcome once it is settled;
        on_failed for all that come back or are dropped. on_error is called with errors that the
        worker outlasts. They may be async. What they raise is logged.
    logger is by default "pqbridge.worker".
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
        max: bool = False,
        middleware: Sequence[Middleware] = (),
        on_completed: JobHook | None = None,
        on_failed: JobHook | None = None,
        on_lost: JobHook | None = None,
        on_error: Callable[[PQError], Any] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        if concurrency < 1:
            raise BadArgumentError(f"concurrency {concurrency}: want 1 or more")
        self._queue = queue
        self._handlers: dict[str, Handler] = {"*": handler} if handler else {}
        self._concurrency = concurrency
        self._ack_wait = lease_length(ack_wait)
        self._holder = queue.holder if holder is None else holder
        self._job_timeout = None if job_timeout is None else seconds(job_timeout)
        self._max = max
        self._middleware = middleware
        self._hooks = {"done": on_completed, "lost": on_lost}
        self._on_failed, self._on_error = on_failed, on_error
        self._log = logger or logging.getLogger("pqbridge.worker")

        self._length = self._ack_wait  # of the latest lease, 0 while it is unknown
        self._held: set[_Held] = set()
        self._leasing: tuple[Pop, asyncio.Task[list[Received]]] | None = None
        self._stopped_at = math.inf
        self._ended: asyncio.Event | None = None
        self._failure: PQError | None = None

    def handle(self, type: str) -> Callable[[H], H]:
        """Decorate the handler of a type of jobs, "*" for all others, "" for those without one."""

        def add(handler: H) -> H:
            if type in self._handlers:
                raise BadArgumentError(f"jobs of type {type!r} have a handler already")
            self._handlers[type] = handler
            return handler

        return add

    async def run(self, *, signals: bool = False) -> None:
        """Do jobs until stop. A worker runs once.

        With signals, SIGTERM and SIGINT stop it, and a second one asks the handlers to stop; this
        works in the main thread only. If the task is cancelled, the worker asks its handlers to
        stop, and gives their jobs back.

        Errors: BadRequestError, DeniedError or NotSentError if trying again cannot help: NATS
        denies a permission, or the connection is closed for good. All others are logged.
        """
        if self._ended:
            raise RuntimeError("this worker has run before")
        if not self._handlers:
            raise BadArgumentError("no handler: want one as an argument, or decorated with handle")
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT) if signals else ()
        for number in handled:
            loop.add_signal_handler(number, self._on_signal)

        self._threads = Threads(self._concurrency)
        self._turn = asyncio.Lock()  # only one slot waits for a job
        slots = [loop.create_task(self._slot()) for _ in range(self._concurrency)]
        try:
            await asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION)
            self._begin_stop()
            await asyncio.wait(slots)
        except asyncio.CancelledError:
            self._begin_stop()
            self._end_handlers()
            await asyncio.wait(slots)
            raise
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
            self._threads.close()
            self._ended.set()
        for slot in slots:
            slot.result()
        if self._failure:
            raise self._failure

    async def stop(self, timeout: Duration = 25) -> None:
        """Lease no more jobs, and return once run has ended.

        Jobs under way may end for as long as timeout. Then their handlers are asked to stop, and
        unfinished jobs are given back, without counting the delivery. A def that goes on for two
        more seconds is left alone: its job is given back too, and what it returns is not sent. A
        handler must not call it.
        """
        if any(held.task is asyncio.current_task() for held in self._held):
            raise RuntimeError("stop in a handler, which it would wait for")
        self._begin_stop()
        if not self._ended:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds(timeout))
        self._end_handlers()
        await self._ended.wait()

    def _on_signal(self) -> None:
        if self._is_stopping:
            self._end_handlers()
        else:
            self._queue.link.spawn(self.stop())

    @property
    def _is_stopping(self) -> bool:
        return self._stopped_at < math.inf

    def _begin_stop(self) -> None:
        self._stopped_at = min(self._stopped_at, clock())
        if self._leasing:
            pop, task = self._leasing
            if pop.is_sent:
                pop.interrupt()  # a job on its way still comes
            else:
                task.cancel()

    def _end_handlers(self) -> None:
        for held in list(self._held):
            held.end("stopped")
        asyncio.get_running_loop().call_later(_GRACE, self._abandon)

    def _abandon(self) -> None:
        for held in self._held:
            self._log.warning("the handler of job %s goes on although the worker has stopped", held.job.id)
        self._threads.abandon()

    def _fail(self, error: PQError) -> None:
        """End the worker: trying again cannot help."""
        self._failure = self._failure or error
        self._begin_stop()

    # Leasing

    async def _slot(self) -> None:
        """Do one job after the other. One request acknowledges a job and leases the next."""
        held: _Held | None = None
        while held := held or await self._lease():
            if self._is_stopping:  # it came meanwhile
                if not await self._let_go(held):
                    await self._send_back(held, Outcome("stopped"))
                return
            held = await self._do(held)

    async def _lease(self) -> _Held | None:
        """Wait for a job, and return None if the worker stops."""
        pause = Pause()
        async with self._turn:
            while not self._is_stopping:
                options = lease_options(self._ack_wait, self._holder)
                pop = self._queue.pop_request(self._max, _IDLE_WAIT, options, self._length or 30.0)
                task = asyncio.get_running_loop().create_task(pop.run())
                self._leasing = pop, task
                await asyncio.wait({task})
                self._leasing = None
                if task.cancelled():
                    continue
                try:
                    held = await self._hold(Delivery(self._queue, task.result()[0], self._ack_wait))
                    if held:
                        return held
                except NotFoundError:
                    pause.reset()
                except PQError as error:
                    if self._is_hopeless(error):
                        self._fail(error)
                    else:
                        await self._report("cannot lease a job", error, pause)
        return None

    async def _hold(self, delivery: Delivery) -> _Held | None:
        """Hold a job whose lease is renewed from now on, unless it may be over already."""
        try:
            await delivery.confirm()
        except PQError as error:
            await self._report("a lease was over before its job could begin", error)
            return None

        self._length = delivery.ack_wait = delivery.ack_wait or 30.0
        headers = Headers([*delivery.headers.pairs, *delivery.about.pairs])
        held = _Held(delivery, Job(delivery.value, headers, self._queue.name, self._queue.codec))

        def lost(error: PQError) -> None:
            self._log.warning("lost the lease of job %s, which is being done: %s", held.job.id, error)
            held.end("lost")

        held.renewal, loop = Renewal(delivery, lost, self._log), asyncio.get_running_loop()
        held.job.say = lambda progress: loop.call_soon_threadsafe(held.renewal.say, progress)
        self._held.add(held)
        return held

    # Doing

    async def _do(self, held: _Held) -> _Held | None:
        """Do a job and settle it, and return the next one if that has leased one."""
        job, loop = held.job, asyncio.get_running_loop()
        held.task = loop.create_task(self._perform(job))
        if job.why:  # it was lost before
            held.task.cancel()
        timer = None
        if self._job_timeout is not None:
            timer = loop.call_later(self._job_timeout, self._time_out, held)
        await asyncio.wait({held.task})
        if timer:
            timer.cancel()

        outcome = outcome_of(held.task, job, self._queue.codec)
        following = None
        if await self._let_go(held):
            outcome.kind = "lost"
        elif outcome.kind == "done":
            following = await self._acknowledge(held, outcome)
        elif outcome.kind != "lost":
            await self._send_back(held, outcome)
        await self._call_hook(self._hooks.get(outcome.kind, self._on_failed), job, outcome)
        return following

    async def _perform(self, job: Job) -> Any:
        handler = self._handlers.get(job.type) or self._handlers.get("*")
        if handler is None:
            raise Exception(f"nobody handles jobs of type {job.type!r}")
        try:
            return await perform(handler, job, self._middleware, self._threads)
        except SystemExit as error:  # which would end the process
            raise RuntimeError(f"the handler called sys.exit({error})") from error

    def _time_out(self, held: _Held) -> None:
        self._log.warning("job %s takes longer than %s s", held.job.id, self._job_timeout)
        held.end("timeout")
        self._queue.link.spawn(held.renewal.stop())  # a handler that hangs must not keep it

    async def _let_go(self, held: _Held) -> bool:
        """Stop renewing, and report whether the lease is certainly lost."""
        self._held.discard(held)
        return await held.renewal.stop()

    # Settling

    async def _acknowledge(self, held: _Held, outcome: Outcome) -> _Held | None:
        """Acknowledge a job, and lease the next one unless the worker stops."""
        delivery, unknown = held.delivery, False
        done = (outcome.result, outcome.content_type, outcome.next)
        if not self._is_stopping:
            try:
                return await self._hold(await delivery.ack_and_lease(self._holder, *done))
            except NotFoundError:
                return None
            except PQError as error:
                if isinstance(error, TooLargeError) and error.reason:  # it is about the next job
                    return None
                unknown = error.unknown or error.code in (500, 503)
                if not isinstance(error, LeaseLostError):
                    await self._report("cannot acknowledge a job, trying again", error)

        try:
            headers, data = delivery.ack_message("+ACK", *done)
            if not await self._settle(held, lambda: delivery.settle(headers, data), unknown):
                outcome.kind = "lost"
        except (BadRequestError, TooLargeError) as error:
            # Otherwise it would be done again and again, and nobody would know why.
            outcome.kind, outcome.error = "failed", error
            outcome.text = f"the result, or what follows, was refused: {error}"
            await self._send_back(held, outcome)
        return None

    async def _send_back(self, held: _Held, outcome: Outcome) -> None:
        """Settle a job that is not done."""
        delivery, text = held.delivery, outcome.text
        if outcome.kind in ("failed", "dropped"):
            what = f"job %s {outcome.kind} at delivery %d: %s"
            self._log.warning(what, held.job.id, held.job.deliveries, text, exc_info=outcome.error)
        try:
            await self._settle(held, lambda: give_back(delivery, outcome))
        except BadRequestError as error:  # the delay
            text = f"{text}: {error}"
            await self._settle(held, lambda: delivery.nak(reason=text))

    async def _settle(self, held: _Held, send: Callable[[], Awaitable[Any]], unknown: bool = False) -> bool:
        """Send what ends a lease until there is an answer, and report whether it counts."""
        pause = Pause()

        async def go_on(error: PQError) -> bool:
            if clock() - self._stopped_at <= _SETTLE_TIME and not self._is_hopeless(error):
                await self._report("cannot settle a job, trying again", error, pause)
                return True
            self._log.error("cannot settle job %s, which comes back: %s", held.job.id, error)
            if isinstance(error, DeniedError):
                self._fail(error)
            return False

        try:
            return await repeat(send, go_on, unknown)
        except LeaseLostError as error:
            self._log.warning("job %s was settled too late: %s", held.job.id, error)
            return False

    def _is_hopeless(self, error: PQError) -> bool:
        nc = self._queue.link.nc
        closed = isinstance(error, NotSentError) and (nc.is_closed or nc.is_draining)
        return closed or isinstance(error, (BadRequestError, DeniedError))

    # Telling

    async def _report(self, what: str, error: PQError, pause: Pause | None = None) -> None:
        self._log.warning("%s: %s", what, error)
        await self._call_hook(self._on_error, error)
        if pause:
            await pause.wait(0.05 if self._is_stopping else 2.0)

    async def _call_hook(self, hook: Callable[..., Any] | None, *args: Any) -> None:
        if hook is None:
            return
        try:
            returned = hook(*args)
            if inspect.isawaitable(returned):
                await returned
        except Exception:
            self._log.exception("a hook of the worker failed")

"""Jobs, and what their handlers make of them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from .codec import JSON, Codec, encode
from .errors import BadArgumentError
from .headers import Headers, HeadersLike, header_pairs
from .item import Item
from .push import Message, PushOptions, successor
from .threads import Threads
from .times import Duration, seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

MAX_PROGRESS = 1024  # bytes

Handler = Callable[["Job"], Any]
"""Does a job: an async def, or a def, which runs in a thread. What it returns is the result."""

Call = Callable[["Job"], Coroutine[Any, Any, Any]]
"""A handler with its middleware."""

Middleware = Callable[["Job", Callable[["Job"], Awaitable[Any]]], Awaitable[Any]]
"""An async def that wraps handlers: it awaits the function that it is given, and may return,
change or raise what a handler does."""


class Snooze(Exception):  # noqa: N818, as it is no error
    """Raised by a handler to have the job come back after delay, without counting the delivery."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"again in {delay}")
        self.delay = delay


class Drop(Exception):  # noqa: N818
    """Raised by a handler to make the job a dead letter at once, with a reason of 256 bytes."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(Exception):  # noqa: N818
    """Raised by a handler to fail, and be tried again after delay, not the backoff or retry_delay.

    Raise it from the error that says why, or give a reason.
    """

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = delay


class NoHandlerError(Exception):
    """A job failed because the worker has no handler for its type. Middleware is not called."""


class Job(Item):
    """An item that a Worker has leased.

    lost is set when the handler should stop: a def in a thread looks at it now and then, while an
    async def is cancelled. why says why: "lost", the lease; "timeout", of the job; "stopped", the
    worker; and "" as long as the job goes on.
    """

    def __init__(self, value: bytes, headers: Headers, queue: str, codec: Codec) -> None:
        super().__init__(value, headers)
        self.queue = queue
        """The name of the queue."""
        self.why: Literal["", "lost", "timeout", "stopped"] = ""
        self.successors: list[Message] = []
        self.say: Callable[[bytes], Any] | None = None
        self._codec = codec

    @property
    def ref(self) -> str:
        """The job as its members, if it was a joiner, name it in their header Pq-Joiner."""
        return f"{self.queue} {self.id}"

    @property
    def lost(self) -> threading.Event:
        """Set when the handler should stop."""
        event: threading.Event = self.__dict__.get("_lost") or self.__dict__.setdefault("_lost", threading.Event())
        return event  # made when it is asked for, by whatever thread

    def progress(self, progress: Any) -> None:
        """Say how far the job is, in up to 1 KiB. It never waits.

        It is bytes as they are, or anything else as a result is written: through the codec. The
        latest progress is sent, at most once a second.

        Errors: BadArgumentError for what cannot be written, for none, and for more than 1 KiB.
        """
        data, _ = encode(self._codec, progress)
        if not 1 <= len(data) <= MAX_PROGRESS:
            raise BadArgumentError(f"progress of {len(data)} bytes: want 1 to {MAX_PROGRESS}")
        if self.say:
            self.say(data)

    def next(self, queue: str, value: Any, **options: Unpack[PushOptions]) -> int:
        """Have the acknowledgement of this job push an item to another queue.

        The job is done and the item pushed, or neither. The setting next of this job's queue must
        name the other one; msg_id, unique and weight are not possible.

        Returns the number of the item, which further calls take as the joiner of its members if the
        item has the option join. If the joiner of an item does not wait any more, the item is pushed
        without it.

        Errors: BadArgumentError for what cannot be pushed, and for more than 256 items.
        """
        number = len(self.successors)
        self.successors.append(successor(self._codec, {"queue": queue, "value": value, **options}, number))
        return number


@dataclass
class Outcome:
    """What becomes of a job.

    kind is "done", "failed" (it comes back, after delay if that is given), "snoozed", "dropped",
    "lost" (somebody else has it) or "stopped" (given back uncounted). text is the reason of all but
    done; error is what the handler raised.
    """

    kind: Literal["done", "failed", "snoozed", "dropped", "lost", "stopped"]
    result: bytes | None = None
    content_type: str = ""
    next: list[Message] = field(default_factory=list)
    text: str = ""
    delay: float | None = None
    error: BaseException | None = None


def call_of(handler: Handler, middleware: Sequence[Middleware], threads: Threads) -> Call:
    """Return what calls a handler, a def in a thread.

    Errors: BadArgumentError for what cannot be called, and for a generator, which would never run.
    """
    kinds, called = (inspect.isgeneratorfunction, inspect.isasyncgenfunction), (handler, type(handler).__call__)
    if not callable(handler) or any(is_kind(function) for is_kind in kinds for function in called):
        raise BadArgumentError(f"handler {handler!r}: want an async def, or a def, and neither with a yield")

    async def in_thread(job: Job) -> Any:
        context = contextvars.copy_context()
        ended = threads.run(lambda: context.run(handler, job))
        while not ended.done():
            try:
                await asyncio.wait({ended})
            except asyncio.CancelledError:
                job.lost.set()  # a thread cannot be cancelled, and its slot stays taken
        result, error = ended.result()
        if error:
            raise error
        return await result if inspect.isawaitable(result) else result

    call: Call = handler if inspect.iscoroutinefunction(handler) else in_thread
    for wrap in reversed(middleware):
        call = partial(_wrapped, wrap, call)
    return partial(_outermost, call)


async def _outermost(call: Call, job: Job) -> Any:
    try:
        return await call(job)
    except SystemExit as error:  # which would end the process
        raise RuntimeError(f"the handler called sys.exit({error})") from None


async def _wrapped(wrap: Middleware, call: Call, job: Job) -> Any:
    return await wrap(job, call)


def outcome_of(task: asyncio.Task[Any], job: Job, codec: Codec) -> Outcome:
    """Return what becomes of a job whose handler has ended."""
    error = asyncio.CancelledError("cancelled") if task.cancelled() else task.exception()
    try:
        if error:
            return _failure_of(error, job, cancelled=task.cancelled())
        result = task.result()
        data, content_type = (None, "") if result is None else encode(codec, result)
        return Outcome("done", data, content_type, job.successors)
    except Exception as wrong:  # a bad delay, or a result that cannot be encoded
        return Outcome("failed", text=text_of(wrong), error=wrong)


def _failure_of(error: BaseException, job: Job, *, cancelled: bool) -> Outcome:
    text = text_of(error)
    if isinstance(error, Snooze):
        return Outcome("snoozed", text=text, delay=seconds(error.delay), error=error)
    if isinstance(error, Drop):
        return Outcome("dropped", text=text, error=error)
    if job.why in ("lost", "stopped"):
        return Outcome(job.why, text=text, error=error)
    if job.why == "timeout":
        text = "timed out" if cancelled else f"timed out: {text}"
    delay = seconds(error.delay) if isinstance(error, RetryAfter) else None
    return Outcome("failed", text=text, delay=delay, error=error)


def text_of(error: BaseException, depth: int = 16) -> str:
    """Return what an error says, with its class unless that says nothing, and then what its cause says.

    The cause is the error that it was raised from, as in "OSError: the mailbox is full: TimeoutError".
    It is left out if the error says the same.
    """
    try:
        said = str(error)
    except Exception:
        said = ""
    is_plain = type(error) in (Exception, NoHandlerError, Snooze, Drop, RetryAfter, asyncio.CancelledError)
    text = said if is_plain else f"{type(error).__name__}: {said}".removesuffix(": ")
    if error.__cause__ and depth and not (said and isinstance(error, Drop)):
        cause = text_of(error.__cause__, depth - 1)
        if cause.removeprefix(f"{type(error.__cause__).__name__}: ") not in text:
            text = f"{text}: {cause}".removeprefix(": ")
    return text or type(error).__name__


async def run_handler(
    handler: Handler,
    value: Any = b"",
    *,
    headers: HeadersLike = (),
    queue: str = "test",
    id: str = "test",
    deliveries: int = 1,
    max_deliver: int = 0,
    middleware: Sequence[Middleware] = (),
    codec: Codec = JSON,
) -> Outcome:
    """Run a handler on a job made of these, without NATS, and return what would become of it."""
    data, content_type = encode(codec, value)
    about = {"Pq-Id": id, "Pq-Deliveries": str(deliveries), "Pq-Max-Deliver": str(max_deliver)}
    about |= {"Content-Type": content_type} if content_type else {}
    pairs = [*header_pairs(headers), *header_pairs(about)]
    job = Job(data, Headers(pairs), queue, codec)
    threads = Threads(1)
    task = asyncio.get_running_loop().create_task(call_of(handler, middleware, threads)(job))
    try:
        await asyncio.wait({task})
    finally:
        task.cancel()  # if this was cancelled
        threads.close()
    return outcome_of(task, job, codec)

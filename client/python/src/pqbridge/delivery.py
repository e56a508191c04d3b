"""Leased items, and their acknowledgements."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from nats.aio.msg import Msg

from .codec import encode
from .errors import BadReplyError, BadRequestError, InternalError, LeaseLostError, PQError, TooLargeError, check_text
from .headers import Pairs, frame, header_pairs
from .item import Item, read
from .pop import Pop, Received
from .push import MAX_SUCCESSORS, Message, Successor, successor
from .times import Duration, clock, duration_text, parse_time, seconds

if TYPE_CHECKING:
    from .manage import Handle

_LOG = logging.getLogger("pqbridge.worker")
_PROGRESS_EVERY = 1.0  # seconds
_LAST_ATTEMPT = 2.0  # seconds for the reply to a renewal after the end of its lease
_MAX_LEASES = 1000  # of one request
_MAX_BYTES = 4 << 20
_MAX_REASON = 4096  # bytes, to keep a reason within a message; the bridge keeps less


class Delivery(Item):
    """A leased item: nobody else gets it until the lease ends.

    End it with ack when the item is done, with nak or snooze to have it come back, and with term to
    make it a dead letter. These and extend raise LeaseLostError once the item is settled or
    somebody else has it, so a late call does no harm. After UnknownOutcomeError, call again:
    LeaseLostError then most likely means that the first call counted.
    """

    def __init__(self, queue: Handle, received: Received, ack_wait: float = 0) -> None:
        super().__init__(received.value, received.headers)
        if not received.ack_subject:
            raise BadReplyError(f"a leased item without a reply subject: {self.value[:64]!r}", unknown=True)
        self._queue = queue
        self.ack_subject = received.ack_subject
        """Where acknowledgements go. It has the token, which lets anybody end the lease."""
        self.ack_wait = ack_wait or read(seconds, self.about.get("Pq-Ack-Wait", "0"))
        """Length of the lease in seconds; 0 if the message left no room for it: extend says it."""
        self.began = received.began
        """When the lease began, or earlier, on times.clock: it is over ack_wait later."""

    async def ack(self, result: Any = None, *, content_type: str = "", next: Sequence[Successor] = ()) -> None:
        """Remove the item: it is done.

        result is what Queue.result returns if the job is kept: bytes as they are, anything else
        through the codec, None for none. next is pushed to other queues in the same transaction.

        Errors: BadRequestError for a result that is larger than the bridge takes, 64 KiB by
        default, or a successor that the settings do not allow: the lease goes on; TooLargeError for
        more than a message of NATS takes; LeaseLostError; and the errors of any request.
        """
        data, own_type = (None, "") if result is None else encode(self._queue.codec, result)
        successors = [successor(self._queue.codec, s, n) for n, s in enumerate(next or ())]
        [error] = await ack_together([Done(self, data, content_type or own_type, successors)])
        if error:
            raise error

    async def nak(
        self, *, delay: Duration | None = None, retry_delay: Duration | None = None, reason: str | None = None
    ) -> None:
        """Return the item to its old place, after delay or else the backoff of the queue.

        delay is up to ten years. Without a backoff the item is there again after retry_delay, by
        default at once, and twice as late after each further delivery, up to a minute or
        retry_delay itself; give one of the two. If this was the last delivery that the settings
        allow, the item becomes a dead letter, with the reason as its error, cut at 1,024 bytes.
        """
        delays = {"delay": delay, "retry_delay": retry_delay}
        own = {name: duration_text(length, name=name) for name, length in delays.items() if length is not None}
        await self._nak({"reason": _cut(reason or ""), **own})

    async def snooze(self, delay: Duration | None = None) -> None:
        """Return the item to its place after delay, without counting this delivery."""
        await self._nak({"snooze": True, "delay": duration_text(delay or 0, name="delay")})

    async def _nak(self, options: dict[str, Any]) -> None:
        await self.settle((), ("-NAK " + json.dumps(options)).encode())

    async def term(self, reason: str | None = None) -> None:
        """Make the item a dead letter with this reason, cut at 256 bytes."""
        await self.settle((), f"+TERM {_cut(reason or '')}".strip().encode())

    async def extend(self, progress: Any = None, *, timeout: float | None = None) -> datetime | None:
        """Restart the lease with its old length, and return its new end by the bridge's clock.

        progress, up to 1 KiB, says how far the job is: bytes as they are, or anything else through
        the codec. Queue.result and Queue.items have it.
        timeout is in seconds, by default so long that there is time for another attempt.
        """
        sent = clock()
        headers = () if progress is None else (("Pq-Ack", "+WPI"),)
        data = b"+WPI" if progress is None else encode(self._queue.codec, progress)[0]
        reply = await self.settle(headers, data, timeout)
        about = reply.headers or {}
        self.began = sent
        self.ack_wait = read(seconds, about.get("Pq-Ack-Wait", "0")) or self.ack_wait
        return read(parse_time, about.get("Pq-Lease-Until", ""))

    async def confirm(self) -> None:
        """Extend the lease if it may be over, or if its length is unknown, before a job begins."""
        if clock() >= self.began + self.ack_wait:
            await self.extend()

    async def settle(self, headers: Pairs, data: bytes, timeout: float | None = None) -> Msg:
        """Send an acknowledgement once, and return the reply."""
        timeout = timeout or self._patience
        return await self._queue.link.request(self.ack_subject, data, headers, timeout=timeout, restless=True)

    @property
    def _patience(self) -> float:
        """Seconds to wait for a reply, so that there is time for another attempt."""
        return min(max(self.ack_wait / 3, 5.0), self._queue.timeout)

    @property
    def token(self) -> str:
        """The token of the lease, "" for a client of another account than the bridge."""
        _, found, token = self.ack_subject.rpartition(".ack.")
        return token if found else ""


class Done(NamedTuple):
    """A lease to acknowledge, with the result of its job, and what is pushed."""

    delivery: Delivery
    result: bytes | None = None
    content_type: str = ""
    next: Sequence[Message] = ()


def ack_message(ack: str, all: Sequence[Done]) -> tuple[Pairs, bytes]:
    """Return the headers and payload of an acknowledgement of leases, which goes to the first one's subject.

    What the others push names their leases, as its parents. Bridges from before the setting trail
    refuse that, and nothing is done. As for any result that is refused, each job is then
    acknowledged on its own: there none has to be named.
    """
    frames = list[bytes]()
    for n, done in enumerate(all):
        first = len(frames)  # joiners have the numbers of frames, results included, which come last
        frames += [m.frame(first, done.delivery.token if n else "") for m in done.next]
    for delivery, result, content_type, _ in all:
        if result is None:
            continue
        typed = header_pairs({"Content-Type": content_type} if content_type else {})
        if len(all) == 1 and not frames:
            return [("Pq-Ack", ack), *typed], result
        frames.append(frame(0, [("Pq-Token", delivery.token), *typed], result))
    return ([("Pq-Ack", ack), ("Pq-Frames", str(len(frames)))], b"".join(frames)) if frames else ((), ack.encode())


def fitting(all: Iterable[Done], max_payload: int) -> int:
    """Return how many acknowledgements go into one request, at least one.

    Leases without a token go alone. The numbers are upper bounds of what the others need.
    """
    room, pushes, n = min(max_payload, _MAX_BYTES) - 1024, 0, 0
    for n, (delivery, result, content_type, next) in enumerate(all):
        pushes += len(next)
        room -= 84 + sum(96 + m.size for m in next)
        room -= 0 if result is None else 160 + len(content_type) + len(result)
        if n and (n == _MAX_LEASES or room < 0 or pushes > MAX_SUCCESSORS or not delivery.token):
            return n
        if not delivery.token:
            break
    return n + 1


async def ack_together(all: Sequence[Done]) -> list[PQError | None]:
    """Acknowledge leases of one queue that go into one request, and return the error of each.

    If the bridge refuses the request, for example because one lease is lost, each goes alone.
    """
    also = [done.delivery.token for done in all[1:]]
    try:
        ack = "+ACK " + json.dumps({"also": also}) if also else "+ACK"
        await all[0].delivery.settle(*ack_message(ack, all))
        return [None] * len(all)
    except PQError as error:
        if also and isinstance(error, (LeaseLostError, BadRequestError, InternalError)):
            return [(await ack_together([done]))[0] for done in all]
        # Otherwise an earlier acknowledgement has counted.
        return [error if error.reason != "done" else None] * len(all)


async def ack_all(deliveries: Iterable[Delivery]) -> list[PQError | None]:
    """See Client.ack_all."""
    all = list(deliveries)
    groups: dict[tuple[Any, str], list[int]] = {}  # one request can acknowledge leases of one queue
    for n, d in enumerate(all):
        groups.setdefault((d._queue.link, d.ack_subject.removesuffix(d.token)), []).append(n)
    errors: dict[int, PQError | None] = {}
    for (link, _), rest in groups.items():
        while rest:
            dones = [Done(all[n]) for n in rest]
            count = fitting(dones, link.nc.max_payload)
            errors |= zip(rest[:count], await ack_together(dones[:count]), strict=True)
            rest = rest[count:]
    return [errors[n] for n in range(len(all))]


async def ack_and_lease(all: Sequence[Done], holder: str) -> list[Received]:
    """Acknowledge leases of one queue, all or none, and lease as many from the same end of the queue.

    With NotFoundError, and a TooLargeError with a reason, they are acknowledged, and there is no
    next one. After other errors they are not, or it is unknown.
    """
    d, options = all[0].delivery, {"frames": True, "holder": holder}
    if len(all) > 1:
        options |= {"batch": len(all), "also": [done.delivery.token for done in all[1:]]}
    headers, data = ack_message("+NXT " + json.dumps(options), all)
    acks = d.ack_subject.removesuffix(d.token)
    pop = Pop(d._queue.link, d.ack_subject, options, acks=acks, timeout=d._patience, headers=headers, data=data)
    return await pop.run()


class Seldom:
    """Says how loud to log what may happen often: a warning of each kind once a minute."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def level(self, kind: str) -> int:
        now = clock()
        if now < self._next.get(kind, -math.inf):
            return logging.DEBUG
        self._next[kind] = now + 60
        return logging.WARNING


class Renewal:
    """Extends a lease whenever a third of it has passed, until it is stopped or the lease is lost.

    on_lost is called once, from the event loop, when the lease is lost or may be.
    """

    def __init__(
        self,
        delivery: Delivery,
        on_lost: Callable[[PQError], Any],
        logger: logging.Logger = _LOG,
        seldom: Seldom | None = None,
    ) -> None:
        self.delivery = delivery
        self.lost = False
        """Whether somebody else has the job, or it is settled: certain, as the bridge said so."""
        self._on_lost, self._log, self._seldom = on_lost, logger, seldom or Seldom()
        self._progress: bytes | None = None
        self._progress_at = -math.inf
        self._retry: float | None = None  # seconds until the next attempt, if the last one failed
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None  # of the request under way
        self._schedule()

    @property
    def _every(self) -> float:
        return max(self.delivery.ack_wait / 3, 0.03)

    def _schedule(self) -> None:
        """Set the timer for the next request, unless one is under way."""
        if self._ended or self._task:
            return
        if self._timer:
            self._timer.cancel()
        now = clock()
        due = self.delivery.began + self._every if self._retry is None else now + self._retry
        if self._progress is not None and self._retry is None:
            due = min(due, self._progress_at + _PROGRESS_EVERY)
        due = max(due, now)
        self._timer = asyncio.get_running_loop().call_later(due - now, self._begin, due)

    def _begin(self, due: float) -> None:
        late = clock() - due
        if late > self._every:
            text = "renewing the lease of job %s %.1f s late: does something block the event loop?"
            self._log.warning(text, self.delivery.id, late)
        self._task = asyncio.get_running_loop().create_task(self._extend())

    def say(self, progress: bytes) -> None:
        """Extend the lease soon, at most once a second, and say how far the job is.

        Call it from the event loop. The latest progress is sent.
        """
        self._progress = progress
        if self._retry is None:
            self._schedule()

    def end(self) -> bool:
        """Stop extending, and report whether the lease is certainly lost. A request may still be under way."""
        self._ended = True
        self._on_lost = lambda error: None  # no circle that only the garbage collector ends
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()
        return self.lost

    async def stop(self) -> bool:
        """Stop extending, and report whether the lease is certainly lost."""
        self.end()
        if self._task:
            await asyncio.wait({self._task})
        return self.lost

    async def _extend(self) -> None:
        d, sent = self.delivery, clock()
        left = d.began + d.ack_wait - sent
        progress, self._progress = self._progress, None
        if progress is not None:
            self._progress_at = sent
        try:
            # A lease that is over still counts if nobody else has the job. This is the last attempt then.
            await d.extend(progress, timeout=max(0.05, min(self._every, left)) if left > 0 else _LAST_ATTEMPT)
            self._retry = None
        except PQError as error:
            if self._ended:
                return
            self.lost = isinstance(error, LeaseLostError)
            if self.lost or left <= 0:
                self._ended = True
                self._on_lost(error)
                return
            level = self._seldom.level("renewal")
            self._log.log(level, "cannot extend the lease of job %s, trying again: %s", d.id, error)
            if self._progress is None:
                self._progress = progress
            self._retry = max(0.0, min(self._every / 10, 1.0, d.began + d.ack_wait - clock()))
        finally:
            self._task = None
        self._schedule()


async def repeat(
    send: Callable[[], Awaitable[Any]], go_on: Callable[[PQError], Awaitable[bool]], unknown: bool = False
) -> bool:
    """Send what ends a lease until there is an answer, and report whether it counts.

    go_on is called with each error that may pass: it waits, or returns False to give up. unknown
    says that an earlier request may have been carried out.

    Errors: LeaseLostError; BadRequestError and TooLargeError, which would be the same every time.
    """
    while True:
        try:
            await send()
            return True
        except LeaseLostError as error:
            if not unknown and error.reason != "done":
                raise
            return True
        except PQError as error:
            unknown = unknown or error.unknown
            if isinstance(error, BadRequestError) or (isinstance(error, TooLargeError) and not error.reason):
                raise
            if not await go_on(error):
                return False


def _cut(text: str) -> str:
    """Shorten a text to what a message has room for."""
    data = check_text("reason", text).encode("utf-8", "replace")
    short = data[:_MAX_REASON].decode("utf-8", "ignore")
    return short if len(data) <= _MAX_REASON else short + "..."

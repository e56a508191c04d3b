"""Queues: pushing, popping, leasing, and what became of jobs."""

from __future__ import annotations

import asyncio
import math
import secrets
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from . import errors
from .delivery import Delivery
from .headers import Headers, are_plain
from .item import Item, JobResult
from .link import LATE_REPLY
from .manage import Handle, item_of, job_query, parse
from .pop import Pop, Received
from .push import JoinerRef, Message, PushAck, PushItem, PushOptions, message
from .times import TEN_YEARS, Duration, Pause, clock, duration_text, seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

_MAX_FRAMES = 1024  # of a batch of push_many: with message ids, more may not fit
_MAX_BATCH = 4 << 20  # bytes of a batch of push_many: larger ones are no faster
_JOIN = 86400.0  # seconds that a joiner waits at most, unless its push says it
_RESULT_WAIT = 30.0
_LATEST = 1.0  # seconds after a wait is over, for the last reply


def lease_length(ack_wait: Duration | None) -> float:
    """Return the length of a lease in seconds, or 0 for what the settings of the queue say."""
    if ack_wait is None:
        return 0.0
    if not 0.1 <= (length := seconds(ack_wait, "ack_wait")) <= 12 * 3600:
        raise errors.BadArgumentError(
            f"ack_wait {ack_wait!r}: want 100 ms to 12 h, or None for the setting of the queue"
        )
    return length


def check_holder(holder: str) -> str:
    """Return the name of who takes a lease."""
    if any(unicodedata.category(c) == "Cc" for c in errors.check_text("holder", holder, 0, 128)):
        raise errors.BadArgumentError(f"holder {holder!r}: want text without control characters")
    return holder


def lease_options(ack_wait: float, holder: str) -> dict[str, Any]:
    """Return the options of the protocol for a lease, in a frame so that none is left to nobody."""
    check_holder(holder)
    return {"ack_wait": duration_text(ack_wait) if ack_wait else 0, "holder": holder, "frames": True}


def batch_options(n: int) -> dict[str, Any]:
    """Return the options of the protocol for up to n items."""
    return {"batch": errors.check_whole("a batch of", n, 1, 1000), "frames": True}


class OpenJoin(JoinerRef):
    """A joiner to which members may be added until it is closed: they take it as their joiner.

    A member without a job of its own, the guard, holds the joiner back: Joined.gone counts it.
    """

    def __init__(self, queue: Queue, id: str, guard: str) -> None:
        self._queue, self.queue, self.id, self.guard = queue, queue.name, id, guard

    async def close(self) -> None:
        """Say that no more members will come. It may be called again, and too late it changes nothing."""
        with suppress(errors.NotFoundError):
            await self._queue.remove(self.guard)


def _default(item: Any, option: str, default: Any) -> Any:
    """Return an item with an option, unless it has one."""
    absent = isinstance(item, Mapping) and item.get(option) is None
    return {**item, option: default} if absent else item


class Queue(Handle):
    """A queue, as Client.priority_queue and Client.fifo_queue return it.

    Besides the errors that they name, all methods raise the errors of any request: BadArgumentError for
    what cannot be sent, BadRequestError, OverloadedError, InternalError, UnavailableError,
    NoBridgeError, BadReplyError, NotSentError, DeniedError, and UnknownOutcomeError if it can
    change something. An empty queue is None, not an error.
    """

    # Pushing

    async def push(self, value: Any, **options: Unpack[PushOptions]) -> PushAck:
        """Add an item, and return once it is durable.

        value is bytes or another buffer, as they are, or anything that the codec of the client takes;
        for the options see PushOptions. The push is repeated, with the same msg_id, until the timeout
        of the client is over: it happens once.

        Errors: TooLargeError, OverloadedError for a full queue, and the errors of any request. Once
        the outcome of one attempt is unknown, so is that of the push: UnknownOutcomeError.
        """
        m = message(self.codec, {"value": value, **options}, secrets.token_urlsafe(16))
        return (await self._repeat([m]))[0]

    async def _repeat(self, batch: Sequence[Message]) -> list[PushAck]:
        """Push items, all or none, and again if that may help and cannot push them twice."""
        loop, pause, unknown = asyncio.get_running_loop(), Pause(), False
        end = loop.time() + self.timeout
        while True:
            try:
                # Time for a second attempt, if a reply is lost.
                return await self._push(batch, max(0.05, min(end - loop.time(), self.timeout / 2)))
            except errors.PQError as error:
                unknown = unknown or error.unknown
                left = end - loop.time()
                again = error.is_passing and error.reason != "full" and (not unknown or all(m.has_id for m in batch))
                if again and left > 0:
                    await pause.wait(left, self.link.wait_change)
                    if end - loop.time() >= 0.001:  # of an attempt without time the outcome would be unknown
                        continue
                if unknown and not error.unknown:
                    text = f"the outcome of an earlier attempt is unknown; the last one: {error}"
                    raise errors.UnknownOutcomeError(text) from error
                raise

    async def _push(self, batch: Sequence[Message], timeout: float) -> list[PushAck]:
        m = batch[0]
        if len(batch) > 1 or not are_plain(m.headers):  # which nats-py would change
            return await self._push_batch(batch, timeout)
        headers = [*m.headers]
        if m.priority:
            headers.append(("Pq-Priority", str(m.priority)))
        reply = await self.link.request(self.subject("push"), m.value, headers, timeout=timeout, restless=True)
        body = parse(reply, "id")
        # A duplicate of its own earlier try is none.
        duplicate = body.get("duplicate", False) and not m.has_own_id
        return [PushAck(body["id"], body.get("priority", 0), duplicate, self.name)]

    async def _push_batch(self, batch: Sequence[Message], timeout: float) -> list[PushAck]:
        subject = self.subject("push.batch")
        data = b"".join([m.frame() for m in batch])
        body = parse(await self.link.request(subject, data, timeout=timeout, restless=True), "ids")
        duplicates = set(body.get("duplicates", ()))
        return [
            PushAck(id, m.priority, i in duplicates and not m.has_own_id, self.name)
            for i, (id, m) in enumerate(zip(body["ids"], batch, strict=True))
        ]

    async def push_many(self, items: Iterable[PushItem]) -> list[PushAck | errors.PQError]:
        """Add any number of items in as few requests as possible, and return what became of each.

            outcomes = await jobs.push_many([{"value": b"a", "priority": 1}, {"value": b"b"}])

        Items of one priority are served in this order. Each request is repeated as push does. Nothing
        is sent after a failure, be it of one item that is too large: first come the items in the
        queue, then the failed ones, then NotSentError for the rest.
        """
        all = list(items)
        outcomes: list[PushAck | errors.PQError] = []
        messages: list[Message] = []
        wrong: errors.PQError | None = None
        failed: errors.PQError | None = None
        own = secrets.token_urlsafe(16)  # begins the message ids of this call
        try:
            for n, item in enumerate(all):
                messages.append(message(self.codec, item, f"{own}.{n}"))
        except errors.BadArgumentError as error:
            wrong = error

        limit = _MAX_FRAMES
        while not failed and len(outcomes) < len(messages):
            batch = self._fitting(messages[len(outcomes) : len(outcomes) + limit])
            try:
                outcomes += await self._repeat(batch)
            except errors.PQError as error:
                if len(batch) > 1 and isinstance(error, (errors.BadRequestError, errors.TooLargeError)):
                    limit = len(batch) // 2  # look for the item at fault
                else:
                    failed, outcomes = error, outcomes + [error] * len(batch)

        if wrong and not failed:
            outcomes.append(wrong)
        rest = errors.NotSentError(f"not sent because of an earlier item: {failed or wrong}")
        return outcomes + [rest] * (len(all) - len(outcomes))

    def _fitting(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the first messages that fit into one batch, and whose ids fit into its reply."""
        most = self.link.nc.max_payload
        batch = messages[: max(1, (most - 512) // 59)]
        sizes = accumulate(m.size for m in batch)
        return batch[: max(1, sum(size <= min(most, _MAX_BATCH) for size in sizes))]

    async def all(self, joiner: PushItem, members: Iterable[PushItem]) -> list[PushAck]:
        """Push a joiner and its members in one transaction: it is ready once all of them have ended.

            report, *pages = await jobs.all({"value": b"report"}, [{"value": b"1"}, {"value": b"2"}])

        The joiner, which comes first in the result, waits for a day at most unless it has the option
        join. With msg_id in all of them, the call can be repeated after UnknownOutcomeError; with
        msg_id in some, it is refused. A member may be a joiner itself, and name one of the items
        before it as its joiner by their number, where the first is 0.

        Members in other queues, more than 4,095, or some that only turn up later are pushed with the
        option joiner: by a job that is a member itself, or after open_join.

        Errors: as push, of the first item that is wrong, and nothing was pushed.
        """
        items: list[Any] = [_default(joiner, "join", _JOIN), *(_default(m, "joiner", 0) for m in members)]
        messages = [message(self.codec, item, before=n) for n, item in enumerate(items)]
        if not any(m.has_id for m in messages):  # otherwise some have none, or the call can be repeated
            own = secrets.token_urlsafe(16)
            messages = [message(self.codec, item, f"{own}.{n}", n) for n, item in enumerate(items)]
        return await self._repeat(messages)

    async def open_join(self, value: Any, *, open: Duration, **options: Unpack[PushOptions]) -> OpenJoin:
        """Push a joiner that waits until OpenJoin.close, and then until its members have ended.

            report = await jobs.open_join(b"report", open="10m")
            await jobs.push(b"page", joiner=report)
            await report.close()

        If close is not called within open, 1 s to ten years, because this process dies, the joiner
        waits for its members alone. The options are the joiner's, as in all.

        Errors: as push.
        """
        msg_id = options.get("msg_id")
        guard: Any = {"value": b"", "delay": "3650d", "ttl": open, "msg_id": msg_id and f"{msg_id}.guard"}
        joiner: Any = {"value": value, **options}
        ack, held = await self.all(joiner, [guard | {"priority": options.get("priority")}])
        return OpenJoin(self, ack.id, held.id)

    async def call(self, value: Any, *, wait: Duration | None = None, **options: Unpack[PushOptions]) -> Any:
        """Push a job, wait until a worker has done it, and return what its handler returned.

        wait is how long to wait once the job is pushed, by default as long as it takes. The result is
        kept for an hour after the job is done, or as long as keep says. To outlast a crash of the
        caller, give a msg_id, and call again with it within the duplicate window.

        Errors: the errors of push; and once the job is pushed only JobFailedError if it became a dead
        letter, NotFoundError if it was removed, popped or has expired, and NotDoneError, which has
        its id, when wait is over or nobody can be asked any more, and the job goes on.
        """
        length = math.inf if wait is None else seconds(wait, "wait")
        if options.get("keep") is None:
            options["keep"] = 3600
        ack = await self.push(value, **options)
        try:
            result = await self._result({"id": ack.id}, length)
        except errors.NotFoundError:
            raise
        except errors.PQError as error:
            text = f"job {ack.id} is pushed, and not known to be done: {error}"
            raise errors.NotDoneError(text, id=ack.id) from error
        result.raise_for_death()
        if not result.is_over:
            text = f"job {ack.id} is {result.state}, not done, after {wait}"
            raise errors.NotDoneError(text, id=ack.id, state=result.state)
        if not result.has_result:
            return None
        typed = result.content_type == self.codec.content_type
        return self.codec.decode(result.value) if typed else result.value

    async def result(
        self, id: str | None = None, *, msg_id: str | None = None, wait: Duration | None = None, follow: bool = False
    ) -> JobResult:
        """Return what became of a job, by its id or, within the duplicate window, its msg_id.

        Waits until the job is done or dead, but no longer than wait; then returns the state that it
        has. Asks again after restarts of bridges and NATS servers.

        follow goes on from a job that is done to the one that it has pushed, up to the last of a
        chain: one that has pushed nothing, or is not done. Each queue of the chain
        needs the settings keep and trail: without trail, nobody knows what a job has pushed, and the
        chain ends there.

        Errors: NotFoundError if there is no such job, or it is over and not kept; ChainError if a job
        to follow has pushed several.
        """
        if (length := seconds(wait or 0, "wait")) > TEN_YEARS:
            raise errors.BadArgumentError(f"wait {wait!r}: want 0 to ten years")
        queue, query, end = self, job_query(id, msg_id), clock() + length
        link = 0
        while True:
            link, next = link + 1, list[Any]()
            try:
                result = await queue._result(
                    query, max(0.0, end - clock()), next if errors.check_flag("follow", follow) else None
                )
            except errors.NotFoundError as error:
                if link > 1:
                    where = f"job {link} of the chain, {query['id']} in queue {queue.name}"
                    error.text = f"{where}, is not kept, or gone: {error.text}"
                raise
            if not next:
                return result
            queue, query = queue._beside(next[0]["queue"]), {"id": next[0]["id"]}

    async def _result(self, query: dict[str, Any], wait: float, next: list[Any] | None = None) -> JobResult:
        """Wait for a result, and put the job that one which is done has pushed into next."""
        pause, end = Pause(), clock() + wait
        while True:
            left = max(0.0, end - clock())
            part = min(left, _RESULT_WAIT)
            asked = {"expires": duration_text(part)} if part >= 0.001 else {}
            try:
                timeout = min(part + LATE_REPLY, left + _LATEST) if wait else None
                reply = await self.read("result", query | asked, timeout, restless=bool(asked))
                result = JobResult(reply.data, Headers((reply.headers or {}).items()))
                if not result.state:
                    raise errors.BadReplyError(f"not the state of a job: {reply.data[:64]!r}")
                if next is not None and result.state == "done":
                    next[:] = await self._pushed_by(result.id)
                if result.is_over or left <= _RESULT_WAIT:
                    return result
                query = {"id": result.id}  # a message id is forgotten earlier
                pause.reset()
            except errors.PQError as error:
                left = end - clock()
                if left <= 0 or not error.is_passing:
                    raise
                await pause.wait(left, self.link.wait_change)

    async def _pushed_by(self, id: str) -> list[Any]:
        """Return the job that one which is done has pushed, or nothing."""
        listed = await self._listed(id)
        pushed: list[Any] = listed.get("successors", [])
        n, state = len(pushed) + listed.get("more_successors", 0), listed.get("state")
        if n > 1 or state != "done":
            raise errors.ChainError(f"job {id} in queue {self.name} is {state} and has pushed {n}")
        return pushed

    # Popping

    async def pop(self, *, max: bool = False, expires: Duration | None = None) -> Item | None:
        """Remove and return the first item: the smallest priority, the oldest among equals.

        max takes the largest priority instead, the newest among equals. expires waits that long for
        an item, up to 1 h. The item has left the queue: if this process dies, it is lost; if the
        task is cancelled, an item that was on its way may be lost. Leases lose nothing.
        """
        received = await self._pop(max, expires, {})
        return Item(received[0].value, received[0].headers) if received else None

    async def pop_batch(self, n: int, *, max: bool = False, expires: Duration | None = None) -> list[Item]:
        """Remove and return up to n items, 1 to 1,000, in one transaction.

        With expires it returns once it has n items or the time is over. See pop.
        """
        received = await self._pop(max, expires, batch_options(n))
        return [Item(r.value, r.headers) for r in received]

    async def lease(
        self,
        *,
        ack_wait: Duration | None = None,
        expires: Duration | None = None,
        holder: str | None = None,
        max: bool = False,
    ) -> Delivery | None:
        """Lease the item that pop would remove: nobody else gets it for ack_wait.

        ack_wait is 100 ms to 12 h, by default what the settings of the queue say, or else 30 s. holder is
        the name that others see, by default this process. See pop for the rest. If the task is
        cancelled, so is the request, and an item that still comes is given back uncounted.
        """
        length = lease_length(ack_wait)
        options = lease_options(length, self.holder if holder is None else holder)
        received = await self._pop(max, expires, options, length)
        return Delivery(self, received[0], length) if received else None

    async def lease_batch(
        self,
        n: int,
        *,
        ack_wait: Duration | None = None,
        expires: Duration | None = None,
        holder: str | None = None,
        max: bool = False,
    ) -> list[Delivery]:
        """Lease up to n items, 1 to 1,000, in one transaction: [] if there is none.

        With expires it returns once it has n items or the time is over. See lease for the rest.
        Acknowledge each, or all with Client.ack_all.
        """
        length = lease_length(ack_wait)
        options = lease_options(length, self.holder if holder is None else holder) | batch_options(n)
        return [Delivery(self, r, length) for r in await self._pop(max, expires, options, length)]

    def pop_request(self, max: bool, expires: float, options: dict[str, Any], ack_wait: float = 0) -> Pop:
        """Return a request that pops, with the options of the protocol."""
        if errors.check_flag("max", max) and self.fifo:
            raise errors.BadArgumentError("max in a FIFO queue, which is served from one end")
        heartbeat = 0.0
        if expires:
            # Leases begin up to a heartbeat before the worker can know.
            heartbeat = min(5.0, ack_wait / 3 if ack_wait >= 1.5 else 0.5) if ack_wait else 5.0
            options = options | {"expires": duration_text(expires), "idle_heartbeat": duration_text(heartbeat)}
        subject, acks = self.subject("pop" if self.fifo else "pop.max" if max else "pop.min"), self.subject("ack.")
        return Pop(self.link, subject, options, acks=acks, timeout=self.timeout, expires=expires, heartbeat=heartbeat)

    async def _pop(
        self, max: bool, expires: Duration | None, options: dict[str, Any], ack_wait: float = 0
    ) -> list[Received]:
        end = clock() + seconds(expires or 0, "expires")
        while True:
            left = end - clock()
            pop = self.pop_request(max, left if left >= 0.001 else 0, dict(options), ack_wait)
            try:
                return await pop.run()
            except errors.NotFoundError:
                if not pop.interrupted or left <= 0:  # otherwise the connection is back: ask again
                    return []

    async def peek(self, *, max: bool = False) -> Item | None:
        """Return the item that pop would remove, and leave it in the queue."""
        verb = "peek" if self.fifo else "peek.max" if errors.check_flag("max", max) else "peek.min"
        try:
            return item_of(await self.read(verb))
        except errors.NotFoundError:
            return None

"""Requests over a NATS connection, each with a reply subject of its own.

nats-py's request() cannot be used here. It takes every message with a header "Status: 503" for "no
responders", has one subscription for all replies, so that a late item counts as received, and
cannot be cancelled. So each request has an inbox: a subscription that no other request uses at the
same time. It is used again for later requests once its reply is complete, and closed otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

import nats.errors
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from . import errors
from .headers import Pairs, header_block

LATE_REPLY = 5.0
"""Seconds that a reply may be late. After that the bridge was killed, or NATS lost a message."""

_POLL = 0.05  # seconds between looks at a connection that tells no changes
_TURNS = 5  # of the event loop, after which nats-py has read what arrived while something blocked the loop
_MAX_IDLE = 1024
_REFUSAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
_PRIVATE = "_send_unsubscribe"  # of nats-py
_TOKEN = re.compile(r"(\.ack\.)[^. ]+")


class Interrupt(Exception):  # noqa: N818, as it is a signal
    """Ends a wait for a message: the connection is back, or the request should be cancelled."""


class Inbox:
    """Receives the messages that answer one request at a time."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._prefix = link.nc.new_inbox() + "."
        self._count = 0
        self._arrived: deque[Msg | Exception] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.subjects = (self._prefix + "*").lower()  # as the server's refusals have it
        self.subject = ""  # of the present request
        self.published = ""  # the subject that the request was sent to, in lower case
        self.number = link.number  # of the connection that it was opened on, or last used

    async def open(self) -> None:
        """Subscribe."""
        self._subscription = await self._link.nc.subscribe(
            self._prefix + "*", cb=self._receive, pending_msgs_limit=0, pending_bytes_limit=0
        )

    def begin(self, subject: str) -> None:
        """Begin a request on a subject: messages for earlier ones are ignored from now on."""
        self._count += 1
        self.subject, self.published = f"{self._prefix}{self._count}", subject.lower()
        self.number = self._link.number
        self._arrived.clear()

    async def _receive(self, message: Msg) -> None:
        if message.subject != self.subject:
            return
        if not message.data and (message.headers or {}).get("Status") == "503":
            self.put(errors.NoBridgeError(f"no bridge is listening on {hide_tokens(self.published)}"))
        else:
            self.put(message)

    def put(self, entry: Msg | Exception) -> None:
        """Have next return a message, or raise an error."""
        self._arrived.append(entry)
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self, deadline: float) -> Msg:
        """Return the next message, or raise asyncio.TimeoutError at that time of the loop."""
        loop, looked = asyncio.get_running_loop(), False
        while not self._arrived:
            if loop.time() >= deadline:
                if looked:
                    raise asyncio.TimeoutError
                looked = True
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                continue
            self._waiter = loop.create_future()
            timer = loop.call_at(deadline, self._wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None

        entry = self._arrived.popleft()
        if isinstance(entry, Exception):
            raise entry
        return entry

    async def close(self) -> list[Msg]:
        """End the subscription, so that NATS tells the bridge that nobody receives what comes.

        Return what came before that: for the bridge it was received.
        """
        nc = self._link.nc
        with contextlib.suppress(nats.errors.Error):
            if nc.is_connected and await _send_unsubscribe(nc, self._subscription):
                await self._link.ping(0.5)
            while self._subscription.pending_msgs and not nc.is_closed:
                await asyncio.sleep(0)
            await self._subscription.unsubscribe()
        return [entry for entry in self._arrived if isinstance(entry, Msg)]


async def _send_unsubscribe(nc: NATS, subscription: Subscription) -> bool:
    """Have the server send no more, but go on reading, and report whether this nats-py can do that.

    Its public unsubscribe reads no more at once. drain sends its PING ahead of this, and if the PONG
    takes more than ten seconds, nats-py's read loop ends.
    """
    send, number = getattr(nc, _PRIVATE, None), getattr(subscription, "_id", None)
    if send is None or number is None:
        return False
    await send(number)
    return True


class Link:
    """What all clients of a connection share."""

    def __init__(self, nc: NATS) -> None:
        self.nc = nc
        self.poll = _POLL
        """Seconds between looks at the connection: whoever calls notice and changed needs few."""
        self.waits_to_send = True
        """Whether publish of nats-py may wait, and swallow a cancellation meanwhile."""
        self._idle: list[Inbox] = []
        self._under_way: dict[Inbox, None] = {}  # in the order in which they were sent
        self._heard = -1  # the number of the connection on which inboxes are allowed
        self._noticed = nc.last_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self._seen = self.number  # the number of the connection when it was last looked at
        self._watch: asyncio.TimerHandle | None = None
        self._change: asyncio.Future[None] | None = None

    @property
    def number(self) -> int:
        """Number of the present connection to a server: it grows with each."""
        return self.nc.stats["reconnects"]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs what nobody waits for any more

    async def wait(self, timeout: float) -> None:
        """Wait for what runs in the background, for that many seconds at most."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)

    async def ping(self, timeout: float) -> bool:
        """Report whether the server has seen all that was sent, and said what it refuses."""
        for _ in range(100):  # nats-py sends a PING at once, ahead of what it has buffered
            if not self.nc.pending_data_size:
                break
            await asyncio.sleep(0)

        # A PONG for a flush that has timed out, or was cancelled, ends nats-py's read loop.
        loop, number = asyncio.get_running_loop(), self.number
        flush, end = self.spawn(self._flush()), loop.time() + timeout
        while not flush.done() and loop.time() < end and self.nc.is_connected and self.number == number:
            await self.wait_change(min(self.poll, end - loop.time()), flush)
        self.notice(self.nc.last_error)
        return flush.done() and flush.result() is True

    async def _flush(self) -> bool:
        with contextlib.suppress(nats.errors.Error):
            await self.nc.flush(timeout=300)
            return True
        return False

    def notice(self, error: Exception | None) -> None:
        """End the request that the server has refused, if an error of the connection says so."""
        if error is None or error is self._noticed:
            return
        self._noticed = error
        refusal = _REFUSAL.search(str(error).lower())
        if not refusal:
            return

        verb, subject = refusal.groups()
        if verb == "subscription":
            self._heard = -1
            self._idle = [i for i in self._idle if i.subjects != subject]
        refused = [i for i in self._under_way if subject == (i.published if verb == "publish" else i.subjects)]
        if not refused:
            return

        # With several on the subject, it may be another one that was carried out.
        text = hide_tokens(refusal.group())
        certain = len(refused) == 1 and (verb == "publish" or not refused[0].published)
        refused[0].put(errors.DeniedError(text) if certain else errors.UnknownOutcomeError(text))
        del self._under_way[refused[0]]  # there is one refusal for each request

    def changed(self) -> None:
        """Notice that the connection was lost, is back, or is closed."""
        self._seen = self.number
        if self._change and not self._change.done():
            self._change.set_result(None)
        for inbox in self._under_way:
            if self.nc.is_closed or inbox.number != self.number:  # otherwise it was sent since
                inbox.put(Interrupt())

    async def wait_change(self, most: float, *others: asyncio.Future[Any]) -> None:
        """Wait for a change of the connection, or for one of the others, for that many seconds at most."""
        if self._change is None or self._change.done():
            self._change = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._change, *others}, timeout=most, return_when=asyncio.FIRST_COMPLETED)

    def _look(self) -> None:
        """Notice what nats-py tells only to callbacks that were set when it connected."""
        self.notice(self.nc.last_error)
        if self.nc.is_closed or self.number != self._seen:
            self.changed()
        more = self._under_way and not self.nc.is_closed
        self._watch = asyncio.get_running_loop().call_later(self.poll, self._look) if more else None

    async def _wait_connected(self, subject: str, deadline: float) -> None:
        while not self.nc.is_connected or self.nc.is_draining:
            left = deadline - asyncio.get_running_loop().time()
            closed = self.nc.is_closed or self.nc.is_draining
            if closed or left <= 0:
                why = "is closed" if closed else "is down"
                error = errors.NotSentError(f"a request on {hide_tokens(subject)}: the connection to NATS {why}")
                error.is_passing = not closed
                raise error
            await self.wait_change(min(self.poll, left))

    async def _open_inbox(self, deadline: float) -> Inbox:
        while self._idle:
            inbox = self._idle.pop()
            if inbox.number == self.number:
                return inbox
            self.spawn(self.close(inbox))  # this server may have refused it

        inbox = Inbox(self)
        self._under_way[inbox] = None
        try:
            await asyncio.shield(self.spawn(inbox.open()))
            if self._heard != self.number:
                # Without a reply, nobody would know what became of the request.
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                number, told = self.number, await self.ping(min(left, LATE_REPLY))
                with contextlib.suppress(asyncio.TimeoutError, Interrupt):
                    await inbox.next(0)  # raises DeniedError if it was refused
                self._heard = number if told else -1
        except BaseException:
            self.release(inbox, complete=False)
            raise
        return inbox

    async def send(
        self, subject: str, data: bytes, headers: Pairs, deadline: float, sending: Callable[[Inbox], None] | None = None
    ) -> Inbox:
        """Send a request once the connection is up, and return the inbox for its reply.

        The headers must be plain. deadline is a time of the loop. sending is called with the inbox
        just before: if the task is cancelled from then on, the inbox is left to the caller.
        """
        while True:
            await self._wait_connected(subject, deadline)
            size = len(header_block(headers)) + len(data)
            if size > self.nc.max_payload:  # nats-py would lose its connection for good
                raise errors.TooLargeError(
                    f"a message of {size} bytes: the NATS server takes {self.nc.max_payload} at most, headers included"
                )

            inbox: Inbox | None = None
            try:
                inbox = await self._open_inbox(deadline)
                inbox.begin(subject)
                self._under_way[inbox] = None
                if self._watch is None:
                    self._look()
                if sending:
                    sending(inbox)
                publish = self.nc.publish(subject, data, reply=inbox.subject, headers=dict(headers) or None)
                await (asyncio.shield(self.spawn(publish)) if self.waits_to_send else publish)
                return inbox
            except BaseException as error:
                if inbox and not (sending and isinstance(error, asyncio.CancelledError)):
                    self.release(inbox, complete=False)
                if isinstance(error, nats.errors.OutboundBufferLimitError):
                    continue  # the connection was lost just now
                if isinstance(error, nats.errors.Error):
                    text = f"a request on {hide_tokens(subject)}: {error}"
                    raise errors.NotSentError(text) from error
                raise

    def release(self, inbox: Inbox, *, complete: bool) -> None:
        """End the request of an inbox. Unless its reply is complete, nothing more is received."""
        if complete and len(self._idle) < _MAX_IDLE and not self.nc.is_closed:
            self._under_way.pop(inbox, None)
            self._idle.append(inbox)
        else:
            self.spawn(self.close(inbox))

    async def close(self, inbox: Inbox) -> list[Msg]:
        """End the request and the subscription of an inbox, and return what came before that."""
        rest = await inbox.close()
        self._under_way.pop(inbox, None)  # only now, because a refusal may still have come
        return rest

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        headers: Pairs = (),
        *,
        timeout: float,
        writes: bool = True,
        restless: bool = False,
    ) -> Msg:
        """Send a request and return its reply; raise the error that the reply says.

        timeout is in seconds, for the connection and the reply. writes says that the request can
        change something: without a reply its outcome is unknown. restless gives up when the
        connection was lost, because the reply is lost too, most likely.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        inbox = await self.send(subject, data, headers, deadline)
        complete = False
        try:
            while True:
                try:
                    reply = await inbox.next(deadline)
                    complete = True
                    break
                except Interrupt:
                    if restless or self.nc.is_closed:
                        raise self.no_reply(subject, writes) from None
                except asyncio.TimeoutError:
                    raise self.no_reply(subject, writes, f"waited {timeout:g} s") from None
                except errors.NoBridgeError:
                    complete = True
                    raise
        finally:
            self.release(inbox, complete=complete)

        if error := errors.error_of(reply.headers or {}):
            raise error
        return reply

    def no_reply(self, subject: str, writes: bool, why: str = "the connection was lost") -> errors.PQError:
        """Return the error of a request without a reply."""
        kind, closed = errors.UnknownOutcomeError if writes else errors.UnavailableError, self.nc.is_closed
        why = "the connection is closed" if closed else why
        error = kind(f"no reply on {hide_tokens(subject)}: {why}")
        error.is_passing = not closed
        return error


def hide_tokens(subject: str) -> str:
    """Return a subject without the token of a lease, which would let its reader acknowledge."""
    return _TOKEN.sub(r"\1...", subject)


_LINKS: WeakValueDictionary[int, Link] = WeakValueDictionary()
"""By the id of the connection, which lives as long as its link."""


def link_of(nc: NATS) -> Link:
    """Return the link of a connection."""
    return _LINKS.get(id(nc)) or _LINKS.setdefault(id(nc), Link(nc))

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
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from .errors import (
    DeniedError,
    NoBridgeError,
    NotSentError,
    PQError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
    error_of,
)
from .headers import header_block

LATE_REPLY = 5.0
"""Seconds that a reply may be late. After that the bridge was killed, or NATS lost a message."""

_POLL = 0.05
_TURNS = 5  # of the event loop, after which nats-py has read what arrived while something blocked the loop
_MAX_IDLE = 1024
_REFUSAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')
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
            self.put(NoBridgeError(f"no bridge is listening on {hide_tokens(self.published)}"))
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
            if nc.is_connected:
                # Subscription.drain() sends its PING before this, and if the PONG takes more than
                # ten seconds, nats-py's read loop ends.
                await nc._send_unsubscribe(self._subscription._id)
                await self._link.ping(0.5)
                while self._subscription.pending_msgs:
                    await asyncio.sleep(0)
            await self._subscription.unsubscribe()
        return [entry for entry in self._arrived if isinstance(entry, Msg)]


class Link:
    """What all clients of a connection share."""

    def __init__(self, nc: NATS) -> None:
        self.nc = nc
        self._idle: list[Inbox] = []
        self._under_way: dict[Inbox, None] = {}  # in the order in which they were sent
        self._heard = -1  # the number of the connection on which inboxes are allowed
        self._noticed = nc.last_error
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None

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
            await asyncio.wait({flush}, timeout=min(_POLL, end - loop.time()))
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
        refused[0].put(DeniedError(text) if certain else UnknownOutcomeError(text))
        del self._under_way[refused[0]]  # there is one refusal for each request

    async def _watch(self) -> None:
        """Notice what nats-py tells only to callbacks that were set when it connected."""
        number = self.number
        while self._under_way:
            await asyncio.sleep(_POLL)
            self.notice(self.nc.last_error)
            if self.nc.is_closed or self.number != number:
                number = self.number
                closed = UnknownOutcomeError("the connection is closed")
                for inbox in self._under_way:
                    if self.nc.is_closed:
                        inbox.put(closed)
                    elif inbox.number != number:  # otherwise it was sent since
                        inbox.put(Interrupt())

    async def _wait_connected(self, subject: str, deadline: float) -> None:
        while not self.nc.is_connected:
            left = deadline - asyncio.get_running_loop().time()
            closed = self.nc.is_closed or self.nc.is_draining
            if closed or left <= 0:
                why = "is closed" if closed else "is away"
                raise NotSentError(f"a request on {hide_tokens(subject)}: the connection to NATS {why}")
            await asyncio.sleep(min(_POLL, left))

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
        self,
        subject: str,
        data: bytes,
        headers: Sequence[tuple[str, str]],
        deadline: float,
        sending: Callable[[Inbox], None] | None = None,
    ) -> Inbox:
        """Send a request once the connection is up, and return the inbox for its reply.

        The headers must be plain. deadline is a time of the loop. sending is called with the inbox
        just before: if the task is cancelled from then on, the inbox is left to the caller.
        """
        while True:
            await self._wait_connected(subject, deadline)
            size = len(header_block(headers)) + len(data)
            if size > self.nc.max_payload:  # nats-py would lose its connection for good
                raise TooLargeError(
                    f"a message of {size} bytes: the NATS server takes {self.nc.max_payload} at most, headers included"
                )

            inbox: Inbox | None = None
            try:
                inbox = await self._open_inbox(deadline)
                inbox.begin(subject)
                self._under_way[inbox] = None
                if self._watcher is None or self._watcher.done():
                    self._watcher = self.spawn(self._watch())
                if sending:
                    sending(inbox)
                # A task, because nats-py swallows a cancellation while it flushes.
                publish = self.nc.publish(subject, data, reply=inbox.subject, headers=dict(headers) or None)
                await asyncio.shield(self.spawn(publish))
                return inbox
            except BaseException as error:
                if inbox and not (sending and isinstance(error, asyncio.CancelledError)):
                    self.release(inbox, complete=False)
                if isinstance(error, nats.errors.OutboundBufferLimitError):
                    continue  # the connection was lost just now
                if isinstance(error, nats.errors.Error):
                    text = f"a request on {hide_tokens(subject)}: {error}"
                    raise NotSentError(text) from error
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
        headers: Sequence[tuple[str, str]] = (),
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
                    if restless:
                        raise no_reply(subject, "the connection was lost", writes) from None
                except asyncio.TimeoutError:
                    raise no_reply(subject, f"waited {timeout:g} s", writes) from None
                except NoBridgeError:
                    complete = True
                    raise
        finally:
            self.release(inbox, complete=complete)

        if error := error_of(reply.headers or {}):
            raise error
        return reply


def no_reply(subject: str, why: str, writes: bool) -> PQError:
    """Return the error of a request without a reply."""
    kind = UnknownOutcomeError if writes else UnavailableError
    return kind(f"no reply on {hide_tokens(subject)}: {why}")


def hide_tokens(subject: str) -> str:
    """Return a subject without the token of a lease, which would let its reader acknowledge."""
    return _TOKEN.sub(r"\1...", subject)


def link_of(nc: NATS) -> Link:
    """Return the link of a connection."""
    link: Link | None = getattr(nc, "_pqbridge_link", None)
    if link is None:
        link = Link(nc)
        nc._pqbridge_link = link  # type: ignore[attr-defined]
    return link

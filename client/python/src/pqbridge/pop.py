"""Requests that may bring items: they wait, can be cancelled, and lose nothing that has come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import secrets
from typing import Any, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from . import errors
from .headers import Headers, Pairs, parse_frames
from .item import read
from .link import LATE_REPLY, Inbox, Interrupt, Link
from .times import clock

CANCEL_TIME = 2.0
"""Seconds that the bridge may take to end a request that was cancelled."""


class Received(NamedTuple):
    """An item as it came."""

    value: bytes
    headers: Headers
    ack_subject: str  # "" if it is not leased
    began: float  # the lease began at that time of the clock, or later


class Pop:
    """A request that pops or leases, with the options of the protocol."""

    def __init__(
        self,
        link: Link,
        subject: str,
        options: dict[str, Any],
        *,
        acks: str,
        timeout: float,
        expires: float = 0,
        heartbeat: float = 0,
        headers: Pairs = (),
        data: bytes | None = None,
    ) -> None:
        self._link, self._subject, self._acks = link, subject, acks
        self._heartbeat, self._expires, self._timeout = heartbeat, expires, timeout
        self._wanted: int = options.get("batch", 1)
        self._id = ""
        if expires:
            self._id = options["id"] = secrets.token_urlsafe(16)
        self._headers = headers
        self._data = json.dumps(options).encode() if data is None else data
        self._inbox: Inbox | None = None
        self._began = 0.0
        self.received: list[Received] = []
        self.interrupted = False  # by interrupt, or because the connection was lost

    async def run(self) -> list[Received]:
        """Return the items; raise the error of the reply if there is none.

        An error after some items is not raised: the next request meets it again. If the task is
        cancelled, so is the request: leased items that still come are given back.
        """
        loop = asyncio.get_running_loop()
        patience = self._expires + LATE_REPLY if self._expires else self._timeout
        deadline, complete, failed = loop.time() + self._timeout, False, None
        try:
            inbox = await self._link.send(self._subject, self._data, self._headers, deadline, self._sending)
            try:
                failed = await self._read(inbox, loop.time() + patience)
                complete = True
            except errors.NoBridgeError:
                complete = True
                raise
            except errors.PQError as error:
                failed = error
                await self._end(inbox)
                self._inbox = None
        except asyncio.CancelledError:
            if self._inbox:
                self._link.spawn(self._abandon(self._inbox))
                self._inbox = None
            raise
        finally:
            if self._inbox:
                self._link.release(self._inbox, complete=complete)
                self._inbox = None

        if failed and not self.received:
            raise failed
        return self.received

    def _sending(self, inbox: Inbox) -> None:
        self._inbox, self._began = inbox, clock()

    def interrupt(self) -> bool:
        """Cancel the request, and report whether it may have been sent.

        Then its run ends soon, maybe with items that were on their way.
        """
        if self._inbox:
            self._inbox.put(Interrupt())
        return self._inbox is not None

    async def _read(self, inbox: Inbox, deadline: float) -> errors.PQError | None:
        """Read the reply. What ended it early is returned, what broke it off is raised."""
        loop = asyncio.get_running_loop()
        # A bridge that is busy may be late with its heartbeats.
        silence = max(2 * self._heartbeat, LATE_REPLY) if self._heartbeat else math.inf
        cancelled = False
        while len(self.received) < self._wanted:
            until = min(deadline, loop.time() + silence)
            try:
                message = await inbox.next(until)
            except Interrupt:
                self.interrupted = True
                if not self._id or self._link.nc.is_closed:  # an acknowledgement has to be repeated at once
                    raise self._link.no_reply(self._subject, writes=True) from None
                if not cancelled:
                    await self._cancel()
                    cancelled, silence, deadline = True, math.inf, loop.time() + CANCEL_TIME
                continue
            except asyncio.TimeoutError:
                if until < deadline:
                    raise errors.NoHeartbeatError(f"no heartbeat for {silence:g} s") from None
                raise self._link.no_reply(self._subject, writes=True, why="waited too long") from None
            ended, error = self._take(message)
            if ended:
                return error
        return None

    def _take(self, message: Msg) -> tuple[bool, errors.PQError | None]:
        """Take what a message has, and report whether it ends the reply, and with which error."""
        headers = message.headers or {}
        if "Pq-Heartbeat" in headers:
            # The bridge sent it at least an interval after the one before. When this process reads
            # it says little: it may have stood still.
            self._began += self._heartbeat
            return False, None

        frames = read(int, headers.get("Pq-Frames", "0"))
        if frames:
            for own, value in parse_frames(message.data, frames):
                token = own.get("Pq-Token")
                ack_subject = self._acks + token if token else ""
                self.received.append(Received(value, own, ack_subject, self._began))

        error, count = errors.error_of(headers), len(self.received)
        if "Pq-Batch-Count" in headers:
            sent = read(int, headers["Pq-Batch-Count"])
            if sent > count:
                return True, errors.UnknownOutcomeError(f"{count} of {sent} items arrived")
            return True, error or (None if count else errors.NotFoundError("the queue is empty"))
        if error or frames:
            return error is not None, error
        self.received.append(Received(message.data, Headers(headers.items()), message.reply, self._began))
        return False, None

    async def _end(self, inbox: Inbox) -> None:
        """End a request whose reply is not complete, and take what came before its end."""
        for message in await asyncio.shield(self._link.spawn(self._link.close(inbox))):
            with contextlib.suppress(errors.PQError):
                self._take(message)

    async def _cancel(self) -> None:
        """Ask the bridge to end the request. The answer says nothing, so nobody reads it."""
        nc = self._link.nc
        if self._id and nc.is_connected:
            data = json.dumps({"cancel": self._id}).encode()
            publish = nc.publish(self._subject, data, reply=nc.new_inbox())
            await asyncio.wait({self._link.spawn(publish)})

    async def _abandon(self, inbox: Inbox) -> None:
        """End a request that nobody waits for any more, and give back what it still leases."""
        with contextlib.suppress(errors.PQError, nats.errors.Error):
            await self._cancel()
            await self._read(inbox, asyncio.get_running_loop().time() + CANCEL_TIME)
        await self._end(inbox)
        for leased in self.received:
            if leased.ack_subject:
                with contextlib.suppress(nats.errors.Error):
                    await self._link.nc.publish(leased.ack_subject, b'-NAK {"snooze":true}')

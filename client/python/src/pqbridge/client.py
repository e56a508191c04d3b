"""The entry: a connection, and the queues behind it."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any

from nats.aio.client import Client as NATS
from nats.aio.msg import Msg
from nats.errors import Error, SecureConnWantedError

from .codec import JSON, Codec
from .delivery import Delivery, Seldom, ack_all
from .errors import BadArgumentError, DeniedError, NotSentError, PQError
from .link import link_of
from .manage import pages
from .pop import CANCEL_TIME
from .queue import Queue
from .times import Duration, seconds

_LOG = logging.getLogger("pqbridge.connection")
_POLL = 1.0  # seconds: nats-py 2.9 does not call closed_cb in all cases
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")  # of subjects
_CLOSE = 2.0  # seconds for what was sent before a close
_REFUSED = re.compile("authorization violation|authentication (expired|revoked)", re.IGNORECASE)  # a login


class Connection(NATS):
    """A connection of nats-py, which tells a server nothing without TLS if the caller asked for that.

    Only at the start does a login that is refused end it. It leaves a server that does not read what was sent to it.
    """

    _begins = True

    async def connect(self, *args: Any, **options: Any) -> None:
        try:
            await super().connect(*args, **options)
        except BaseException:
            if self._transport:
                await self._close(NATS.CLOSED, False)
            raise
        self._begins = False

    def check(self, error: Exception) -> None:
        """Raise DeniedError if no server of a connection that begins is left to try, and one refuses the login."""
        link_of(self).notice(error)
        if self._begins and _REFUSED.search(str(error)) and all(s.last_attempt for s in self._server_pool):
            at = (self._current_server or self._server_pool[0]).uri
            denied = DeniedError(f"NATS at {at.hostname}:{at.port} refuses this login: {error}")
            denied.is_passing = True
            raise denied

    async def _process_err(self, err_msg: str) -> None:
        """Connect again, for example after a reload that took the login: nats-py would close for good."""
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
        else:
            await self._error_cb(error := Error(f"nats: {err_msg}"))
            await self._process_op_err(error)

    async def _attempt_reconnect(self) -> None:
        """Send nothing of what has waited: nats-py would wait until the old server has it, and tell the new one."""
        self._abort()
        self._pending, self._pending_data_size = [], 0
        await super()._attempt_reconnect()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        timer = asyncio.get_running_loop().call_later(_CLOSE, self._abort)
        try:
            await super()._close(status, do_cbs)
        finally:
            timer.cancel()

    def _abort(self) -> None:
        if writer := getattr(self._transport, "_io_writer", None):  # a WebSocket has none
            writer.transport.abort()

    # In nats-py 2.9 it is no coroutine.
    def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> Any:
        server = self._current_server
        wanted = server and (server.uri.scheme == "tls" or self.options.get("tls"))
        if initial_connection and wanted and not self.options.get("tls_handshake_first"):
            if not info.get("tls_required") and not info.get("tls_available"):
                raise SecureConnWantedError
            info["tls_required"] = True
        return super()._process_info(info, initial_connection)


class Connecting(Awaitable[NATS]):
    """What connect returns: await it, or use it with async with, which closes the connection at the end."""

    def __init__(self, connecting: Coroutine[Any, Any, NATS]) -> None:
        self._connecting = connecting

    def __await__(self) -> Generator[Any, Any, NATS]:
        return self._connecting.__await__()

    async def __aenter__(self) -> NATS:
        self._nc = await self._connecting
        return self._nc

    async def __aexit__(self, *_: object) -> None:
        await self._nc.close()


def connect(servers: str | list[str] | None = None, **options: Any) -> Connecting:
    """Connect to NATS as queues need it, and return the connection of nats-py.

        async with pqbridge.connect() as nc: ...

    servers default to the environment variable NATS_URL, or else to port 4222 here. It
    tries until a server is there, and reconnects indefinitely. Nothing is sent after an outage
    that was given up before it, and a frozen or dead server is left within a minute. options are passed to
    nats.connect, and count more. Errors of the connection go to the logger "pqbridge.connection", a
    warning once a minute, unless there is an error_cb.

    Errors: DeniedError if a server refuses the login at the start. Later it is tried again.
    """
    return Connecting(_connect(Connection(), servers, options))


async def connect_within(timeout: float, servers: str | list[str] | None, options: dict[str, Any]) -> NATS:
    """Connect as connect does, for that many seconds at most. Errors: NotSentError."""
    nc = Connection()
    try:
        return await asyncio.wait_for(_connect(nc, servers, options), timeout)
    except (asyncio.TimeoutError, Error) as error:
        at = ", ".join(f"{uri.hostname}:{uri.port}" for uri in nc.servers)
        last = nc.last_error if isinstance(error, asyncio.TimeoutError) else error
        why = (last and (str(last) or repr(last))) or "no answer"
        raise NotSentError(f"no connection to NATS at {at} within {timeout:g} s: {why}") from None


async def _connect(nc: Connection, servers: str | list[str] | None, options: dict[str, Any]) -> NATS:
    link = link_of(nc)
    defaults = {"max_reconnect_attempts": -1, "pending_size": 0, "reconnect_time_wait": 0.5, "ping_interval": 15}
    defaults |= {"flusher_queue_size": 0}  # no bound: where a PING waits for room, no frozen server is noticed
    options = defaults | {name: option for name, option in options.items() if option is not None}

    def first(then: Callable[..., Any], tell: Callable[..., Any] | None) -> Callable[..., Any]:
        async def callback(*args: Any) -> None:
            then(*args)
            try:
                told = tell(*args) if tell else None
                if inspect.isawaitable(told):
                    await told
            except Exception:  # after which nats-py would not reconnect
                _LOG.exception("a callback of the connection failed")

        return callback

    seldom = Seldom()

    async def log(error: Exception) -> None:
        _LOG.log(seldom.level("error"), "the connection to NATS: %s", str(error) or repr(error))

    options["error_cb"] = first(nc.check, options.get("error_cb") or log)
    for name in ("disconnected_cb", "reconnected_cb", "closed_cb"):
        options[name] = first(link.changed, options.get(name))
    link.poll, link.waits_to_send = _POLL, options["pending_size"] > 0
    await nc.connect(servers or os.environ.get("NATS_URL") or "nats://127.0.0.1:4222", **options)
    return nc


class Client:
    """The queues behind a NATS connection, which the caller closes.

    prefix and fifo_prefix begin the bridges' subjects; timeout bounds each request, in
    seconds or as a text; codec turns values that are not bytes into bytes. At the end of async with,
    jobs that came to leases which were cancelled have been given back.
    """

    def __init__(
        self, nc: NATS, *, prefix: str = "pq", fifo_prefix: str = "q", timeout: Duration = 10.0, codec: Codec = JSON
    ) -> None:
        if not callable(getattr(nc, "publish", None)):
            raise TypeError(f"{nc!r:.100}: want a connection, as `await pqbridge.connect()` returns it")
        self.nc = nc
        self._link = link_of(nc)
        self._prefix, self._fifo_prefix = prefix or "pq", fifo_prefix or "q"
        for name, given in {"prefix": self._prefix, "fifo_prefix": self._fifo_prefix}.items():
            if not isinstance(given, str) or not _PREFIX.fullmatch(given):
                raise BadArgumentError(f"{name} {given!r:.100}: want letters, digits, - and _, with dots between")
        if not hasattr(codec or JSON, "encode") or not hasattr(codec or JSON, "decode"):
            raise BadArgumentError(f"codec {codec!r:.100}: want an object with encode and decode")
        self._codec, self._timeout = codec or JSON, 10.0 if timeout is None else seconds(timeout, "timeout")
        if self._timeout <= 0:
            raise BadArgumentError(f"timeout {timeout!r}: want more than 0")

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._link.wait(2 * CANCEL_TIME)

    def priority_queue(self, name: str) -> Queue:
        """Return the priority queue with this name, 1 to 128 letters, digits, - and _."""
        return Queue(self.nc, self._prefix, name, fifo=False, codec=self._codec, timeout=self._timeout)

    def fifo_queue(self, name: str) -> Queue:
        """Return the FIFO queue with this name."""
        return Queue(self.nc, self._fifo_prefix, name, fifo=True, codec=self._codec, timeout=self._timeout)

    def priority_queues(self) -> AsyncIterator[str]:
        """Iterate over the names of all priority queues that have items or settings, sorted."""
        return self._names(self._prefix)

    def fifo_queues(self) -> AsyncIterator[str]:
        """Iterate over the names of all FIFO queues that have items or settings, sorted."""
        return self._names(self._fifo_prefix)

    async def _names(self, prefix: str) -> AsyncIterator[str]:
        async def ask(query: dict[str, Any]) -> Msg:
            data = json.dumps(query).encode()
            return await self._link.request(f"{prefix}.list", data, timeout=self._timeout, writes=False)

        async for queue in pages(ask, "queues", {}):
            yield queue["queue"]

    async def ack_all(self, deliveries: Iterable[Delivery]) -> list[PQError | None]:
        """Acknowledge deliveries of any queues, in as few requests as possible, and return the error of each.

        The items of one request are removed together or not at all. If some leases are lost, another
        request acknowledges the others. Call it again with the deliveries whose error is unknown:
        LeaseLostError then most likely means that the first call counted.
        """
        return await ack_all(deliveries)

"""The entry: a connection, and the queues behind it."""

from __future__ import annotations

import logging
import os
from typing import Any

from nats.aio.client import Client as NATS

from .codec import JSON, Codec
from .errors import BadArgumentError
from .link import link_of
from .queue import Queue
from .times import Duration, seconds

_LOG = logging.getLogger("pqbridge")


async def connect(servers: str | list[str] | None = None, **options: Any) -> NATS:
    """Connect to NATS as queues need it, and return the connection of nats-py.

    servers default to the environment variable NATS_URL, or else to port 4222 here. It
    tries until a server is there, and reconnects indefinitely. Nothing is sent after an outage
    that was given up before it, and a dead server is noticed within a minute. options are passed to
    nats.connect, and count more. Errors of the connection go to the logger "pqbridge.connection",
    unless there is an error_cb.
    """
    nc = NATS()
    servers = servers or os.environ.get("NATS_URL") or "nats://127.0.0.1:4222"
    given = options.pop("error_cb", None)

    async def on_error(error: Exception) -> None:
        link_of(nc).notice(error)
        if given:
            await given(error)
        else:
            _LOG.getChild("connection").info("%s", error)

    defaults = {"max_reconnect_attempts": -1, "pending_size": 0, "reconnect_time_wait": 0.5, "ping_interval": 20}
    await nc.connect(servers, error_cb=on_error, **(defaults | options))
    return nc


class Client:
    """The queues behind a NATS connection, which the caller closes.

    prefix and fifo_prefix begin the bridges' subjects; timeout bounds each request, in
    seconds or as a text; codec turns values that are not bytes into bytes.
    """

    def __init__(
        self, nc: NATS, *, prefix: str = "pq", fifo_prefix: str = "q", timeout: Duration = 10.0, codec: Codec = JSON
    ) -> None:
        self.nc = nc
        self._prefix, self._fifo_prefix = prefix, fifo_prefix
        self._codec, self._timeout = codec, seconds(timeout)
        if self._timeout <= 0:
            raise BadArgumentError(f"timeout {timeout!r}: want more than 0")

    def priority_queue(self, name: str) -> Queue:
        """Return the priority queue with this name, 1 to 128 letters, digits, - and _."""
        return Queue(self.nc, self._prefix, name, fifo=False, codec=self._codec, timeout=self._timeout)

    def fifo_queue(self, name: str) -> Queue:
        """Return the FIFO queue with this name."""
        return Queue(self.nc, self._fifo_prefix, name, fifo=True, codec=self._codec, timeout=self._timeout)

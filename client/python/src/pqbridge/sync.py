"""A blocking client for scripts and web frameworks: push, push_many, call and result.

    jobs = pqbridge.sync.Client("nats://127.0.0.1:4222").priority_queue("jobs")
    jobs.push({"to": "eve"}, priority=5, type="email")

It may be used by any number of threads, and in processes that fork: each has a connection of its
own, from its first request on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from nats.aio.client import Client as NATS

from . import client, queue
from .errors import NotSentError, UnknownOutcomeError
from .times import Duration, seconds

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """The queues behind a NATS server, over a connection in a thread of its own.

    timeout bounds each request and the wait for the connection, in seconds; options are passed to
    pqbridge.Client (prefix, fifo_prefix, codec); nats to nats.connect.
    """

    def __init__(
        self,
        servers: str | list[str] | None = None,
        *,
        timeout: Duration = 10.0,
        nats: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._servers, self._nats = servers, nats or {}
        self._timeout, self._options = seconds(timeout), options
        self._lock = threading.Lock()
        self._process = 0
        self._inherited: list[object] = []
        self._nc: NATS | None = None

    def priority_queue(self, name: str) -> Queue:
        """Return the priority queue with this name."""
        return Queue(self, name, fifo=False)

    def fifo_queue(self, name: str) -> Queue:
        """Return the FIFO queue with this name."""
        return Queue(self, name, fifo=True)

    def close(self) -> None:
        """Close the connection. A later request opens another one."""
        with self._lock:
            if self._process == os.getpid():
                asyncio.run_coroutine_threadsafe(self._disconnect(), self._loop).result()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._process, self._nc = 0, None

    async def _disconnect(self) -> None:
        if self._nc:
            await self._nc.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
        """Run something with the asynchronous client, and return what it returns."""
        with self._lock:
            if self._process != os.getpid():  # the first request, or the first after a fork
                # Nothing of the parent's may be finalized here, because both share its epoll.
                self._inherited.append((getattr(self, "_loop", None), self._nc))
                self._process, self._nc = os.getpid(), None
                self._loop = asyncio.new_event_loop()
                self._connecting = asyncio.Lock()
                self._thread = threading.Thread(target=self._loop.run_forever, name="pqbridge", daemon=True)
                self._thread.start()
            running = asyncio.run_coroutine_threadsafe(self._connected(work), self._loop)
        try:
            return running.result()
        except CancelledError:
            raise UnknownOutcomeError("the client was closed meanwhile") from None

    async def _connected(self, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
        async with self._connecting:
            if self._nc is None or self._nc.is_closed:
                connect = client.connect(self._servers, **self._nats)
                try:
                    self._nc = await asyncio.wait_for(connect, self._timeout)
                except asyncio.TimeoutError:
                    raise NotSentError(f"no NATS server at {self._servers}") from None
        return await work(client.Client(self._nc, timeout=self._timeout, **self._options))


def _blocking(
    method: Callable[Concatenate[queue.Queue, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Queue, P], T]:
    @wraps(method)
    def call(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work(c: client.Client) -> T:
            q = c.fifo_queue(self.name) if self.fifo else c.priority_queue(self.name)
            return await method(q, *args, **kwargs)

        return self.client.run(work)

    return call


class Queue:
    """A queue with methods of pqbridge.Queue that block until they are done."""

    def __init__(self, client: Client, name: str, *, fifo: bool) -> None:
        self.client, self.name, self.fifo = client, name, fifo

    push = _blocking(queue.Queue.push)
    push_many = _blocking(queue.Queue.push_many)
    call = _blocking(queue.Queue.call)
    result = _blocking(queue.Queue.result)

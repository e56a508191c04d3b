"""A blocking client for scripts and web frameworks: push, push_many, all, open_join, call and result.

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
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from nats.aio.client import Client as NATS

from . import client, queue
from .errors import BadArgumentError, NotFoundError, NotSentError, UnknownOutcomeError
from .push import JoinerRef, PushOptions
from .times import Duration, seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")


class _Running:
    """A connection, once there is one, and the thread with its event loop."""

    def __init__(self) -> None:
        self.nc: NATS | None = None
        self.connecting = asyncio.Lock()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="pqbridge", daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self.loop.close()
            raise

    async def disconnect(self) -> None:
        if self.nc:
            await self.nc.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


_CLIENTS: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    """Begin anew in the child: the parent's threads are not there, and one may have held a lock."""
    for inherited in list(_CLIENTS):
        inherited._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Client:
    """The queues behind a NATS server, over a connection in a thread of its own.

    timeout bounds each request and the wait for the connection, in seconds; options are passed to
    pqbridge.Client (prefix, fifo_prefix, codec); nats to nats.connect.
    """

    def __init__(
        self,
        servers: str | list[str] | None = None,
        *,
        timeout: Duration | None = None,
        nats: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._servers, self._nats = servers, nats or {}
        self._timeout, self._options = 10.0 if timeout is None else seconds(timeout, "timeout"), options
        if self._timeout <= 0:
            raise BadArgumentError(f"timeout {timeout!r}: want more than 0")
        self._inherited: list[_Running | None] = []
        self._running: _Running | None = None
        self._lock = threading.Lock()
        _CLIENTS.add(self)

    def priority_queue(self, name: str) -> Queue:
        """Return the priority queue with this name."""
        return Queue(self, name, fifo=False)

    def fifo_queue(self, name: str) -> Queue:
        """Return the FIFO queue with this name."""
        return Queue(self, name, fifo=True)

    def close(self) -> None:
        """Close the connection. A later request opens another one."""
        with self._lock:
            running, self._running = self._running, None
            if running:
                asyncio.run_coroutine_threadsafe(running.disconnect(), running.loop).result()
                running.loop.call_soon_threadsafe(running.loop.stop)
                running.thread.join()
                running.loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self) -> None:
        # Nothing of the parent's may be finalized here, because both share its epoll.
        self._inherited.append(self._running)
        self._running, self._lock = None, threading.Lock()

    def run(self, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
        """Run something with the asynchronous client, and return what it returns."""
        result = None
        try:
            with self._lock:
                try:
                    running = self._running = self._running or _Running()
                except RuntimeError as error:
                    raise NotSentError(f"no thread for the connection: {error}") from error
                result = asyncio.run_coroutine_threadsafe(self._connected(running, work), running.loop)
            return result.result()
        except CancelledError:
            raise UnknownOutcomeError("the client was closed meanwhile") from None
        finally:
            if result:
                result.cancel()  # if a signal has interrupted this thread

    async def _connected(self, running: _Running, work: Callable[[client.Client], Coroutine[Any, Any, T]]) -> T:
        async with running.connecting:
            if running.nc is None or running.nc.is_closed:
                running.nc = await client.connect_within(self._timeout, self._servers, self._nats)
        return await work(client.Client(running.nc, timeout=self._timeout, **self._options))


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
    all = _blocking(queue.Queue.all)
    call = _blocking(queue.Queue.call)
    result = _blocking(queue.Queue.result)
    _open_join = _blocking(queue.Queue.open_join)
    _remove = _blocking(queue.Queue.remove)

    def open_join(self, value: Any, *, open: Duration, **options: Unpack[PushOptions]) -> OpenJoin:
        """Push a joiner, as pqbridge.Queue.open_join does."""
        return OpenJoin(self, self._open_join(value, open=open, **options))


class OpenJoin(JoinerRef):
    """A joiner to which members may be added until it is closed: they take it as their joiner."""

    def __init__(self, queue: Queue, opened: queue.OpenJoin) -> None:
        self._queue, self._guard, self.queue, self.id = queue, opened.guard, opened.queue, opened.id

    def close(self) -> None:
        """Say that no more members will come, as pqbridge.OpenJoin.close does."""
        with suppress(NotFoundError):
            self._queue._remove(self._guard)

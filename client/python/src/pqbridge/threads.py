"""Threads for handlers that are a plain def."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Ended = tuple[Any, BaseException | None]
"""What a function returned, or what it raised."""


class Threads:
    """A pool of at most that many threads. The process can end while one of them is busy.

    Executors of the standard library cannot do this: Python waits for their threads when it ends.
    Besides, a function that raises StopIteration would never end its future.
    """

    def __init__(self, most: int) -> None:
        self._most, self._started = most, 0
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._busy: set[asyncio.Future[Ended]] = set()

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Ended]:
        """Call a function in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ended] = loop.create_future()
        self._busy.add(future)
        future.add_done_callback(self._busy.discard)

        def end(ended: Ended) -> None:
            if not future.done():
                future.set_result(ended)

        def work() -> None:
            try:
                ended: Ended = function(), None
            except BaseException as error:
                ended = None, error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(end, ended)

        if self._started < self._most:
            try:
                threading.Thread(target=self._serve, name="pqbridge", daemon=True).start()
                self._started += 1
            except RuntimeError:  # the system has no more of them: those that run do it
                if not self._started:
                    future.cancel()
                    raise
        self._work.put(work)
        return future

    def _serve(self) -> None:
        while work := self._work.get():
            work()

    def abandon(self) -> None:
        """Cancel all futures. Functions that still run go on, and their results are ignored."""
        for future in list(self._busy):
            future.cancel()

    def close(self) -> None:
        """End each thread once it is idle."""
        for _ in range(self._started):
            self._work.put(None)

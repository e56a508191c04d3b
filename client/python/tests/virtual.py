"""An event loop whose time passes only when nothing else is left to do, for tests of what waits."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(selector := selectors.DefaultSelector())
        select = selector.select

        def jump(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            events = select(None if timeout is None else 0)
            if timeout and not events:
                self.now += timeout
            return events

        selector.select = jump  # type: ignore[method-assign]

    def time(self) -> float:
        return self.now

    def block(self, seconds: float) -> None:
        """Pass time as code does that blocks the loop."""
        self.now += seconds


def run_virtually(test: Callable[[VirtualLoop], Awaitable[T]], patch: pytest.MonkeyPatch) -> T:
    """Run a test in virtual time, which the clock of leases shows too."""
    loop = VirtualLoop()
    for module in ("delivery", "pop", "queue", "worker"):
        patch.setattr(f"pqbridge.{module}.clock", loop.time)

    async def bounded() -> T:
        try:
            return await asyncio.wait_for(test(loop), 1e6)
        finally:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

    try:
        return loop.run_until_complete(bounded())
    finally:
        loop.close()

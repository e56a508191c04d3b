"""The renewal of a lease, in virtual time and without NATS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from virtual import VirtualLoop, run_virtually

from pqbridge import LeaseLostError, PQError, Renewal, UnknownOutcomeError


class Lease:
    """A delivery whose extensions are noted, with their time, progress and timeout."""

    id = "job"

    def __init__(self, loop: VirtualLoop, ack_wait: float, answer: Callable[[int], PQError | float] = lambda n: 0.0):
        self.loop, self.ack_wait, self.began = loop, ack_wait, loop.time()
        self.start = self.began
        self.answer = answer
        self.sent: list[tuple[float, bytes | None]] = []
        self.timeouts: list[float] = []
        self.lost: list[PQError] = []

    async def extend(self, progress: bytes | None = None, *, timeout: float) -> None:
        """Answer after that many seconds, or fail once the timeout is over."""
        sent = self.loop.time()
        self.sent.append((round(sent - self.start, 6), progress))
        self.timeouts.append(timeout)
        answer = self.answer(len(self.sent))
        if isinstance(answer, LeaseLostError):
            raise answer
        await asyncio.sleep(timeout if isinstance(answer, PQError) else answer)
        if isinstance(answer, PQError):
            raise answer
        self.began = sent

    def renew(self) -> Renewal:
        return Renewal(self, self.lost.append, logging.getLogger("pqbridge.worker"))  # type: ignore[arg-type]


NO_REPLY = UnknownOutcomeError("no reply")


def test_progress_is_sent_at_most_once_a_second_and_the_latest_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def say_often(loop: VirtualLoop) -> Lease:
        lease = Lease(loop, 30.0)
        renewal = lease.renew()
        for n in range(250):
            renewal.say(b"%d" % n)
            await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        await renewal.stop()
        return lease

    lease = run_virtually(say_often, monkeypatch)

    assert [round(at) for at, _ in lease.sent] == [0, 1, 2, 3, 4, 5]
    assert lease.sent[-1][1] == b"249"


def test_a_renewal_stops_when_progress_was_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async def say_and_stop(loop: VirtualLoop) -> None:
        for steps in range(6):
            lease = Lease(loop, 30.0)
            renewal = lease.renew()
            renewal.say(b"first")
            await asyncio.sleep(0.5)
            renewal.say(b"last")
            for _ in range(steps):
                await asyncio.sleep(0)
            assert not await asyncio.wait_for(renewal.stop(), 100), steps
            count = len(lease.sent)
            await asyncio.sleep(100)
            assert len(lease.sent) == count, steps

    run_virtually(say_and_stop, monkeypatch)


def test_a_renewal_that_swallows_its_cancel_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop_under_way(loop: VirtualLoop) -> list[tuple[float, bytes | None]]:
        lease = Lease(loop, 3.0)

        async def extend(progress: bytes | None = None, *, timeout: float) -> None:
            lease.sent.append((0.0, progress))
            try:
                await asyncio.sleep(timeout)
            except asyncio.CancelledError:
                lease.began = loop.time()  # as if the reply had come at the same time

        lease.extend = extend  # type: ignore[method-assign]
        renewal = lease.renew()
        await asyncio.sleep(1.5)
        await asyncio.wait_for(renewal.stop(), 100)
        await asyncio.sleep(100)
        return lease.sent

    assert run_virtually(stop_under_way, monkeypatch) == [(0.0, None)]


def test_a_lease_that_is_over_is_given_up_after_an_attempt_of_a_second_or_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lose(loop: VirtualLoop) -> Lease:
        lease = Lease(loop, 0.3, lambda n: NO_REPLY)
        lease.renew()
        await asyncio.sleep(100)
        return lease

    lease = run_virtually(lose, monkeypatch)

    assert lease.lost == [NO_REPLY]
    assert all(at < 0.3 for at, _ in lease.sent[:-1]) and lease.sent[-1][0] >= 0.3
    assert lease.timeouts[-1] >= 1.0


def test_a_loop_that_was_blocked_beyond_the_lease_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def block(loop: VirtualLoop) -> Lease:
        lease = Lease(loop, 3.0)
        renewal = lease.renew()
        await asyncio.sleep(0.9)
        loop.block(5)
        await asyncio.sleep(0.5)
        await renewal.stop()
        return lease

    lease = run_virtually(block, monkeypatch)

    assert not lease.lost and len(lease.sent) == 1
    assert "does something block the event loop" in caplog.text


def test_nobody_says_that_the_loop_is_blocked_when_nats_was_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pqbridge.worker")

    async def outage(loop: VirtualLoop) -> Lease:
        lease = Lease(loop, 3000.0, lambda n: NO_REPLY if n < 3 else 0.0)
        lease.renew()
        await asyncio.sleep(3100)
        return lease

    lease = run_virtually(outage, monkeypatch)

    assert not lease.lost and len(lease.sent) == 3
    assert "block" not in caplog.text
    assert caplog.text.count("cannot extend the lease of job job, trying again: no reply") == 2


def test_a_renewal_that_fails_warns_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pqbridge.worker")
    away = PQError("no bridge")

    async def outage(loop: VirtualLoop) -> None:
        lease = Lease(loop, 1200.0)

        async def extend(progress: bytes | None = None, *, timeout: float) -> None:
            lease.sent.append((loop.time() - lease.start, progress))
            raise away

        lease.extend = extend  # type: ignore[method-assign]
        renewal = lease.renew()
        await asyncio.sleep(400 + 150)
        await renewal.stop()
        assert len(lease.sent) > 100

    run_virtually(outage, monkeypatch)

    assert caplog.text.count("cannot extend the lease") == 3


def test_a_lease_that_the_bridge_says_is_lost_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = LeaseLostError("somebody else's")

    async def lose(loop: VirtualLoop) -> tuple[Lease, bool]:
        lease = Lease(loop, 3.0, lambda n: gone)
        renewal = lease.renew()
        await asyncio.sleep(100)
        return lease, await renewal.stop()

    lease, lost = run_virtually(lose, monkeypatch)

    assert (lease.lost, len(lease.sent), lost) == ([gone], 1, True)

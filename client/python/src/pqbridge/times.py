"""Durations and times as the protocol writes them, and the clock of leases."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone

from .errors import BadArgumentError

Duration = float | timedelta | str
"""Seconds, a timedelta, or a text of the protocol such as "1m30s" or "250ms"; "7d" is 168 hours."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h|d)")
_ENDLESS = 1e15  # seconds; more would overflow
TEN_YEARS = 3650 * 86400.0  # seconds


def seconds(duration: Duration, name: str = "bad duration") -> float:
    """Return a duration in seconds: 0 or more, and finite. The name of the argument begins the error."""
    length, parts = math.nan, []
    if isinstance(duration, timedelta):
        length = duration.total_seconds()
    elif isinstance(duration, str):
        parts = _PART.findall(duration)
        if duration == "0" or (parts and "".join(n + unit for n, unit in parts) == duration):
            length = sum(float(n) * _UNITS[unit] for n, unit in parts)
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        length = duration
    if not 0 <= length < _ENDLESS:
        want = "seconds, a timedelta, or a string such as '1m30s' or '250ms', 0 or more and finite"
        raise BadArgumentError(f"{name} {duration!r:.100}: want {want}")
    return float(length)


def duration_text(duration: Duration, least: float = 0, name: str = "bad duration") -> str:
    """Return a duration of that many seconds or more as requests have it. Numbers are exact to the microsecond."""
    length = seconds(duration, name)
    if not least <= length <= TEN_YEARS:
        raise BadArgumentError(f"{name} {duration!r}: want {least} s to ten years")
    return duration if isinstance(duration, str) and "d" not in duration else f"{round(length * 1e6)}us"


def time_text(at: datetime) -> str:
    """Return a time in RFC 3339."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadArgumentError(f"{at!r}: want a datetime with a time zone, as datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str | None) -> datetime | None:
    """Return a time that a bridge wrote, which Python 3.10 cannot read, or None without one."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def clock() -> float:
    """Return seconds on a clock that also counts while the machine sleeps, where there is one."""
    read = getattr(time, "clock_gettime", None)
    return float(read(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) if read else time.monotonic())


class Pause:
    """The time between attempts: 50 ms, twice as long after each, 2 s at most."""

    def __init__(self) -> None:
        self._next = 0.05

    def reset(self) -> None:
        """Begin again, after a success."""
        self._next = 0.05

    async def wait(self, most: float = 2.0, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Wait, for no longer than that many seconds."""
        await sleep(max(0.0, min(self._next, most)))
        self._next = min(2 * self._next, 2.0)

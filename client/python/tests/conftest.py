"""A bridge with its NATS server for the tests, on ports that the system chooses."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client as NATS

import pqbridge

if os.environ.get("PQ_TEST_WINDOWS"):  # then the tests run without what Python lacks there
    from asyncio.unix_events import _UnixSelectorEventLoop

    for holder, missing in {
        time: "clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC",
        os: "fork register_at_fork",
        _UnixSelectorEventLoop: "add_signal_handler remove_signal_handler",
    }.items():
        for attribute in missing.split():
            delattr(holder, attribute)

PATIENCE = 60.0
"""Seconds after which a test that waits has hung."""

BIN = Path(__file__).parents[3] / "bin"


class Process:
    """A program that ends with the test, and whose log is shown if it fails."""

    def __init__(self, *args: str, **environment: str) -> None:
        # Variables of the developer must not reach it.
        own = {k: v for k, v in os.environ.items() if not k.startswith("PQ_")}
        self.log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(args, env=own | environment, stdout=self.log, stderr=subprocess.STDOUT)

    async def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the match of a pattern in the log, once it is there."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while True:
            text = self.text()
            if found := re.search(pattern, text):
                return found
            if self.process.poll() is not None or asyncio.get_running_loop().time() > end:
                raise AssertionError(f"no {pattern} in the log:\n{text}")
            await asyncio.sleep(0.02)

    def text(self) -> str:
        # The process writes at the file's offset, which a read from the start would move.
        return os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode(errors="replace")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.log.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self.log.close()


class Bridge:
    """A bridge and its NATS server in one process, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = "0"
        self.url = ""

    async def start(self) -> None:
        self._process = Process(
            str(BIN / "pqbridge"),
            "-dev",
            PQ_DEV_NATS_PORT=self._port,
            PQ_HTTP_ADDR="off",
            PQ_DATA_DIR=str(self._folder),
        )
        ready = await self._process.wait_for(r"Ready\. NATS is at (nats://\S+:(\d+))")
        await self._process.wait_for("taking requests")
        self.url, self._port = ready[1], ready[2]

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()


@pytest.fixture(scope="session")
def shared_bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    bridge = Bridge(tmp_path_factory.mktemp("bridge"))
    asyncio.run(bridge.start())
    yield bridge
    bridge.stop()


@pytest.fixture
async def own_bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    """A bridge of this test, which may kill it."""
    bridge = Bridge(tmp_path)
    await bridge.start()
    yield bridge
    bridge.kill()


@pytest.fixture
async def nc(shared_bridge: Bridge) -> AsyncIterator[NATS]:
    nc = await pqbridge.connect(shared_bridge.url)
    yield nc
    await nc.close()


@pytest.fixture
def client(nc: NATS) -> pqbridge.Client:
    return pqbridge.Client(nc, timeout=PATIENCE)


@pytest.fixture
def name() -> str:
    """The name of a queue that no other test uses."""
    return f"q{uuid.uuid4().hex}"


@pytest.fixture
def queue(client: pqbridge.Client, name: str) -> pqbridge.Queue:
    return client.priority_queue(name)

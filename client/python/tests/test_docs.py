"""The examples of docs/python.md and of the package's README run as they stand."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Bridge, Process

import pqbridge

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text()
README = (ROOT / "client" / "python" / "README.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


PROGRAMS = [block for block in blocks(PAGE) if "asyncio.run(" in block]
SNIPPETS = [block for block in blocks(PAGE) if block not in PROGRAMS]


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """The programs of the page, as files."""
    paths = {}
    for name, text in zip(("worker", "push"), PROGRAMS, strict=True):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        paths[name] = str(path)
    return paths


async def test_a_letter_survives_the_kill_of_its_worker(own_bridge: Bridge, programs: dict[str, str]) -> None:
    def start(name: str, *args: str) -> Process:
        return Process(sys.executable, programs[name], *args, NATS_URL=own_bridge.url)

    first = start("worker")
    push = start("push", "eve", "3")
    await first.wait_for("to eve delivery 1")
    first.kill()
    second = start("worker")

    await second.wait_for("to eve delivery 2")
    await push.wait_for("done sent to eve")
    full = start("push", "full", "0")
    await full.wait_for(re.escape("dead OSError: the mailbox is full"))

    second.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(second.process.wait, PATIENCE) == 0
    for process in (push, full, second):
        process.stop()


def test_the_project_shows_the_same_worker() -> None:
    [text] = blocks(README)
    for page in (ROOT / "README.md", ROOT / "docs" / "guide.md"):
        assert text in page.read_text(), page


async def test_the_readme_works(own_bridge: Bridge, tmp_path: Path) -> None:
    [text] = blocks(README)
    program = tmp_path / "readme.py"
    program.write_text(text.replace("nats://127.0.0.1:4222", own_bridge.url))

    process = Process(sys.executable, str(program), PYTHONUNBUFFERED="1")

    await process.wait_for("to eve")
    process.stop()


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[s.split("\n")[0][:50] for s in SNIPPETS])
async def test_snippets_run(
    snippet: str, queue: pqbridge.Queue, client: pqbridge.Client, own_bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", own_bridge.url)  # for the blocking client
    names: dict[str, Any] = {
        "asyncio": asyncio,
        "pqbridge": pqbridge,
        "time": time,
        "client": client,
        "jobs": queue,
        "worker": pqbridge.Worker(queue),
    }
    names["worker"].handle("email")(lambda job: "sent")

    # What another worker does for the call.
    helper = pqbridge.Worker(queue, lambda job: "sent")
    helping = asyncio.create_task(helper.run()) if "jobs.call" in snippet else None
    assigned = "".join(f"    {n} = names[{n!r}]\n" for n in ("jobs", "worker"))
    exec(f"async def snippet():\n{assigned}{textwrap.indent(snippet, '    ')}", names | {"names": names}, names)

    await asyncio.wait_for(names["snippet"](), PATIENCE)

    if helping:
        await helper.stop()
        await helping

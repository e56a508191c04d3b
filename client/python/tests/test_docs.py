"""The examples of docs/python.md and of the package's README run as they stand."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, PATIENCE, Bridge, Process

import pqbridge

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text()
README = (ROOT / "client" / "python" / "README.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


PROGRAMS = [block for block in blocks(PAGE) if "asyncio.run(" in block]
[LOGIN] = [block for block in blocks(PAGE) if "password=" in block]
SNIPPETS = [block for block in blocks(PAGE) if block not in PROGRAMS and block != LOGIN]


async def test_the_walk_prints_what_the_page_says(own_bridge: Bridge, tmp_path: Path) -> None:
    """The blocks of the first section, pasted into one shell after each other."""
    for name, text in zip(("worker.py", "push.py"), PROGRAMS, strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "bin").symlink_to(BIN)
    walk = PAGE.partition("\n## A worker that survives a kill\n")[2].partition("\n## ")[0]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = await asyncio.create_subprocess_exec(
        "bash",
        cwd=tmp_path,
        env=os.environ | {"NATS_URL": own_bridge.url, "PATH": path},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdin
    assert shell.stdout
    try:
        for kind, block in re.findall(r"```(sh|text)\n(.*?)```", walk, re.DOTALL):
            if kind == "sh":
                shell.stdin.write(block.encode())
            else:
                await wants(shell.stdout, block)
        shell.stdin.write(b"wait $worker; echo it ended with $?; exit\n")
        await wants(shell.stdout, "it ended with 0\n")
        await asyncio.wait_for(shell.wait(), PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(shell.pid, signal.SIGKILL)


async def wants(printed: asyncio.StreamReader, lines: str) -> None:
    for line in lines.splitlines():
        assert (await asyncio.wait_for(printed.readline(), PATIENCE)).decode() == line + "\n"


async def test_a_worker_logs_in_as_access_control_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The login of the page, and the users of docs/access.md, who may not change settings."""
    [access] = re.findall(r"```conf\n(.*?)```", (ROOT / "docs" / "access.md").read_text(), re.DOTALL)
    (tmp_path / "nats.conf").write_text(f'listen: "127.0.0.1:-1"\n{access}')
    secrets = dict.fromkeys(re.findall(r"\$(\w+_PASSWORD)", access), "secret")
    server = Process(str(BIN / "nats-server"), "-c", str(tmp_path / "nats.conf"), **secrets)
    url = (await server.wait_for(r"Listening for client connections on (\S+)"))[1]
    login = {"PQ_NATS_URL": url, "PQ_NATS_USER": "bridge", "PQ_NATS_PASSWORD": "secret"}
    bridge = Process(str(BIN / "pqbridge"), PQ_DATA_DIR=str(tmp_path / "data"), PQ_HTTP_ADDR="off", **login)
    nc = await pqbridge.connect(url, user="admin", password="secret")
    pushed = await pqbridge.Client(nc, timeout=PATIENCE).priority_queue("jobs").push("for the worker", keep="1h")
    monkeypatch.setenv("NATS_URL", url)
    monkeypatch.setenv("WORKER_PASSWORD", "secret")
    names: dict[str, Any] = {"os": os, "pqbridge": pqbridge}
    exec(f"async def log_in():\n{textwrap.indent(LOGIN, '    ')}    return nc, jobs", names)
    workers, jobs = await names["log_in"]()

    async with pqbridge.Worker(jobs, lambda job: job.value):
        result = await pqbridge.Client(nc).priority_queue("jobs").result(pushed.id, wait=PATIENCE)

    assert result.json() == "for the worker"
    await workers.close()
    await nc.close()
    for process in (bridge, server):
        process.stop()


def test_the_project_shows_the_same_worker() -> None:
    [text] = blocks(README)
    assert text in (ROOT / "README.md").read_text()


async def test_the_readme_works_and_ends_at_sigterm(own_bridge: Bridge, tmp_path: Path) -> None:
    [text] = blocks(README)
    program = tmp_path / "readme.py"
    program.write_text(text)

    process = Process(sys.executable, str(program), PYTHONUNBUFFERED="1", NATS_URL=own_bridge.url)

    await process.wait_for("to eve")
    process.stop()
    assert process.process.returncode == 0


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

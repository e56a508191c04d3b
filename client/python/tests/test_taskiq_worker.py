"""`taskiq worker`, whose processes are killed, and NATS and the bridge beneath it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import BIN, PATIENCE, Bridge, Process

import pqbridge

pytest.importorskip("taskiq", reason="taskiq is not installed")

PAGE = Path(__file__).parents[3] / "docs" / "taskiq.md"

APP = """
import asyncio
import os
import time
from pathlib import Path

from pqbridge.taskiq import PQBroker, PQResultBackend

HERE = Path(os.environ["HERE"])
broker = PQBroker(queue="tasks", ack_wait=os.environ["ACK_WAIT"], timeout=os.environ.get("TIMEOUT"))
broker.with_result_backend(PQResultBackend(broker))


def note(text):
    with open(HERE / "notes", "a") as notes:
        notes.write(text + "\\n")


@broker.task(task_name="sleep")
async def sleep(seconds):
    note("begin")
    await asyncio.sleep(seconds)
    note("end")
    return "slept"


@broker.task(task_name="wait")
async def wait(name):
    note(f"begin {name}")
    while not (HERE / name).exists():
        await asyncio.sleep(0.02)
    note(f"end {name}")
    return name


@broker.task(task_name="fail")
async def fail():
    if not (HERE / "mended").exists():
        raise OSError("disk full")
    return "mended"
"""


class System:
    """A bridge with workers of taskiq, whose tasks note what they do in a file."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self._workers: list[Process] = []
        (folder / "app.py").write_text(APP)
        (folder / "notes").touch()

    async def connect(self) -> None:
        nc = await pqbridge.connect(self.url)
        self.queue = pqbridge.Client(nc, timeout=PATIENCE).priority_queue("tasks")
        pause = pqbridge.times.Pause()
        while True:
            try:
                await self.queue.configure(keep="1h", duplicate_window="2h")
                return
            except pqbridge.NoBridgeError:
                await pause.wait()

    def worker(self, *options: str, ack_wait: str = "30s", **environment: str) -> Process:
        arguments = ("worker", "app:broker", "--workers", "1", "--app-dir", str(self.folder), *options)
        here = str(self.folder)
        own = {"NATS_URL": self.url, "HERE": here, "ACK_WAIT": ack_wait, "PYTHONPATH": here}
        worker = Process(sys.executable, "-m", "taskiq", *arguments, **(own | environment))
        self._workers.append(worker)
        return worker

    async def noted(self, *lines: str) -> None:
        """Wait until the tasks have noted these lines, and nothing else."""
        end = asyncio.get_running_loop().time() + PATIENCE
        while (seen := (self.folder / "notes").read_text().split("\n")[:-1]) != list(lines):
            assert asyncio.get_running_loop().time() < end, f"noted {seen}, want {lines}: {self.logs()}"
            await asyncio.sleep(0.02)

    async def kiq(self, name: str, *arguments: object) -> str:
        """Send a task as any program may, and return its id."""
        id = os.urandom(8).hex()
        message = {"task_id": id, "task_name": name, "labels": {}, "args": arguments, "kwargs": {}}
        await self.queue.push(message, msg_id=id, type=name)
        return id

    async def result(self, id: str) -> object:
        job = await self.queue.result(msg_id=id, wait=PATIENCE)
        assert job.state == "done", f"{job.state}: {job.reason} {job.error}"
        return job.json()["return_value"]

    def logs(self) -> str:
        return "\n".join(w.text() for w in self._workers)

    async def end(self) -> None:
        if hasattr(self, "queue"):
            await self.queue.link.nc.close()
        for worker in self._workers:
            children = re.findall(r"process worker-0 .*with pid (\d+)|restarted with pid (\d+)", worker.text())
            worker.kill()  # first, as it would start its children again
            for pid in (int(a or b) for a, b in children):
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def system(own_bridge: Bridge, tmp_path: Path) -> AsyncIterator[System]:
    system = System(tmp_path, own_bridge.url)
    await system.connect()
    yield system
    await system.end()


async def child_of(worker: Process) -> int:
    return int((await worker.wait_for(r"Started process worker-0 with pid (\d+)"))[1])


async def test_a_long_task_runs_once_and_one_that_fails_can_be_redriven(system: System) -> None:
    system.worker(ack_wait="1s")
    long = await system.kiq("sleep", 5)
    failing = await system.kiq("fail")

    dead = await system.queue.result(msg_id=failing, wait=PATIENCE)
    assert (dead.state, dead.reason) == ("dead", "OSError: disk full")
    (system.folder / "mended").touch()
    letters = pqbridge.Client(system.queue.link.nc).priority_queue("tasks-dead")
    assert await letters.redrive() == 1
    again = await system.queue.result(dead.id, wait=PATIENCE)
    assert again.json()["return_value"] == "mended"

    assert await system.result(long) == "slept"
    await system.noted("begin", "end")


async def test_a_child_is_killed(system: System) -> None:
    worker = system.worker(ack_wait="1s")
    id = await system.kiq("wait", "go")
    await system.noted("begin go")

    os.kill(await child_of(worker), signal.SIGKILL)
    await system.noted("begin go", "begin go")  # the parent has started another one
    (system.folder / "go").touch()

    assert await system.result(id) == "go"
    await system.noted("begin go", "begin go", "end go")


async def test_the_parent_is_killed(system: System) -> None:
    worker = system.worker(ack_wait="1s")
    id = await system.kiq("sleep", 3)
    await system.noted("begin")

    worker.process.kill()

    assert await system.result(id) == "slept"
    await system.noted("begin", "end")


async def test_nats_and_the_bridge_are_killed_at_once(system: System, own_bridge: Bridge) -> None:
    system.worker()
    ids = [await system.kiq("wait", "go"), await system.kiq("wait", "later")]
    await system.noted("begin go", "begin later")

    own_bridge.kill()
    (system.folder / "go").touch()  # it ends meanwhile
    await system.noted("begin go", "begin later", "end go")
    await own_bridge.start()
    (system.folder / "later").touch()

    assert [await system.result(id) for id in ids] == ["go", "later"]
    await system.noted("begin go", "begin later", "end go", "end later")


async def test_the_bridge_is_killed_and_then_nats(tmp_path: Path) -> None:
    def start(**environment: str) -> Process:
        return Process(str(BIN / "pqbridge"), *options, PQ_HTTP_ADDR="off", **environment)

    # A bridge for the sake of its NATS server: the one that is tested has other subjects.
    options = ["-dev"]
    other = {"PQ_DATA_DIR": str(tmp_path / "other"), "PQ_SUBJECT_PREFIX": "other", "PQ_FIFO_PREFIX": "others"}
    nats = start(PQ_DEV_NATS_PORT="0", **other)
    ready = await nats.wait_for(r"Ready\. NATS is at (nats://\S+:(\d+))")
    options = []
    tested = {"PQ_NATS_URL": ready[1], "PQ_DATA_DIR": str(tmp_path / "data"), "PQ_QUEUE_GROUP": "tested"}
    bridge = start(**tested)
    system = System(tmp_path, ready[1])
    await system.connect()
    system.worker()
    ids = [await system.kiq("wait", name) for name in ("a", "b", "c")]
    await system.noted("begin a", "begin b", "begin c")

    bridge.kill()
    (tmp_path / "a").touch()
    await system.noted("begin a", "begin b", "begin c", "end a")
    bridge = start(**tested)
    assert await system.result(ids[0]) == "a"

    nats.kill()
    (tmp_path / "b").touch()
    await system.noted("begin a", "begin b", "begin c", "end a", "end b")
    options = ["-dev"]
    nats = start(PQ_DEV_NATS_PORT=ready[2], **other)
    (tmp_path / "c").touch()

    assert [await system.result(id) for id in ids] == ["a", "b", "c"]
    await system.noted("begin a", "begin b", "begin c", "end a", "end b", "end c")
    await system.end()
    bridge.kill()
    nats.kill()


async def test_a_worker_that_stops_finishes_what_runs(system: System) -> None:
    worker = system.worker("--max-async-tasks", "1")
    ids = [await system.kiq("wait", "go") for _ in range(3)]
    await system.noted("begin go")

    worker.process.send_signal(signal.SIGTERM)
    await worker.wait_for("Stopping prefetching")
    (system.folder / "go").touch()
    await asyncio.to_thread(worker.process.wait, PATIENCE)

    states = [(await system.queue.result(msg_id=id)).state for id in ids]
    assert states[0] == "done" and states[2] == "ready" and "leased" not in states
    assert [i.deliveries async for i in system.queue.items()] == [0] * states.count("ready")


async def test_a_worker_that_stops_begins_nothing_that_it_has_fetched(system: System) -> None:
    worker = system.worker("--max-async-tasks", "1", "--max-prefetch", "2")
    ids = [await system.kiq("wait", "go"), await system.kiq("wait", "then"), await system.kiq("wait", "later")]
    await system.noted("begin go")
    while "ready" in [(await system.queue.result(msg_id=id)).state for id in ids]:
        await asyncio.sleep(0.02)

    worker.process.send_signal(signal.SIGTERM)
    while "ready" not in [(await system.queue.result(msg_id=id)).state for id in ids]:
        await asyncio.sleep(0.02)
    (system.folder / "go").touch()
    await asyncio.to_thread(worker.process.wait, PATIENCE)

    await system.noted("begin go", "end go")
    assert [i.deliveries async for i in system.queue.items()] == [0, 0]


async def test_a_worker_stops_while_nats_is_away(system: System, own_bridge: Bridge) -> None:
    worker = system.worker(TIMEOUT="1s")
    await system.kiq("wait", "go")
    await system.noted("begin go")

    own_bridge.kill()
    (system.folder / "go").touch()
    await worker.wait_for("cannot settle task .*, trying again")
    worker.process.send_signal(signal.SIGTERM)

    await asyncio.to_thread(worker.process.wait, PATIENCE)
    assert "cannot settle task" in worker.text() and "which comes back" in worker.text()


async def test_a_worker_stops_although_nats_was_never_there(tmp_path: Path, unused_tcp_port: int) -> None:
    system = System(tmp_path, f"nats://127.0.0.1:{unused_tcp_port}")
    worker = system.worker(TIMEOUT="1s")
    child = await child_of(worker)
    await worker.wait_for(r"no connection to NATS at \S+ within 1 s")  # the next child waits as the first one did

    worker.process.send_signal(signal.SIGTERM)
    try:
        await asyncio.to_thread(worker.process.wait, PATIENCE)
        assert not Path(f"/proc/{child}").exists()
    finally:
        await system.end()


async def test_a_worker_with_a_limit_of_one_task_does_one_after_the_other(system: System) -> None:
    system.worker("--max-tasks-per-child", "1", "--max-async-tasks", "1")
    (system.folder / "go").touch()
    ids = [await system.kiq("wait", "go") for _ in range(2)]
    assert [await system.result(id) for id in ids] == ["go", "go"]


async def test_a_worker_that_may_not_wait_gives_its_tasks_back(system: System) -> None:
    worker = system.worker("--wait-tasks-timeout", "0.1", "--shutdown-timeout", "0.1")
    await system.kiq("wait", "never")
    await system.noted("begin never")

    worker.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(worker.process.wait, PATIENCE)

    [item] = [i async for i in system.queue.items()]
    assert (item.state, item.deliveries) == ("ready", 0)


async def test_the_page_works(system: System) -> None:
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (system.folder / "app.py").write_text(program)
    system.worker()

    command = f"cd {system.folder} && exec {sys.executable} app.py"
    sender = Process("sh", "-c", command, NATS_URL=system.url)

    await sender.wait_for(r"3 job \S+ failed after 2 deliveries: OSError: disk full")
    sender.stop()

"""`celery worker`, whose processes are killed, frozen and cut off, and NATS and the bridge beneath it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BIN, PATIENCE, Bridge, Process

import pqbridge

pytest.importorskip("celery", reason="Celery is not installed")

import celery

import pqbridge.celery as _registers  # noqa: F401

PAGE = Path(__file__).parents[3] / "docs" / "celery.md"

APP = """
import json
import os
import time
from pathlib import Path

from celery import Celery
from celery.exceptions import Reject

import pqbridge.celery

HERE = Path(os.environ["HERE"])
app = Celery("app", broker=os.environ["BROKER"], backend=f"file://{HERE}/results")
app.conf.update(json.loads(os.environ["CONF"]))


def note(text):
    with open(HERE / "notes", "a") as notes:
        notes.write(text + "\\n")


@app.task(name="note")
def take_note(text):
    note(text)


@app.task(name="sleep")
def sleep(seconds):
    note("begin")
    time.sleep(seconds)
    note("end")
    return "slept"


@app.task(name="wait")
def wait(name):
    note(f"begin {name}")
    while not (HERE / name).exists():
        time.sleep(0.02)
    note(f"end {name}")
    return name


@app.task(name="pid")
def pid(name):
    (HERE / f"{name}.pid").write_text(str(os.getpid()))
    return wait(name)


@app.task(name="fail")
def fail():
    if not (HERE / "mended").exists():
        raise OSError("disk full")
    return "mended"


@app.task(name="reject")
def reject(requeue):
    note("reject")
    raise Reject("no address", requeue=requeue)


@app.task(name="retry", bind=True, max_retries=3)
def retry(self):
    note(f"try {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    return self.request.retries


@app.task(name="send", bind=True)
def send(self, text):
    take_note.delay(text)
"""

EXACT = {"task_acks_late": True, "worker_prefetch_multiplier": 1}


class System:
    """A bridge with workers of Celery, whose tasks note what they do in a file."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url, self.broker = folder, url, url.replace("nats://", "pqbridge://")
        self._workers: list[Process] = []
        self.app = celery.Celery(broker=self.broker, backend=f"file://{folder}/results", set_as_current=False)
        (folder / "app.py").write_text(APP)
        (folder / "notes").touch()
        (folder / "results").mkdir()

    async def connect(self) -> None:
        self.client = pqbridge.Client(await pqbridge.connect(self.url), timeout=PATIENCE)
        self.queue = self.client.priority_queue("celery")

    def worker(
        self,
        *options: str,
        app: str = "app",
        pool: str = "prefork",
        c: int = 1,
        ack_wait: str = "30s",
        broker: str = "",
        **conf: Any,
    ) -> Process:
        conf = {"broker_transport_options": {"ack_wait": ack_wait}, **EXACT, **conf}
        name = f"w{len(self._workers)}@here"
        arguments = ("-A", app, "worker", "-P", pool, "-c", str(c), "-n", name, "-l", "INFO", *options)
        own = {"HERE": str(self.folder), "BROKER": broker or self.broker, "CONF": json.dumps(conf)}
        own |= {"PYTHONPATH": str(self.folder)}
        worker = Process(sys.executable, "-m", "celery", *arguments, **own)
        self._workers.append(worker)
        return worker

    async def send(self, name: str, *arguments: object, **options: Any) -> Any:
        """Send a task as any program may, and return its result."""
        return await asyncio.to_thread(self.app.send_task, name, arguments, **options)

    async def result(self, sent: Any) -> Any:
        return await asyncio.to_thread(sent.get, PATIENCE)

    async def noted(self, *lines: str) -> None:
        """Wait until the tasks have noted these lines, and nothing else."""
        seen: list[str] = []

        def read() -> bool:
            seen[:] = (self.folder / "notes").read_text().split("\n")[:-1]
            return seen == list(lines)

        await self.until(read, lambda: f"noted {seen}, want {lines}")

    async def counts(self, **wanted: int) -> None:
        """Wait until the queue has so many items in these states."""
        info: dict[str, Any] = {}
        end = asyncio.get_running_loop().time() + PATIENCE
        while wanted != {state: info.get(state) for state in wanted}:
            assert asyncio.get_running_loop().time() < end, f"{info}, want {wanted}: {self.logs()}"
            await asyncio.sleep(0.02)
            with contextlib.suppress(pqbridge.NoBridgeError):
                info = await self.queue.info()

    async def until(self, is_so: Callable[[], bool], text: Callable[[], str] = lambda: "it never was so") -> None:
        end = asyncio.get_running_loop().time() + PATIENCE
        while not is_so():
            assert asyncio.get_running_loop().time() < end, f"{text()}: {self.logs()}"
            await asyncio.sleep(0.02)

    async def pid(self, name: str) -> int:
        """Return the id of the process in which the task `pid` waits for that name."""
        path = self.folder / f"{name}.pid"
        await self.until(lambda: path.exists() and bool(path.read_text()))
        return int(path.read_text())

    def go(self, name: str) -> None:
        (self.folder / name).touch()

    def logs(self) -> str:
        return "\n".join(w.text() for w in self._workers if not w.log.closed)

    async def end(self) -> None:
        await self.client.nc.close()
        await asyncio.to_thread(self.app.close)
        for worker in self._workers:
            kill_all(worker)


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def kill_all(worker: Process) -> None:
    """Kill a worker and its pool at once, as the machine's end does."""
    if worker.log.closed:
        return
    pids = [] if worker.process.poll() is not None else children_of(worker.process.pid)
    worker.kill()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def system(own_bridge: Bridge, tmp_path: Path) -> AsyncIterator[System]:
    system = System(tmp_path, own_bridge.url)
    await system.connect()
    yield system
    await system.end()


POOLS = ["prefork", "solo", "threads"]


@pytest.mark.parametrize("pool", POOLS)
async def test_a_task_that_blocks_its_worker_for_several_leases_runs_once(system: System, pool: str) -> None:
    system.worker(pool=pool, ack_wait="1s")
    system.worker(pool=pool, ack_wait="1s")

    assert await system.result(await system.send("sleep", 4)) == "slept"

    await system.counts(ready=0, leased=0, delayed=0)
    await system.noted("begin", "end")


@pytest.mark.parametrize("pool", POOLS)
async def test_a_worker_is_killed_and_another_one_runs_its_task(system: System, pool: str) -> None:
    worker = system.worker(pool=pool, ack_wait="1s")
    sent = await system.send("wait", "go")
    await system.noted("begin go")

    kill_all(worker)
    system.worker(pool=pool, ack_wait="1s")
    await system.noted("begin go", "begin go")
    system.go("go")

    assert await system.result(sent) == "go"
    await system.noted("begin go", "begin go", "end go")
    await system.counts(ready=0, leased=0)


async def test_a_pool_process_is_killed_and_its_task_comes_back_at_once(system: System) -> None:
    system.worker(task_reject_on_worker_lost=True)
    sent = await system.send("pid", "go")
    await system.noted("begin go")

    os.kill(await system.pid("go"), signal.SIGKILL)
    await system.noted("begin go", "begin go")
    system.go("go")

    assert await system.result(sent) == "go"
    await system.noted("begin go", "begin go", "end go")


async def test_nats_and_the_bridge_are_killed_at_once(system: System, own_bridge: Bridge) -> None:
    system.worker(c=2)
    sent = [await system.send("wait", name) for name in ("go", "later")]
    await system.until(lambda: (system.folder / "notes").read_text().count("begin") == 2)

    own_bridge.kill()
    system.go("go")  # it ends meanwhile
    await system.until(lambda: "end go" in (system.folder / "notes").read_text())
    await own_bridge.start()
    system.go("later")

    assert [await system.result(one) for one in sent] == ["go", "later"]
    await system.counts(ready=0, leased=0)
    assert (system.folder / "notes").read_text().count("begin") == 2


async def test_the_bridge_is_killed_and_then_nats(tmp_path: Path) -> None:
    def start(*options: str, **environment: str) -> Process:
        return Process(str(BIN / "pqbridge"), *options, PQ_HTTP_ADDR="off", **environment)

    # A bridge for the sake of its NATS server: the one that is tested has other subjects.
    other = {"PQ_DATA_DIR": str(tmp_path / "other"), "PQ_SUBJECT_PREFIX": "other", "PQ_FIFO_PREFIX": "others"}
    nats = start("-dev", PQ_DEV_NATS_PORT="0", **other)
    ready = await nats.wait_for(r"Ready\. NATS is at (nats://\S+:(\d+))")
    tested = {"PQ_NATS_URL": ready[1], "PQ_DATA_DIR": str(tmp_path / "data"), "PQ_QUEUE_GROUP": "tested"}
    bridge = start(**tested)
    await bridge.wait_for("taking requests")
    system = System(tmp_path, ready[1])
    await system.connect()
    system.worker(c=3)
    sent = [await system.send("wait", name) for name in ("a", "b", "c")]
    await system.until(lambda: (tmp_path / "notes").read_text().count("begin") == 3)

    bridge.kill()
    system.go("a")
    await system.until(lambda: "end a" in (tmp_path / "notes").read_text())
    bridge = start(**tested)
    assert await system.result(sent[0]) == "a"

    nats.kill()
    system.go("b")
    await system.until(lambda: "end b" in (tmp_path / "notes").read_text())
    nats = start("-dev", PQ_DEV_NATS_PORT=ready[2], **other)
    system.go("c")

    assert [await system.result(one) for one in sent] == ["a", "b", "c"]
    await system.counts(ready=0, leased=0)
    assert (tmp_path / "notes").read_text().count("begin") == 3
    await system.end()
    bridge.kill()
    nats.kill()


async def test_a_worker_that_is_frozen_loses_its_task_and_its_late_acknowledgement_is_ignored(system: System) -> None:
    frozen = system.worker(ack_wait="1s")
    sent = await system.send("pid", "go")
    await system.noted("begin go")
    child = await system.pid("go")

    os.kill(frozen.process.pid, signal.SIGSTOP)
    (system.folder / "go.pid").unlink()
    system.worker(ack_wait="1s")
    await system.noted("begin go", "begin go")
    second = await system.pid("go")
    os.kill(frozen.process.pid, signal.SIGCONT)
    await frozen.wait_for(r"lost the lease of pid\[")

    assert Path(f"/proc/{child}").exists() and second != child  # nobody stops its pool process
    system.go("go")
    assert await system.result(sent) == "go"
    await frozen.wait_for("ended after its lease was lost, so this is not acknowledged")
    await system.counts(ready=0, leased=0)
    await system.noted("begin go", "begin go", "end go", "end go")


async def test_a_worker_that_is_cut_off_goes_on_once_the_network_is_back(system: System) -> None:
    async with relay(system.url) as (port, cut):
        options = {"ack_wait": "2s", "ping_interval": 1, "max_outstanding_pings": 1}
        worker = system.worker(broker=f"pqbridge://127.0.0.1:{port}", broker_transport_options=options)
        sent = await system.send("wait", "go")
        await system.noted("begin go")

        cut.clear()
        await system.counts(ready=1, leased=0)  # others may have it
        await worker.wait_for(r"lost the lease of wait\[.*, and another worker may run it, unless it was removed")
        system.go("go")
        await system.noted("begin go", "end go")
        cut.set()

        assert await system.result(sent) == "go"
        await system.counts(ready=0, leased=0)
        await system.noted("begin go", "end go")
        assert await system.result(await system.send("wait", "go")) == "go"
        assert worker.process.poll() is None

        kill_all(worker)


@contextlib.asynccontextmanager
async def relay(url: str) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Have a port that leads to a NATS server while the event is set. Connections stay open meanwhile."""
    goes, (host, _, port) = asyncio.Event(), url.removeprefix("nats://").partition(":")
    goes.set()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await goes.wait()
                writer.write(data)
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        tasks.update(asyncio.create_task(copy(*ends)) for ends in ((reader, to_writer), (to_reader, writer)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield int(server.sockets[0].getsockname()[1]), goes
        for writer in writers:
            writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(writer.wait_closed() for writer in writers), return_exceptions=True)


@pytest.mark.parametrize("pool", POOLS)
async def test_a_warm_shutdown_finishes_what_runs_and_gives_back_the_rest_uncounted(system: System, pool: str) -> None:
    worker = system.worker(pool=pool, worker_prefetch_multiplier=3)
    sent = [await system.send("wait", "go"), await system.send("note", "second"), await system.send("note", "third")]
    await system.noted("begin go")
    await system.counts(leased=3)

    worker.process.send_signal(signal.SIGTERM)
    await worker.wait_for("Warm shutdown")
    system.go("go")
    await asyncio.to_thread(worker.process.wait, PATIENCE)

    assert await system.result(sent[0]) == "go"
    rest = 4 - (system.folder / "notes").read_text().count("\n")
    assert rest == 2 or pool == "threads"  # which Celery has do all that they have been given by then
    await system.counts(ready=rest, leased=0)
    assert [i.deliveries async for i in system.queue.items()] == [0] * rest


async def test_a_cold_shutdown_gives_back_at_once_what_runs(system: System) -> None:
    worker = system.worker()
    sent = await system.send("wait", "go")
    await system.noted("begin go")

    worker.process.send_signal(signal.SIGQUIT)
    await asyncio.to_thread(worker.process.wait, PATIENCE)
    await system.counts(ready=1, leased=0)
    [given_back] = [item async for item in system.queue.items()]
    assert given_back.deliveries == 1, "redelivered says that it has begun before"
    system.worker()
    await system.noted("begin go", "begin go")
    system.go("go")

    assert await system.result(sent) == "go"


async def test_a_worker_stops_while_nats_is_away(system: System, own_bridge: Bridge) -> None:
    worker = system.worker()
    await system.send("wait", "go")
    await system.noted("begin go")

    own_bridge.kill()
    system.go("go")
    await system.noted("begin go", "end go")
    worker.process.send_signal(signal.SIGTERM)

    await asyncio.to_thread(worker.process.wait, PATIENCE)


async def test_a_worker_waits_for_a_nats_server_that_is_not_there_yet(tmp_path: Path, unused_tcp_port: int) -> None:
    bridge = Bridge(tmp_path / "data")
    bridge._port = str(unused_tcp_port)
    system = System(tmp_path, f"nats://127.0.0.1:{unused_tcp_port}")
    options = {"timeout": "500ms"}
    worker = system.worker(broker_transport_options=options, broker_connection_retry_on_startup=True)
    await worker.wait_for("Cannot connect to pqbridge://")

    await bridge.start()
    await system.connect()
    await system.send("note", "here")
    await system.noted("here")

    await system.end()
    bridge.kill()


async def test_rejected_tasks_are_dead_letters_with_the_reason_and_can_be_redriven(system: System) -> None:
    system.worker(task_acks_on_failure_or_timeout=False)
    dead = system.client.priority_queue("celery-dead")

    async def reasons(n: int) -> list[tuple[str, str]]:
        while len(found := [(i.type, i.reason) async for i in dead.items()]) < n:
            await asyncio.sleep(0.02)
        return sorted(found)

    await system.send("fail")
    await system.send("reject", False)
    await system.send("nobody.has.it")

    assert await asyncio.wait_for(reasons(3), PATIENCE) == [
        ("fail", "OSError: disk full"),
        ("nobody.has.it", "this worker has no task 'nobody.has.it'"),
        ("reject", "no address"),
    ]
    (system.folder / "mended").touch()
    assert await dead.redrive() == 3
    assert [t for t, _ in await asyncio.wait_for(reasons(2), PATIENCE)] == ["nobody.has.it", "reject"]
    await system.noted("reject", "reject")


BODIES = [b"", b"no JSON", b"null", b"5", b"[1, 2]", b"[[1], {}]", b'{"a": 1}', b"[1, {}, {}]", b"[[], {}, null]"]


async def test_tasks_whose_body_cannot_be_read_are_dead_letters_and_the_worker_goes_on(system: System) -> None:
    for body in BODIES:
        await system.queue.push(body, type="note")
    no_id = {"Kombu": json.dumps({"headers": {"task": "note", "id": []}, "properties": {}})}
    await system.queue.push(b"[[], {}, {}]", headers=no_id)
    await asyncio.to_thread(system.app.send_task, "note", ("text",), compression="zlib")
    with system.app.producer_pool.acquire() as producer:
        await asyncio.to_thread(producer.publish, "a text", routing_key="celery", serializer="raw")

    system.worker()
    await system.noted("text")

    await system.counts(ready=0, leased=0)
    letters = [letter async for letter in system.client.priority_queue("celery-dead").items()]
    unread = [letter.reason for letter in letters if "its body cannot be read: " in letter.reason]
    assert len(letters) == len(BODIES) + 2 and len(unread) == len(BODIES), letters


async def test_a_task_that_is_requeued_comes_back_until_it_was_delivered_too_often(system: System) -> None:
    await system.queue.configure(max_deliver=3)
    system.worker()

    await system.send("reject", True)

    await system.noted("reject", "reject", "reject")
    dead = system.client.priority_queue("celery-dead")
    while not (found := [i async for i in dead.items()]):
        await asyncio.sleep(0.02)
    assert found[0].reason == "no address"


async def test_a_retry_waits_in_the_store(system: System) -> None:
    system.worker()

    assert await system.result(await system.send("retry")) == 2

    await system.noted("try 0", "try 1", "try 2")
    await system.counts(ready=0, leased=0, delayed=0)


async def test_a_countdown_survives_kills_of_everything(system: System, own_bridge: Bridge) -> None:
    worker = system.worker()
    await system.send("note", "first")
    await system.noted("first")
    await system.send("note", "not yet", countdown=3600)

    await system.counts(delayed=1)
    inspect = system.app.control.inspect(timeout=2)
    assert list((await asyncio.to_thread(inspect.scheduled)).values()) == [[]]
    kill_all(worker)
    await system.send("note", "due", countdown=1)
    own_bridge.kill()
    await own_bridge.start()
    system.worker()

    await system.noted("first", "due")
    await system.counts(ready=0, leased=0, delayed=1)


async def test_priorities_are_exact_with_late_acknowledgements_and_a_multiplier_of_one(system: System) -> None:
    priorities = [3, 9, 0, 250, 3, -7, 9, 1 << 40, 4, 0]
    for n, priority in enumerate(priorities):
        await system.send("note", f"{priority} {n}", priority=priority)

    worker = system.worker()

    order = sorted(range(len(priorities)), key=lambda n: (-priorities[n], n))
    await system.noted(*[f"{priorities[n]} {n}" for n in order])
    assert "this worker fetches" not in worker.text()


@pytest.mark.parametrize(("pool", "c", "multiplier"), [("prefork", 1, 4), ("solo", 2, 1)])
async def test_a_worker_says_what_fetching_ahead_does_to_the_order(
    system: System, pool: str, c: int, multiplier: int
) -> None:
    worker = system.worker(pool=pool, c=c, worker_prefetch_multiplier=multiplier)
    await worker.wait_for(f"this worker fetches {c * multiplier} tasks for 1 processes")


async def test_a_worker_that_grows_by_autoscale_does_not_fetch_ahead(system: System) -> None:
    worker = system.worker("--autoscale=3,1")

    await worker.wait_for(r"w0@here ready\.")

    assert "this worker fetches" not in worker.text()


async def test_a_task_that_has_expired_is_revoked_by_the_worker(system: System) -> None:
    sent = await system.send("note", "too late", expires=0.01)
    await asyncio.sleep(0.05)
    system.worker()
    with pytest.raises(celery.exceptions.TaskRevokedError):
        await system.result(sent)
    await system.noted()


async def test_a_task_sends_another_one_from_the_pool(system: System) -> None:
    system.worker(c=2)
    await system.send("send", "sent")
    await system.noted("sent")


async def test_the_worker_ends_if_it_may_not_lease(tmp_path: Path, unused_tcp_port: int) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{unused_tcp_port}\n"
        'authorization { users = [ {user: w, password: w, permissions: {publish: ["celery.>"]}} ] }\n'
    )
    nats = Process(str(BIN / "nats-server"), "-c", str(config))
    await nats.wait_for("Server is ready")
    system = System(tmp_path, f"nats://w:w@127.0.0.1:{unused_tcp_port}")
    worker = system.worker()

    await worker.wait_for("Unrecoverable error: DeniedError")
    await asyncio.to_thread(worker.process.wait, PATIENCE)
    nats.kill()


async def test_workers_answer_and_are_told(system: System) -> None:
    workers = [system.worker("-E"), system.worker("-E")]
    for worker in workers:
        await worker.wait_for("ready")
    inspect = system.app.control.inspect(timeout=2)

    assert sorted(await asyncio.to_thread(inspect.ping)) == ["w0@here", "w1@here"]
    assert {q["name"] for qs in (await asyncio.to_thread(inspect.active_queues)).values() for q in qs} == {"celery"}
    sent = await system.send("note", "revoked", countdown=1)
    await asyncio.to_thread(system.app.control.revoke, sent.id)
    with pytest.raises(celery.exceptions.TaskRevokedError):
        await system.result(sent)
    await asyncio.to_thread(system.app.control.add_consumer, "low.priority")
    for worker in workers:
        await worker.wait_for("cannot consume: queue 'low.priority'")
    await system.send("note", "goes on")
    await system.noted("goes on")
    await asyncio.to_thread(system.app.control.shutdown)
    for worker in workers:
        await asyncio.to_thread(worker.process.wait, PATIENCE)
    assert not re.search("Traceback", system.logs())


async def test_the_page_works(system: System) -> None:
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (system.folder / "tasks.py").write_text(program.replace("pqbridge://127.0.0.1:4222", system.broker))
    worker = system.worker(app="tasks")
    await worker.wait_for("ready")

    sender = Process("sh", "-c", f"cd {system.folder} && exec {sys.executable} tasks.py")

    await sender.wait_for("^3\n")
    sender.stop()

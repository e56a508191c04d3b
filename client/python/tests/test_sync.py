"""The blocking client."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest
from conftest import PATIENCE, Bridge, Process

import pqbridge
import pqbridge.sync


async def test_calls_that_block(shared_bridge: Bridge, queue: pqbridge.Queue) -> None:
    worker = pqbridge.Worker(queue, lambda job: {"got": job.json()})
    run = asyncio.create_task(worker.run())

    def script() -> None:
        with pqbridge.sync.Client(shared_bridge.url) as client:
            jobs = client.priority_queue(queue.name)
            assert jobs.call(7, wait="1m") == {"got": 7}
            pushed = jobs.push(8, keep="1h")
            assert jobs.result(pushed.id, wait="1m").json() == {"got": 8}
            assert len(jobs.push_many([{"value": 1}, {"value": 2}])) == 2
            with pytest.raises(pqbridge.BadArgumentError):
                jobs.push(1, priority=2**63)

    await asyncio.to_thread(script)
    await worker.stop()
    await run


FORKS = """
import os, sys, threading, pqbridge.sync

with pqbridge.sync.Client(timeout=60) as client:
    jobs = client.priority_queue(sys.argv[1])
    threads = [threading.Thread(target=jobs.push, args=[b"thread"]) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    child = os.fork()
    if not child:
        jobs.push(b"fork")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    jobs.push(b"parent")
"""


FORKS_UNDER_ITS_LOCK = """
import os, signal, sys, pqbridge.sync

with pqbridge.sync.Client(timeout=60) as client:
    jobs = client.priority_queue(sys.argv[1])
    jobs.push(b"parent")
    with client._lock:  # as another thread may hold it
        child = os.fork()
        if not child:
            signal.alarm(60)
            jobs.push(b"fork")
            client.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
async def test_a_fork_while_the_lock_is_held(shared_bridge: Bridge, queue: pqbridge.Queue) -> None:
    process = Process(sys.executable, "-c", FORKS_UNDER_ITS_LOCK, queue.name, NATS_URL=shared_bridge.url)
    code = await asyncio.to_thread(process.process.wait, 2 * PATIENCE)
    assert code == 0, process.text()
    process.stop()

    assert sorted([item.value async for item in queue.items()]) == [b"fork", b"parent"]


async def test_a_thread_that_cannot_be_started_leaves_nothing(
    shared_bridge: Bridge, queue: pqbridge.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def script() -> None:
        with pqbridge.sync.Client(shared_bridge.url) as client:
            jobs = client.priority_queue(queue.name)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", fail)
                with pytest.raises(pqbridge.NotSentError, match="no thread"):
                    jobs.push(b"job")
            client.close()
            jobs.push(b"job")

    await asyncio.wait_for(asyncio.to_thread(script), PATIENCE)
    assert await queue.len() == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
async def test_threads_and_forks_share_a_client(shared_bridge: Bridge, queue: pqbridge.Queue) -> None:
    process = Process(sys.executable, "-c", FORKS, queue.name, NATS_URL=shared_bridge.url)
    code = await asyncio.to_thread(process.process.wait, PATIENCE)
    assert code == 0, process.text()
    process.stop()

    values = sorted([item.value async for item in queue.items()])
    assert values == [b"fork", b"parent", *[b"thread"] * 5]


INTERRUPTED = """
import asyncio, os, signal, sys, threading, time, pqbridge.sync

with pqbridge.sync.Client(timeout=60) as client:
    jobs = client.priority_queue(sys.argv[1])
    jobs.push(b"job")
    tasks = lambda: len(asyncio.all_tasks(client._running.loop))
    before = tasks()

    def interrupt():
        while tasks() <= before:  # until the call is under way
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it
    threading.Thread(target=interrupt).start()
    try:
        jobs.call(b"job")
    except KeyboardInterrupt:
        pass
    while tasks() > before:
        time.sleep(0.01)
"""


async def test_a_call_that_is_interrupted_ends(shared_bridge: Bridge, queue: pqbridge.Queue) -> None:
    process = Process(sys.executable, "-c", INTERRUPTED, queue.name, NATS_URL=shared_bridge.url)
    code = await asyncio.to_thread(process.process.wait, PATIENCE)
    assert code == 0, process.text()
    process.stop()


@pytest.mark.parametrize("server", ["nats://127.0.0.1:1", "nats://localhost:none"])
def test_a_connection_that_nats_py_gives_up(server: str) -> None:
    once = {"max_reconnect_attempts": 1, "reconnect_time_wait": 0}
    with pqbridge.sync.Client(server, nats=once) as client, pytest.raises(pqbridge.NotSentError, match="nats: "):
        client.priority_queue("jobs").push(b"job")


def test_without_a_server(shared_bridge: Bridge) -> None:
    with pqbridge.sync.Client("nats://127.0.0.1:1", timeout="200ms") as client, pytest.raises(pqbridge.NotSentError):
        client.priority_queue("jobs").push(b"job")

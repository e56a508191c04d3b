"""Workers, against a bridge."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Bridge, Process

import pqbridge
from pqbridge import Job, Outcome, Queue, Worker

THREAD_THAT_HANGS = """
import asyncio, time
import pqbridge

async def main():
    nc = await pqbridge.connect()
    jobs = pqbridge.Client(nc).priority_queue("jobs")
    loop, began = asyncio.get_running_loop(), asyncio.Event()

    def handler(job):
        loop.call_soon_threadsafe(began.set)
        time.sleep(3600)

    worker = pqbridge.Worker(jobs, handler)
    run = asyncio.create_task(worker.run())
    await jobs.push(b"")
    await began.wait()
    await worker.stop(timeout=0)
    await run
    await nc.close()
    print("stopped", flush=True)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    run = asyncio.create_task(worker.run())
    try:
        yield run
    finally:
        await worker.stop()
        await run


class Outcomes:
    """The hooks of a worker, which remember the outcomes of its jobs."""

    def __init__(self) -> None:
        self.all: asyncio.Queue[tuple[Job, Outcome]] = asyncio.Queue()

    def note(self, job: Job, outcome: Outcome) -> None:
        self.all.put_nowait((job, outcome))

    def of(self, worker: Worker) -> Worker:
        for event in ("completed", "failed", "lost"):
            worker.on(event)(self.note)
        return worker

    async def next(self) -> tuple[Job, Outcome]:
        return await asyncio.wait_for(self.all.get(), PATIENCE)


async def wait_until(condition: Any) -> None:
    """Wait until an asynchronous condition holds."""
    end = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_handlers_by_type_in_the_loop_and_in_threads(queue: Queue) -> None:
    outcomes = Outcomes()
    worker = outcomes.of(Worker(queue, concurrency=2))

    @worker.handle("email")
    async def email(job: Job) -> str:
        return f"to {job.json()['to']}"

    @worker.handle("report")
    def report(job: Job) -> bytes:
        return job.value.upper()

    async with running(worker):
        assert await queue.call({"to": "eve"}, type="email") == "to eve"
        assert await queue.call(b"text", type="report") == b"TEXT"
        await queue.push(b"?", type="fax")
        job, outcome = await anext_of(outcomes, "failed")
        assert outcome.text == "nobody handles jobs of type 'fax'" and job.type == "fax"
        await queue.remove(job.id)


async def anext_of(outcomes: Outcomes, kind: str) -> tuple[Job, Outcome]:
    """Return the next job that ended like that."""
    while True:
        job, outcome = await outcomes.next()
        if outcome.kind == kind:
            return job, outcome


async def test_what_a_handler_raises_decides(queue: Queue) -> None:
    await queue.configure(max_deliver=3, backoff=[0])
    tries: list[str] = []

    async def handler(job: Job) -> None:
        tries.append(f"{job.string()} {job.deliveries} {job.last_try}")
        if job.string() == "snooze" and len(tries) == 1:
            raise pqbridge.Snooze(0)
        if job.string() == "drop":
            raise pqbridge.Drop("no address")
        if job.string() == "retry" and not job.last_try:
            raise pqbridge.RetryAfter("1ms") from OSError("disk full")
        if job.string() == "fail":
            raise KeyError("x")

    async with running(Worker(queue, handler)):
        for value, state, reason, error in (
            ("snooze", "done", "", ""),
            ("drop", "dead", "no address", ""),
            ("retry", "done", "", ""),
            ("fail", "dead", "max_deliver", "KeyError: 'x'"),
        ):
            pushed = await queue.push(value.encode(), keep="1h")
            result = await queue.result(pushed.id, wait=PATIENCE)
            assert (result.state, result.reason, result.error) == (state, reason, error), value
            assert (result.cause, result.value) == (error or reason, b""), value
            assert f"state={state!r}, cause={result.cause!r}" in repr(result)
            if state == "dead":
                with pytest.raises(pqbridge.JobFailedError) as failed:
                    result.raise_for_death()
                assert failed.value.cause == result.cause

    assert tries == [
        "snooze 1 False",
        "snooze 1 False",
        "drop 1 False",
        "retry 1 False",
        "retry 2 False",
        "retry 3 True",
        "fail 1 False",
        "fail 2 False",
        "fail 3 True",
    ]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_lost_lease_asks_the_handler_to_stop(queue: Queue, kind: str) -> None:
    began, outcomes = asyncio.Event(), Outcomes()
    loop = asyncio.get_running_loop()

    async def in_loop(job: Job) -> bytes:
        began.set()
        await asyncio.sleep(PATIENCE)
        return b"never"

    def in_thread(job: Job) -> bytes:
        loop.call_soon_threadsafe(began.set)
        assert job.lost.wait(PATIENCE)
        return b"never sent"

    handler = in_loop if kind == "async" else in_thread
    async with running(outcomes.of(Worker(queue, handler, ack_wait="300ms"))):
        await queue.push(b"job")
        await began.wait()
        await queue.remove((await anext(aiter(queue.items()))).id)
        job, outcome = await outcomes.next()

    assert outcome.kind == "lost" and job.why == "lost"


async def test_a_lease_is_renewed_as_long_as_its_job_takes(queue: Queue) -> None:
    async def handler(job: Job) -> None:
        job.progress(b"half")
        await asyncio.sleep(1.5)

    async with running(Worker(queue, handler, ack_wait="300ms")):
        pushed = await queue.push(b"job", keep="1h")

        async def is_half_done() -> bool:
            return (await queue.result(pushed.id)).progress == b"half"

        await wait_until(is_half_done)
        result = await queue.result(pushed.id, wait=PATIENCE)

    assert (result.state, result.deliveries) == ("done", 1)


async def test_a_job_that_takes_too_long_fails(queue: Queue) -> None:
    await queue.configure(max_deliver=1)

    async with running(Worker(queue, lambda job: job.lost.wait(PATIENCE), job_timeout=0.1)):
        done = await queue.push(b"returns after all", keep="1h")
        assert (await queue.result(done.id, wait=PATIENCE)).state == "done"

    async def handler(job: Job) -> None:
        await asyncio.sleep(PATIENCE)

    async with running(Worker(queue, handler, job_timeout="100ms")):
        pushed = await queue.push(b"job")
        result = await queue.result(pushed.id, wait=PATIENCE)

    assert (result.state, result.error) == ("dead", "timed out")


async def test_stop_waits_and_then_gives_back(queue: Queue) -> None:
    began = asyncio.Event()

    async def handler(job: Job) -> None:
        began.set()
        await asyncio.sleep(PATIENCE)

    worker = Worker(queue, handler)
    run = asyncio.create_task(worker.run())
    await queue.push(b"job")
    await began.wait()

    await worker.stop(timeout=0)
    await run

    job = await queue.lease()
    assert job and job.deliveries == 1


async def test_a_thread_that_goes_on_after_stop_is_left_alone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pqbridge.worker._THREAD_TIME", 0.0)
    began, end, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()
    outcomes = Outcomes()

    def handler(job: Job) -> bytes:
        loop.call_soon_threadsafe(began.set)
        assert end.wait(PATIENCE)
        return b"never sent"

    worker = outcomes.of(Worker(queue, handler))
    run = asyncio.create_task(worker.run())
    pushed = await queue.push(b"job", keep="1h")
    await began.wait()

    await worker.stop(timeout=0)
    await run
    end.set()

    job, outcome = await outcomes.next()
    assert (outcome.kind, job.why) == ("stopped", "stopped")
    again = await queue.lease()
    assert again and again.id == pushed.id and again.deliveries == 1


async def test_a_process_ends_while_a_thread_goes_on(own_bridge: Bridge, tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    program.write_text(THREAD_THAT_HANGS)

    process = Process(sys.executable, str(program), NATS_URL=own_bridge.url)

    await process.wait_for("stopped")
    assert await asyncio.to_thread(process.process.wait, PATIENCE) == 0
    process.stop()


async def test_a_job_fails_if_its_handler_raises_stop_iteration(queue: Queue) -> None:
    await queue.configure(max_deliver=1)

    def handler(job: Job) -> object:
        return next(iter(job.json()))

    async with running(Worker(queue, handler)):
        with pytest.raises(pqbridge.JobFailedError, match="StopIteration"):
            await queue.call([])
        assert await queue.call([1]) == 1
    outcome = await pqbridge.run_handler(handler, [])
    assert (outcome.kind, outcome.text) == ("failed", "RuntimeError: coroutine raised StopIteration")


async def test_an_idle_worker_stops_at_once(queue: Queue) -> None:
    worker = Worker(queue, print, concurrency=3)
    run = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)

    await worker.stop()
    await run
    await queue.push(b"job")

    assert await queue.pop()


async def test_successors_and_middleware(queue: Queue, client: pqbridge.Client, name: str) -> None:
    await queue.configure(next=[f"{name}-mail"])
    seen: list[str] = []

    async def trace(job: Job, call: Any) -> Any:
        seen.append(f"before {job.string()}")
        result = await call(job)
        seen.append(f"after {result}")
        return f"<{result}>"

    def handler(job: Job) -> str:
        job.next(f"{name}-mail", {"to": "eve"}, priority=-3)
        return "ok"

    async with running(Worker(queue, handler, middleware=[trace])):
        assert await queue.call(b"job") == "<ok>"

    mail = await client.priority_queue(f"{name}-mail").pop()
    assert mail and mail.value == b'{"to":"eve"}' and mail.priority == -3
    assert seen == ["before job", "after ok"]


async def test_a_result_that_is_too_large_fails_the_job(queue: Queue) -> None:
    await queue.configure(max_deliver=1)

    async with running(Worker(queue, lambda job: b"x" * 70_000)):
        with pytest.raises(pqbridge.JobFailedError, match="was refused"):
            await queue.call(b"job")


async def test_a_handler_cannot_end_the_process(queue: Queue) -> None:
    await queue.configure(max_deliver=1)

    def handler(job: Job) -> object:
        if job.value == b"exit":
            sys.exit(3)
        return object()  # which JSON does not know

    async with running(Worker(queue, handler)):
        with pytest.raises(pqbridge.JobFailedError, match="the handler called sys"):
            await queue.call(b"exit")
        with pytest.raises(pqbridge.JobFailedError, match="cannot be encoded"):
            await queue.call(b"object")


async def test_hooks_that_raise_end_nothing(queue: Queue) -> None:
    worker = Worker(queue, lambda job: None)

    @worker.on("completed")
    async def hook(job: Job, outcome: Outcome) -> None:
        raise RuntimeError

    async with running(worker):
        assert await queue.call(b"1") is None
        assert await queue.call(b"2") is None


async def test_a_worker_outlasts_its_bridge(own_bridge: Bridge) -> None:
    nc = await pqbridge.connect(own_bridge.url)
    queue = pqbridge.Client(nc, timeout=PATIENCE).priority_queue("jobs")
    began = asyncio.Event()
    release = asyncio.Event()

    async def handler(job: Job) -> bytes:
        if job.value == b"slow":
            began.set()
            await release.wait()
        return job.value

    async with running(Worker(queue, handler, concurrency=2)):
        slow = await queue.push(b"slow", keep="1h")
        await began.wait()
        own_bridge.kill()
        release.set()
        push = asyncio.create_task(queue.push(b"quick", keep="1h"))
        await own_bridge.start()
        quick = await push
        for pushed in (slow, quick):
            assert (await queue.result(pushed.id, wait=PATIENCE)).state == "done"

    await nc.close()


async def test_a_closed_connection_ends_the_worker(own_bridge: Bridge) -> None:
    nc = await pqbridge.connect(own_bridge.url)
    worker = Worker(pqbridge.Client(nc).priority_queue("jobs"), print)
    run = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)

    await nc.close()

    with pytest.raises(pqbridge.PQError):
        await run


async def test_run_handler_needs_no_nats() -> None:
    def handler(job: Job) -> int:
        job.progress("half")
        if job.last_try:
            raise pqbridge.Drop("too late")
        return len(job.json())

    done = await pqbridge.run_handler(handler, [1, 2], headers={"Type": "count"})
    dropped = await pqbridge.run_handler(handler, [], deliveries=3, max_deliver=3)

    assert (done.kind, done.result, done.content_type) == ("done", b"2", "application/json")
    assert (dropped.kind, dropped.text) == ("dropped", "too late")


async def test_run_handler_ends_as_a_worker_does() -> None:
    failed = await pqbridge.run_handler(lambda job: sys.exit(3))
    assert (failed.kind, failed.text) == ("failed", "RuntimeError: the handler called sys.exit(3)")

    began, ended = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    running = asyncio.create_task(pqbridge.run_handler(handler))
    await began.wait()
    running.cancel()
    await asyncio.wait_for(ended.wait(), PATIENCE)


async def test_progress_may_be_the_last_step_of_a_handler(queue: Queue) -> None:
    async def handler(job: Job) -> None:
        job.progress("first")
        await asyncio.sleep(0.2)
        job.progress("last")

    async with running(Worker(queue, handler)):
        pushed = await queue.push(b"job", keep="1h")
        assert (await queue.result(pushed.id, wait=PATIENCE)).state == "done"

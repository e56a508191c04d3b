"""The broker and the result backend of taskiq, against a bridge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import textwrap
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Bridge
from nats.aio.client import Client as NATS

import pqbridge
from pqbridge import Queue

pytest.importorskip("taskiq", reason="taskiq is not installed")

from taskiq import AsyncTaskiqTask, Context, SimpleRetryMiddleware, TaskiqDepends, TaskiqMiddleware, TaskiqResult
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq.depends.progress_tracker import ProgressTracker
from taskiq.exceptions import ResultGetError, ResultIsReadyError, SendTaskError
from taskiq.kicker import AsyncKicker
from taskiq.receiver import Receiver
from taskiq.serializers import PickleSerializer

from pqbridge.client import connect_within
from pqbridge.taskiq import PQBroker, PQResultBackend

PAGE = Path(__file__).parents[3] / "docs" / "taskiq.md"
SETTINGS: dict[str, Any] = {"keep": "1h", "duplicate_window": "2h"}


@pytest.fixture
async def broker(shared_bridge: Bridge, queue: Queue) -> PQBroker:
    """A broker on a queue that keeps results. It has not started."""
    await queue.configure(**SETTINGS)
    broker = PQBroker(shared_bridge.url, queue.name, ack_wait="1s")
    return broker.with_result_backend(PQResultBackend(broker))


@contextlib.asynccontextmanager
async def working(broker: PQBroker, **options: Any) -> AsyncIterator[None]:
    """Do the tasks of a broker, in this process."""
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker, **options))
    try:
        yield
    finally:
        receiver.cancel()
        await asyncio.wait({receiver})
        await broker.shutdown()


async def result_of(task: AsyncTaskiqTask[Any]) -> TaskiqResult[Any]:
    return await task.wait_result(0.05, PATIENCE)


async def state_of(queue: Queue, task: AsyncTaskiqTask[Any], *, over: bool = True) -> pqbridge.JobResult:
    """Return what became of a task: over says whether to wait until it is done or dead."""
    return await queue.result(msg_id=task.task_id, wait=PATIENCE if over else 0)


async def test_results(broker: PQBroker) -> None:
    @broker.task
    async def add(a: int, b: int) -> int:
        return a + b

    @broker.task
    def upper(text: str) -> dict[str, str]:
        return {"text": text.upper()}

    async with working(broker):
        three = await result_of(await add.kiq(1, 2))
        eve = await result_of(await upper.kiq("eve"))

        assert (three.return_value, three.is_err, eve.return_value) == (3, False, {"text": "EVE"})


async def test_what_a_task_raises_decides(broker: PQBroker, queue: Queue) -> None:
    tries: list[str] = []

    @broker.task
    async def fail(kind: str) -> None:
        tries.append(kind)
        if kind == "drop":
            raise pqbridge.Drop("no address")
        if kind == "snooze" and tries.count(kind) < 4:
            raise pqbridge.Snooze(0)
        if kind == "after" and tries.count(kind) < 3:
            raise pqbridge.RetryAfter("1ms")
        if kind not in ("snooze", "after"):
            raise OSError("disk full")

    async with working(broker):
        for kind, labels, runs, reason in (
            ("once", {}, 1, "OSError: disk full"),
            ("thrice", {"retry_on_error": True, "max_retries": 3, "delay": 0.001}, 3, "OSError: disk full"),
            ("drop", {"retry_on_error": True}, 1, "no address"),
            ("snooze", {}, 4, ""),
            ("after", {}, 3, ""),
        ):
            task = await fail.kicker().with_labels(**labels).kiq(kind)

            outcome = await state_of(queue, task)

            assert (outcome.reason, tries.count(kind)) == (reason, runs), kind
            result = await task.get_result()
            assert result.is_err == bool(reason)
            if reason:
                assert isinstance(result.error, pqbridge.JobFailedError) and reason in str(result.error)


async def test_the_last_task_of_a_join_runs_after_the_others_with_their_results(broker: PQBroker) -> None:
    """With the example of docs/taskiq.md."""
    _, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    @broker.task
    async def draw(n: int) -> int:
        if n == 2:
            raise OSError("disk full")
        await asyncio.sleep(0.01)
        return n

    @broker.task
    async def bind(ids: list[str]) -> list[Any]:
        results = [await PQResultBackend[int](broker).get_result(id) for id in ids]
        return ["failed" if r.is_err else r.return_value for r in results]

    names: dict[str, Any] = {"broker": broker, "draw": draw, "bind": bind}
    exec(f"async def run():\n{textwrap.indent(example, '    ')}    return book", names)

    async with working(broker):
        book = await names["run"]()
        assert (await result_of(book)).return_value == [0, 1, "failed"]


async def test_a_join_sends_all_its_tasks_or_none(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def job() -> None: ...

    await broker.startup()
    with pytest.raises(RuntimeError, match="no more"):
        async with broker.join():
            await job.kiq()
            raise RuntimeError("no more")
    with pytest.raises(pqbridge.BadRequestError):
        async with broker.join():
            await job.kiq()
            await job.kicker().with_labels(delay=60).kiq()  # the last one has no delay
    async with broker.join():
        pass
    info = await queue.info()
    assert (info["ready"], info["delayed"]) == (0, 0)

    await job.kiq()
    assert await queue.len() == 1
    await broker.shutdown()


async def test_a_serializer_takes_any_objects(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def words() -> set[str]:
        return {"a", "b"}

    broker.with_result_backend(PQResultBackend(broker, PickleSerializer()))
    async with working(broker):
        task = await words.kiq()
        assert (await result_of(task)).return_value == {"a", "b"}
        assert (await state_of(queue, task)).content_type == ""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (MuteError(), "MuteError"),
        (Exception(), "Exception"),
        (pqbridge.Drop(""), "Drop"),
        (pqbridge.RetryAfter(0), "RetryAfter"),
        (asyncio.CancelledError(), "the task was cancelled"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_that_says_nothing_is_a_reason(
    broker: PQBroker, queue: Queue, raised: BaseException, reason: str
) -> None:
    await queue.configure(max_deliver=2)
    runs: list[str] = []

    @broker.task
    async def fail() -> None:
        runs.append(reason)
        raise raised

    async with working(broker):
        job = await state_of(queue, await fail.kiq())

    assert (job.state, job.cause) == ("dead", reason)
    assert len(runs) == (2 if reason == "RetryAfter" else 1)


async def test_a_dependency_that_fails_in_its_teardown_is_an_error_of_the_task(broker: PQBroker, queue: Queue) -> None:
    runs: list[str] = []

    async def transaction() -> AsyncIterator[str]:
        yield "open"
        raise OSError("cannot commit")

    @broker.task
    async def job(state: Any = TaskiqDepends(transaction)) -> None:
        runs.append(state)

    async with working(broker):
        once = await state_of(queue, await job.kiq())
        labels = {"retry_on_error": True, "max_retries": 2, "delay": 0.001}
        twice = await state_of(queue, await job.kicker().with_labels(**labels).kiq())

    assert [(j.state, j.reason) for j in (once, twice)] == [("dead", "OSError: cannot commit")] * 2
    assert len(runs) == 3


async def test_a_middleware_that_fails_after_its_task_is_an_error_of_the_task(broker: PQBroker, queue: Queue) -> None:
    runs: list[str] = []

    class Broken(TaskiqMiddleware):
        async def post_execute(self, message: Any, result: Any) -> None:
            raise KeyError("x")

    @broker.task
    async def job() -> None:
        runs.append("begun")

    broker.add_middlewares(Broken())
    async with working(broker):
        dead = await state_of(queue, await job.kiq())

    assert (dead.state, dead.reason, runs) == ("dead", "KeyError: 'x'", ["begun"])


@pytest.mark.parametrize("raises", [True, False], ids=["raises", "returns"])
async def test_a_manual_task_that_nothing_acknowledges_ends(shared_bridge: Bridge, queue: Queue, raises: bool) -> None:
    broker = PQBroker(shared_bridge.url, queue.name)
    runs: list[str] = []

    @broker.task(ack_type="manual")
    async def job() -> None:
        runs.append("begun")
        if raises:
            raise OSError("disk full")

    async with working(broker):
        dead = await state_of(queue, await job.kiq())

    reason = "OSError: disk full" if raises else "RuntimeError: taskiq ended the task without an acknowledgement"
    assert (dead.state, dead.reason, runs) == ("dead", reason, ["begun"])


async def test_a_worker_that_may_not_acknowledge_begins_nothing_more(
    broker: PQBroker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []

    async def denied(delivery: pqbridge.Delivery, *_: Any, **__: Any) -> None:
        raise pqbridge.DeniedError("permissions violation for publish")

    @broker.task
    async def job() -> None:
        runs.append("begun")

    monkeypatch.setattr(pqbridge.Delivery, "ack", denied)
    async with working(broker, max_async_tasks=1):
        tasks = [await job.kiq()]
        while not broker.refused:
            await asyncio.sleep(0.02)
        tasks.append(await job.kiq())

    assert (await state_of(queue, tasks[1], over=False)).state == "ready"
    assert runs == ["begun"] and "permissions violation" in broker.refused


@pytest.mark.parametrize("raised", [None, OSError("disk full"), pqbridge.Snooze(1)], ids=repr)
async def test_an_acknowledgement_that_gets_500_is_not_repeated(
    broker: PQBroker,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    raised: Exception | None,
) -> None:
    """It is logged, and the worker goes on with the next task."""
    settle, damaged = pqbridge.Delivery.settle, list[int]()

    async def settled(delivery: pqbridge.Delivery, headers: Any, data: bytes, *rest: Any) -> Any:
        if delivery.json()["args"] == [True] and data != b"+WPI":
            damaged.append(delivery.deliveries)
            raise pqbridge.InternalError("damaged")
        return await settle(delivery, headers, data, *rest)

    @broker.task
    async def job(fails: bool) -> None:
        if fails and raised:
            raise raised

    monkeypatch.setattr(pqbridge.Delivery, "settle", settled)
    async with working(broker, max_async_tasks=1):
        tasks = [await job.kiq(True), await job.kiq(False)]
        done = await state_of(queue, tasks[1])

    assert done.state == "done" and damaged
    assert len(damaged) == len(set(damaged))  # one for each delivery
    assert f"cannot settle task {tasks[0].task_id}, which comes back: damaged (500)" in caplog.text


@pytest.mark.parametrize(
    "raised",
    [pqbridge.RetryAfter(-1), pqbridge.RetryAfter("soon"), pqbridge.Snooze(-1), pqbridge.Snooze(4e8)],
    ids=repr,
)
async def test_a_bad_delay_ends_the_task(broker: PQBroker, queue: Queue, raised: Exception) -> None:
    @broker.task
    async def wait() -> None:
        raise raised

    async with working(broker):
        job = await state_of(queue, await wait.kiq())

    assert job.state == "dead"
    assert "delay" in job.cause or "duration" in job.cause
    assert "label" not in job.cause


async def test_a_task_goes_on_in_another_queue_under_its_id(broker: PQBroker, queue: Queue) -> None:
    other = PQBroker(queue.link.nc.connected_url.geturl(), f"{queue.name}x")  # type: ignore[union-attr]

    @broker.task
    async def forward(context: Context = TaskiqDepends()) -> str:
        await AsyncKicker("next", other, {}).with_task_id(context.message.task_id).kiq()
        return "sent"

    await other.startup()
    async with working(broker):
        result = await result_of(await forward.kiq())
        assert (result.return_value, await other.queue.len()) == ("sent", 1)
    await other.shutdown()


async def test_a_worker_whose_connection_is_closed_for_good_ends(broker: PQBroker) -> None:
    running = asyncio.create_task(Receiver(broker, max_async_tasks=1).listen(asyncio.Event()))
    while not broker.nc.is_connected:
        await asyncio.sleep(0.01)
    await broker.nc.close()
    await asyncio.wait({running}, timeout=PATIENCE)
    assert running.done()
    assert running.exception()
    await broker.shutdown()


async def test_reject_and_requeue(broker: PQBroker, queue: Queue) -> None:
    deliveries: list[int] = []

    @broker.task
    async def again(context: Context = TaskiqDepends()) -> int:
        deliveries.append(len(deliveries))
        if len(deliveries) < 3:
            await context.requeue()
        return len(deliveries)

    @broker.task
    async def copy(context: Context = TaskiqDepends()) -> None:
        await copy.kicker().with_task_id(context.message.task_id).kiq()

    @broker.task
    async def reject(context: Context = TaskiqDepends()) -> None:
        context.reject()

    async with working(broker):
        assert (await result_of(await again.kiq())).return_value == 3
        rejected = await state_of(queue, await reject.kiq())
        assert rejected.state == "dead" and "rejected" in rejected.reason
        copied = await state_of(queue, await copy.kiq())
        assert copied.state == "dead" and "Cannot send task" in copied.reason
        assert await queue.len() == 0


async def test_a_task_that_cannot_run_comes_back_with_the_reason(broker: PQBroker, queue: Queue) -> None:
    await queue.configure(max_deliver=1)

    class Broken(TaskiqMiddleware):
        async def pre_execute(self, message: Any) -> Any:
            raise KeyError("x")

    @broker.task
    async def nothing() -> None: ...

    async with working(broker):
        unreadable = await queue.push(b"not a message")
        unknown = await nothing.kicker().with_broker(broker).kiq()
        gone = await state_of(queue, unknown)
        assert gone.state == "done"

        broker.local_task_registry.clear()
        unknown = await nothing.kiq()
        for outcome, error in (
            (await queue.result(unreadable.id, wait=PATIENCE), "cannot read the message: "),
            (await state_of(queue, unknown), "this worker has no task"),
        ):
            assert (outcome.state, outcome.reason) == ("dead", "max_deliver") and error in outcome.error

        broker.add_middlewares(Broken())
        broker.register_task(nothing.original_func, nothing.task_name)
        outcome = await state_of(queue, await nothing.kiq())
        assert outcome.error == "KeyError: 'x'"


async def test_labels_become_options(broker: PQBroker, queue: Queue) -> None:
    @broker.task(task_name="mail", priority=5)
    async def mail() -> None: ...

    await broker.startup()
    await mail.kicker().with_labels(group="acme", unique="eve", keep="30m").kiq()
    await mail.kicker().with_labels(priority=-1, delay=60, unique="ada").kiq()
    first, second = [i async for i in queue.items()][::-1]
    with pytest.raises(SendTaskError) as raised:
        await mail.kicker().with_labels(priority="high").kiq()
    with pytest.raises(ResultIsReadyError) as unready:
        await AsyncTaskiqTask("nobody", broker.result_backend).is_ready()
    with pytest.raises(ResultGetError) as unknown:
        await AsyncTaskiqTask("nobody", broker.result_backend).get_result()
    for wrapper in (unready.value, unknown.value):
        assert isinstance(wrapper.__cause__, pqbridge.NotFoundError)
    await broker.shutdown()

    assert (first.priority, first.state, first.group) == (5, "ready", "acme")
    assert (first.headers["Type"], first.about["Pq-Keep"][:5]) == ("mail", "30m0s")
    assert (second.priority, second.state) == (-1, "delayed")
    assert "priority" in str(raised.value.__cause__) or "invalid literal" in str(raised.value.__cause__)


async def test_a_result_too_large_is_a_small_error(broker: PQBroker, queue: Queue) -> None:
    runs = []

    @broker.task
    async def large(size: int) -> Any:
        runs.append(size)
        return "x" * size if size else object()

    async with working(broker):
        for size in (100_000, 2_000_000, 0):
            result = await result_of(await large.kiq(size))
            assert result.is_err and result.return_value is None and result.error
    assert len(runs) == 3


async def test_progress(broker: PQBroker) -> None:
    seen = asyncio.Event()

    @broker.task
    async def slow(tracker: ProgressTracker[Any] = TaskiqDepends()) -> None:
        await tracker.set_progress("half", {"done": 5})
        await seen.wait()

    async with working(broker):
        task = await slow.kiq()
        while not (progress := await task.get_progress()):
            await asyncio.sleep(0.02)
        seen.set()
        await result_of(task)

    assert (progress.state, progress.meta) == ("half", {"done": 5})


async def test_progress_may_be_the_last_step(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def job(tracker: ProgressTracker[Any] = TaskiqDepends()) -> str:
        await tracker.set_progress("done", {"done": 10})
        return "done"

    async with working(broker):
        assert (await result_of(await job.kiq())).return_value == "done"


async def test_start_checks(broker: PQBroker, queue: Queue) -> None:
    broker.is_worker_process = True
    await queue.configure(duplicate_window="10m")
    with pytest.raises(pqbridge.BadArgumentError, match=r"pq config \S+ duplicate_window=2h"):
        await broker.startup()

    await queue.configure(keep=None)
    with pytest.raises(pqbridge.BadArgumentError, match=r"keep=None .* keep=1h duplicate_window=2h"):
        await broker.startup()

    broker.add_middlewares(SimpleRetryMiddleware())
    with pytest.raises(pqbridge.BadArgumentError, match="set retry_on_error and max_retries"):
        await broker.startup()


async def test_a_program_that_only_sends_asks_for_no_settings(
    broker: PQBroker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    @broker.task
    async def job() -> None: ...

    async def denied(queue: Queue) -> dict[str, Any]:
        raise pqbridge.DeniedError("permissions violation")

    monkeypatch.setattr(Queue, "info", denied)
    await queue.configure(keep=None)
    await broker.startup()
    await job.kiq()
    await job.kicker().with_labels(delay="3h").kiq()  # it cannot know what the queue keeps
    await broker.shutdown()

    assert [i.state async for i in queue.items()] == ["ready", "delayed"]


async def test_only_a_worker_that_keeps_results_asks_for_settings(
    shared_bridge: Bridge, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    info = Queue.info

    async def noted(queue: Queue) -> dict[str, Any]:
        asked.append("info")
        return await info(queue)

    monkeypatch.setattr(Queue, "info", noted)
    await queue.configure(**SETTINGS)
    broker = PQBroker(shared_bridge.url, queue.name, retry_delay="1ms", retry_on_error=True, max_retries=2)

    runs: list[str] = []

    @broker.task
    async def fail() -> None:
        runs.append("begun")
        raise OSError("disk full")

    async with working(broker):
        assert (await state_of(queue, await fail.kiq())).state == "dead"
        assert (len(runs), asked) == (2, [])
    broker.with_result_backend(PQResultBackend(broker))
    async with working(broker):
        assert (await state_of(queue, await fail.kiq())).state == "dead"
        assert (len(runs), len(asked)) == (4, 1)


@pytest.mark.parametrize(("backoff", "hours"), [(None, 2), (["9h"], 9)])
async def test_a_task_that_failed_waits_for_the_backoff_or_else_retry_delay(
    shared_bridge: Bridge, queue: Queue, backoff: list[str] | None, hours: int
) -> None:
    await queue.configure(backoff=backoff)
    broker = PQBroker(shared_bridge.url, queue.name, retry_delay="2h", retry_on_error=True)

    @broker.task
    async def fail() -> None:
        raise OSError("disk full")

    async with working(broker):
        task = await fail.kiq()
        while (job := await queue.result(msg_id=task.task_id)).state != "delayed":
            await asyncio.sleep(0.01)
        assert job.cause == "OSError: disk full"
        [item] = [i async for i in queue.items()]
        due = pqbridge.times.parse_time(item.raw["due"])
        assert due and round((due - datetime.now(timezone.utc)) / timedelta(hours=1)) == hours


async def test_a_result_that_would_not_be_found_is_refused_when_sent(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def job() -> None: ...

    await broker.startup()
    for labels, hours in (
        ({"delay": "90m"}, 4),
        ({"delay": 7200}, 4),
        ({"keep": "3h"}, 6),
        ({"delay": "1h", "keep": "61m"}, 4),
    ):
        with pytest.raises(SendTaskError) as raised:
            await job.kicker().with_labels(**labels).kiq()
        assert f"pq config {queue.name} duplicate_window={hours}h" in str(raised.value.__cause__), labels
        assert "labels delay=" in str(raised.value.__cause__)
    await job.kicker().with_labels(delay="30m", keep="90m").kiq()

    await queue.configure(duplicate_window="9h")  # as the refusal said
    await job.kicker().with_labels(delay="3h").kiq()
    broker.with_result_backend(InmemoryResultBackend())
    await job.kicker().with_labels(delay="20h").kiq()
    await broker.shutdown()

    assert [i.state async for i in queue.items()] == ["delayed"] * 3


async def test_a_broker_starts_once_until_it_is_shut_down(broker: PQBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[NATS] = []

    async def connect(*arguments: Any) -> NATS:
        connections.append(await connect_within(*arguments))
        return connections[-1]

    monkeypatch.setattr("pqbridge.taskiq.connect_within", connect)
    await asyncio.gather(broker.startup(), broker.startup())
    await broker.startup()
    assert len(connections) == 1

    await broker.nc.close()
    await broker.startup()
    assert broker.nc.is_connected
    await broker.shutdown()
    assert [nc.is_closed for nc in connections] == [True, True]


async def test_a_start_without_nats_ends(unused_tcp_port: int) -> None:
    broker = PQBroker(f"nats://127.0.0.1:{unused_tcp_port}", timeout="300ms")

    with pytest.raises(pqbridge.NotSentError, match=r"no connection to NATS at 127\.0\.0\.1:\d+ within 0\.3 s: "):
        await broker.startup()
    await broker.shutdown()


async def test_options_and_labels_that_are_none_are_absent(shared_bridge: Bridge, queue: Queue) -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        ("prefix", "ack_wait", "retry_on_error", "max_retries", "retry_delay", "timeout", "user")
    )
    broker = PQBroker(shared_bridge.url, queue.name, **nothing)
    assert PQBroker(None, None, **nothing)._name == "taskiq"

    @broker.task(retry_on_error=None, delay=None, max_retries=None, timeout=None)
    async def job(text: str) -> None:
        raise OSError(text)

    async with working(broker):
        none: dict[str, Any] = dict.fromkeys(("priority", "group", "unique", "keep"))
        dead = await state_of(queue, await job.kicker().with_labels(**none).kiq("disk full"))
        again = await job.kicker().with_labels(group="None", delay=60).kiq("")
        [item] = [i async for i in queue.items()]

    assert (dead.state, dead.reason) == ("dead", "OSError: disk full")
    assert item.group == "None" and again


@pytest.mark.parametrize("mode", ["when_received", "when_executed", "manual"])
async def test_other_acknowledgement_types_give_jobs_back_uncounted(
    broker: PQBroker, queue: Queue, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    taskiq_acks = pytest.importorskip("taskiq.acks")
    if mode == "manual" and not hasattr(taskiq_acks.AcknowledgeType, "MANUAL"):
        pytest.skip("this taskiq has no manual acknowledgements")
    await queue.configure(max_deliver=1)
    runs: list[str] = []

    @broker.task
    async def job() -> None:
        runs.append(mode)

    async with working(broker, ack_time=taskiq_acks.AcknowledgeType(mode)):
        tasks = [await job.kiq()]
        while not broker.refused:
            await asyncio.sleep(0.02)
        tasks.append(await job.kiq())

    assert [(await state_of(queue, t, over=False)).state for t in tasks] == ["ready", "ready"]
    assert [i.deliveries async for i in queue.items()] == [0, 0]
    assert len(runs) == (0 if mode == "when_received" else 1)
    assert "does nothing more: " in caplog.text and "when_saved" in caplog.text


async def test_a_label_with_another_acknowledgement_type_is_refused(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def good() -> None: ...

    @broker.task(ack_type="manual")
    async def other() -> None:
        raise AssertionError("it ran")

    async with working(broker):
        dead = await state_of(queue, await other.kiq())
        assert dead.state == "dead" and "when_saved, not manual" in dead.reason
        assert (await state_of(queue, await good.kiq())).state == "done"


async def test_another_backend_gets_only_the_last_result(broker: PQBroker) -> None:
    stored: list[TaskiqResult[Any]] = []
    saved = asyncio.Event()
    runs: list[str] = []

    class Memory(InmemoryResultBackend[Any]):
        async def set_result(self, task_id: str, result: TaskiqResult[Any]) -> None:
            stored.append(result)
            await super().set_result(task_id, result)
            saved.set()

    @broker.task(retry_on_error=True, max_retries=3, delay=0.001)
    async def job(kind: str) -> str:
        runs.append(kind)
        if kind == "fails" or runs.count(kind) == 1:
            raise pqbridge.Snooze(0) if kind == "snoozes" else OSError("disk full")
        return kind

    broker.with_result_backend(Memory())
    async with working(broker):
        for kind, count in (("succeeds", 2), ("snoozes", 2), ("fails", 3)):
            saved.clear()
            task = await job.kiq(kind)
            await asyncio.wait_for(saved.wait(), PATIENCE)

            result = await task.get_result()
            assert (result.is_err, runs.count(kind)) == (kind == "fails", count), kind
            assert result.return_value == (None if kind == "fails" else kind)
    assert len(stored) == 3 and isinstance(stored[2].error, OSError)


async def test_a_lost_lease_cancels_the_task(broker: PQBroker, queue: Queue) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    @broker.task
    async def job() -> str:
        began.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
        return "never sent"

    async with working(broker):
        await job.kiq()
        await asyncio.wait_for(began.wait(), PATIENCE)
        [item] = [i async for i in queue.items()]
        await queue.remove(item.id)
        await asyncio.wait_for(cancelled.wait(), PATIENCE)
    assert await queue.info() and not [i async for i in queue.items(state="done")]


async def test_a_redelivery_is_not_mistaken_for_the_first_run(broker: PQBroker, queue: Queue) -> None:
    runs: list[str] = []
    cancelled = asyncio.Event()

    @broker.task
    async def job() -> str:
        runs.append("begun")
        if len(runs) > 1:
            await asyncio.wait_for(cancelled.wait(), PATIENCE)
            return "second"
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
        return "first"

    async with working(broker):
        task = await job.kiq()
        while not runs:
            await asyncio.sleep(0.02)
        [item] = [i async for i in queue.items()]
        # An operator ends the lease, and the same process gets the job again.
        await queue.link.request(queue.subject("release"), json.dumps({"id": item.id}).encode(), timeout=PATIENCE)

        assert (await result_of(task)).return_value == "second"
    assert len(runs) == 2


async def test_what_has_not_begun_goes_back_once_listening_ends(broker: PQBroker, queue: Queue) -> None:
    began, go_on, runs = asyncio.Event(), asyncio.Event(), []

    @broker.task
    async def job(number: int) -> None:
        runs.append(number)
        began.set()
        await go_on.wait()

    await broker.startup()
    tasks = [await job.kiq(number) for number in range(4)]
    finish = asyncio.Event()
    listening = asyncio.create_task(
        Receiver(broker, max_async_tasks=1, max_prefetch=2, run_startup=False).listen(finish)
    )
    await asyncio.wait_for(began.wait(), PATIENCE)
    while len(broker.held) < 3:
        await asyncio.sleep(0.02)

    finish.set()  # as SIGTERM does
    while len(broker.held) > 1:
        await asyncio.sleep(0.02)
    go_on.set()
    await asyncio.wait_for(listening, PATIENCE)
    await broker.shutdown()

    assert runs == [0]
    assert [(await state_of(queue, t, over=False)).state for t in tasks] == ["done", "ready", "ready", "ready"]
    assert [i.deliveries async for i in queue.items()] == [0, 0, 0]


async def test_a_receiver_with_a_limit_of_one_task_does_it(broker: PQBroker, queue: Queue) -> None:
    @broker.task
    async def job() -> None: ...

    await broker.startup()
    task = await job.kiq()
    receiver = Receiver(broker, max_async_tasks=1, max_tasks_to_execute=1, run_startup=False)
    await asyncio.wait_for(receiver.listen(asyncio.Event()), PATIENCE)
    await broker.shutdown()

    assert (await state_of(queue, task)).state == "done"


async def test_shutdown_gives_back_what_has_not_begun(broker: PQBroker, queue: Queue) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @broker.task
    async def job() -> str:
        began.set()
        await go_on.wait()
        return "done"

    await broker.startup()
    tasks = [await job.kiq() for _ in range(3)]
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=1, max_prefetch=1))
    await asyncio.wait_for(began.wait(), PATIENCE)
    while len(broker.held) < 2:
        await asyncio.sleep(0.02)
    receiver.cancel()
    await asyncio.wait({receiver})
    stopping = asyncio.create_task(broker.shutdown())
    while len(broker.held) > 1:
        await asyncio.sleep(0.02)
    go_on.set()
    await stopping

    outcomes = [await state_of(queue, t, over=False) for t in tasks]
    assert [o.state for o in outcomes] == ["done", "ready", "ready"]
    assert [i.deliveries async for i in queue.items()] == [0, 0]

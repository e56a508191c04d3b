"""Jobs that run when others have ended, against a bridge."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import PATIENCE, Bridge

import pqbridge
import pqbridge.sync
from pqbridge import Delivery, Job, Joined, Queue, Worker
from pqbridge.codec import JSON
from pqbridge.delivery import Done, ack_message
from pqbridge.headers import Headers, parse_frames
from pqbridge.pop import Received
from pqbridge.push import Message, successor


async def next_job(queue: Queue) -> Delivery:
    job = await queue.lease(expires=PATIENCE)
    assert job
    return job


async def test_a_joiner_runs_after_its_members_and_says_what_became_of_them(queue: Queue) -> None:
    report, *pages = await queue.all(
        {"value": b"report"}, [{"value": b"%d" % n, "priority": 5, "keep": "1h"} for n in range(3)]
    )
    assert (await queue.get(report.id)).state == "delayed"

    done, dead = await next_job(queue), await next_job(queue)
    await done.ack(b"result")
    await dead.term("no such page")
    await queue.remove(pages[2].id)

    job = await next_job(queue)
    assert (job.id, job.joined) == (report.id, Joined(done=1, dead=1, gone=1, open=0))
    assert done.joiner == report.ref and done.joined is None and job.joiner is None
    assert [i.id async for i in queue.items(state="done") if i.joiner == report.ref] == [pages[0].id]


async def test_a_joiner_reads_what_its_members_returned(queue: Queue) -> None:
    await queue.all({"value": b"another"}, [{"value": b"other", "keep": "1h"}])
    _, *pages = await queue.all(
        {"value": b"report"}, [{"value": b"%d" % n, "keep": "1h", "headers": {"Page": str(n)}} for n in range(2)]
    )
    results: list[dict[str, tuple[bytes | None, bool]]] = []
    found = asyncio.Event()

    async def work(job: Job) -> bytes:
        if job.value != b"report":
            return b"x" * 3000 if job.value == b"0" else b""
        for about, length in ({}, 1024), ({}, 65536), ({"Page": "1"}, 1024):
            members = queue.items(state="done", headers={"Pq-Joiner": job.ref, **about}, value_bytes=length)
            results.append({i.id: (i.result, i.result_cut) async for i in members})
        found.set()
        return b""

    async with Worker(queue, work):
        await asyncio.wait_for(found.wait(), PATIENCE)

    first, second = (p.id for p in pages)
    assert results == [
        {first: (b"x" * 1024, True), second: (b"", False)},
        {first: (b"x" * 3000, False), second: (b"", False)},
        {second: (b"", False)},
    ]


async def test_an_empty_joiner_is_refused(queue: Queue) -> None:
    """A join must not be lost because a variable is empty."""
    for wrong in ({"joiner": ""}, {"join": ""}, {"joiner": queue}):
        with pytest.raises(pqbridge.BadArgumentError):
            await queue.push(b"", **wrong)
        with pytest.raises(pqbridge.BadArgumentError):
            await queue.all({"value": b""}, [{"value": b"", **wrong}])  # type: ignore[typeddict-item]


async def test_a_job_pushes_at_most_256_items(queue: Queue) -> None:
    def work(job: Job) -> None:
        for _ in range(257):
            job.next("mail", b"")

    outcome = await pqbridge.run_handler(work)

    assert (outcome.kind, outcome.text) == (
        "failed",
        "BadArgumentError: next: an acknowledgement pushes at most 256 items (400)",
    )


async def test_the_tree_of_one_call_to_all_ends_from_its_leaves(queue: Queue) -> None:
    book: Any = {"value": b"book"}
    chapter: Any = {"value": b"chapter", "join": "1h"}
    page: Any = {"value": b"page", "joiner": 1}

    await queue.all(book, [chapter, page])

    values = []
    for _ in range(3):
        job = await next_job(queue)
        values.append(job.value)
        await job.ack()
    assert values == [b"page", b"chapter", b"book"]


async def test_all_pushes_everything_or_nothing(queue: Queue) -> None:
    for wrong in ({"unique": "a"}, {"joiner": 2}, {"headers": {"Pq-No": "x"}}, {"msg_id": "only here"}):
        with pytest.raises(pqbridge.BadRequestError):
            await queue.all({"value": b""}, [{"value": b""}, {"value": b"", **wrong}])  # type: ignore[typeddict-item]
    not_items: list[Any] = [5]
    with pytest.raises(pqbridge.BadArgumentError, match="want a dict"):
        await queue.all({"value": b""}, not_items)

    info = await queue.info()

    assert (info["ready"], info["delayed"]) == (0, 0)


async def test_all_with_message_ids_can_be_repeated(queue: Queue) -> None:
    joiner: Any = {"value": b"report", "msg_id": "report"}
    members: list[Any] = [{"value": b"page", "msg_id": f"page-{n}"} for n in range(2)]

    first = await queue.all(joiner, members)
    again = await queue.all(joiner, members)

    assert [a.id for a in again] == [a.id for a in first]
    assert all(a.duplicate for a in again) and await queue.len() == 2


async def test_a_joiner_runs_when_its_time_is_over(queue: Queue) -> None:
    await queue.all({"value": b"report", "join": "1s"}, [{"value": b"page", "delay": "1h"}])

    assert (await next_job(queue)).joined == Joined(done=0, dead=0, gone=0, open=1)


async def test_an_open_join_takes_members_until_it_is_closed(queue: Queue) -> None:
    report = await queue.open_join(b"report", open="1h", priority=3)
    await queue.push(b"page", joiner=report)
    [also] = await queue.push_many([{"value": b"page", "joiner": report.ref}])
    assert isinstance(also, pqbridge.PushAck)
    for _ in range(2):
        await (await next_job(queue)).ack()
    assert await queue.pop() is None

    await report.close()

    job = await next_job(queue)
    assert (job.priority, job.joined) == (3, Joined(done=2, dead=0, gone=1, open=0))
    with pytest.raises(pqbridge.JoinedError):
        await queue.push(b"late", joiner=report.ref)
    await report.close()  # again


async def test_a_push_returns_what_its_members_take_as_their_joiner(queue: Queue) -> None:
    report, _ = await queue.all({"value": b"report"}, [{"value": b"page"}])

    await queue.push(b"page", joiner=report)

    assert [(await next_job(queue)).joiner for _ in range(2)] == [report.ref] * 2


async def test_an_open_join_of_a_program_that_died_ends(queue: Queue) -> None:
    report = await queue.open_join(b"report", open=1)

    job = await next_job(queue)
    assert (job.id, job.joined) == (report.id, Joined(done=0, dead=0, gone=1, open=0))
    await report.close()


async def test_an_open_join_with_a_message_id_is_opened_once(queue: Queue) -> None:
    opened = [await queue.open_join(b"report", open="1h", msg_id="a") for _ in range(2)]

    assert opened[0].ref == opened[1].ref
    await opened[1].close()
    assert (await next_job(queue)).joined == Joined(done=0, dead=0, gone=1, open=0)


async def test_a_worker_adds_members_to_the_join_that_it_is_in(queue: Queue, name: str) -> None:
    await queue.configure(next=[name])
    await queue.all({"value": b"report"}, [{"value": b"list"}])
    job = await next_job(queue)
    await queue.push(b"page", joiner=job.joiner)
    await job.ack(next=[{"queue": name, "value": b"page", "joiner": job.joiner}])

    for _ in range(2):
        await (await next_job(queue)).ack()

    assert (await next_job(queue)).joined == Joined(done=3, dead=0, gone=0, open=0)


async def test_a_joiner_that_waits_does_not_move(queue: Queue) -> None:
    report, _ = await queue.all({"value": b"report"}, [{"value": b"page"}])

    with pytest.raises(pqbridge.JoinsError):
        await queue.move(report.id, 3)
    [outcome] = await queue.move_ids([report.id], 3)
    assert isinstance(outcome, pqbridge.JoinsError)


async def test_jobs_that_share_acknowledgements_push_joins_of_their_own(queue: Queue, name: str) -> None:
    """Each has another successor, a result and a joiner with three members."""
    await queue.configure(next=[name])
    await queue.push_many({"value": b"fan", "priority": 9, "keep": "1h"} for _ in range(40))
    reports: list[Joined | None] = []
    all_reports = asyncio.Event()

    async def work(job: Job) -> str:
        if job.value == b"fan":
            job.next(name, b"beside")
            report = job.next(name, b"report", join="1h")
            for _ in range(3):
                job.next(name, b"page", joiner=report)
        elif job.value == b"report":
            reports.append(job.joined)
            if len(reports) == 40:
                all_reports.set()
        return "done"

    async with Worker(queue, work, concurrency=8):
        await asyncio.wait_for(all_reports.wait(), PATIENCE)

    assert reports == [Joined(done=3, dead=0, gone=0, open=0)] * 40


def test_the_number_of_a_joiner_counts_the_frames_of_its_request(queue: Queue) -> None:
    def done(token: str, result: bytes | None, *options: dict[str, Any]) -> Done:
        next: list[Message] = []
        for item in options:
            next.append(successor(JSON, {"queue": "q", "value": b"", **item}, len(next)))  # type: ignore[typeddict-item]
        delivery = Delivery(queue, Received(b"", Headers(), f"pq.q.ack.{token}", 0), 30)
        return Done(delivery, result, "", next)

    first = done("a", b"result", {}, {"join": 9}, {"joiner": 1})
    second = done("b", b"result")
    third = done("c", None, {"join": 9}, {"joiner": 0}, {"joiner": "q ID"})

    headers, data = ack_message("+ACK", [first, second, third])

    frames = parse_frames(data, int(dict(headers)["Pq-Frames"]))
    assert [h.get("Pq-Joiner") for h, _ in frames] == [None, None, "1", None, "3", "q ID", None, None]
    assert ["Pq-Join" in h for h, _ in frames] == [False, True, False, True, False, False, False, False]
    assert [h.get("Pq-Token") for h, _ in frames][6:] == ["a", "b"]


async def test_a_number_without_an_item_before_it_is_refused(queue: Queue) -> None:
    want = "want a ref, or the number of an item before it"
    with pytest.raises(pqbridge.BadArgumentError, match=want):
        await queue.push(b"", joiner=0)
    outcomes = await queue.push_many([{"value": b"", "join": "1h"}, {"value": b"", "joiner": 0}])
    assert [type(o) for o in outcomes] == [pqbridge.PushAck, pqbridge.BadArgumentError]

    def work(job: Job) -> None:
        job.next("mail", b"", joiner=job.next("mail", b"") + 1)

    assert want in (await pqbridge.run_handler(work)).text


@pytest.mark.parametrize("text", ["done=1", "done=1 dead=x gone=0 open=0", "none"])
def test_a_header_that_no_bridge_writes_is_a_bad_reply(text: str) -> None:
    with pytest.raises(pqbridge.BadReplyError):
        print(pqbridge.Item(b"", Headers([("Pq-Joined", text)])).joined)


async def test_joins_that_block(shared_bridge: Bridge, queue: Queue) -> None:
    def script() -> None:
        with pqbridge.sync.Client(shared_bridge.url) as client:
            jobs = client.priority_queue(queue.name)
            report, _ = jobs.all({"value": b"report", "keep": "1h"}, [{"value": b"page"}])
            opened = jobs.open_join(b"later", open="1h", keep="1h")
            jobs.push(b"page", joiner=opened)
            for _ in range(2):
                opened.close()
            for joiner in (report, opened):
                assert jobs.result(joiner.id, wait="1m").state == "done"

    async with Worker(queue, lambda job: None):
        await asyncio.to_thread(script)

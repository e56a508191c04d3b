"""What became of a job, attempt by attempt, and of the jobs that it has pushed."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from conftest import PATIENCE, Bridge
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

import pqbridge
from pqbridge import Client, Drop, Job, JobRef, Queue, Worker
from pqbridge.headers import parse_frames


async def test_get_and_items_have_the_attempts_of_a_job_and_what_it_has_pushed(client: Client, name: str) -> None:
    jobs, dead, mail = (client.priority_queue(name + suffix) for suffix in ("", "-dead", "-mail"))
    await jobs.configure(trail=8, max_deliver=2, keep="1h", next=[mail.name])
    id = (await jobs.push(b"x")).id
    fails = [{"reason": "larger"}, {}]
    for n, how in enumerate(fails):
        job = await jobs.lease(holder="worker 1")
        assert job
        await job.nak(**how)
        found = await jobs.get(id)  # the second time, a dead letter
        assert [a["number"] for a in found.attempts] == [1, 2][: n + 1]
    await dead.redrive()
    job = await jobs.lease(holder="worker 1")
    assert job
    await job.ack(next=[{"queue": mail.name, "value": b"x"}] * 70)

    item = await jobs.get(id)
    [listed] = [i async for i in jobs.items(state="done", attempts=True)]
    [plain] = [i async for i in jobs.items(state="done")]

    assert all(a.pop("from") <= a.pop("to") for a in [*item.attempts, *listed.attempts])
    assert item.attempts == [
        {"life": 1, "number": 1, "how": "nak", "holder": "worker 1", "reason": "larger"},
        {"life": 1, "number": 2, "how": "nak", "holder": "worker 1"},
        {"life": 2, "number": 1, "how": "done", "holder": "worker 1"},
    ]
    assert (len(item.successors), item.more_successors) == (64, 6)
    assert (listed.attempts, listed.successors, listed.more_successors) == (item.attempts, item.successors, 6)
    assert (plain.attempts, plain.successors, plain.more_successors) == ([], [], 0)

    first = await mail.peek()
    assert first and item.successors[0] == JobRef(mail.name, first.id)
    assert first.parent == JobRef(name, id) and first.headers["Pq-Parent"] == f"{name} {id}"
    assert item.parent is None
    assert {i.parent async for i in mail.items()} == {JobRef(name, id)}


async def older_bridge(nc: NATS, prefix: str) -> list[str]:
    """Pass requests on, but refuse successors that name the lease of their parent; return the refused subjects.

    So does a bridge from before the setting trail.
    """
    refused: list[str] = []

    async def relay(m: Msg) -> None:
        frames = (m.headers or {}).get("Pq-Frames")
        pushed = parse_frames(m.data, int(frames)) if frames and "Pq-Ack" in (m.headers or {}) else []
        if any({"Pq-Queue", "Pq-Token"} <= set(headers) for headers, _ in pushed):
            refused.append(m.subject)
            error = {"Nats-Service-Error-Code": "400", "Nats-Service-Error": "want one of them"}
            await nc.publish(m.reply, headers=error)
        else:
            await nc.publish("pq" + m.subject.removeprefix(prefix), m.data, reply=m.reply, headers=m.headers)

    await nc.subscribe(f"{prefix}.>", cb=relay)
    await nc.flush()
    return refused


@pytest.mark.parametrize("prefix", ["pq", "older"])
async def test_jobs_that_share_acknowledgements_are_the_parents_of_what_they_push(
    nc: NATS, shared_bridge: Bridge, client: Client, name: str, prefix: str
) -> None:
    jobs, mail, runs = client.priority_queue(name), client.priority_queue(name + "-mail"), Counter[str]()
    await jobs.configure(trail=4, next=[mail.name])
    other = await pqbridge.connect(shared_bridge.url)
    refused = await older_bridge(other, prefix) if prefix == "older" else []
    await jobs.push_many([{"value": b""}] * 100)

    async def work(job: Job) -> None:
        runs[job.id] += 1
        job.next(mail.name, job.id.encode())

    async def until_pushed() -> None:
        while await mail.len() < 100:
            await asyncio.sleep(0.02)

    async with Worker(Client(nc, prefix=prefix, timeout=PATIENCE).priority_queue(name), work, concurrency=20):
        await asyncio.wait_for(until_pushed(), PATIENCE)
    await other.close()

    pushed = [(i.parent, i.value) async for i in mail.items()]
    assert len(pushed) == 100 and all(parent == JobRef(name, value.decode()) for parent, value in pushed)
    assert len(runs) == 100 and set(runs.values()) == {1}
    assert bool(refused) == (prefix == "older")


async def test_a_result_follows_a_chain_to_its_last_job_and_says_where_a_chain_breaks(
    client: Client, name: str
) -> None:
    a, b = client.priority_queue(name), client.priority_queue(name + "-b")
    for queue in a, b:
        await queue.configure(trail=1, keep="1h", next=[a.name, b.name])

    def pushing_to(other: Queue) -> Any:
        async def work(job: Job) -> bytes:
            first, _, rest = job.string().partition(",")
            if first.isdigit() and int(first) > 1:
                job.next(other.name, b"%d" % (int(first) - 1))
            elif first == "two":
                job.next(other.name, b"x")
                job.next(other.name, b"y")
            elif first == "dead":
                raise Drop("no")
            elif rest:
                job.next(other.name, rest.encode())
            return first.encode()

        return work

    async def follow(value: str) -> pqbridge.JobResult:
        ack = await a.push(value.encode(), msg_id=value)
        return await a.result(ack.id, wait=PATIENCE, follow=True)

    async with Worker(a, pushing_to(b)), Worker(b, pushing_to(a)):
        for value, last in {"alone": b"alone", "a,b,end": b"end", "100": b"1"}.items():
            assert (await follow(value)).value == last
        assert (await a.result(msg_id="a,b,end", follow=True)).value == b"end"
        assert (await a.result(msg_id="a,b,end")).value == b"a"
        assert (await follow("a,b,dead")).cause == "no"
        with pytest.raises(pqbridge.ChainError):
            await follow("a,two")
        await follow("a,b,gone")

    await b.purge("done")
    with pytest.raises(
        pqbridge.NotFoundError, match=rf"^job 2 of the chain, \S+ in queue {b.name}, is not kept, or gone: "
    ):
        await a.result(msg_id="a,b,gone", follow=True)

"""Makes the calls that JetStream's programs in Python make, on the queue "jobs", and checks what they get.

The last line says which version of the package did it.
"""

import asyncio
import os
from importlib.metadata import version

import nats
from nats.errors import TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

PATIENCE = 120  # seconds, only against hanging


async def main():
    nc = await nats.connect(os.environ["NATS_URL"], connect_timeout=PATIENCE)
    js = nc.jetstream(domain="pq", timeout=PATIENCE)

    async def push(*values):
        """Puts values into the queue, the first the most urgent."""
        for priority, value in enumerate(values):
            ack = await js.publish("pq.jobs.push", value.encode(), headers={"Pq-Priority": str(priority)})
            assert ack.stream == "jobs", ack

    async def take(consumer, *want):
        """Fetches that many messages at once, checks their values, and acknowledges them."""
        batch = await consumer.fetch(len(want), timeout=PATIENCE)
        assert [m.data.decode() for m in batch] == list(want), batch
        for m in batch:
            await m.ack_sync(timeout=PATIENCE)

    async def one(consumer):
        (m,) = await consumer.fetch(1, timeout=PATIENCE)
        return m

    # What a manager does.
    assert (await js.account_info()).domain == "pq"
    assert (await js.stream_info("jobs")).config.subjects == ["pq.jobs.push"]
    assert await js.find_stream_name_by_subject("pq.jobs.push") == "jobs"
    await js.add_stream(name="jobs", subjects=["pq.jobs.push"])  # as programs do at each start
    await js.add_consumer("jobs", ConsumerConfig(durable_name="py", ack_policy=AckPolicy.EXPLICIT, ack_wait=60))
    assert (await js.consumer_info("jobs", "py")).config.durable_name == "py"
    assert sorted(c.name for c in await js.consumers_info("jobs")) == ["max", "min", "py"]

    # Pulls.
    await push("a", "b", "c")
    assert [s.config.name for s in await js.streams_info()] == ["jobs"]
    most = await js.pull_subscribe_bind("max", stream="jobs")
    m = await one(most)
    assert (m.data, m.subject, m.headers["Pq-Priority"]) == (b"c", "pq.jobs.push", "2"), m
    assert (m.metadata.stream, m.metadata.consumer, m.metadata.domain) == ("jobs", "max", "pq"), m.metadata
    assert (m.metadata.num_delivered, m.metadata.num_pending) == (1, 2), m.metadata
    await m.ack_sync(timeout=PATIENCE)
    own = await js.pull_subscribe_bind("py", stream="jobs")
    await take(own, "a", "b")
    for n in 1, 2:
        try:
            await own.fetch(n, timeout=0.2)
            raise AssertionError("there was a message")
        except TimeoutError:
            pass

    # A fetch that waits for longer than its heartbeats are apart.
    waiting = asyncio.create_task(own.fetch(1, timeout=PATIENCE, heartbeat=0.5))
    await asyncio.sleep(1.2)
    await push("d")
    (m,) = await waiting
    assert m.data == b"d", m
    await m.ack_sync(timeout=PATIENCE)

    # Consumers as most programs create them: for the subject, by name or without one.
    for durable in "py-durable", "py-durable", None:
        subscribed = await js.pull_subscribe("pq.jobs.push", durable=durable)
        await push("e", "f")
        await take(subscribed, "e", "f")
        await subscribed.unsubscribe()

    # Publishing without waiting.
    futures = [await js.publish_async("pq.jobs.push", b"g", headers={"Nats-Msg-Id": "once"}) for _ in range(2)]
    acks = await asyncio.gather(*futures)
    assert sorted(bool(a.duplicate) for a in acks) == [False, True], acks
    await take(own, "g")

    # The other acknowledgements.
    await push("h")
    await (await one(own)).nak()
    m = await one(own)
    assert m.metadata.num_delivered == 2, m.metadata
    await m.in_progress()
    await m.nak(delay=0.05)
    m = await one(own)
    assert m.metadata.num_delivered == 3, m.metadata
    await m.term()
    await nc.flush()
    await take(await js.pull_subscribe_bind("min", stream="jobs-dead"), "h")

    await push("i", "j")
    await js.purge_stream("jobs")
    assert (await js.stream_info("jobs")).state.messages == 0
    assert await js.delete_consumer("jobs", "py")
    try:
        await js.consumer_info("jobs", "py")
        raise AssertionError("the consumer is still there")
    except NotFoundError:
        pass
    await nc.close()
    print(f"nats-py {version('nats-py')}: all calls succeeded")


asyncio.run(main())

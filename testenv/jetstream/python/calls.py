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


async def main():
    nc = await nats.connect(os.environ["NATS_URL"], connect_timeout=120)
    js = nc.jetstream(domain="pq", timeout=120)

    async def push(*values):
        """Puts values into the queue, the first the most urgent."""
        for priority, value in enumerate(values):
            ack = await js.publish("pq.jobs.push", value.encode(), headers={"Pq-Priority": str(priority)})
            assert ack.stream == "jobs", ack

    # What a manager does.
    assert (await js.account_info()).domain == "pq"
    assert (await js.stream_info("jobs")).config.subjects == ["pq.jobs.push"]
    assert await js.find_stream_name_by_subject("pq.jobs.push") == "jobs"
    await js.add_consumer("jobs", ConsumerConfig(durable_name="py", ack_policy=AckPolicy.EXPLICIT, ack_wait=60))
    assert (await js.consumer_info("jobs", "py")).config.durable_name == "py"
    assert sorted(c.name for c in await js.consumers_info("jobs")) == ["max", "min", "py"]

    # Pulls.
    await push("a", "b", "c")
    most = await js.pull_subscribe_bind("max", stream="jobs")
    (m,) = await most.fetch(1)
    assert (m.data, m.subject, m.headers["Pq-Priority"]) == (b"c", "pq.jobs.push", "2"), m
    assert (m.metadata.stream, m.metadata.consumer, m.metadata.num_pending) == ("jobs", "max", 2), m.metadata
    await m.ack_sync()
    own = await js.pull_subscribe_bind("py", stream="jobs")
    batch = await own.fetch(2)
    assert [m.data for m in batch] == [b"a", b"b"], batch
    for m in batch:
        await m.ack_sync()
    try:
        await own.fetch(1, timeout=0.2)
        raise AssertionError("there was a message")
    except TimeoutError:
        pass

    # The other acknowledgements.
    await push("d")
    (m,) = await own.fetch(1)
    await m.nak()
    (m,) = await own.fetch(1)
    assert m.metadata.num_delivered == 2, m.metadata
    await m.in_progress()
    await m.nak(delay=0.05)
    (m,) = await own.fetch(1)
    assert m.metadata.num_delivered == 3, m.metadata
    await m.term()
    await nc.flush()

    assert await js.delete_consumer("jobs", "py")
    try:
        await js.consumer_info("jobs", "py")
        raise AssertionError("the consumer is still there")
    except NotFoundError:
        pass
    await nc.close()
    print(f"nats-py {version('nats-py')}: all calls succeeded")


asyncio.run(main())

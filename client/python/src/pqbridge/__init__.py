"""Durable, strictly ordered priority queues over NATS: a client and a worker for asyncio.

    nc = await pqbridge.connect("nats://127.0.0.1:4222")
    jobs = pqbridge.Client(nc).priority_queue("jobs")
    await jobs.push({"to": "eve"}, priority=5, type="email")

docs/python.md of the project has the whole way, from install to a worker that survives a kill.
"""

from .client import Client as Client, connect as connect
from .codec import JSON as JSON, Codec as Codec, JSONCodec as JSONCodec
from .delivery import Delivery as Delivery, Renewal as Renewal
from .errors import *  # noqa: F403
from .headers import Headers as Headers, HeadersLike as HeadersLike
from .item import (
    FoundItem as FoundItem,
    Item as Item,
    JobRef as JobRef,
    JobResult as JobResult,
    Joined as Joined,
    StoredItem as StoredItem,
)
from .job import (
    Drop as Drop,
    Handler as Handler,
    Job as Job,
    Middleware as Middleware,
    NoHandlerError as NoHandlerError,
    Outcome as Outcome,
    RetryAfter as RetryAfter,
    Snooze as Snooze,
    run_handler as run_handler,
)
from .manage import Rank as Rank
from .push import (
    JoinerRef as JoinerRef,
    PushAck as PushAck,
    PushItem as PushItem,
    PushOptions as PushOptions,
    Successor as Successor,
)
from .queue import OpenJoin as OpenJoin, Queue as Queue
from .times import Duration as Duration
from .worker import Worker as Worker

__version__ = "0.1.0"

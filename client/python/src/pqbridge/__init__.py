"""Durable, strictly ordered priority queues over NATS: a client and a worker for asyncio.

    nc = await pqbridge.connect("nats://127.0.0.1:4222")
    jobs = pqbridge.Client(nc).priority_queue("jobs")
    await jobs.push({"to": "eve"}, priority=5, type="email")

docs/python.md of the project has the whole way, from install to a worker that survives a kill.
"""

import logging

from .client import Client, connect
from .codec import JSON, Codec, JSONCodec
from .delivery import Delivery, Renewal
from .errors import (
    BadArgumentError,
    BadReplyError,
    BadRequestError,
    DeniedError,
    InternalError,
    JobFailedError,
    LeasedError,
    LeaseLostError,
    NoBridgeError,
    NoHeartbeatError,
    NotDoneError,
    NotFoundError,
    NotSentError,
    OverloadedError,
    PQError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
)
from .headers import Headers, HeadersLike
from .item import Item, JobResult, StoredItem
from .job import Drop, Handler, Job, Middleware, Outcome, RetryAfter, Snooze, run_handler
from .push import PushAck, PushItem, PushOptions, Successor
from .queue import Queue
from .times import Duration
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "JSON",
    "BadArgumentError",
    "BadReplyError",
    "BadRequestError",
    "Client",
    "Codec",
    "Delivery",
    "DeniedError",
    "Drop",
    "Duration",
    "Handler",
    "Headers",
    "HeadersLike",
    "InternalError",
    "Item",
    "JSONCodec",
    "Job",
    "JobFailedError",
    "JobResult",
    "LeaseLostError",
    "LeasedError",
    "Middleware",
    "NoBridgeError",
    "NoHeartbeatError",
    "NotDoneError",
    "NotFoundError",
    "NotSentError",
    "Outcome",
    "OverloadedError",
    "PQError",
    "PushAck",
    "PushItem",
    "PushOptions",
    "Queue",
    "Renewal",
    "RetryAfter",
    "Snooze",
    "StoredItem",
    "Successor",
    "TooLargeError",
    "UnavailableError",
    "UnknownOutcomeError",
    "Worker",
    "connect",
    "run_handler",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent by default

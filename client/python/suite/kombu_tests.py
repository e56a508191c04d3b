"""kombu's own tests of a transport, as it has them for each of its own."""

from __future__ import annotations

import os
from typing import Any

import kombu
import pytest

from .common import (  # type: ignore[import-not-found]
    BaseEventLoop,
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

URL = os.environ["TEST_BROKER"]
DEAD = "pqbridge://127.0.0.1:1?timeout=500ms"


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(DEAD)


@pytest.fixture
def connection() -> kombu.Connection:
    return kombu.Connection(URL)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    return kombu.Connection(f"{DEAD};{URL}", connect_timeout=10)


class test_BasicFunctionality(BasicFunctionality):  # type: ignore[misc]  # noqa: N801
    pass


class test_ExchangeTypes(BaseExchangeTypes):  # type: ignore[misc]  # noqa: N801
    """A queue gets what is published to fanout and topic exchanges while it is consumed."""

    def test_fanout(self, connection: Any) -> None:
        exchange = kombu.Exchange("test_fanout", type="fanout")
        queues = [kombu.Queue(f"fanout{n}", exchange=exchange) for n in (1, 2)]
        with connection as conn, self._create_consumer(conn, queues[0]), self._create_consumer(conn, queues[1]):
            self._publish(conn.default_channel, exchange, queues)
            for _ in queues:
                conn.drain_events(timeout=1)

    def test_topic(self, connection: Any) -> None:
        exchange = kombu.Exchange("test_topic", type="topic", delivery_mode=1)
        keys = {"topic1": "t.*", "topic2": "t.*", "topic3": "t"}
        queues = [kombu.Queue(name, exchange=exchange, routing_key=key) for name, key in keys.items()]
        with connection as conn, conn.Consumer(queues, callbacks=[self._callback], accept=["pickle"]):
            self._publish(conn.default_channel, exchange, queues, routing_key="t.1")
            for _ in range(2):
                conn.drain_events(timeout=1)
            with pytest.raises(TimeoutError):
                conn.drain_events(timeout=0.5)


class test_Priority(BasePriority):  # type: ignore[misc]  # noqa: N801
    """A call of drain_events hands over one message."""

    @pytest.fixture
    def connection(self) -> Any:
        connection = kombu.Connection(URL)
        drain = connection.drain_events

        def drain_all(**options: Any) -> None:
            drain(**options)
            try:
                while True:
                    drain(timeout=0.3)
            except TimeoutError:
                pass

        connection.drain_events = drain_all
        return connection


class test_TimeToLive(BaseTimeToLive):  # type: ignore[misc]  # noqa: N801
    pass


class test_Message(BaseMessage):  # type: ignore[misc]  # noqa: N801
    pass


class test_EventLoop(BaseEventLoop):  # type: ignore[misc]  # noqa: N801
    pass


class test_Failover(BaseFailover):  # type: ignore[misc]  # noqa: N801
    pass

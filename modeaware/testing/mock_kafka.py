"""A mock of a Kafka broker: librdkafka's own, in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from modeaware.errors import LocalKafkaError
from modeaware.librdkafka import Producer

START_TIMEOUT_S = 10.0


class MockKafka:
    """librdkafka's mock broker (its setting ``test.mock.num.brokers``) at an address of this machine. No process, no
    Java: it starts in milliseconds, keeps records in memory and forgets them when stopped. A context manager.

    It takes records, serves consumers and groups and makes a topic, always of :data:`PARTITIONS` partitions, when a
    producer first asks for it. It knows no admin request and hence no modes: script them with
    :class:`modeaware.testing.ScriptedModes`. For clients of librdkafka; kafka-python's do not connect to it.
    """

    PARTITIONS = 4
    """How many partitions each topic has: librdkafka has no setting for it."""

    def __init__(self) -> None:
        self._host: Producer | None = None
        self._bootstrap_servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """For the setting ``bootstrap.servers``; empty while it does not run."""
        return self._bootstrap_servers

    def start(self) -> Self:
        """Start it; harmless while it runs.

        Raises:
            LocalKafkaError: it has no address.
        """
        if self._host is not None:
            return self
        self._host = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        brokers = self._host.list_topics(timeout=START_TIMEOUT_S).brokers.values()
        if not brokers:
            raise LocalKafkaError("librdkafka's mock broker has no address")
        self._bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        return self

    def make_topic(self, topic: str) -> str:
        """Make ``topic``, so that a consumer finds it before anything was written to it; harmless when it is there.

        Raises:
            LocalKafkaError: the mock does not run.
        """
        if self._host is None:
            raise LocalKafkaError(f"the mock broker does not run, there is no topic {topic}")
        self._host.list_topics(topic, timeout=START_TIMEOUT_S)
        return topic

    def stop(self) -> None:
        """Stop it: its records are gone. Idempotent."""
        host, self._host = self._host, None
        self._bootstrap_servers = ""
        if host is not None:
            host.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

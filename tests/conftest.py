"""Fixtures of all tests: real Kafka clusters, topics."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
from hypothesis import settings

from modeaware.local import Kafka, LocalKafka, start_kafka
from tests.support.plain import create_topic

# No test asserts on elapsed time: hypothesis gives each example 200 ms otherwise, which a busy machine needs at times.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


class MakeTopic(Protocol):
    """Creates a topic with a name of its own on the shared cluster and returns the name."""

    def __call__(self, partitions: int = 12, /, *, prefix: str = "t", **configs: str | int | bool) -> str:
        """
        Args:
            partitions: how many.
            prefix: start of the name.
            configs: topic settings with ``_`` for ``.``: ``retention_ms=1000``.
        """


MakeKafka = Callable[..., LocalKafka]


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """One node, shared by the whole run: do not harm it, and use topics and groups with names of your own."""
    with start_kafka() as running:
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture(scope="session")
def kafka3(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """Three nodes, started when first asked for. A test may harm brokers and must leave all three running."""
    with LocalKafka(nodes=3) as running:
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture(scope="session")
def kafka40(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node of Kafka 4.0, which lacks requests that 4.2 has, started when first asked for: do not harm it."""
    with LocalKafka(version="4.0.1") as running:
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture
def make_kafka() -> Iterator[MakeKafka]:
    """``make_kafka(nodes=1, configs={...})``, arguments as LocalKafka's: a cluster for one test to harm at will."""
    started: list[LocalKafka] = []

    def make(nodes: int = 1, **arguments: object) -> LocalKafka:
        started.append(LocalKafka(nodes, **arguments))
        return started[-1].start()

    yield make
    for running in started:
        running.stop()


@pytest.fixture
def make_topic(kafka: Kafka) -> MakeTopic:
    """Makes topics on the shared one-node cluster."""
    return topic_maker(kafka)


def topic_maker(kafka: Kafka) -> MakeTopic:
    """The same for any cluster."""

    def make(partitions: int = 12, /, *, prefix: str = "t", **configs: str | int | bool) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value).lower() for key, value in configs.items()}
        create_topic(kafka.bootstrap_servers, name, partitions, configs=settings)
        return name

    return make


@pytest.fixture
def make_group() -> Callable[[], str]:
    """Makes consumer group ids that nobody else uses."""
    return lambda: f"g-{uuid.uuid4().hex[:12]}"


def _keep_logs_of_failures(session: pytest.Session, running: Kafka) -> None:
    if session.testsfailed:
        running.stop(keep_logs=True)
        for broker in running.brokers:
            if broker.log_path is not None:
                print(f"\nThe log of broker {broker.node_id} is kept: {broker.log_path}")

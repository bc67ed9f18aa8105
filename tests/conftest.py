"""Fixtures of all tests: real Kafka clusters, each started at most once in a run, and topics."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import pytest
from hypothesis import settings
from kafka.net.inet import KafkaNetSocket
from kafka.net.selector import NetworkSelector

from modeaware.local import Kafka, LocalKafka, start_kafka
from tests.support.plain import create_topic
from tests.support.secured import SecuredKafka, secured_kafka

pytest_plugins = ["tests.support.kafka_fixtures", "tests.support.spark_session"]

# Hypothesis gives each example 200 ms by default, which a busy machine exceeds.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

STEADY = {"broker.session.timeout.ms": "60000"}
"""For brokers that no test harms: a busy machine delays heartbeats, and a fenced broker leads nothing."""
STARTS_VARIABLE = "MODEAWARE_TEST_KAFKA_STARTS"
"""A file that gets a line for each Kafka the tests start; set by ``tests.run``."""


OWN_CLUSTERS = frozenset({"_three_nodes", "secured", "kafka40", "make_kafka"})


class MakeTopic(Protocol):
    """Creates a topic with a name of its own on the shared cluster and returns the name."""

    def __call__(self, partitions: int = 12, /, **configs: str | int | bool) -> str:
        """``configs``: topic settings with ``_`` for ``.``: ``retention_ms=1000``."""


MakeKafka = Callable[..., LocalKafka]


@pytest.fixture(scope="session", autouse=True)
def _close_forgotten_sockets() -> Iterator[None]:
    """kafka-python 3.0.12 leaves sockets open: of failed and unfinished connections, and with unsent bytes at close."""
    connect, close = KafkaNetSocket.sock_connect, NetworkSelector.close
    sockets: WeakKeyDictionary[NetworkSelector, WeakSet[socket.socket]] = WeakKeyDictionary()

    async def sock_connect(self: Any, net: Any, sock: socket.socket, *args: Any, **kwargs: Any) -> socket.socket:
        sockets.setdefault(net, WeakSet()).add(sock)
        try:
            return await connect(self, net, sock, *args, **kwargs)
        except BaseException:  # GeneratorExit is how such a coroutine ends
            sock.close()
            raise

    def close_all(self: Any) -> None:
        connected = list(sockets.pop(self, ()))  # held: closing drops them
        close(self)
        for sock in connected:
            sock.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KafkaNetSocket, "sock_connect", sock_connect)
        patched.setattr(NetworkSelector, "close", close_all)
        yield


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """One node, shared by the whole run: do not harm it, and use topics and groups with names of your own."""
    with start_kafka(configs=STEADY) as running:
        if running.kind != "external":
            note_start(f"{running.kind}, one node")
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture(scope="session")
def _three_nodes(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3, configs={"broker.rack": "rack-{node_id}"}) as running:
        note_start("three nodes")
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture
def kafka3(_three_nodes: LocalKafka) -> Iterator[LocalKafka]:
    """Three nodes, ``rack-1`` to ``rack-3``. A test may kill, freeze or stop brokers; all serve again for the next."""
    yield _three_nodes
    down = [broker for broker in _three_nodes.brokers if broker.pid is None]
    for broker in _three_nodes.brokers:
        if broker in down:
            broker.start(wait=False)
        else:
            broker.resume()
    for broker in _three_nodes.brokers:
        broker.wait_until_serving([each.node_id for each in _three_nodes.brokers])


@pytest.fixture(scope="session")
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One node with TLS, users and ACLs: grant rights to users of :mod:`tests.support.secured`, take none away."""
    made = secured_kafka(tmp_path_factory.mktemp("secured"), STEADY)
    note_start("secured")
    with made.kafka:
        yield made
        _keep_logs_of_failures(request.session, made.kafka)


@pytest.fixture(scope="session")
def kafka40(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One node of Kafka 4.0, which lacks requests that 4.2 has, started when first asked for: do not harm it."""
    with LocalKafka(version="4.0.1", configs=STEADY) as running:
        note_start("4.0")
        yield running
        _keep_logs_of_failures(request.session, running)


@pytest.fixture
def make_kafka() -> Iterator[MakeKafka]:
    """``make_kafka(nodes=1, configs={...})``, arguments as LocalKafka's: a cluster of its own, for ``tests/long``."""
    started: list[LocalKafka] = []

    def make(nodes: int = 1, **arguments: object) -> LocalKafka:
        started.append(LocalKafka(nodes, **arguments))
        note_start("of one test")
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

    def make(partitions: int = 12, /, **configs: str | int | bool) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): str(value).lower() for key, value in configs.items()}
        create_topic(kafka.bootstrap_servers, name, partitions, configs=settings)
        return name

    return make


@pytest.fixture
def make_group() -> Callable[[], str]:
    """Makes consumer group ids that nobody else uses."""
    return lambda: f"g-{uuid.uuid4().hex[:12]}"


def note_start(kind: str) -> None:
    """Count a start of Kafka."""
    path = os.environ.get(STARTS_VARIABLE)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{kind}\n")


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell in the background; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if OWN_CLUSTERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("own_cluster")  # ``tests.run`` gives them a process of their own
        if "spark" in item.path.parts:
            # pyspark leaves the sockets that it has read results from to the garbage collection.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket.socket .*127.0.0.1:ResourceWarning"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))  # the first one of all downloads the connector


def _keep_logs_of_failures(session: pytest.Session, running: Kafka) -> None:
    if session.testsfailed:
        running.stop(keep_logs=True)
        for broker in running.brokers:
            if broker.log_path is not None:
                print(f"\nThe log of broker {broker.node_id} is kept: {broker.log_path}")

"""Which Kafka a demo or test gets on this machine: one at an address, a container, or processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from modeaware.errors import ConfigError, LocalKafkaError
from modeaware.local.cluster import LocalKafka
from modeaware.local.container import engine_answers, start_container
from modeaware.local.node import LocalBroker

logger = logging.getLogger(__name__)

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
WAY_VARIABLE = "MODEAWARE_LOCAL_KAFKA"


class Way(Enum):
    """How a Kafka is had; the values are ``MODEAWARE_LOCAL_KAFKA``'s and :attr:`Kafka.kind`'s."""

    EXTERNAL = "external"
    CONTAINER = "container"
    PROCESS = "process"


class Kafka(Protocol):
    """A running Kafka: one to three brokers. A context manager that stops what it started, and only that."""

    @property
    def kind(self) -> str:
        """``"external"``, ``"container"`` or ``"process"``."""

    @property
    def bootstrap_servers(self) -> str:
        """For the setting ``bootstrap.servers``."""

    @property
    def brokers(self) -> Sequence[LocalBroker]:
        """The processes of this machine, by node id; empty for the other kinds."""

    def logs_tail(self, lines: int = 40) -> str:
        """The last lines of each broker's log."""

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop what was started. Harmless when repeated.

        Args:
            keep_logs: leave the brokers' logs where they are (:attr:`LocalBroker.log_path`).
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ExternalKafka:
    """The cluster at an address, which KAFKA_BOOTSTRAP_SERVERS names. Nothing is started, checked or stopped."""

    kind = "external"
    brokers = ()

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def logs_tail(self, lines: int = 40) -> str:
        return f"(no logs here: {self.bootstrap_servers} was started elsewhere)"

    def stop(self, *, keep_logs: bool = False) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def start_kafka(nodes: int = 1, *, configs: Mapping[str, str] | None = None) -> Kafka:
    """A running Kafka: the one KAFKA_BOOTSTRAP_SERVERS names; else a container (one node only) where an engine answers;
    else Apache Kafka 4.2 as processes of this machine. Use it as a context manager, or call its ``stop``.

    ``MODEAWARE_LOCAL_KAFKA=container`` or ``=process`` leaves no choice but that one (default ``auto``).

    Args:
        nodes: 1 to 3, where it is ours to say.
        configs: broker settings, where it is ours to say.

    Raises:
        LocalKafkaError: it did not start.
        ConfigError: the variables contradict each other or the number of nodes.
    """
    way = choose_way(nodes, os.environ, engine_answers)
    logger.debug("A Kafka of %d node(s): %s", nodes, way.value)
    if way is Way.EXTERNAL:
        return ExternalKafka(os.environ[BOOTSTRAP_VARIABLE])
    if way is Way.CONTAINER:
        try:
            return start_container(configs or {})
        except LocalKafkaError as error:
            if os.environ.get(WAY_VARIABLE) == Way.CONTAINER.value:
                raise
            logger.warning("%s; starting Kafka as a process of this machine instead", error)
    return LocalKafka(nodes, configs=configs).start()


def choose_way(nodes: int, environment: Mapping[str, str], has_engine: Callable[[], bool]) -> Way:
    """The decision of :func:`start_kafka`, pure but for ``has_engine``, which is asked only where it matters.

    Raises:
        ConfigError: as there.
    """
    wanted = environment.get(WAY_VARIABLE) or "auto"
    if wanted not in ("auto", Way.CONTAINER.value, Way.PROCESS.value):
        raise ConfigError(f"{WAY_VARIABLE} is auto, container or process, not {wanted!r}")
    if environment.get(BOOTSTRAP_VARIABLE):
        if wanted != "auto":
            raise ConfigError(f"{WAY_VARIABLE}={wanted} and {BOOTSTRAP_VARIABLE} are both set: unset one of them")
        return Way.EXTERNAL
    if wanted == Way.CONTAINER.value:
        if nodes > 1:
            raise ConfigError(f"A container has one node, not {nodes}: unset {WAY_VARIABLE}")
        return Way.CONTAINER
    if wanted == "auto" and nodes == 1 and has_engine():
        return Way.CONTAINER
    return Way.PROCESS

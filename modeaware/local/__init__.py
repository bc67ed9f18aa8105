"""A real Apache Kafka for demos and tests: :func:`start_kafka`.

POSIX only. The extra ``local`` is needed for containers, and on machines without Java 17.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from modeaware.callouts import get_logger
from modeaware.errors import ConfigError, LocalKafkaError
from modeaware.local.cluster import Kafka, LocalBroker, LocalKafka
from modeaware.local.process import START_TIMEOUT_S
from modeaware.local.settings import free_ports, quick_defaults

if TYPE_CHECKING:
    from testcontainers.community.kafka import KafkaContainer

__all__ = ["Kafka", "LocalBroker", "LocalKafka", "start_kafka"]

logger = get_logger(__name__)

BOOTSTRAP_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
WAY_VARIABLE = "MODEAWARE_LOCAL_KAFKA"
IMAGE = "confluentinc/cp-kafka:8.2.0"
"""An image with Apache Kafka 4.2, the line that :mod:`modeaware.local.jars` installs, too."""
_CLIENT_PORT = 9093
_PING_TIMEOUT_S = 1


class Way(Enum):
    """The origin of a Kafka; the values are those of ``MODEAWARE_LOCAL_KAFKA`` and of :attr:`Kafka.kind`."""

    EXTERNAL = "external"
    CONTAINER = "container"
    PROCESS = "process"


def start_kafka(nodes: int = 1, *, configs: Mapping[str, str] | None = None) -> Kafka:
    """Return a running Kafka. Use it as a context manager, or call its ``stop``.

    The first choice is the cluster at KAFKA_BOOTSTRAP_SERVERS. The second is a container (one node only), if a
    container engine answers. The third is Apache Kafka 4.2 as processes of this machine.
    ``MODEAWARE_LOCAL_KAFKA=container`` or ``=process`` forces one of the last two (default ``auto``).

    Args:
        nodes: the number of nodes, 1 to 3; ignored if KAFKA_BOOTSTRAP_SERVERS is set.
        configs: broker settings; ignored if KAFKA_BOOTSTRAP_SERVERS is set.

    Raises:
        LocalKafkaError: Kafka did not start.
        ConfigError: ``MODEAWARE_LOCAL_KAFKA`` has a bad value, or contradicts the other variable or ``nodes``.
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
    """Return the way for :func:`start_kafka`, or raise its ConfigError; ``has_engine`` is called only if needed."""
    wanted = environment.get(WAY_VARIABLE) or "auto"
    if wanted not in ("auto", Way.CONTAINER.value, Way.PROCESS.value):
        raise ConfigError(f"{WAY_VARIABLE} must be auto, container or process, not {wanted!r}")
    if environment.get(BOOTSTRAP_VARIABLE):
        if wanted != "auto":
            raise ConfigError(f"{WAY_VARIABLE}={wanted} and {BOOTSTRAP_VARIABLE} are both set; unset one of them")
        return Way.EXTERNAL
    if wanted == Way.CONTAINER.value:
        if nodes > 1:
            raise ConfigError(f"a container has one node, not {nodes}; unset {WAY_VARIABLE}")
        return Way.CONTAINER
    if wanted == "auto" and nodes == 1 and has_engine():
        return Way.CONTAINER
    return Way.PROCESS


class ExternalKafka(Kafka):
    """The cluster at an address. Nothing is started, checked or stopped."""

    kind = Way.EXTERNAL.value

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        return self._bootstrap_servers

    def logs_tail(self, lines: int = 40) -> str:
        return f"(no logs: {self.bootstrap_servers} was started elsewhere)"

    def stop(self, *, keep_logs: bool = False) -> None:
        """Do nothing."""


class ContainerKafka(Kafka):
    """A single-node Kafka in a running container; this machine reaches it at ``address`` (``host:port``).

    :meth:`stop` removes the container; if this process crashes, testcontainers' reaper removes it.
    """

    kind = Way.CONTAINER.value

    def __init__(self, container: KafkaContainer, address: str) -> None:
        self._container: KafkaContainer | None = container
        self._address = address

    @property
    def bootstrap_servers(self) -> str:
        return self._address

    def logs_tail(self, lines: int = 40) -> str:
        if self._container is None:
            return ""
        output = b"".join(self._container.get_logs()).decode(errors="replace")
        return "\n".join(output.splitlines()[-lines:])

    def stop(self, *, keep_logs: bool = False) -> None:
        """Remove the container with its log, even with ``keep_logs``: read :meth:`logs_tail` before."""
        if self._container is not None:
            self._container.stop()
            self._container = None


def start_container(configs: Mapping[str, str]) -> ContainerKafka:
    """Start one node in a container.

    Raises:
        LocalKafkaError: the container did not start (no image, no space, ...).
    """
    import docker
    import requests
    from testcontainers.community.kafka import KafkaContainer

    container: KafkaContainer | None = None
    try:
        container = KafkaContainer(IMAGE, port=_CLIENT_PORT).with_kraft()
        # A fixed port: an automatic one would change when the container is restarted.
        container.with_bind_ports(_CLIENT_PORT, free_ports(1, host="0.0.0.0")[0])
        for key, value in {**quick_defaults(1), **configs}.items():
            container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        container.start(timeout=int(START_TIMEOUT_S))
    except (docker.errors.DockerException, requests.RequestException, TimeoutError, RuntimeError) as error:
        if container is not None:
            container.stop()
        raise LocalKafkaError(f"a container of {IMAGE} did not start: {error}") from error
    return ContainerKafka(container, container.get_bootstrap_server())


@cache
def engine_answers() -> bool:
    """Return whether a container engine answers a ping, and testcontainers is installed.

    Waits at most a second for each connection, and for its answer. Docker's own client is not used: its import takes
    long, and the client leaks a socket if no engine answers.
    """
    if importlib.util.find_spec("testcontainers") is None:
        return False
    if named := os.environ.get("DOCKER_HOST"):
        return _answers(named)
    home, runtime = Path.home(), os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    sockets = ("/var/run/docker.sock", f"{home}/.docker/run/docker.sock", f"{runtime}/docker.sock")
    return any(_answers(f"unix://{path}") for path in sockets)


def _answers(address: str) -> bool:
    """Return whether the address sends any HTTP answer: an error, too, such as that of an engine that requires TLS."""
    kind, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if kind not in ("unix", "tcp") or (kind == "tcp" and not port.isdigit()):
        return False  # another scheme, such as ssh; MODEAWARE_LOCAL_KAFKA=container skips this check
    try:
        with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as connection:
            connection.settimeout(_PING_TIMEOUT_S)
            connection.connect(place if kind == "unix" else (host, int(port)))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
    except OSError:
        return False

"""One Kafka node in a container, by testcontainers. The only module that imports testcontainers and docker."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from modeaware.errors import LocalKafkaError
from modeaware.local.node import START_TIMEOUT_S
from modeaware.local.settings import free_ports, quick_defaults

if TYPE_CHECKING:
    from testcontainers.community.kafka import KafkaContainer

IMAGE = "confluentinc/cp-kafka:8.2.0"
"""Carries Apache Kafka 4.2, the line that :mod:`modeaware.local.jars` installs."""

_CLIENT_PORT = 9093
_PING_TIMEOUT_S = 1


@cache
def engine_answers() -> bool:
    """Whether a container engine answers a ping (and testcontainers is installed). Asked by hand, not with docker's
    client: that takes long to import, and leaks a socket where nothing answers. At most a second for each address."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    return any(_answers(address) for address in _engine_addresses())


def _engine_addresses() -> list[str]:
    if named := os.environ.get("DOCKER_HOST"):
        return [named]
    home, runtime = Path.home(), os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    sockets = ("/var/run/docker.sock", f"{home}/.docker/run/docker.sock", f"{runtime}/docker.sock")
    return [f"unix://{path}" for path in sockets]


def _answers(address: str) -> bool:
    """Any HTTP answer will do: where the engine wants TLS, it says so in one."""
    kind, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if kind not in ("unix", "tcp") or (kind == "tcp" and not port.isdigit()):
        return False  # ssh and the like: MODEAWARE_LOCAL_KAFKA=container goes without this question
    try:
        with socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET) as connection:
            connection.settimeout(_PING_TIMEOUT_S)
            connection.connect(place if kind == "unix" else (host, int(port)))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return connection.recv(5) == b"HTTP/"
    except OSError:
        return False


class ContainerKafka:
    """A running single-node Kafka in a container, removed by :meth:`stop` or, after a crash, by testcontainers' reaper.

    Args:
        container: started; serves at ``address``.
        address: ``host:port`` as seen from here.
    """

    kind = "container"

    def __init__(self, container: KafkaContainer, address: str) -> None:
        self._container: KafkaContainer | None = container
        self.bootstrap_servers = address
        self.brokers = ()

    def logs_tail(self, lines: int = 40) -> str:
        if self._container is None:
            return ""
        output = b"".join(self._container.get_logs()).decode(errors="replace")
        return "\n".join(output.splitlines()[-lines:])

    def stop(self, *, keep_logs: bool = False) -> None:
        """Remove the container; its log goes with it, whatever ``keep_logs`` says: read :meth:`logs_tail` before."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_container(configs: Mapping[str, str]) -> ContainerKafka:
    """Start one node in a container.

    Args:
        configs: broker settings over :func:`modeaware.local.settings.quick_defaults`.

    Raises:
        LocalKafkaError: it did not start (no image, no room, ...).
    """
    import docker
    import requests
    from testcontainers.community.kafka import KafkaContainer

    container: KafkaContainer | None = None
    try:
        container = KafkaContainer(IMAGE, port=_CLIENT_PORT).with_kraft()
        # A port of our choice, or a restart of the container would move it.
        container.with_bind_ports(_CLIENT_PORT, free_ports(1, host="0.0.0.0")[0])
        for key, value in {**quick_defaults(1), **configs}.items():
            container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        container.start(timeout=int(START_TIMEOUT_S))
    except (docker.errors.DockerException, requests.RequestException, TimeoutError, RuntimeError) as error:
        if container is not None:
            container.stop()
        raise LocalKafkaError(f"A container of {IMAGE} did not start: {error}") from error
    return ContainerKafka(container, container.get_bootstrap_server())

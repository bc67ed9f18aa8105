"""The server properties and JVM options of brokers for demos and tests."""

from __future__ import annotations

import base64
import random
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

HOST = "127.0.0.1"


class Seat(NamedTuple):
    """One node's place in a cluster: its id and its two ports on the loopback interface."""

    node_id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def random_uuid() -> str:
    """Return a Kafka Uuid: 22 characters of URL-safe base64. The first is a letter (a first ``-`` marks an option)."""
    return base64.urlsafe_b64encode(b"\x31" + secrets.token_bytes(15)).decode().rstrip("=")


def quick_defaults(nodes: int) -> dict[str, str]:
    """Return broker settings that make small clusters quick: short delays, few partitions of internal topics."""
    replicas = str(min(3, nodes))
    in_sync = str(max(1, min(3, nodes) - 1))
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Groups become stable at once, and tests may use short session timeouts.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "500",
        # Retention, deletion, compaction and aborts of hanging transactions each happen after about a second.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "1000",
        "log.segment.delete.delay.ms": "1000",
        "log.cleaner.backoff.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A killed or paused broker is fenced after three seconds. A killed broker cannot register again before that.
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
        # For small machines.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }


def server_properties(seat: Seat, seats: Sequence[Seat], data: Path, configs: Mapping[str, str]) -> dict[str, str]:
    """Return all properties of one combined KRaft node; ``configs`` override any of them.

    In the overrides ``{port}``, ``{controller_port}`` and ``{node_id}`` stand for the node's own values. So listeners
    can be redefined, and ``{"broker.rack": "rack-{node_id}"}`` puts every node into its own rack.
    """
    voters = ",".join(f"{other.node_id}@{HOST}:{other.controller_port}" for other in seats)
    own = {key: _of_seat(value, seat) for key, value in configs.items()}
    return {
        "process.roles": "broker,controller",
        "node.id": str(seat.node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{seat.address},CONTROLLER://{HOST}:{seat.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{seat.address}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
        "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        **quick_defaults(len(seats)),
        **own,
    }


def _of_seat(value: str, seat: Seat) -> str:
    for name, number in seat._asdict().items():
        value = value.replace(f"{{{name}}}", str(number))
    return value


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file."""
    lines = []
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={escaped}\n")
    path.write_text("".join(lines), encoding="utf-8")


def broker_command(
    java: str, jars: Path, properties: Path, *, heap_mb: int, small: bool, archive: Path | None = None
) -> list[str]:
    """Return the command that runs a broker and logs at INFO to standard error, without the dump of all configs."""
    log = "-Dorg.slf4j.simpleLogger."
    return [
        java,
        f"-Xmx{heap_mb}m",
        *([f"-XX:SharedArchiveFile={archive}"] if archive is not None and archive.exists() else []),
        *(["-XX:TieredStopAtLevel=1"] if small else []),  # for several brokers: less memory, quicker start
        f"{log}showDateTime=true",
        f"{log}dateTimeFormat=HH:mm:ss.SSS",
        f"{log}log.org.apache.kafka.common.config.AbstractConfig=warn",
        "-cp",
        f"{jars}/*",
        "kafka.Kafka",
        str(properties),
    ]


# Below the range for outgoing connections (from 32 768 on Linux). So no client's connection can take the port of a
# broker that is down for a moment.
_LOWEST, _HIGHEST = 15_000, 32_000
_choice = random.SystemRandom()  # not seeded: test runs in parallel must not all begin with the same ports


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` free ports. Another process may take one of them before the caller does: be ready to retry."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = _choice.randrange(_LOWEST, _HIGHEST)
            taken = held.enter_context(socket.socket())
            try:
                taken.bind((host, port))
            except OSError:
                continue  # the port is in use
            ports.append(port)
    return ports

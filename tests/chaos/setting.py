"""What every process of a chaos run needs: the cluster, the topic, the clients, the rates."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.views import registry
from modeaware.views.source import Views

PARTITIONS = 12
LOWEST_TARGET = 4
KEYS = 500
MODE_LOG = "__partition_modes"
SHRINK_DELAYS_MS = (0, 0, 500, 3_000)
VIEWS_S = 60.0
NO_VERSION = -1

# Seconds instead of minutes, so that many shrinks fit in a run.
CONTROLLER_CONFIGS = {
    "modeaware.seal.quiet.ms": "2000",
    "delete.topic.partition.check.interval.ms": "1000",
    "modeaware.open.timeout.ms": "10000",
    "modeaware.announce.ms": "500",
    "modeaware.fence.after.ms": "3000",
}
BROKER_CONFIGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "num.partitions": "1",
}


@dataclass(frozen=True)
class Writer:
    """A writer and its share of all records."""

    name: str
    aware: bool
    transactional: bool
    share: float


@dataclass(frozen=True)
class Group:
    """A group of consumers and what is special in its members' configuration; they are stock ones if not ``aware``.

    One with ``auto.offset.reset=latest`` has offset 0 committed everywhere before its members start. So it has to read
    everything as well, and any later reset by that setting makes it skip records.
    """

    name: str
    members: int
    conf: Mapping[str, str | int] = field(default_factory=dict)
    aware: bool = True


_CLASSIC = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}
_LATEST = {"auto.offset.reset": "latest"}

IDEMPOTENT: Mapping[str, bool | int] = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
"""With more requests in flight librdkafka may lose or double a batch when a leader changes (confluent-kafka-go#921: the
first one of a partition, refused by its new leader, counts as acknowledged; librdkafka#4953)."""
WRITERS = (
    Writer("aware-idempotent", aware=True, transactional=False, share=0.34),
    Writer("aware-transactional", aware=True, transactional=True, share=0.22),
    Writer("unaware-idempotent", aware=False, transactional=False, share=0.26),
    Writer("unaware-transactional", aware=False, transactional=True, share=0.18),
)
CHAINS: Mapping[str, Mapping[str, str | int]] = {
    "range": _CLASSIC,
    "cooperative": {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
"""Chains of topics that replace each other, and what is special in the configuration of their groups' members."""
GROUPS = (
    Group("range", 2, _CLASSIC),
    Group("cooperative", 2, {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky", **_LATEST}),
    # With librdkafka's log of its membership, which tests.chaos.membership reads.
    Group("consumer", 2, {"group.protocol": "consumer", **_LATEST, "debug": "cgrp", "log_level": 7}),
    Group("plain", 1, _CLASSIC, aware=False),
)


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        folder: where all processes write their journals and logs.
        origin_ns: the run's time 0 on the machine's monotonic clock, which all of its processes share.
        seed: of everything that is left to chance.
        rate_per_s: records a second, of all writers together.
        minutes: how long harm is done; what the run has to reach depends on it.
    """

    bootstrap_servers: str
    topic: str
    folder: Path
    origin_ns: int
    seed: int
    rate_per_s: float
    minutes: float = 0.0

    def now_ms(self) -> int:
        """The run's time."""
        return (time.monotonic_ns() - self.origin_ns) // 1_000_000

    @property
    def conf(self) -> dict[str, str | int | float | bool]:
        """How the run itself connects."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 2}

    def views(self) -> Views:
        """The views that all aware clients of this process share.

        Raises:
            ModeSourceError: no first view within :data:`VIEWS_S` seconds.
        """
        views = registry.acquire(self.conf, ClientConfig())
        if not views.wait_ready(VIEWS_S):
            raise ModeSourceError(f"no view of the partition modes: {views.error()}")
        return views

    def save(self) -> None:
        fields = {**asdict(self), "folder": str(self.folder)}
        (self.folder / "setting.json").write_text(json.dumps(fields, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Setting:
        fields = json.loads((folder / "setting.json").read_text(encoding="utf-8"))
        return cls(**{**fields, "folder": folder})

    @property
    def events_path(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def contents_path(self) -> Path:
        """The journal of the topic's records at the end."""
        return self.folder / "contents.journal"

    @property
    def log_starts_path(self) -> Path:
        """Its log starts at the end; written last: with it the history is complete."""
        return self.folder / "log-starts.json"


def version_number(version: tuple[int, int]) -> int:
    """A view's (controller epoch, topic epoch) as one number, in the same order."""
    controller_epoch, epoch = version
    return NO_VERSION if epoch < 0 else controller_epoch << 20 | epoch

"""What every process of a chaos run has to know: where, who takes part, how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

PARTITIONS = 12
LOWEST_TARGET = 4
KEYS = 500
MODE_LOG = "__partition_modes"
SHRINK_DELAYS_MS = (0, 0, 500, 3_000)

# Seconds instead of minutes, so that many shrinks fit in a run.
CONTROLLER_CONFIGS = {
    "modeaware.seal.quiet.ms": "2000",
    "delete.topic.partition.check.interval.ms": "1000",
    "modeaware.open.timeout.ms": "10000",
}
BROKER_CONFIGS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "1000",
    "num.partitions": "1",
}
SESSION_MS = 6_000


@dataclass(frozen=True)
class Writer:
    """A writer.

    Attributes:
        share: its share of all records.
    """

    name: str
    aware: bool
    transactional: bool
    share: float


@dataclass(frozen=True)
class Group:
    """A group of consumers and what is special in its members' configuration; they are stock ones if not ``aware``.

    One with ``auto.offset.reset=latest`` has offset 0 committed everywhere before its members start. So it has to read
    everything as well, and whoever has it start anew by that setting later on makes it skip records.
    """

    name: str
    members: int
    conf: Mapping[str, str | int] = field(default_factory=dict)
    aware: bool = True

    @property
    def latest(self) -> bool:
        return self.conf.get("auto.offset.reset") == "latest"


_CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000}
_LATEST = {"auto.offset.reset": "latest"}

WRITERS = (
    Writer("aware-idempotent", aware=True, transactional=False, share=0.34),
    Writer("aware-transactional", aware=True, transactional=True, share=0.22),
    Writer("unaware-idempotent", aware=False, transactional=False, share=0.26),
    Writer("unaware-transactional", aware=False, transactional=True, share=0.18),
)
GROUPS = (
    Group("range", 2, _CLASSIC),
    Group("cooperative", 2, {**_CLASSIC, "partition.assignment.strategy": "cooperative-sticky", **_LATEST}),
    Group("consumer", 2, {"group.protocol": "consumer", **_LATEST}),
    Group("plain", 1, _CLASSIC, aware=False),
)


@dataclass(frozen=True)
class Setting:
    """One run.

    Attributes:
        bootstrap_servers: the cluster.
        topic: the topic.
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

    def save(self) -> None:
        fields = {**asdict(self), "folder": str(self.folder)}
        (self.folder / "setting.json").write_text(json.dumps(fields, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Setting:
        fields = json.loads((folder / "setting.json").read_text(encoding="utf-8"))
        return cls(**{**fields, "folder": folder})

    def writer_path(self, name: str, run: int) -> Path:
        """The journal of a writer's incarnation."""
        return self.folder / f"writer.{name}.{run}.journal"

    def reader_path(self, group: str, member: str, run: int) -> Path:
        """The journal of a reader's incarnation."""
        return self.folder / f"reader.{group}.{member}.{run}.journal"

    @property
    def events_path(self) -> Path:
        """What the run did and saw, one JSON object a line."""
        return self.folder / "events.jsonl"

    @property
    def contents_path(self) -> Path:
        """The topic's records at the end."""
        return self.folder / "contents.journal"

    @property
    def log_starts_path(self) -> Path:
        """Its log starts at the end; written last: with it the history is complete."""
        return self.folder / "log-starts.json"

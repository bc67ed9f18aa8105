"""What the consumer shell reads off a librdkafka configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.config import with_topic_config

EARLIEST = frozenset({"smallest", "earliest", "beginning"})
LATEST = frozenset({"largest", "latest", "end"})


@dataclass(frozen=True)
class GroupConf:
    """The settings that decide how an assignment may be changed.

    Attributes:
        group_id: ``group.id``.
        incremental: the rebalance protocol is cooperative (``cooperative-sticky``, or ``group.protocol=consumer``), so
            partitions are added and taken away one by one; else (eager) an assignment is replaced as a whole.
        may_be_range: the group may come to use the ``range`` strategy.
        offset_reset: ``auto.offset.reset``, as given.
        auto_commit: ``enable.auto.commit``.
    """

    group_id: str
    incremental: bool = False
    may_be_range: bool = True
    offset_reset: str = "largest"
    auto_commit: bool = True

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> GroupConf:
        """Read ``conf``; what stands in ``default.topic.config`` overrides the rest, as confluent_kafka has it."""
        settings = with_topic_config(conf)
        strategies = [name.strip() for name in str(settings.get("partition.assignment.strategy", "range")).split(",")]
        consumer_protocol = str(settings.get("group.protocol", "classic")).lower() == "consumer"
        return cls(
            group_id=str(settings.get("group.id", "")),
            incremental=consumer_protocol or "cooperative-sticky" in strategies,
            may_be_range="range" in strategies and not consumer_protocol,
            offset_reset=str(settings.get("auto.offset.reset", "largest")).lower(),
            auto_commit=str(settings.get("enable.auto.commit", True)).lower() in ("true", "t", "1"),
        )

"""What a file of topics asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.modelog.records import RETENTION_DELAY_MS

RETENTION, DRAINED = "retention", "drained"
POLICIES = (RETENTION, DRAINED)


@dataclass(frozen=True)
class ShrinkRules:
    """How a topic is shrunk, in the words of ``modeaware shrink``.

    Attributes:
        policy: ``retention``: the topic's own retention takes the records of retired partitions; ``drained``: they are
            deleted once every group has consumed them.
        delay_ms: of ``drained``: no earlier than this many milliseconds after the shrink began.
        evacuate: of a compacted topic: wait for the Spark job that copies the latest values.
        accept_state_loss: groups that keep state per partition and may lose that of the keys that move.
    """

    policy: str = RETENTION
    delay_ms: int = 0
    evacuate: bool = False
    accept_state_loss: tuple[str, ...] = ()

    @property
    def command_delay_ms(self) -> int:
        """The delay as commands have it: -1 for ``retention``."""
        return RETENTION_DELAY_MS if self.policy == RETENTION else self.delay_ms

    def command(self, topic: str, count: int) -> DeletePartitionsCommand:
        """The shrink of ``topic`` to ``count`` partitions."""
        return DeletePartitionsCommand(
            topic, count, self.command_delay_ms, False, self.accept_state_loss, evacuate=self.evacuate
        )


@dataclass(frozen=True)
class DesiredTopic:
    """One topic as it shall be.

    Attributes:
        partitions: how many take writes.
        replication_factor: None: whatever it is; of a new topic the cluster's default.
        configs: those that the file names; None as a value: the topic has none of its own, the cluster's default holds.
        shrink: how it is shrunk, if it is; None where the file does not say, which means :class:`ShrinkRules`'s
            defaults.
        where: the file and line, for people.
    """

    name: str
    partitions: int
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)
    shrink: ShrinkRules | None = None
    where: str = ""

    @property
    def shrink_rules(self) -> ShrinkRules:
        return self.shrink if self.shrink is not None else ShrinkRules()

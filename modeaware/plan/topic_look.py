"""What brokers say of the topic that a plan is for."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.lifecycle.facts import TopicFacts
from modeaware.plan.sample import Stretch


@dataclass(frozen=True)
class TopicLook:
    """The topic on the brokers; ``unknown``: what could not be looked up, in words."""

    facts: TopicFacts
    unknown: tuple[str, ...] = ()

    @property
    def logs(self) -> dict[int, Stretch]:
        return {p: Stretch(log.log_start, log.end_offset) for p, log in self.facts.partitions.items()}

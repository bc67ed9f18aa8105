"""Whether a sealed partition is drained: the proof that nobody required will miss its records (invariant I1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import PartitionFacts, TopicFacts


@dataclass(frozen=True)
class Drain:
    """Either a proof (group -> committed offset, at or beyond the seal), or the reason why there is none."""

    proof: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None

    @property
    def done(self) -> bool:
        return self.reason is None


def check_drain(
    partition: int, seal_offset: int, log: PartitionFacts, facts: TopicFacts, required_groups: tuple[str, ...]
) -> Drain:
    """Check every group that is required (noted when the partition became ReadOnly) or uses the topic now.

    An empty partition is drained, whatever the groups say: there is nothing left to read. A commit beyond the end is
    doubt, not proof. A required group that is not listed any more has proved nothing either.
    """
    if log.log_start >= seal_offset:
        return Drain()
    if facts.groups_doubt is not None:
        return Drain(reason=reasons.GROUPS_UNKNOWN)
    proof = {}
    for name in sorted({*required_groups, *facts.groups}):
        group = facts.groups.get(name)
        if group is None:
            return Drain(reason=reasons.of_group(reasons.GROUP_GONE, name))
        committed = group.committed.get(partition)
        if committed is None and partition not in group.caught_up:
            return Drain(reason=reasons.of_group(reasons.GROUP_NEVER_COMMITTED, name))
        position = log.log_start if committed is None else committed
        if position > log.end_offset:
            return Drain(reason=reasons.of_group(reasons.GROUP_BEYOND_END, name))
        if position < seal_offset and partition not in group.caught_up:
            return Drain(reason=reasons.of_group(reasons.GROUP_LAG, name))
        proof[name] = position
    return Drain(proof=proof)

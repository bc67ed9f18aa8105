"""Whether a seal holds, and whether all before it is consumed by whom it must be: the proof (invariant I1). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.requirement import Requirement


@dataclass(frozen=True)
class Drain:
    """Either a proof, or the reason why there is none.

    Attributes:
        proof: group -> committed offset: at or beyond the seal, or before it with nothing between them that the group
            would be given. A group that never committed where there is nothing to be given is not in it.
        reason: the reason code.
        waived: the groups that were not waited for: group -> the reason of the waiver.
    """

    proof: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    waived: Mapping[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.reason is None


def check_drain(
    partition: int,
    seal_offset: int,
    truncated_to: int | None,
    log: PartitionFacts,
    facts: TopicFacts,
    requirement: Requirement,
) -> Drain:
    """Check every group of ``requirement`` (invariants I1 and I2).

    An empty partition is drained, whatever the groups say: there is nothing left to read. A commit beyond the end, or
    on a part of the log that was truncated, is doubt, not proof; so is one beyond ``truncated_to`` that names no leader
    epoch. A required group that is not listed any more has proved nothing either. The evacuation is looked at first: it
    is what a person has to start.

    Args:
        truncated_to: as the record has it (:class:`~modeaware.modelog.records.RetiredPartition`).
    """
    if log.log_start >= seal_offset:
        return Drain()
    if requirement.doubt is not None:
        return Drain(reason=reasons.GROUPS_HIDDEN if requirement.doubt.hidden else reasons.GROUPS_UNKNOWN)
    proof: dict[str, int] = {}
    waived: dict[str, str] = {}
    if requirement.evacuation is not None:
        name, job = requirement.evacuation, facts.groups.get(requirement.evacuation)
        reason = _not_evacuated(name, job, partition, seal_offset, truncated_to, log)
        if job is None or reason is not None:
            return Drain(reason=reason)
        proof[name] = job.committed[partition]
    for name in requirement.groups:
        group = facts.groups.get(name)
        waiver = requirement.waiver(name, group, partition)
        if waiver is not None:
            waived[name] = waiver.reason
            continue
        if group is None:
            return Drain(reason=reasons.of_group(reasons.GROUP_GONE, name))
        if group.stateful and name not in requirement.accept_state_loss:
            return Drain(reason=reasons.of_group(reasons.GROUP_STATEFUL, name))
        reason = _held_up_by(group, partition, seal_offset, truncated_to, log)
        if reason is not None:
            return Drain(reason=reasons.of_group(reason, name))
        if partition in group.committed:
            proof[name] = group.committed[partition]
    return Drain(proof=proof, waived=waived)


def seal_broken_by(seal_offset: int, log: PartitionFacts) -> str | None:
    """The reason code for which a seal does not hold any more: ``truncated`` or ``straggler``; None: it holds.

    Truncated: the log ends before the seal, or did for a while and was then written again.
    """
    if log.end_offset < seal_offset or (log.seal_epoch_end is not None and log.seal_epoch_end < seal_offset):
        return reasons.TRUNCATED
    return reasons.STRAGGLER if log.end_offset > seal_offset else None


def unread_offsets(group: GroupFacts | None, partition: int, until: int, log_start: int) -> int:
    """How many offsets before ``until`` a group (None: one without a commit) has still to consume.

    It starts at the log start where it has not committed; what it has caught up with (``GroupFacts.caught_up``) is 0.
    """
    if group is None:
        return max(until - log_start, 0)
    if partition in group.caught_up:
        return 0
    return max(until - max(group.committed.get(partition, log_start), log_start), 0)


def _not_evacuated(
    name: str, job: GroupFacts | None, partition: int, seal_offset: int, truncated_to: int | None, log: PartitionFacts
) -> str | None:
    """Why the evacuation is not proved. Nothing but a commit at the seal will do: what compaction has taken since may
    have been the tombstone of a value that was copied."""
    if job is None:
        return reasons.NOT_EVACUATED
    reason = _held_up_by(replace(job, caught_up=frozenset()), partition, seal_offset, truncated_to, log)
    if reason in (reasons.GROUP_BEYOND_END, reasons.GROUP_TRUNCATED):
        return reasons.of_group(reason, name)
    return None if reason is None else reasons.NOT_EVACUATED


def _held_up_by(
    group: GroupFacts, partition: int, seal_offset: int, truncated_to: int | None, log: PartitionFacts
) -> str | None:
    committed = group.committed.get(partition)
    caught_up = partition in group.caught_up
    if committed is None:
        return None if caught_up else reasons.GROUP_NEVER_COMMITTED
    if committed > log.end_offset:
        return reasons.GROUP_BEYOND_END
    if partition in group.truncated:
        return reasons.GROUP_TRUNCATED
    if truncated_to is not None and partition in group.epochless and committed > max(truncated_to, log.log_start):
        return reasons.GROUP_TRUNCATED
    return None if committed >= seal_offset or caught_up else reasons.GROUP_LAG

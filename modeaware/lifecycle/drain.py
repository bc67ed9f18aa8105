"""The drain: find the required groups, and check whether they have consumed a retired partition to its seal.

A group is *required* if the change has noted it, if it uses the topic now, or if the operator has registered it. A
group *uses* a topic by a commit, or by members that are subscribed to the topic or assigned its partitions. The
operator may *waive* a group, with a reason. While the list of groups may be incomplete (a *doubt*), or a group's
commits are not known, no partition with records before its seal is drained.

An *evacuation* copies the latest values of a compacted old topic to the new topic (the Spark job
``modeaware.spark.evacuate``). A commit at the seal of each partition proves the evacuation. The job commits as a
consumer group whose name contains the epoch of this replacement, so an older proof never counts. This group is no
reader of the topic: drains wait for it through ``Requirement.evacuation`` only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts, worst_doubt
from modeaware.lifecycle.state import in_progress
from modeaware.modelog.group_rules import CLOSED, REQUIRE, WAIVE, GroupRule
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.notes import Note

EVACUATION_PREFIX = "modeaware-evacuation-"
"""The prefix of the consumer groups of evacuations."""
_EPOCH = re.compile(r"[0-9]+", re.ASCII)


# Evacuations


def evacuation_group(topic: str, epoch: int) -> str:
    """Return the group whose commits prove the evacuation of ``topic``."""
    return f"{EVACUATION_PREFIX}{topic}-{epoch}"


def evacuation_of(record: TopicRecord | None) -> str | None:
    """Return the group that has to prove the evacuation of the topic, or None if the topic is not evacuated."""
    if record is None or record.replacing.evacuation_epoch is None:
        return None
    return evacuation_group(record.topic, record.replacing.evacuation_epoch)


def is_evacuation_group(topic: str, group: str) -> bool:
    """Return whether ``group`` proves an evacuation of ``topic``, present or past."""
    prefix = f"{EVACUATION_PREFIX}{topic}-"
    return group.startswith(prefix) and _EPOCH.fullmatch(group, len(prefix)) is not None


# Required groups


@dataclass(frozen=True)
class Requirement:
    """The groups that must have consumed a partition.

    Attributes:
        groups: the names of the required groups, sorted.
        registered, waivers: the operator's rules in force: those that require groups, and those that waive groups.
        doubt: why there may be more groups, or None if the list is certain or was declared closed.
        spared: waived groups of which it is uncertain whether they use the topic, or what they have committed there.
        accept_state_loss: groups whose loss of state the request accepts.
        evacuation: the group that proves the evacuation of the topic; no rule waives it.
        is_closed: the operator has declared the list of groups complete.
    """

    groups: tuple[str, ...] = ()
    registered: tuple[GroupRule, ...] = ()
    waivers: tuple[GroupRule, ...] = ()
    doubt: GroupsDoubt | None = None
    spared: frozenset[str] = frozenset()
    accept_state_loss: tuple[str, ...] = ()
    evacuation: str | None = None
    is_closed: bool = False

    def of(self, retired: RetiredPartition) -> Requirement:
        """Return the requirement for one partition: a proved evacuation stays proved, even without the job's
        commits."""
        return replace(self, evacuation=None) if retired.evacuated_to_seal else self

    def waiver(self, name: str, group: GroupFacts | None, partition: int) -> GroupRule | None:
        """Return the waiver by which ``partition`` need not wait for the group, if any.

        A waiver by a glob does not apply to registered groups; a waiver by name does. A group that brokers do not list
        (``group`` is None) counts as a group with commits, because it may have had commits (invariant I2).
        """
        for rule in self._waivers_of(name):
            committed = group is None or partition in group.committed
            if not (rule.uncommitted_only and committed):
                return rule
        return None

    def _waivers_of(self, name: str) -> tuple[GroupRule, ...]:
        """Return the waivers that may apply to the group; cached, as there may be many partitions and waivers."""
        waivers = self._waivers_by_group.get(name)
        if waivers is None:
            rules = [rule for rule in self.waivers if rule.matches(name)]
            is_registered = bool(rules) and _matches_any(self.registered, name)
            waivers = tuple(rule for rule in rules if not (rule.glob and is_registered))
            self._waivers_by_group[name] = waivers
        return waivers

    @cached_property
    def _waivers_by_group(self) -> dict[str, tuple[GroupRule, ...]]:
        return {}

    def waiver_of_topic(self, name: str, group: GroupFacts | None) -> GroupRule | None:
        """Return the waiver for the whole topic. A waiver for uncommitted partitions needs a group without commits."""
        return self.waiver(name, group, -1 if group is None else next(iter(group.committed), -1))

    def waived(self, groups: Mapping[str, GroupFacts]) -> dict[str, str]:
        """Return group -> reason of required groups waived for the whole topic; ``groups``: as brokers list them."""
        waivers = {name: self.waiver_of_topic(name, groups.get(name)) for name in self.groups}
        return {name: waiver.reason for name, waiver in waivers.items() if waiver is not None}

    def waited_for(self, groups: Mapping[str, GroupFacts]) -> list[str]:
        """Return the required groups that are not waived for the whole topic."""
        waived = self.waived(groups)
        return [name for name in self.groups if name not in waived]


def requirement_of(
    record: TopicRecord | None,
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
) -> Requirement:
    """Return what a drain of the topic waits for now.

    The groups that a change has noted are required while the change is in progress.
    """
    noted = noted_groups(record) if record is not None and in_progress(record) else ()
    change = (record.replacement or record.deletion) if record is not None else None
    accepted = change.accept_state_loss if change is not None else ()
    return required_of(noted, facts, rules, ignored_groups, now_ms, accepted, evacuation_of(record))


def noted_groups(record: TopicRecord) -> tuple[str, ...]:
    """Return the groups that the latest change has noted. A replacement notes groups at its switch. Until then, the
    groups in the record are those of an earlier shrink, and count while that shrink still drains partitions."""
    switched_ms = record.replacing.switched_ms
    if not record.has_replacement or switched_ms is not None or in_progress(replace(record, replacement=None)):
        return record.required_groups
    return ()


def required_of(
    noted: Sequence[str],
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
    accept_state_loss: Sequence[str] = (),
    evacuation: str | None = None,
) -> Requirement:
    """Return the requirement: groups that are noted, that use the topic, or that are registered (invariant I2)."""
    # A rule may expire between the listing of the groups and now. A rule that requires groups counts if it is in force
    # at either time; any other rule counts only if it is in force at both.
    listed_ms = now_ms if facts.listed_ms is None else facts.listed_ms
    in_force = [
        rule
        for rule in rules
        if (any if rule.kind == REQUIRE else all)(rule.applies(facts.topic, at_ms) for at_ms in (listed_ms, now_ms))
    ]
    registered = tuple(rule for rule in in_force if rule.kind == REQUIRE)
    doubt = facts.groups_doubt
    is_closed = any(rule.kind == CLOSED for rule in in_force)
    if doubt is not None and doubt.hidden and is_closed:
        doubt = None
    requirement = Requirement(
        groups=_groups(noted, facts, ignored_groups, registered),
        registered=registered,
        waivers=tuple(rule for rule in in_force if rule.kind == WAIVE),
        accept_state_loss=tuple(accept_state_loss),
        evacuation=evacuation,
        is_closed=is_closed,
    )
    spared = frozenset(name for name in facts.unclear_groups if requirement.waiver_of_topic(name, None) is not None)
    unclear = (group_doubt for name, group_doubt in facts.unclear_groups.items() if name not in spared)
    return replace(requirement, doubt=worst_doubt((doubt, *unclear)), spared=spared)


def without_noted(requirement: Requirement, facts: TopicFacts, ignored_groups: Sequence[str]) -> Requirement:
    """Return the requirement of a change that begins now, without the groups that only an earlier change has noted."""
    return replace(requirement, groups=_groups((), facts, ignored_groups, requirement.registered))


def _groups(
    noted: Sequence[str], facts: TopicFacts, ignored_groups: Sequence[str], registered: Sequence[GroupRule]
) -> tuple[str, ...]:
    named = {rule.group for rule in registered if not rule.glob}
    using = using_groups(facts, ignored_groups, registered)
    return tuple(sorted(g for g in {*noted, *using, *named} if not is_evacuation_group(facts.topic, g)))


def using_groups(
    facts: TopicFacts, ignored_groups: Sequence[str], registered: Sequence[GroupRule] = ()
) -> tuple[str, ...]:
    """Return the groups that use the topic now, sorted. An ignored group counts if it has a commit or is registered."""

    def counts(name: str, group: GroupFacts) -> bool:
        ignored = any(fnmatchcase(name, pattern) for pattern in ignored_groups)
        return bool(group.committed) or not ignored or _matches_any(registered, name)

    return tuple(sorted(name for name, group in facts.groups.items() if counts(name, group)))


def _matches_any(rules: Sequence[GroupRule], group: str) -> bool:
    return any(rule.matches(group) for rule in rules)


# The proof


@dataclass(frozen=True)
class Drain:
    """Either a proof, or the reason why there is none.

    Attributes:
        proof: group -> committed offset. The offset may lie before the seal if the group would receive nothing in
            between. A group that would receive nothing at all needs no commit, and may be missing.
        reason: the reason code.
        waived: groups not waited for -> the reason of the waiver.
    """

    proof: Mapping[str, int] = field(default_factory=dict)
    reason: str | None = None
    waived: Mapping[str, str] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.reason is None

    def lowest_commit(self, seal_offset: int) -> int | None:
        """Return the lowest offset of the proof if it is below the seal."""
        return min((offset for offset in self.proof.values() if offset < seal_offset), default=None)


def doubt_reason(doubt: GroupsDoubt) -> str:
    """Return the reason code of an uncertain list of groups."""
    if doubt.too_many:
        return reasons.GROUPS_TOO_MANY
    if doubt.rebalancing is not None:
        return reasons.of_group(reasons.GROUP_REBALANCING, doubt.rebalancing)
    return reasons.GROUPS_HIDDEN if doubt.hidden else reasons.GROUPS_UNKNOWN


def check_drain(
    partition: int,
    seal_offset: int,
    truncated_to: int | None,
    log: PartitionFacts,
    facts: TopicFacts,
    requirement: Requirement,
) -> Drain:
    """Check every group of ``requirement`` (invariant I2).

    A partition without records before its seal is drained, whatever the groups have committed. Three kinds of commits
    prove nothing: beyond the end, on a truncated part of the log, and beyond ``truncated_to`` without a leader epoch.
    The evacuation comes first: its reason is shown before other reasons, because a person has to start the job.

    Under a doubt no other partition is drained. If the only doubt is a rebalance, which passes, a group that surely
    holds up the drain is shown: a person can act on that.

    Args:
        truncated_to: as in :class:`~modeaware.modelog.records.RetiredPartition`.
    """
    if log.log_start >= seal_offset:
        return Drain()
    doubt = requirement.doubt
    if doubt is not None and doubt.rebalancing is None:
        return Drain(reason=doubt_reason(doubt))
    unclear = facts.unclear_groups if doubt is not None else {}
    proof: dict[str, int] = {}
    waived: dict[str, str] = {}
    if requirement.evacuation is not None and requirement.evacuation not in unclear:
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
        if (doubt is not None and group is None) or name in unclear:
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
    if doubt is not None:  # without the name of the group: names that change would be appended in every pass
        return Drain(reason=reasons.GROUPS_UNKNOWN)
    return Drain(proof=proof, waived=waived)


def is_evacuated(
    partition: int, retired: RetiredPartition, log: PartitionFacts, facts: TopicFacts, requirement: Requirement
) -> bool:
    """Return whether the evacuation of a sealed partition is proved now, regardless of other groups (invariant I2)."""
    if requirement.evacuation is None or retired.seal_offset is None:
        return False
    alone = Requirement(evacuation=requirement.evacuation)
    drain = check_drain(partition, retired.seal_offset, retired.truncated_to, log, facts, alone)
    return requirement.evacuation in drain.proof


def unread_offsets(group: GroupFacts | None, partition: int, until: int, log_start: int) -> int:
    """Return how many offsets before ``until`` a group has still to consume. A partition that is caught up has none.

    A group without a commit, or without facts (``group`` is None), counts from the log start.
    """
    if group is None:
        return max(until - log_start, 0)
    if partition in group.caught_up:
        return 0
    return max(until - max(group.committed.get(partition, log_start), log_start), 0)


def _not_evacuated(
    name: str, job: GroupFacts | None, partition: int, seal_offset: int, truncated_to: int | None, log: PartitionFacts
) -> str | None:
    """Return why the evacuation is not proved. Only a commit at the seal is a proof. Behind an earlier commit,
    compaction may already have removed the tombstone of a copied value: the value would stay in the new topic."""
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
    if committed < seal_offset and not caught_up and group.notes.get(partition) is Note.GIVEN:
        return reasons.GROUP_UNCOMMITTED
    return None if committed >= seal_offset or caught_up else reasons.GROUP_LAG

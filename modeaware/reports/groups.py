"""Who a drain of a topic waits for now, and why: what ``modeaware groups`` shows. Pure but for :func:`look_at_groups`.

It is told by the functions that decide (:mod:`modeaware.lifecycle.requirement`, :mod:`modeaware.lifecycle.drain`), from
facts gathered as the controller gathers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from modeaware.cluster.observer import Observer
from modeaware.lifecycle.drain import check_drain, unread_offsets
from modeaware.lifecycle.evacuation import is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, TopicFacts
from modeaware.lifecycle.phases import in_progress, topic_phase
from modeaware.lifecycle.policy import drains
from modeaware.lifecycle.requirement import Requirement, requirement_of, using_groups
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord

NOTED, USING, REGISTERED, IGNORED = "noted", "using", "registered", "ignored"
EVACUATION = "evacuation"


@dataclass(frozen=True)
class GroupReport:
    """One group, as a drain of one topic sees it.

    Attributes:
        kind: ``classic``, ``consumer``, ``share``, ``streams``; None for a group that the brokers do not list.
        has_members: whether any are running.
        stateful: whether it keeps state per partition; ``accepted``: and the loss of it was accepted.
        because: why it is waited for: ``noted`` (it used the topic when the shrink was admitted), ``using`` (it does
            now), ``registered`` (by a rule); ``evacuation`` alone: it proves that the topic is evacuated; or
            ``ignored`` alone: it is not, until it commits.
        unread: retired partition -> offsets that it has still to consume, up to the seal (else the end).
        held_up: retired partition -> reason code for which the group holds it up.
        waived: retired partition -> the waiver by which it does not.
    """

    group: str
    kind: str | None
    has_members: bool
    stateful: bool
    accepted: bool
    because: tuple[str, ...]
    unread: Mapping[int, int] = field(default_factory=dict)
    held_up: Mapping[int, str] = field(default_factory=dict)
    waived: Mapping[int, GroupRule] = field(default_factory=dict)

    @property
    def required(self) -> bool:
        return IGNORED not in self.because


@dataclass(frozen=True)
class TopicGroups:
    """The groups of one topic. ``doubt`` says why there may be more; ``rules`` are those in force for the topic."""

    topic: str
    phase: str
    retired: tuple[int, ...]
    groups: tuple[GroupReport, ...]
    doubt: str | None
    rules: tuple[GroupRule, ...]


def look_at_groups(
    observer: Observer, topic: str, record: TopicRecord | None, rules: Sequence[GroupRule]
) -> TopicFacts:
    """The facts of a topic's retired partitions, and of its groups whether or not a change is in progress.

    Raises:
        ClusterError: the brokers did not answer, or refused.
    """
    facts = observer.observe(topic, record, rules, before_due=True)
    if record is None or in_progress(record):
        return facts
    settled = observer.observe(topic, None, rules)
    return replace(facts, groups=settled.groups, groups_doubt=settled.groups_doubt)


def report_groups(
    record: TopicRecord | None,
    facts: TopicFacts,
    rules: Sequence[GroupRule],
    ignored_groups: Sequence[str],
    now_ms: int,
) -> TopicGroups:
    """Every group that is required, or that uses the topic, and how it stands with the retired partitions."""
    requirement = requirement_of(record, facts, rules, ignored_groups, now_ms)
    seals = _seals(record, facts)
    truncated_to = {p: r.truncated_to for p, r in record.retired.items()} if record is not None else {}
    noted = set(record.required_groups) if record is not None and in_progress(record) else set()
    using = set(using_groups(facts, ignored_groups, requirement.registered))
    reports = []
    if requirement.evacuation is not None:
        reports.append(_evacuation(requirement.evacuation, record, seals, truncated_to, facts, requirement))
    for name in sorted({*requirement.groups, *facts.groups}):
        if is_evacuation_group(facts.topic, name):  # of this change, told already; or of another, and of no account
            continue
        registered = any(rule.matches(name) for rule in requirement.registered)
        why = [(NOTED, name in noted), (USING, name in using), (REGISTERED, registered)]
        because = tuple(word for word, holds in why if holds) or (IGNORED,)
        report = _report(name, because, facts.groups.get(name), requirement)
        reports.append(_with_partitions(report, seals, _waiting(record), truncated_to, facts, requirement))
    return TopicGroups(
        topic=facts.topic,
        phase=topic_phase(record) if record is not None else "done",
        retired=tuple(seals),
        groups=tuple(reports),
        doubt=requirement.doubt.detail if requirement.doubt is not None else None,
        rules=tuple(rule for rule in rules if rule.applies(facts.topic, now_ms)),
    )


def _evacuation(
    name: str,
    record: TopicRecord | None,
    seals: Mapping[int, int],
    truncated_to: Mapping[int, int | None],
    facts: TopicFacts,
    requirement: Requirement,
) -> GroupReport:
    """The group that proves the evacuation, on the partitions that are not evacuated yet."""
    assert record is not None, "it is the record that asks for an evacuation"
    left = {p: seal for p, seal in seals.items() if not record.retired[p].evacuated}
    report = _report(name, (EVACUATION,), facts.groups.get(name), requirement)
    return _with_partitions(report, left, _waiting(record), truncated_to, facts, requirement)


def _seals(record: TopicRecord | None, facts: TopicFacts) -> dict[int, int]:
    """Retired partitions with the offset up to which they are to be consumed: the seal, else the end now."""
    if record is None:
        return {}
    seals = {}
    for partition, retired in sorted(record.retired.items()):
        log = facts.partitions.get(partition)
        if not retired.opening and log is not None:
            seals[partition] = retired.seal_offset if retired.seal_offset is not None else log.end_offset
    return seals


def _report(name: str, because: tuple[str, ...], group: GroupFacts | None, requirement: Requirement) -> GroupReport:
    return GroupReport(
        group=name,
        kind=group.kind if group is not None else None,
        has_members=group is not None and group.has_members,
        stateful=group is not None and group.stateful,
        accepted=name in requirement.accept_state_loss,
        because=because,
    )


def _waiting(record: TopicRecord | None) -> frozenset[int]:
    """The partitions that wait for groups: those under another policy than ``drained`` wait for nobody, unless they are
    evacuated."""
    if record is None:
        return frozenset()
    return frozenset(p for p, r in record.retired.items() if not r.opening and drains(p, record))


def _with_partitions(
    report: GroupReport,
    seals: Mapping[int, int],
    waiting: frozenset[int],
    truncated_to: Mapping[int, int | None],
    facts: TopicFacts,
    requirement: Requirement,
) -> GroupReport:
    group = facts.groups.get(report.group)
    if report.group == requirement.evacuation:
        alone = replace(requirement, groups=(), doubt=None)
    else:
        alone = replace(requirement, groups=(report.group,), doubt=None, evacuation=None)
    unread, held_up, waived = {}, {}, {}
    for partition, seal in seals.items():
        log = facts.partitions[partition]
        unread[partition] = unread_offsets(group, partition, seal, log.log_start)
        if not report.required or partition not in waiting:
            continue
        waiver = requirement.waiver(report.group, group, partition)
        drain = check_drain(partition, seal, truncated_to.get(partition), log, facts, alone)
        if drain.reason is not None:
            held_up[partition] = drain.reason
        elif waiver is not None and report.group in drain.waived:
            waived[partition] = waiver
    return replace(report, unread=unread, held_up=held_up, waived=waived)

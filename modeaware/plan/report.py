"""The result of ``modeaware plan`` as one value, from which text, JSON and HTML are made. Pure.

The refusals in a plan are those of a controller (:mod:`modeaware.lifecycle.objections`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from modeaware.clock import utc
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, ResizeCommand
from modeaware.lifecycle.drain import required_of, unread_offsets
from modeaware.lifecycle.facts import MembersSeen, TopicFacts, WriterFacts
from modeaware.lifecycle.objections import current_of, objections
from modeaware.modes import format_ranges
from modeaware.plan.effects import Effect, choose_targets, effects
from modeaware.plan.recognise import Recognition, recognise
from modeaware.plan.sample import Sample, TopicSnapshot

Severity = Literal["refused", "waits", "check"]
_NAMED = 5


@dataclass(frozen=True)
class Blocker:
    """One reason against a change.

    Attributes:
        severity: ``refused``: a controller would refuse the change; ``waits``: the change would wait; ``check``: a
            person has to check the fact, because brokers do not show it.
        text: the reason, and what to do.
    """

    code: str
    severity: Severity
    text: str


@dataclass(frozen=True)
class GroupLag:
    """A group that uses the topic.

    Attributes:
        kind: ``classic``, ``consumer``, ``share`` or ``streams``.
        members: the members that read the topic.
        lag: offsets that the group has not consumed.
        retiring: the part of ``lag`` in the partitions that would retire.
        uncommitted: how many of the partitions that would retire have records, but no commit of the group.
    """

    group: str
    kind: str
    has_members: bool
    members: MembersSeen
    stateful: bool
    lag: int
    retiring: int = field(metadata={"json": "lag_retiring"})
    uncommitted: int = field(metadata={"json": "uncommitted_retiring"})


@dataclass(frozen=True)
class ResizePlan:
    """The effects of the requested target, and of alternatives to it, on a topic.

    Attributes:
        count: the topic's number of partitions.
        base: the number of partitions over which producers place keys now: all or, after a shrink for example, fewer.
        recognition: the hash that places the keys.
        unchanged: the present state in the form of an effect: the load of each partition as keys are placed now.
        effects: the effects of the target and of its alternatives, by ascending target.
    """

    json_only: ClassVar = {
        "schema_version": "schema_version",
        "topic": "topic",
        "partitions": "count",
        "placed_over": "base",
        "target": "target",
        "created_ms": "created_ms",
        "sample": "sample",
        "hash": "recognition",
        "now": "unchanged",
        "targets": "effects",
        "groups": "groups",
        "blockers": "blockers",
    }
    schema_version: ClassVar = 1

    topic: str
    count: int
    base: int
    target: int
    created_ms: int
    sample: Sample
    recognition: Recognition
    unchanged: Effect
    effects: tuple[Effect, ...]
    groups: tuple[GroupLag, ...]
    blockers: tuple[Blocker, ...]

    @property
    def chosen(self) -> Effect:
        """The effect of the requested target."""
        return next(effect for effect in self.effects if effect.target == self.target)

    @property
    def shrinks(self) -> bool:
        return self.target < self.base


def make_plan(snapshot: TopicSnapshot, sample: Sample, target: int, now_ms: int) -> ResizePlan:
    """Return the plan that follows from a sample.

    Raises:
        RequestRefused: ``target`` is not positive, or keys are placed over this number of partitions now.
    """
    recognition = recognise(sample)
    base = _base(sample, recognition, target)
    unchanged, *others = effects(sample, recognition, base, (base, *choose_targets(base, target)))
    last_write_ms = max((r.timestamp_ms for r in sample.records if r.timestamp_ms > 0), default=None)
    return ResizePlan(
        topic=sample.topic,
        count=sample.count,
        base=base,
        target=target,
        created_ms=now_ms,
        sample=sample,
        recognition=recognition,
        unchanged=unchanged,
        effects=tuple(others),
        groups=group_lags(snapshot.facts, target),
        blockers=find_blockers(snapshot, target, now_ms, last_write_ms),
    )


def _base(sample: Sample, recognition: Recognition, target: int) -> int:
    """Return the number of partitions over which keys are placed now. Raise RequestRefused for an unusable target."""
    present = recognition.present
    base = present.over if present is not None else sample.count
    if target < 1 or target == base:
        why = f"{sample.topic!r} has that many already"
        if base != sample.count:
            why = f"recent records of {sample.topic!r} already use only that many of its {sample.count} partitions"
        raise RequestRefused(
            f"{target} partitions: {why if target >= 1 else 'at least 1 must stay'}",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=sample.topic,
        )
    return base


# The facts for which a shrink is refused or would wait, and the facts that a person has to check first


def group_lags(facts: TopicFacts, target: int) -> tuple[GroupLag, ...]:
    """Return every group that uses the topic, the one with the most unread offsets first."""
    lags = []
    for name, group in facts.groups.items():
        unread = {p: unread_offsets(group, p, log.end_offset, log.log_start) for p, log in facts.partitions.items()}
        retiring = [p for p in unread if p >= target]
        uncommitted = [p for p in retiring if p not in group.committed and not facts.partitions[p].empty]
        lags.append(
            GroupLag(
                name,
                group.kind,
                group.has_members,
                group.members,
                group.stateful,
                sum(unread.values()),
                sum(unread[p] for p in retiring),
                len(uncommitted),
            )
        )
    return tuple(sorted(lags, key=lambda group: (-group.retiring, -group.lag, group.group)))


def find_blockers(
    snapshot: TopicSnapshot, target: int, now_ms: int, last_write_ms: int | None = None
) -> tuple[Blocker, ...]:
    """Return the reasons against ``target``, refusals first. A growth has no waits, but checks about keys that move.

    Args:
        last_write_ms: the newest timestamp of the sample.
    """
    facts, command = snapshot.facts, _command(snapshot, target)
    refused = objections(command, snapshot.record, facts, snapshot.config, now_ms, snapshot.replaced)
    blockers = [Blocker(objection.kind, "refused", objection.text) for objection in refused]
    blockers += [Blocker("not-seen", "check", text) for text in snapshot.unknown]
    if isinstance(command, DeletePartitionsCommand):
        blockers += [*_transactions(facts, target), *_waits(facts, target, snapshot.config.ignored_groups)]
    else:
        blockers += _keys(facts)
    blockers += _producers(facts, now_ms, last_write_ms)
    order = {"refused": 0, "waits": 1, "check": 2}
    return tuple(sorted(blockers, key=lambda blocker: order[blocker.severity]))


def _command(snapshot: TopicSnapshot, target: int) -> ResizeCommand:
    topic, writable = snapshot.facts.topic, current_of(snapshot.record, snapshot.facts).writable_count
    return DeletePartitionsCommand(topic, target) if target < writable else CreatePartitionsCommand(topic, target)


def _keys(facts: TopicFacts) -> Iterator[Blocker]:
    """Yield checks about keys that must not move. Kafka admits every growth, whatever the effect on keys."""
    if facts.compacted:
        stays = (
            "the last value that a key had before it moves stays in its old partition, beside its values in the "
            "new one."
        )
        yield Blocker("compacted", "check", f"cleanup.policy is {facts.cleanup_policy!r}: {stays}")
    if facts.stateful_owner is not None:
        yield Blocker(
            "streams-internal",
            "check",
            f"It is an internal topic of the Streams application {facts.stateful_owner!r}, whose state has a part for "
            "each partition.",
        )
    if stateful := sorted(name for name, group in facts.groups.items() if group.stateful):
        yield Blocker(
            "stateful-groups",
            "check",
            f"Groups that keep state per partition (like Kafka Streams) read it: {', '.join(stateful)}. The state of "
            "keys that move stays behind.",
        )


def _transactions(facts: TopicFacts, target: int) -> Iterator[Blocker]:
    open_ = {p: log for p, log in facts.partitions.items() if p >= target and not log.is_stable}
    if not open_:
        return
    ids = {w.producer_id for log in open_.values() for w in log.writers if w.transaction_start is not None}
    whose = f" (of producer ids {', '.join(map(str, sorted(ids)))})" if ids else ""
    yield Blocker(
        "open-transactions",
        "waits",
        f"Transactions are open in partitions {format_ranges(open_)}, which would retire{whose}. A partition is "
        "sealed only once its transactions have ended: abort one that hangs (kafka-transactions.sh).",
    )


def _waits(facts: TopicFacts, target: int, ignored_groups: Sequence[str]) -> Iterator[Blocker]:
    asked = required_of((), facts, (), ignored_groups, 0)  # ignores the operator's rules
    behind = [group for group in group_lags(facts, target) if group.group in asked.groups and group.retiring > 0]
    if behind:
        names = ", ".join(group.group for group in behind[:_NAMED]) + (", ..." if len(behind) > _NAMED else "")
        yield Blocker(
            "lag",
            "waits",
            "Records are deleted only once every group has consumed them, or by the topic's own retention. Groups "
            f"that are behind on the partitions that would retire: {names}.",
        )
    idle = [group.group for group in behind if group.uncommitted and not group.has_members]
    if idle:
        yield Blocker(
            "idle-groups",
            "waits",
            "Groups without members and without commits on all partitions that would retire: "
            f"{', '.join(idle[:_NAMED])}. They block a drain until they run, or are waived (modeaware groups waive).",
        )
    if asked.doubt is not None:
        yield Blocker("groups-doubt", "waits", f"There may be more groups than these: {asked.doubt.detail}.")


def _producers(facts: TopicFacts, now_ms: int, last_write_ms: int | None) -> Iterator[Blocker]:
    latest: dict[int, WriterFacts] = {}
    for writer in (writer for log in facts.partitions.values() for writer in log.writers):
        known = latest.get(writer.producer_id)
        if known is None or writer.last_timestamp_ms > known.last_timestamp_ms:
            latest[writer.producer_id] = writer
    if latest:
        newest = max(writer.last_timestamp_ms for writer in latest.values())
        known_by = (
            f"The brokers remember {len(latest)} idempotent or transactional producer{'s' if len(latest) > 1 else ''} "
            f"of the topic; the last one wrote {utc(newest)}. Brokers do not show other producers."
        )
    else:
        known_by = "The brokers remember no idempotent producer of the topic. They do not show other producers."
    wrote = "" if last_write_ms is None else f" Last record that was read: {_ago(now_ms - last_write_ms)}."
    yield Blocker(
        "producers",
        "check",
        f"Whether producers honour partition modes is not visible from outside. {known_by}{wrote} A producer that is "
        "not mode-aware continues as before: it writes to retired partitions after a shrink, and to new ones before "
        "they are opened after a growth.",
    )


def _ago(age_ms: int) -> str:
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if age_ms >= unit * 2:
            return f"{age_ms // unit} {name} ago"
    return "a moment ago"

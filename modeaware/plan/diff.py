"""The steps from a topic's current to its declared state, with warnings, or a refusal; as a diff and as JSON. Pure.

Topics that no file names stay unchanged. Of a named topic, configs that the file does not name stay unchanged. Only a
replacement deletes a topic, at its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import ClassVar

from modeaware.admin.new_topics import TopicReplacement
from modeaware.admin.replacements import OldTopic, replace_command
from modeaware.interim import interim_name
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
    ResizeCommand,
)
from modeaware.lifecycle.growth import revived_to
from modeaware.lifecycle.keep_name import KeptName
from modeaware.lifecycle.objections import objection_to_change, why_not_now
from modeaware.lifecycle.repetition import repetition_of
from modeaware.lifecycle.state import current_record, in_progress, partition_phases, topic_phase
from modeaware.modelog.records import RETENTION, Replacement, TopicRecord
from modeaware.modes import divides_text, format_ranges
from modeaware.plan.file import DesiredTopic
from modeaware.plan.steps import AcceptStateLoss, AlterConfigs, Create, Grow, Replace, Shrink, Step
from partitioners import share_moved


@dataclass(frozen=True)
class CurrentTopic:
    """The current state of one topic.

    Attributes:
        count: the number of partitions on the brokers.
        replication_factors: the replication factors of the partitions; during a reassignment, those before it.
        overrides: the topic's own configs; None if the user may not see them.
        topic_id: the topic's id.
        record: the topic's record in the mode log; None if the topic was never changed.
    """

    count: int
    replication_factors: frozenset[int] = frozenset()
    overrides: Mapping[str, str] | None = field(default_factory=dict)
    internal: bool = False
    topic_id: str | None = None
    record: TopicRecord | None = None

    @property
    def known(self) -> TopicRecord:
        """The topic's record as :func:`current_record` completes it by the partition count."""
        return current_record(self.record, "", "", self.count)

    @property
    def goal(self) -> int:
        """The number of writable partitions; during a growth, the number at its end."""
        known = self.known
        return max(self.count, len(known.modes)) if known.opening else known.writable_count

    @property
    def in_progress(self) -> bool:
        return in_progress(self.record)

    @property
    def progress(self) -> str | None:
        """The change in progress, in words, such as ``drain of partitions 4-11``; None if no change is in progress."""
        if not self.in_progress:
            return None
        phase = topic_phase(self.known)
        those = [p for p, partition_phase in partition_phases(self.known).items() if partition_phase == phase]
        return f"{phase} of partitions {format_ranges(those)}"


UNCHANGED, IN_PROGRESS, PENDING, REFUSED = "unchanged", "in_progress", "pending", "refused"
APPLIED, FAILED = "applied", "failed"


@dataclass(frozen=True)
class TopicDiff:
    """The steps for one topic.

    Attributes:
        where: the file and line of the declaration; empty for a topic that comes from the command line.
        steps: a list of objects: step (create, grow, shrink, replace, alter_configs, accept_state_loss) and its fields.
        warnings: the costs of the steps.
        progress: the phase, in words, of an earlier change that is not done.
        begun: steps of an earlier run, which are not repeated: the command only waits for their end.
        status: unchanged, in_progress, pending, refused, applied or failed.
        error: why there are no steps, or why the steps failed.
    """

    json_also: ClassVar = ("status", "error")

    topic: str
    where: str = ""
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str | None = field(default=None, metadata={"json": None})
    progress: str | None = field(default=None, metadata={"json": "in_progress"})
    begun: tuple[Step, ...] = field(default=(), metadata={"json": None})
    failure: str | None = field(default=None, metadata={"json": None})
    applied: bool = field(default=False, metadata={"json": None})

    @property
    def status(self) -> str:
        if self.failure is not None or self.applied:
            return APPLIED if self.failure is None else FAILED
        if self.refusal is not None:
            return REFUSED
        if self.steps:
            return PENDING
        return IN_PROGRESS if self.is_under_way else UNCHANGED

    @property
    def error(self) -> str | None:
        return self.failure if self.failure is not None else self.refusal

    @property
    def is_under_way(self) -> bool:
        """Whether an earlier change is not done."""
        return self.progress is not None or bool(self.begun)

    @property
    def needs_controller(self) -> bool:
        """Whether a controller carries out one of the steps."""
        return any(step.by_controller for step in self.steps)

    def lines(self) -> Iterator[str]:
        """Yield the diff. Marks: ``+`` new, ``~`` changed, ``-`` removed, ``!`` warning or refusal."""
        yield f"{self.topic} ({self.where})" if self.where else self.topic
        if self.refusal is not None:
            yield f"  ! refused: {self.refusal}"
            return
        yield from (f"  {line}" for step in self.steps for line in step.lines())
        yield from (f"  ! WARNING: {warning}" for warning in self.warnings)
        if self.progress is not None:
            yield f"  = in progress: {self.progress}"
        yield from (f"    ({note})" for note in self.notes)


@dataclass(frozen=True)
class ApplyReport:
    """The output of ``modeaware apply``.

    Attributes:
        changed: the number of topics whose steps were all taken.
    """

    json_also: ClassVar = ("version", "changed")
    version: ClassVar = 1

    topics: tuple[TopicDiff, ...]

    @property
    def changed(self) -> int:
        return sum(topic.status == APPLIED for topic in self.topics)

    def lines(self) -> Iterator[str]:
        """Yield the diff of each topic that is not as declared, then a line with totals."""
        for topic in self.topics:
            if topic.status in (PENDING, REFUSED) or topic.progress is not None:
                yield from topic.lines()
        statuses = [topic.status for topic in self.topics]
        words = {PENDING: "to change", IN_PROGRESS: "in progress", UNCHANGED: "as declared", REFUSED: "refused"}
        counts = ", ".join(f"{statuses.count(status)} {text}" for status, text in words.items() if status in statuses)
        yield f"Topics: {counts or 'none'}."


CLEANUP_POLICY = "cleanup.policy"
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""The names of Kafka's own topics. A cluster may lack some of these topics."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_HIDDEN = "its configs are hidden: this user lacks DESCRIBE_CONFIGS on the topic"
_OLD_CLIENTS = (
    "clients that are not mode-aware still write to retired partitions; such a partition is not freed until they stop"
)
_OTHER_GROUPS = "groups without modeaware read the topic to its end, and then have to be moved by their owner"
_EVACUATED = "it is compacted: once it is sealed, the change waits for the Spark job modeaware.spark.evacuate"
_OTHER_PRODUCERS = (
    "producers without modeaware are refused once the topic is fenced: modeaware replace --dry-run has the plan"
)
_INTERNAL = "an internal topic: only its owner may change its partitions and configs"


class _RefusedError(Exception):
    """Why a topic gets no steps, and what to do instead."""


def diff_topic(desired: DesiredTopic, current: CurrentTopic | None) -> TopicDiff:
    """Return the steps for a topic. If the topic does not exist, ``current`` is None."""
    name, where = desired.name, desired.where
    if name in INTERNAL:
        return TopicDiff(name, where, refusal=_INTERNAL)
    if current is None:
        configs = {key: value for key, value in desired.configs.items() if value is not None}
        return TopicDiff(name, where, (Create(desired.partitions, desired.replication_factor, configs),))
    try:
        _check(desired, current)
        diff = replace(_resize(desired, current), where=where)
        if any(isinstance(step, Replace) for step in diff.steps):
            return diff  # the step has the configs of the new topic
        alter = _configs(desired, current)
        if alter is not None and (current.in_progress or any(isinstance(step, Shrink) for step in diff.steps)):
            _check_cleanup_policy(alter)
    except _RefusedError as refused:
        return TopicDiff(name, where, refusal=str(refused), progress=current.progress)
    others = sorted((current.overrides or {}).keys() - desired.configs.keys())
    kept = (f"configs that the file does not name stay: {', '.join(others)}",) if others else ()
    steps = diff.steps if alter is None else (*diff.steps, alter)
    return replace(diff, steps=steps, notes=(*diff.notes, *kept))


def diff_replaced(
    desired: DesiredTopic, record: TopicRecord, replacement: Replacement, new_topic: CurrentTopic | None
) -> TopicDiff:
    """Return the diff of an old topic whose replacement is in progress or complete: a wait, a refusal or nothing to do,
    but never steps.

    Args:
        record: the old topic's record, which has ``replacement``.
        new_topic: the current state of the new topic; None if it does not exist.
    """
    try:
        if replacement.released_ms is None:
            wanted = ReplaceTopicCommand(
                desired.name, desired.replace or "", desired.partitions, fence=replacement.fence
            )
            if (why := why_not_now(wanted, record, replacement)) is not None:
                raise _RefusedError(why)
        elif desired.replace != replacement.new_topic:
            raise _RefusedError(objection_to_change(replacement))
        else:
            _check_new_topic(desired, replacement, new_topic)
            if topic_phase(record) == "done" or replacement.policy == RETENTION:  # no command waits for retention
                return TopicDiff(desired.name, desired.where)
    except _RefusedError as refused:
        return TopicDiff(desired.name, desired.where, refusal=str(refused))
    paused = replacement.reason == reasons.PAUSED
    paused_note = f"paused before the switch; continue it with modeaware replace {desired.name}"
    progress = f"{topic_phase(record)} of its replacement by {replacement.new_topic}"
    notes, warnings = (paused_note,) if paused else (), _as_it_began(desired, record, replacement)
    return TopicDiff(desired.name, desired.where, warnings=warnings, notes=notes, progress=progress)


def diff_kept(desired: DesiredTopic, change: KeptName) -> TopicDiff:
    """Return the diff of a topic whose replacement keeps its name: a wait, or a refusal. The file must declare the name
    and the partitions of the change, and the change must not end on the interim topic."""
    name, where, first = desired.name, desired.where, change.first
    if first is None or not change.keeps:
        why = f"its name points to {change.interim!r}; restore it with modeaware replace {name} --keep-name"
        return TopicDiff(name, where, refusal=why)
    if not desired.keep_name:
        why = f"it is being replaced via {change.interim!r}, and keeps its name: declare keep_name: true, or wait"
        return TopicDiff(name, where, refusal=why)
    replacement = first.replacing
    if replacement.num_partitions != desired.partitions:
        why = f"it is being replaced, with {replacement.num_partitions} partitions: wait until the replacement is done"
        return TopicDiff(name, where, refusal=why)
    command = ReplaceTopicCommand(
        name, change.interim, replacement.num_partitions, delay_ms=replacement.delay_ms, keep_name=True
    )
    progress = f"half {change.half} of 2 of its replacement via {change.interim}"
    warnings = _as_it_began(desired, first, replacement)
    return TopicDiff(name, where, warnings=warnings, progress=progress, begun=(Replace(len(first.modes), command),))


def _as_it_began(desired: DesiredTopic, record: TopicRecord, replacement: Replacement) -> tuple[str, ...]:
    """Return a warning if the file differs from the settings of a replacement in progress. These stay unchanged."""
    wanted = replace_command(desired.name, _wanted(desired, replacement.new_topic), None)
    wanted = replace(wanted, fence=replacement.fence, num_partitions=replacement.num_partitions)
    again = repetition_of(wanted, record)
    differs = [] if again is None else [*again.differs]
    if desired.shrink is not None and desired.shrink.policy == RETENTION != replacement.policy:
        differs.append(f"another policy ({replacement.policy!r})")
    if not differs:
        return ()
    return (f"the file does not change the replacement in progress, which has {', '.join(differs)}",)


def _check_new_topic(desired: DesiredTopic, replacement: Replacement, new_topic: CurrentTopic | None) -> None:
    """Raise _RefusedError if the new topic is not as declared."""
    what = f"it was replaced by {replacement.new_topic!r}"
    instead = f"declare {replacement.new_topic} instead"
    if new_topic is None or new_topic.topic_id != replacement.new_topic_id:
        other = "" if new_topic is None else " (another topic has its name)"
        where = "declare the topic that the alias points to (modeaware alias list) instead"
        raise _RefusedError(f"{what}, which does not exist any more{other}: {where}")
    if (next_one := new_topic.known.replacement) is not None and next_one.switched_ms is not None:
        raise _RefusedError(
            f"{what}, which was replaced by {next_one.new_topic!r}: declare {next_one.new_topic} instead"
        )
    if new_topic.goal != desired.partitions:
        raise _RefusedError(f"{what}, which has {new_topic.goal} partitions: {instead}")
    _check(desired, new_topic)
    if (alter := _configs(desired, new_topic)) is not None:
        names = ", ".join((*alter.set, *alter.remove))
        raise _RefusedError(f"{what}, whose configs are not as declared ({names}): {instead}")


def _check(desired: DesiredTopic, current: CurrentTopic) -> None:
    if current.internal:
        raise _RefusedError(_INTERNAL)
    factor = desired.replication_factor
    gets_another = desired.replace is not None or desired.keep_name
    is_new = gets_another and desired.partitions != current.goal  # the new topic gets the factor
    if factor is not None and current.replication_factors != {factor} and not is_new:
        factors = " and ".join(map(str, sorted(current.replication_factors)))
        raise _RefusedError(
            f"its replication factor is {factors}, not {factor}; change it with modeaware reassign-partitions, or "
            "declare the present factor"
        )
    if desired.configs and current.overrides is None:
        raise _RefusedError(_HIDDEN)


def _resize(desired: DesiredTopic, current: CurrentTopic) -> TopicDiff:
    is_replaced = desired.partitions != current.goal
    if desired.keep_name and is_replaced:
        return _replacement(desired, interim_name(desired.name, current.topic_id or ""), current)
    if desired.replace is not None and is_replaced:
        return _replacement(desired, desired.replace, current)
    if desired.partitions > current.goal:
        return _growth(desired, current)
    if desired.partitions == current.goal:
        return replace(_again(desired, current.known), progress=current.progress)
    return resize(desired.shrink_rules.command(desired.name, desired.partitions), current)


def resize(command: ResizeCommand, current: CurrentTopic) -> TopicDiff:
    """Return the diff of a command that changes the number of writable partitions."""
    record, after = current.known, command.total_count
    before, listed = record.writable_count, len(record.modes)
    progress, warnings = current.progress, [keys_that_move(before, after)]
    if isinstance(command, DeletePartitionsCommand):
        again = repetition_of(command, record)
        if again is not None:
            accepts = AcceptStateLoss(command, again.accepts)
            return TopicDiff(command.topic, "", (accepts,), _state_lost(again.accepts), progress=progress)
        warnings += _state_lost(command.accept_state_loss)
        step = Shrink(before, command)
        return TopicDiff(command.topic, "", (step,), tuple(warnings), (_OLD_CLIENTS,), progress=progress)
    revived = range(0) if record.opening else range(before, min(after, listed))
    created = range(max(listed, current.count), after)
    notes = []
    if current.in_progress and record.retired:
        notes.append(f"undoes the shrink that is in progress ({progress}), or a part of it")
    growth = Grow(before, command, revived, created, by_controller=current.record is not None)
    return TopicDiff(command.topic, "", (growth,), tuple(warnings), tuple(notes), progress=progress)


def _growth(desired: DesiredTopic, current: CurrentTopic) -> TopicDiff:
    diff = resize(CreatePartitionsCommand(desired.name, desired.partitions), current)
    again = _again(desired, revived_to(current.known, desired.partitions))
    return replace(diff, steps=(*diff.steps, *again.steps), warnings=(*diff.warnings, *again.warnings))


def _replacement(desired: DesiredTopic, new_topic: str, current: CurrentTopic) -> TopicDiff:
    if current.overrides is None:
        raise _RefusedError(_HIDDEN)
    copied = {key: value for key, value in current.overrides.items() if desired.configs.get(key, value) is not None}
    old_topic = OldTopic(current.count, min(current.replication_factors, default=-1), copied)
    command = replace_command(desired.name, _wanted(desired, new_topic), old_topic)
    step = Replace(current.known.writable_count, command)
    warnings = ((_EVACUATED,) if desired.evacuate else ()) + _state_lost(command.accept_state_loss)
    return TopicDiff(desired.name, "", (step,), warnings, (_OTHER_PRODUCERS, _OTHER_GROUPS))


def _wanted(desired: DesiredTopic, new_topic: str) -> TopicReplacement:
    rules = desired.shrink_rules
    return TopicReplacement(
        new_topic,
        desired.partitions,
        desired.replication_factor,
        {key: value for key, value in desired.configs.items() if value is not None},
        rules.delay_ms,
        accept_state_loss=rules.accept_state_loss,
        evacuate=desired.evacuate,
        keep_name=desired.keep_name,
    )


def _again(desired: DesiredTopic, record: TopicRecord) -> TopicDiff:
    """Return the diff if a shrink to the declared count is in progress. If the file accepts loss of state for further
    groups, a step accepts the loss for this shrink, too. A warning names the other rules of the file that differ."""
    again = repetition_of(desired.shrink_rules.command(desired.name, record.writable_count), record)
    deletion = record.deletion
    if again is None or deletion is None or desired.shrink is None:
        return TopicDiff(desired.name)
    warnings = _state_lost(again.accepts)
    if again.differs:
        how = ", ".join(again.differs)
        began = f"the file does not change the shrink in progress, which has {how}"
        warnings = (f"{began}; the file's rules apply to the next shrink", *warnings)
    command = DeletePartitionsCommand(  # with the rules under which the shrink began: a controller refuses others
        desired.name, record.writable_count, deletion.delay_ms, deletion.immediate_delete, again.accepts
    )
    steps = (AcceptStateLoss(command, again.accepts),) if again.accepts else ()
    return TopicDiff(desired.name, steps=steps, warnings=warnings)


def _state_lost(groups: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"group {group!r} loses the state of the keys that move, if it keeps any" for group in groups)


def keys_that_move(before: int, after: int) -> str:
    """Return the effect of a change of the number of partitions on keys, in words."""
    share = f"{share_moved(before, after):.0%} of the keys move to another partition where producers hash them"
    return f"{share} (murmur2 in Java and kafka-python, CRC32 in librdkafka); {divides_text(before, after)}"


def _configs(desired: DesiredTopic, current: CurrentTopic) -> AlterConfigs | None:
    overrides = current.overrides or {}
    different = {key: value for key, value in desired.configs.items() if not same_value(overrides.get(key), value)}
    if not different:
        return None
    wanted = {key: value for key, value in different.items() if value is not None}
    removed = tuple(key for key, value in different.items() if value is None)
    return AlterConfigs(wanted, removed, {key: overrides[key] for key in different if key in overrides})


def same_value(current: str | None, wanted: str | None) -> bool:
    """Return whether brokers treat the values as equal: they return ``0.5`` for ``0.50``, and ``a,b`` for ``a, b``."""
    return current == wanted or (current is not None and wanted is not None and _normal(current) == _normal(wanted))


def _normal(value: str) -> object:
    parts = ",".join(part.strip() for part in value.split(","))
    if _NUMBER.fullmatch(parts):
        return Decimal(parts)
    return parts.lower() if parts.lower() in ("true", "false") else parts


def _check_cleanup_policy(alter: AlterConfigs) -> None:
    if CLEANUP_POLICY in (*alter.set, *alter.remove):
        raise _RefusedError(
            "its cleanup.policy cannot change during a shrink, or together with one: apply one change, wait until it "
            "is done, then apply the other"
        )

"""Replacing a topic, the *old topic*, by another one, the *new topic*: the phases, and one pass over an old topic.

A topic name stands for a chain of topics. Producers write to the new topic of the last switch. A group reads a topic of
the chain to its end, then the next topic. So no record is lost, and the records of each key stay in order. Records are
copied only if the topic is compacted. The old topic's record decides whether the new topic may be written. A second
record decides which groups may read the new topic (:mod:`modeaware.lifecycle.moved`).

========  ====================================================  ===================================================
phase     what happens                                          ends when
========  ====================================================  ===================================================
create    the record has the intended new topic; then           the new topic exists, empty and as intended: its id is
          CreateTopics                                          in the record
announce  clients see the new topic; consumers are assigned     clients had the time to see the new topic, all groups
          its partitions, paused                                are known, and no reason delays the switch
seal      the *switch*: the old topic takes no writes, and      brokers refuse all data (the *fence*), no transaction is
          the name points to the new topic                      open and all appended data is replicated: each end
                                                                offset is final, and is the seal
drain     groups read the old topic to its seals, then the      every required group has read the old topic, and has a
          new topic                                             committed offset on each partition of the new topic
reclaim   the old topic is *released*: the groups unsubscribe   the old topic is deleted: see
          from it                                               :mod:`modeaware.lifecycle.topic_deletion`
done      the name points to the new topic                      never
========  ====================================================  ===================================================

*The fence.* With :data:`FENCE_CONFIGS` a broker refuses every batch of data, but accepts the markers that end
transactions. A broker applies configs some time after they are acknowledged, up to half a second on Kafka before 4.1.
If a broker gets the configs and a leadership together, it applies the leadership first. So each leader epoch needs its
own *proof* that the fence works. First the brokers of all in-sync replicas show the configs, because any of these
replicas could become leader. Then the leader refuses a probe. If another tool lifts the fence, the controller sets it
again, with an alarm. Records that arrive without the fence break a seal, as in a shrink. Markers alone break no seal: a
transaction ends with a marker even in a partition to which it wrote no record.

The controller watches an old topic until it is gone: a record behind a seal takes the topic back to *seal*. The
controller never deletes an old topic without a fence, because producers may still write to the topic. The replacement
of such a topic is done at the release.

*Until the switch* a replacement can be undone: the new topic is deleted. After the switch the old topic's record stays
for as long as the name points to the new topic. When the old topic is gone, the record makes the name an alias.

*A compacted topic* is released only after its latest values are copied to the new topic; the drain waits for the copy
(:mod:`modeaware.lifecycle.drain`). Values that producers write to the new topic are newer than all values of the old
topic: a copy never overwrites the newer values. Compaction continues under the fence, and drops no latest value.

*The drain waits* for each group that used the topic at the switch or later. A group missing from the list would skip
the records before its first offset on the new topic, so an uncertain list of groups delays the switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modeaware.lifecycle import reasons
from modeaware.lifecycle.alias import advance_gone
from modeaware.lifecycle.commands import FENCE_CONFIGS as FENCE_CONFIGS
from modeaware.lifecycle.commands import (
    CreateTopic,
    DeleteOldTopic,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
    ReplaceTopicCommand,
    is_fence,
)
from modeaware.lifecycle.drain import (
    Requirement,
    check_drain,
    doubt_reason,
    evacuation_of,
    is_evacuated,
)
from modeaware.lifecycle.facts import FenceFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.keep_name import lifted_fence, removal_of
from modeaware.lifecycle.passes import Advance, Pass, with_groups
from modeaware.lifecycle.progress import not_moved_reason
from modeaware.lifecycle.seal import (
    break_seal,
    reason_alarm,
    seal_at_end,
    seal_behind_markers,
    seal_broken_by,
    seal_partition,
)
from modeaware.lifecycle.state import all_retired, blocked, carried
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS, why_it_stays
from modeaware.modelog.records import Replaced, Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode

NO_FENCE = {"compression.type": "producer", "max.message.bytes": "1048588"}
"""Kafka's defaults for :data:`FENCE_CONFIGS`. A broker that restarts may give the configs of a deleted topic to the
next topic of the same name, unless a metadata snapshot was made in between. Kafka 4.2's ``ConfigurationsDelta`` keeps
configs that it reads together with their deletion (see AutoMQ/automq#3556). So a new topic with a deleted topic's name
is created with these defaults. They are removed before the announcement: a removed config stays absent on restarts."""
DEFAULT_FACTOR = -1
"""The replication factor that stands for the brokers' default."""
SEARCH_AGAIN_MS = 1_000
COMING_MS = 60_000
"""A grace period: a shorter wait is not shown as a reason. There are three such waits: after the request, for the new
topic's creation; after the switch, for members' first commits there; after the release, until members unsubscribe."""


def advance_replacement(topic: Replaced, this: Pass) -> Advance:
    """Advance the replacement of a topic as far as the facts and the operator's rules allow."""
    (record, replacement), facts = topic, this.facts
    if facts.gone or replacement.gone_ms is not None:
        return advance_gone(topic, this)
    new_topic = facts.new_topic
    if facts.topic_id != record.topic_id or new_topic is None:
        return Advance()  # unconfirmed: one broker's metadata may be stale
    if replacement.undone_ms is not None:
        return _undo(topic, new_topic)
    if replacement.new_topic_id is None:
        return _create(topic, new_topic, this.now_ms)
    if replacement.switched_ms is None:
        return _switch(topic, new_topic, this)
    return _Move(topic, new_topic, this).step()


def _create(topic: Replaced, new_topic: TopicFacts, now_ms: int) -> Advance:
    """Create the new topic. If a topic of that name exists (after a crash, say), it becomes the new topic only if it is
    empty and exactly as intended (invariant I8).

    All leaders of the new topic must have answered. A broker that is not leader yet may reject an idempotent producer's
    first batch and accept the second; librdkafka then counts both as acknowledged (confluent-kafka-go#921).
    """
    record, replacement = topic
    if new_topic.topic_id is None:
        return Advance(effects=(creation(record.topic, record.topic_id, replacement),))
    doubt = new_topic.any_doubt
    if new_topic.untouched is None or _is_doubtful(new_topic):
        if now_ms < replacement.requested_ms + COMING_MS:
            return Advance()
        reason = reasons.UNAVAILABLE if new_topic.untouched is None or doubt is None else doubt_reason(doubt)
        return Advance(topic.changed(reason=reason))
    given_up = f"topic {record.topic!r}: replacement given up: "
    if record.is_second_half and (new_topic.offsets_left or not _as_intended(new_topic, replacement)):
        return _clear_the_way(topic, new_topic)
    if left := new_topic.offsets_left:
        why = f"groups have offsets on {new_topic.topic!r} from an earlier topic of that name: {', '.join(left)}."
        alarm = f"{given_up}{why} Delete the empty topic, which removes these offsets; then repeat the request"
        return Advance(_without(record), alarms=(alarm,))
    if not _as_intended(new_topic, replacement):
        alarm = (
            f"{given_up}another topic {replacement.new_topic!r} exists by now. It has records, or its partition count, "
            "replication factor or configs are not the requested ones. Repeat the request with another name"
        )
        return Advance(_without(record), alarms=(alarm,))
    if overriding := _overriding(new_topic, replacement):
        return Advance(effects=(RemoveConfigs(new_topic.topic, new_topic.topic_id, overriding, record.topic_id),))
    announced = topic.changed(new_topic_id=new_topic.topic_id, announced_ms=now_ms, reason=None)
    return Advance(announced, due_ms=now_ms)


def _clear_the_way(topic: Replaced, new_topic: TopicFacts) -> Advance:
    """Delete an untouched topic that has the name of a second half's new topic (:mod:`.keep_name`), but cannot become
    that topic: another client created it, or groups have offsets on it. The deletion removes these offsets. If the
    topic has records, only lift the fence of an earlier pass."""
    left = new_topic.offsets_left
    reason = reasons.of_group(reasons.OFFSETS_LEFT, left[0]) if left else reasons.NAME_TAKEN
    alarms = () if reason == topic.replacement.reason else _alarm(topic, reason, new_topic)
    return Advance(topic.changed(reason=reason), effects=removal_of(new_topic, topic.record.topic_id), alarms=alarms)


def _is_doubtful(new_topic: TopicFacts) -> bool:
    """Return whether groups may have unknown offsets left from an earlier topic of this name."""
    doubt = new_topic.any_doubt
    return doubt is not None and not doubt.hidden and doubt.rebalancing is None


def _as_intended(new_topic: TopicFacts, replacement: Replacement) -> bool:
    """Return whether a topic has the intended settings, no record, and no group with offsets of an earlier topic."""
    if not new_topic.untouched or new_topic.partition_count != replacement.num_partitions or new_topic.offsets_left:
        return False
    factor, configs, overriding = replacement.replication_factor, new_topic.configs, _overriding(new_topic, replacement)
    if factor != DEFAULT_FACTOR and new_topic.replication_factor not in (None, factor):
        return False
    if configs is None:
        return True
    own = {name: value for name, value in configs.items() if name not in overriding}
    return _comparable(own) == _comparable(replacement.configs)


def _overriding(new_topic: TopicFacts, replacement: Replacement) -> tuple[str, ...]:
    """Return the configs of a new topic that exist only to override a fence that brokers may have kept."""
    configs = new_topic.configs or {}
    return tuple(n for n, value in NO_FENCE.items() if configs.get(n) == value and n not in replacement.configs)


def _comparable(configs: Mapping[str, str]) -> dict[str, str]:
    """Return configs in the form in which brokers return them: lists and booleans have a canonical form."""
    return {name: "".join(value.split()).casefold() for name, value in configs.items()}


def _undo(topic: Replaced, new_topic: TopicFacts) -> Advance:
    """Delete the new topic, by its id, unless it has records. Then remove the replacement from the record."""
    record, replacement = topic
    if new_topic.topic_id is None or new_topic.topic_id != (replacement.new_topic_id or new_topic.topic_id):
        return Advance(_without(record) if new_topic.gone else None)
    if new_topic.untouched is None:
        return Advance()
    is_own = replacement.new_topic_id is not None and new_topic.untouched
    if not (is_own or _as_intended(new_topic, replacement)):
        if record.is_second_half and (lifted := lifted_fence(new_topic, record.topic_id)):  # of an earlier pass
            return Advance(effects=lifted)
        alarm = (
            f"topic {replacement.new_topic!r} is not deleted by the undo: it has records, or another partition "
            "count than requested"
        )
        return Advance(_without(record), alarms=(alarm,))
    if replacement.new_topic_id is None:
        return Advance(topic.changed(new_topic_id=new_topic.topic_id))
    return Advance(effects=(DeleteTopic(record.topic, record.topic_id, replacement.new_topic, new_topic.topic_id),))


def give_up_new_topic(record: TopicRecord) -> TopicRecord | None:
    """Return the record without the replacement, because the brokers rejected the creation of the new topic. After the
    switch the replacement is not given up: return None. A second half (:mod:`.keep_name`) is never given up: its record
    notes the reason."""
    if record.replacing.switched_ms is not None:
        return None
    if record.is_second_half:
        return replace(record, replacement=replace(record.replacing, reason=reasons.RENAME_REFUSED))
    return _without(record)


def _switch(topic: Replaced, new_topic: TopicFacts, this: Pass) -> Advance:
    """Make the switch: one record points the name to the new topic and closes all partitions of the old topic to
    writes.

    A group that began to use the old topic after the last list of groups also has to read the new topic from the start
    (invariant I2). So the first certain list after the switch adds the groups that are missing.
    """
    (record, replacement), facts, requirement = topic, this.facts, this.requirement
    if new_topic.topic_id != replacement.new_topic_id:
        if not new_topic.gone:
            return Advance()
        alarm = f"topic {replacement.new_topic!r} was deleted before it replaced {record.topic!r}; creating it again"
        return Advance(topic.changed(new_topic_id=None, announced_ms=None), alarms=(alarm,))
    assert replacement.announced_ms is not None, "it has an id"
    reason = _objection(replacement, facts, requirement)
    if reason is not None:
        alarms = () if reason == replacement.reason else _alarm(topic, reason, facts)
        is_rebalancing = requirement.doubt is not None and requirement.doubt.rebalancing is not None
        due_ms = this.now_ms + CHECK_AGAIN_MS if is_rebalancing else None
        return Advance(topic.changed(reason=reason), due_ms=due_ms, alarms=alarms)
    due_ms = replacement.announced_ms + this.config.announce_ms
    if this.now_ms < due_ms:
        return Advance(topic.changed(reason=None), due_ms=due_ms)
    count = max(facts.partition_count, len(record.modes))
    switched = replace(
        topic.changed(switched_ms=this.now_ms, reason=None),
        modes=(PartitionMode.READ_ONLY,) * count,
        deletion=None,
        retired={p: carried(record.retired.get(p)) for p in range(count)},
        required_groups=requirement.groups,
        groups_complete=False,
        drained_groups=(),
        waived={},
    )
    return Advance(switched, due_ms=this.now_ms)


def _objection(replacement: Replacement, facts: TopicFacts, requirement: Requirement) -> str | None:
    """Return why the switch has to wait (invariants I1 and I2).

    If the replacement has a fence, this fence must certainly work: otherwise no end offset would ever be final.
    """
    if facts.compacted and replacement.evacuation_epoch is None:
        return reasons.COMPACTED
    if requirement.doubt is not None:
        return doubt_reason(requirement.doubt)
    for name, group in sorted(facts.groups.items()):
        if group.stateful and name not in replacement.accept_state_loss:
            return reasons.of_group(reasons.GROUP_STATEFUL, name)
    if replacement.has_fence and (unproved := _fence_doubt(facts)) is not None:
        return unproved
    return reasons.PAUSED if replacement.pause_before_switch else None


def _fence_doubt(facts: TopicFacts) -> str | None:
    """Return why it is uncertain whether the fence would work."""
    fence = facts.fence or FenceFacts()
    if fence.is_denied:
        return reasons.FENCE_DENIED
    complete = fence.failure is None and fence.answered.issuperset(range(facts.partition_count))
    return None if complete else reasons.FENCE_UNKNOWN


def _alarm(topic: Replaced, reason: str | None, facts: TopicFacts) -> tuple[str, ...]:
    """Return the alarm to raise when ``reason`` starts to hold up the replacement as a whole."""
    if reason is None or reasons.code_of(reason) in reasons.AS_ASKED | reasons.PASSING:
        return ()
    failure = facts.fence.failure if facts.fence is not None else None
    of_fence = failure is not None and reason in (reasons.FENCE_DENIED, reasons.FENCE_UNKNOWN)
    detail = f" ({failure})" if of_fence else ""
    what = f"topic {topic.record.topic!r}, replaced by {topic.replacement.new_topic!r}"
    return (f"{what}: {reasons.text(reason)}{detail}",)


class _Move:
    """One pass after the switch: fence, seal, drain, release, delete. Pure; made anew for each pass."""

    def __init__(self, topic: Replaced, new_topic: TopicFacts, this: Pass) -> None:
        record, replacement = topic
        facts = this.facts
        assert replacement.switched_ms is not None, "the name points to the new topic"
        self._replacement = replacement
        self._switched_ms = replacement.switched_ms
        self._facts = facts
        self._fence = facts.fence or FenceFacts()
        self._new_topic = new_topic
        self._requirement = this.requirement
        self._config = this.config
        self._now_ms = this.now_ms
        self._before = replacement.reason
        self._record = all_retired(record, facts.partition_count)
        # Record the groups now: if the topic is deleted by hand, groups without commits can no longer be found.
        if len(facts.partitions) >= facts.partition_count:
            self._record = with_groups(self._record, this)
        self._due_ms: list[int] = []
        self._alarms: list[str] = []
        self._is_broken = False

    def step(self) -> Advance:
        retired = {p: self._sealed(p, state) for p, state in sorted(self._record.retired.items())}
        replacement, fence = self._fenced(retired)
        replacement, created, lost = self._with_new_topic(replacement)
        if replacement.new_topic_id != self._replacement.new_topic_id and replacement.evacuation_epoch is not None:
            replacement = replace(replacement, evacuation_epoch=self._record.epoch + 1)  # the copies are gone, too
            retired = {p: replace(state, evacuated_to=None) for p, state in retired.items()}
            evacuation = evacuation_of(replace(self._record, replacement=replacement))
            self._requirement = replace(self._requirement, evacuation=evacuation)
        effects: tuple[Effect, ...] = (*fence, *created)
        # After the release, only a broken seal leads to another drain.
        waived: dict[str, str] = {}
        is_sealed = all(state.seal_offset is not None for state in retired.values()) and not self._is_broken
        is_kept = replacement.released_ms is not None and is_sealed
        if is_kept:
            retired = {p: replace(state, reason=None) for p, state in retired.items()}
        else:
            retired, waived = self._drained(retired)
        held_up = any(state.seal_offset is None or state.reason is not None for state in retired.values())
        denied = replacement.has_fence and replacement.released_ms is None and self._not_fenced == reasons.FENCE_DENIED
        reason = lost or (reasons.FENCE_DENIED if denied else None)
        if not held_up and lost is None:
            reason = self._not_released(replacement, retired)
            if reason is None and replacement.released_ms is None:
                replacement = replace(replacement, released_ms=self._now_ms)
            elif replacement.released_ms is not None and replacement.has_fence:
                replacement, deletion, reason = self._reclaimed(replacement, retired)
                effects += deletion
                waived |= self._requirement.waived(self._facts.groups) if deletion else {}
            if reason is not None and self._is_coming(reason, replacement):
                reason = None
                self._due_ms.append(self._now_ms + SEARCH_AGAIN_MS)
        elif held_up and replacement.released_ms is not None:  # a seal broke: groups have to read the late records
            replacement = replace(replacement, released_ms=None, deleting_ms=None)
        if reason != self._before:
            self._alarms += _alarm(Replaced(self._record, replacement), reason, self._facts)
        after = replace(
            replace(self._record, replacement=replace(replacement, reason=reason)),
            retired=retired,
            waived={**self._record.waived, **waived},
        )
        return Advance(after, effects=effects, due_ms=min(self._due_ms, default=None), alarms=tuple(self._alarms))

    def _reclaimed(
        self, replacement: Replacement, retired: Mapping[int, RetiredPartition]
    ) -> tuple[Replacement, tuple[DeleteOldTopic, ...], str]:
        """Delete an old topic that was released in an earlier pass, or note why it stays.

        The record notes the deletion (``deleting_ms``) first. The note stays while leaders do not answer, as during a
        deletion.
        """
        stay = why_it_stays(replacement, retired, self._facts, self._requirement, self._now_ms)
        if stay is None:
            seals = {p: state.seal_offset for p, state in retired.items() if state.seal_offset is not None}
            deletion = DeleteOldTopic(self._record.topic, self._record.topic_id, seals)
            deleting_ms = replacement.deleting_ms or self._now_ms
            return replace(replacement, deleting_ms=deleting_ms), (deletion,), reasons.DELETING
        self._due_ms += [] if stay.due_ms is None else [stay.due_ms]
        if stay.reason != reasons.UNAVAILABLE:
            replacement = replace(replacement, deleting_ms=None)
        return replacement, (), stay.reason

    def _with_new_topic(
        self, replacement: Replacement
    ) -> tuple[Replacement, tuple[CreateTopic | RemoveConfigs, ...], str | None]:
        """Create the new topic anew if it was deleted before the release (invariant I2): producers need a topic.

        After the release, the last topic of a chain may be deleted like any other topic. The first pass notes that the
        topic with the recorded id is gone. Later passes accept any topic of that name that is as intended.

        A new topic that was itself replaced is not created again: producers write to a later topic of the chain.
        """
        new_topic = self._new_topic
        if replacement.released_ms is not None or new_topic.topic_id == replacement.new_topic_id:
            return replacement, (), None
        is_replaced = self._facts.new_topic_replaced
        if is_replaced or replacement.reason != reasons.NEW_TOPIC_GONE:
            gone = reasons.NO_NEW_TOPIC if is_replaced else reasons.NEW_TOPIC_GONE
            return replacement, (), gone if new_topic.gone else replacement.reason or reasons.UNAVAILABLE
        if new_topic.topic_id is not None and _is_doubtful(new_topic):
            return replacement, (), reasons.NEW_TOPIC_GONE
        if new_topic.topic_id is not None and _as_intended(new_topic, replacement):
            if overriding := _overriding(new_topic, replacement):
                removal = RemoveConfigs(new_topic.topic, new_topic.topic_id, overriding, self._record.topic_id)
                return replacement, (removal,), reasons.NEW_TOPIC_GONE
            return replace(replacement, new_topic_id=new_topic.topic_id, reason=None), (), None
        new = creation(self._record.topic, self._record.topic_id, replacement)
        created = (new,) if new_topic.topic_id is None and new_topic.gone else ()
        return replacement, created, reasons.NEW_TOPIC_GONE

    def _sealed(self, partition: int, before: RetiredPartition) -> RetiredPartition:
        """Seal the partition if its end is final; break a seal behind which records arrived (invariant I2)."""
        log, topic, retired = self._facts.partitions.get(partition), self._record.topic, before
        if log is None:
            return blocked(retired, reasons.UNAVAILABLE)
        retired = seal_behind_markers(retired, log)
        if retired.seal_offset is not None and seal_broken_by(retired.seal_offset, log) is not None:
            retired, alarm = break_seal(topic, partition, retired, log)
            self._is_broken = True
            self._alarms.append(alarm)
        if retired.seal_offset is None and not self._replacement.has_fence:
            quiet_ms = self._config.seal_quiet_ms
            retired, due_ms = seal_partition(retired, log, self._switched_ms, quiet_ms, self._now_ms)
            self._due_ms += [] if due_ms is None else [due_ms]
        elif retired.seal_offset is None and self._is_final(partition, log):
            retired = self._sealed_at_end(retired, log)
        elif retired.seal_offset is None and self._replacement.own_configs is not None:
            retired = blocked(retired, self._not_fenced)
        elif retired.seal_offset is None and retired.reason == reasons.UNAVAILABLE:
            retired = replace(retired, reason=None)
        if retired.seal_offset is not None and retired.read_up_to is None and log.read_up_to is not None:
            retired = replace(retired, read_up_to=log.read_up_to)
        if retired.reason != before.reason and (alarm_text := reason_alarm(topic, partition, retired.reason, log)):
            self._alarms.append(alarm_text)
        return retired

    def _sealed_at_end(self, retired: RetiredPartition, log: PartitionFacts) -> RetiredPartition:
        """Seal the partition, unless a transaction is open. If the last stable offset is below the end, but no writer
        has an open transaction, the last stable offset may be outdated: the next pass decides. It is not outdated once
        the end has stood still for the quiet period: then the leader did not tell its writers."""
        may_be_old = self._now_ms < log.quiet_since_ms + self._config.seal_quiet_ms
        if may_be_old and not log.is_stable and all(writer.transaction_start is None for writer in log.writers):
            self._due_ms.append(self._now_ms + SEARCH_AGAIN_MS)
            return retired
        return seal_at_end(retired, log)

    def _is_final(self, partition: int, log: PartitionFacts) -> bool:
        """Return whether no data can be appended under this leader epoch, and all appended records are replicated.

        The high watermark alone is no proof: it lags, and records above it may still be acknowledged.
        """
        fenced = self._fence.proved.get(partition) == log.leader_epoch
        return fenced and log.log_end is not None and log.log_end <= log.end_offset

    def _fenced(self, retired: dict[int, RetiredPartition]) -> tuple[Replacement, tuple[FenceTopic, ...]]:
        """Set the fence once the old topic is quiet, or after ``fence_after_ms``; set it again if it was lifted.

        The record keeps the topic's own configs from before the fence, and is appended before the fence is set. These
        configs come from the snapshot of the first pass that sets the fence, because a later snapshot may already show
        the fence.
        """
        replacement = self._replacement
        if not replacement.has_fence or self._facts.fence is None or not self._is_fence_due(retired):
            return replacement, ()
        if self._fence.failure is not None and not self._fence.configs:  # the configs may be hidden
            return replacement, ()
        if replacement.own_configs is None:
            replacement = replace(replacement, own_configs={n: self._fence.configs.get(n) for n in FENCE_CONFIGS})
        elif self._in_force:
            return replace(replacement, fenced_ms=replacement.fenced_ms or self._now_ms), ()
        elif replacement.fenced_ms is not None:
            replacement = replace(replacement, fenced_ms=None)
            self._alarms.append(
                f"topic {self._record.topic!r}: the fence was lifted (compression.type, max.message.bytes); "
                "restoring it. Find what sets these configs: Strimzi, Terraform, MirrorMaker 2"
            )
        return replacement, (FenceTopic(self._record.topic, self._record.topic_id, FENCE_CONFIGS),)

    def _is_fence_due(self, retired: dict[int, RetiredPartition]) -> bool:
        if self._replacement.own_configs is not None:
            return True
        latest_ms = self._switched_ms + self._config.fence_after_ms
        logs = [self._facts.partitions.get(p) for p in retired]
        known = [log.quiet_since_ms for log in logs if log is not None]
        quiet_ms = max([self._switched_ms, *known]) + self._config.seal_quiet_ms
        due_ms = latest_ms if len(known) < len(logs) else min(latest_ms, quiet_ms)
        if self._now_ms < due_ms:
            self._due_ms.append(due_ms)
        return self._now_ms >= due_ms

    @property
    def _not_fenced(self) -> str:
        """Return why the fence is not proved."""
        return reasons.FENCE_DENIED if self._fence.is_denied else reasons.NOT_FENCED

    @property
    def _in_force(self) -> bool:
        return is_fence(self._fence.configs)

    def _drained(self, retired: dict[int, RetiredPartition]) -> tuple[dict[int, RetiredPartition], dict[str, str]]:
        """Return the partitions with the reasons that hold them up (invariant I1), and the waivers that counted."""
        after: dict[int, RetiredPartition] = {}
        waived: dict[str, str] = {}
        for partition, state in retired.items():
            log, seal_offset = self._facts.partitions.get(partition), state.seal_offset
            if seal_offset is None or log is None:
                after[partition] = state
                continue
            if is_evacuated(partition, state, log, self._facts, self._requirement):
                state = replace(state, evacuated_to=seal_offset)
            asked = self._requirement.of(state)
            drain = check_drain(partition, seal_offset, state.truncated_to, log, self._facts, asked)
            if drain.reason is not None:
                after[partition] = blocked(state, drain.reason)
                continue
            # No proof per partition and group is kept: the deletion of the whole topic needs a proof of its own.
            after[partition] = replace(state, reason=None)
            waived |= drain.waived
        return after, waived

    def _is_coming(self, reason: str, replacement: Replacement) -> bool:
        """Return whether the wait for the group that the reason names may end soon. Before the release: the group has
        members on the new topic, which are about to commit there. After the release: members are about to
        unsubscribe."""
        groups, is_released = self._new_topic.groups.items(), replacement.released_ms is not None
        code = reasons.GROUP_SUBSCRIBED if is_released else reasons.GROUP_NOT_MOVED
        coming = {
            reasons.of_group(code, name) for name, g in groups if (g.subscribed if is_released else g.has_members)
        }
        return reason in coming and self._now_ms < (replacement.released_ms or self._switched_ms) + COMING_MS

    def _not_released(self, replacement: Replacement, retired_now: Mapping[int, RetiredPartition]) -> str | None:
        """Return why a drained old topic is not released. The list of groups is uncertain, a required group has not
        moved to the new topic, the fence is not in force, or gates cannot open yet (invariant I2)."""
        if replacement.released_ms is not None:
            return None
        if self._requirement.doubt is not None:
            return doubt_reason(self._requirement.doubt)
        if any(retired.read_up_to is None for retired in retired_now.values()):
            self._due_ms.append(self._now_ms + SEARCH_AGAIN_MS)
            return reasons.END_NOT_READ
        logs = self._facts.partitions
        if replacement.has_fence and not (self._in_force and all(self._is_final(p, log) for p, log in logs.items())):
            return self._not_fenced
        return not_moved_reason(replacement, self._facts, self._requirement)


def is_followed(record: TopicRecord) -> bool:
    """Return whether the new topic of an old topic exists, and the old topic is not gone."""
    return record.replacing.new_topic_id is not None and not record.is_alias


def creation(topic: str, topic_id: str, what: Replacement | ReplaceTopicCommand) -> CreateTopic:
    """Return the effect that creates the new topic for ``topic``."""
    return CreateTopic(topic, topic_id, what.new_topic, what.num_partitions, what.replication_factor, what.configs)


def _without(record: TopicRecord) -> TopicRecord:
    return replace(record, replacement=None)

"""Handing keys over in a shrink: when every group has read what was written to a partition before the switch. Pure.

A shrink moves keys. One that has moved can be written to its new partition without overtaking its older records once
its old partition is *handed over*: every group that the drain waits for has read all that aware producers wrote there
under the old count. Old partitions are all that were writable before, survivors among them: with a target that does not
divide the old count, their keys move as well.

A retired partition has a seal to be read up to. A survivor goes on being written, so its end offset is noted once all
retired ones are sealed: what made aware producers leave these has made them use the new count everywhere. Like a seal,
that is no proof of a producer that slept (how-it-works.md, "Quiet proves nothing").

A shrink may be admitted before the one before it is handed over. Then nobody can tell in which partition a key's older
records are, that of before both or that of in between: its partitions are handed over all together.

Where a topic is evacuated, a retired partition is handed over after its values are copied: a newer one must come later.

Nothing waits for a handover but producers that ask for it (``hold``), and neither a policy nor a delay holds it up.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from modeaware.lifecycle.drain import check_drain
from modeaware.lifecycle.phases import awaits_handover
from modeaware.lifecycle.policy import reclaim_policy
from modeaware.lifecycle.steps import Pass
from modeaware.modelog.records import DeleteTopicPartitions, TopicRecord
from modeaware.modes import PartitionMode

OFFSET_BYTES = 32
"""What a survivor's offset takes in a record, at most."""


def advance_handover(now: Pass, room_bytes: int) -> TopicRecord:
    """The record with what is handed over by now. Within one shrink that only ever grows.

    Args:
        room_bytes: how much longer the record may become. Survivors whose offsets do not fit are noted later, when
            others are handed over: a later offset only makes groups read more.
    """
    record, deletion = now.record, now.record.deletion
    if deletion is None or deletion.handed_over:
        return record
    old = _old_partitions(record, deletion)
    offsets = dict(record.handover_offsets)
    if _switched(record, deletion, now):
        left = (p for p in _left(record, old) if p not in record.retired and p not in offsets)
        noted = (p for p in left if p in now.facts.partitions)
        offsets |= {p: now.facts.partitions[p].end_offset for p in islice(noted, max(room_bytes // OFFSET_BYTES, 0))}
    seen = replace(now, record=replace(record, handover_offsets=offsets))
    handed_over = {*record.handed_over, *(p for p in _left(record, old) if _is_handed_over(p, seen))}
    if handed_over.issuperset(old):
        return replace(record, deletion=replace(deletion, handed_over=True), handed_over=(), handover_offsets={})
    if deletion.earlier_counts:
        return seen.record
    offsets = {p: offset for p, offset in offsets.items() if p not in handed_over}
    return replace(record, handed_over=tuple(sorted(handed_over)), handover_offsets=offsets)


def survivors_to_watch(record: TopicRecord) -> tuple[int, ...]:
    """The survivors that a pass has to look at for the handover: none before all retired partitions are sealed."""
    deletion = record.deletion
    if deletion is None or not awaits_handover(record) or not _all_sealed(record, deletion):
        return ()
    return tuple(p for p in _left(record, _old_partitions(record, deletion)) if p not in record.retired)


def waits_for_groups(record: TopicRecord) -> tuple[int, ...]:
    """The partitions that are not handed over before groups have read them: of these, commits have to be checked."""
    deletion = record.deletion
    if deletion is None or not awaits_handover(record):
        return ()
    retired = [
        p
        for p in _left(record, _old_partitions(record, deletion))
        if p in record.retired and record.modes[p] is not PartitionMode.NONE and not _at_once(p, record)
    ]
    return (*survivors_to_watch(record), *retired)


def read_up_to(partition: int, record: TopicRecord, end_offset: int) -> int | None:
    """The offset up to which groups must have read an old partition, as far as it is known: a retired one's seal, a
    survivor's handover offset; of the latter, what was truncated since cannot be read any more."""
    retired = record.retired.get(partition)
    if retired is not None:
        return retired.seal_offset
    offset = record.handover_offsets.get(partition)
    return None if offset is None else min(offset, end_offset)


def _old_partitions(record: TopicRecord, deletion: DeleteTopicPartitions) -> range:
    return range(min(deletion.previous_count, len(record.modes)))


def _left(record: TopicRecord, old: range) -> list[int]:
    handed_over = set(record.handed_over)
    return [p for p in old if p not in handed_over]


def _all_sealed(record: TopicRecord, deletion: DeleteTopicPartitions) -> bool:
    """Whether no aware producer is known to write to a partition that this shrink has retired."""
    return all(
        record.modes[p] is PartitionMode.NONE or retired.seal_offset is not None
        for p, retired in record.retired.items()
        if p < deletion.previous_count
    )


def _switched(record: TopicRecord, deletion: DeleteTopicPartitions, now: Pass) -> bool:
    """Whether aware producers use the present count. A part of the shrink that was undone unseals nothing: after that
    they are given the time that a seal would have waited."""
    undone_ms = deletion.revived_ms
    known = undone_ms is None or now.now_ms >= undone_ms + now.seal_quiet_ms
    return known and _all_sealed(record, deletion)


def _is_handed_over(partition: int, now: Pass) -> bool:
    record, retired = now.record, now.record.retired.get(partition)
    if retired is not None and record.modes[partition] is PartitionMode.NONE:
        return True
    log = now.facts.partitions.get(partition)
    until = None if log is None else read_up_to(partition, record, log.end_offset)
    if log is None or until is None:
        return False
    if retired is not None and _at_once(partition, record):
        return True
    if retired is None:
        now = replace(now, requirement=now.requirement.without_evacuation())
    truncated_to = retired.truncated_to if retired is not None else None
    return check_drain(partition, until, truncated_to, log, now.facts, now.requirement).done


def _at_once(partition: int, record: TopicRecord) -> bool:
    """Whether nobody is waited for once the retired partition is sealed."""
    return reclaim_policy(partition, record) == "immediate"

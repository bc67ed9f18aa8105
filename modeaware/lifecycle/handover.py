"""Handing keys over in a shrink: when every group has read what was written to a partition before the switch.

A shrink moves keys. A key that has moved can be written to its new partition without overtaking its older records once
its old partition is *handed over*: every group that the drain waits for has read all that aware producers wrote there
under the old count. Old partitions are all that were writable before, survivors included: with a target that does not
divide the old count, their keys move as well.

A retired partition is read up to its seal. A survivor is still being written, so its end offset is noted once all
retired partitions are sealed: what made aware producers leave these has made them use the new count everywhere. Like a
seal, that is no proof against a producer that slept (docs/how-it-works.md, "Quiet proves nothing").

A shrink may be admitted before the previous one is handed over. A key's older records may then be in the partition of
before both or of in between, so the partitions of such a shrink are handed over all together.

Where a topic is evacuated, a retired partition is handed over after its values are copied: newer ones come later.

Only producers that request it (``hold``) wait for a handover; a policy or a delay does not hold it up.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from modeaware.lifecycle.drain import Requirement, check_drain
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.state import awaits_handover, reclaim_policy
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode

OFFSET_BYTES = 32
"""The space of a survivor's offset in a record, at most."""


def advance_handover(
    record: TopicRecord, facts: TopicFacts, requirement: Requirement, seal_quiet_ms: int, now_ms: int, room_bytes: int
) -> TopicRecord:
    """Return the record with what is handed over by now; within one shrink that only grows.

    Args:
        room_bytes: how much longer the record may become. Survivors whose offsets do not fit are noted later, when
            others are handed over: a later offset only makes groups read more.
    """
    deletion = record.deletion
    if deletion is None or deletion.handed_over:
        return record
    old = _old_partitions(record)
    left = _left(record)
    offsets = dict(record.handover_offsets)
    # An undo of a part of the shrink unseals nothing, so producers are given the time that a seal would have waited.
    switched = deletion.revived_ms is None or now_ms >= deletion.revived_ms + seal_quiet_ms
    if switched and _all_sealed(record):
        new = (p for p in left if p not in record.retired and p not in offsets and p in facts.partitions)
        offsets |= {p: facts.partitions[p].end_offset for p in islice(new, max(room_bytes // OFFSET_BYTES, 0))}
    noted = replace(record, handover_offsets=offsets)
    handed_over = {*record.handed_over, *(p for p in left if _is_handed_over(p, noted, facts, requirement))}
    if handed_over.issuperset(old):
        return replace(record, deletion=replace(deletion, handed_over=True), handed_over=(), handover_offsets={})
    if deletion.earlier_counts:
        return noted
    offsets = {p: offset for p, offset in offsets.items() if p not in handed_over}
    return replace(record, handed_over=tuple(sorted(handed_over)), handover_offsets=offsets)


def survivors_to_watch(record: TopicRecord) -> tuple[int, ...]:
    """Return the survivors that a pass has to read for the handover: none before all retired partitions are sealed."""
    if not awaits_handover(record) or not _all_sealed(record):
        return ()
    return tuple(p for p in _left(record) if p not in record.retired)


def waits_for_groups(record: TopicRecord) -> tuple[int, ...]:
    """Return the partitions that are handed over only after groups have read them: their commits have to be checked."""
    if not awaits_handover(record):
        return ()
    retired = [
        p
        for p in _left(record)
        if p in record.retired
        and record.modes[p] is not PartitionMode.NONE
        and reclaim_policy(p, record) != "immediate"
    ]
    return (*survivors_to_watch(record), *retired)


def read_up_to(partition: int, record: TopicRecord, end_offset: int) -> int | None:
    """Return the offset up to which groups must have read an old partition; None: it is not fixed yet."""
    retired = record.retired.get(partition)
    if retired is not None:
        return retired.seal_offset
    offset = record.handover_offsets.get(partition)
    return None if offset is None else min(offset, end_offset)


def _old_partitions(record: TopicRecord) -> range:
    return range(min(record.deletion.previous_count if record.deletion is not None else 0, len(record.modes)))


def _left(record: TopicRecord) -> list[int]:
    handed_over = set(record.handed_over)
    return [p for p in _old_partitions(record) if p not in handed_over]


def _all_sealed(record: TopicRecord) -> bool:
    """Return whether every partition that this shrink has retired is sealed, so that aware producers have left it."""
    return all(
        record.modes[p] is PartitionMode.NONE or record.retired[p].seal_offset is not None
        for p in _old_partitions(record)
        if p in record.retired
    )


def _is_handed_over(partition: int, record: TopicRecord, facts: TopicFacts, requirement: Requirement) -> bool:
    retired, log = record.retired.get(partition), facts.partitions.get(partition)
    if retired is not None and record.modes[partition] is PartitionMode.NONE:
        return True
    until = None if log is None else read_up_to(partition, record, log.end_offset)
    if log is None or until is None:
        return False
    if retired is not None and reclaim_policy(partition, record) == "immediate":
        return True
    if retired is None:
        requirement = requirement.without_evacuation()
    truncated_to = retired.truncated_to if retired is not None else None
    return check_drain(partition, until, truncated_to, log, facts, requirement).done

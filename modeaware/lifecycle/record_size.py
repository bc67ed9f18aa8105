"""The largest size of a topic's record, and the parts that are dropped from a record that is too large.

The mode log takes records of up to :data:`~modeaware.modelog.records.MAX_RECORD_BYTES`, and a record has to fit until
the change is complete. So the admission and every pass compute the largest size that the record may reach
(:func:`largest_bytes`). Only further names of groups can make a record larger than the computed size. A step that would
add more names than fit is not taken. Instead the list of groups counts as uncertain (a doubt:
``GroupsDoubt.too_many``), because a list that cannot be recorded proves no drain.

The computed size does not include parts that no decision needs: names of groups in reasons, the names in
``drained_groups``, and the producers of stragglers. If the record is too large, :func:`fitted` drops these parts.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, NamedTuple

from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.modelog.records import MAX_RECORD_BYTES, RetiredPartition, TopicRecord
from modeaware.modes import ReplicaState

TOO_MANY = GroupsDoubt("the topic's record has no room for the names of all groups", too_many=True)
_OFFSET = 2**53
"""A number with as many digits as an offset can have: a million records a second reach it after 285 years."""
_INT = 2**31
_LARGEST = RetiredPartition(
    replica_state=max(ReplicaState, key=len),
    seal_offset=_OFFSET,
    seal_leader_epoch=_INT,
    resume_offset=_OFFSET,
    drained_by=_INT,
    lowest_commit=_OFFSET,
    reason=max(reasons.CODES, key=len),
    stragglers=_INT,
    truncated_to=_OFFSET,
)
"""One partition with the largest value of each field, without the fields of replacements."""
_LARGEST_REPLACED = replace(_LARGEST, drained_by=0, lowest_commit=None, read_up_to=_OFFSET)
"""The largest partition after a switch. The topic is deleted as a whole, so no proof of a drain is recorded."""
_RANGES_BYTES = len("[99999,99999],[99999,99999,-1],")
"""Room for one more range in the list of retired partitions and in the modes: each partition may need its own range."""

_REPLACEMENT_BYTES = 1_000
"""Room for the fields that a replacement adds one by one: the new topic's id, the configs before the fence, and seven
timestamps."""


def fits(record: TopicRecord) -> bool:
    """Return whether the record will fit the mode log until its change is complete."""
    return largest_bytes(record) <= MAX_RECORD_BYTES


def largest_bytes(record: TopicRecord) -> int:
    """Return the largest size of the record until its change is complete, in bytes, if it names no further groups."""
    rest = replace(_with_largest_stamp(record), retired={}, drained_groups=())
    return len(rest.to_json()) + _REPLACEMENT_BYTES + _largest_rows(record).all_bytes


def most_partitions(record: TopicRecord) -> int:
    """Return how many partitions could be retired with the groups that the record names."""
    rows = _largest_rows(record)
    return rows.partitions + (MAX_RECORD_BYTES - largest_bytes(record)) // rows.each_bytes


def fitted(record: TopicRecord) -> TopicRecord:
    """Return the record. If it does not fit, return it without the parts that no decision needs."""
    if len(_with_largest_stamp(record).to_json()) <= MAX_RECORD_BYTES:
        return record
    retired = {
        p: replace(state, straggler=None, reason=None if state.reason is None else reasons.code_of(state.reason))
        for p, state in record.retired.items()
    }
    return replace(record, retired=retired, drained_groups=None)


class _Rows(NamedTuple):
    """An upper bound of the bytes of partitions: the names of all fields, and a row for each partition."""

    partitions: int
    each_bytes: int
    names_bytes: int

    @property
    def all_bytes(self) -> int:
        return self.partitions * self.each_bytes + self.names_bytes


def _largest_rows(record: TopicRecord) -> _Rows:
    """Return the larger of two sets of rows: of the partitions of shrinks, or of all partitions after a switch."""
    replacement, candidates = record.replacing, []
    if replacement.switched_ms is None:
        candidates.append(_rows(len(record.retired), _LARGEST, _RANGES_BYTES))
    if record.has_replacement:  # after the switch, all partitions are in one range
        evacuated_to = None if replacement.evacuation_epoch is None else _OFFSET
        candidates.append(_rows(len(record.modes), replace(_LARGEST_REPLACED, evacuated_to=evacuated_to), len(",")))
    return max(candidates, key=lambda rows: rows.all_bytes)


def _rows(partitions: int, largest: RetiredPartition, more_bytes: int) -> _Rows:
    row = largest.to_dict()
    return _Rows(partitions, len(_json(list(row.values()))) + more_bytes, len(_json({key: [] for key in row})))


def _with_largest_stamp(record: TopicRecord) -> TopicRecord:
    return replace(record, epoch=_OFFSET, controller_epoch=_OFFSET, changed_ms=_OFFSET)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

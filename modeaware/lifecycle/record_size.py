"""How large the record of a topic may become, and what gives way where it has no room.

The mode log takes a record of :data:`~modeaware.modelog.records.MAX_RECORD_BYTES`, and a change has to fit on the day
its last partition is done. So the admission and every pass use one bound, :func:`largest_bytes`: no step of the change
makes the record larger than that, unless it adds names of groups. A step that would add more names than fit is not
taken: a list of groups that cannot be recorded proves no drain, which is a reason like any other
(``GroupsDoubt.too_many``).

What no decision rests on is not in the bound, and gives way in :func:`fitted`: names of groups in reasons, the names in
``drained_groups``, the producers of stragglers.
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
"""No offset has more digits: a partition reaches it after 285 years of a million records a second."""
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
"""One partition as it takes the most room, beside what only replacements note."""
_LARGEST_REPLACED = replace(_LARGEST, drained_by=0, lowest_commit=None, read_up_to=_OFFSET)
"""The same from the switch of a replacement on: the topic goes as a whole, by a proof that is not kept."""
_RANGES_BYTES = len("[99999,99999],[99999,99999,-1],")
"""A partition may be a range of its own, among those that are retired and among the modes."""

_REPLACEMENT_BYTES = 1_000
"""Where the topic is replaced, the id of the successor, the configs before the fence and eight times come onto the
record one by one."""


def fits(record: TopicRecord) -> bool:
    """Return whether the change on record fits the mode log to its end."""
    return largest_bytes(record) <= MAX_RECORD_BYTES


def largest_bytes(record: TopicRecord) -> int:
    """Return an upper bound of the record's bytes through the rest of its change, with the groups that it names now."""
    rest = replace(_with_largest_stamp(record), retired={}, drained_groups=())
    return len(rest.to_json()) + _REPLACEMENT_BYTES + _largest_rows(record).all_bytes


def most_partitions(record: TopicRecord) -> int:
    """Return how many partitions could be retired with the groups that the record names."""
    rows = _largest_rows(record)
    return rows.partitions + (MAX_RECORD_BYTES - largest_bytes(record)) // rows.each_bytes


def fitted(record: TopicRecord) -> TopicRecord:
    """Return the record, without what no decision rests on where it would not fit otherwise."""
    if len(_with_largest_stamp(record).to_json()) <= MAX_RECORD_BYTES:
        return record
    retired = {
        p: replace(state, straggler=None, reason=None if state.reason is None else reasons.code_of(state.reason))
        for p, state in record.retired.items()
    }
    return replace(record, retired=retired, drained_groups=None)


class _Rows(NamedTuple):
    """What partitions take at most: the names of all fields, and a row for each partition."""

    partitions: int
    each_bytes: int
    names_bytes: int

    @property
    def all_bytes(self) -> int:
        return self.partitions * self.each_bytes + self.names_bytes


def _largest_rows(record: TopicRecord) -> _Rows:
    """Return what takes more room: the partitions that shrinks retire until a switch, or all of them after it."""
    replacement, candidates = record.replacing, []
    if replacement.switched_ms is None:
        candidates.append(_rows(len(record.retired), _LARGEST, _RANGES_BYTES))
    if record.replacement is not None:  # all its partitions are in one range
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

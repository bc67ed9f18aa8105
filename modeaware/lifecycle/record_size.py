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
from typing import Any

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
    opening=True,
    stragglers=_INT,
    truncated_to=_OFFSET,
)
"""One partition as it takes the most room, beside what only replacements note."""
_RANGES_BYTES = len("[99999,99999],[99999,99999,-1],")
"""A partition may be a range of its own, among those that are retired and among the modes."""

_REPLACEMENT_BYTES = 1_000
"""The id of the successor, the configs before the fence and eight times come onto the record one by one."""


def fits(record: TopicRecord) -> bool:
    """Return whether the change on record fits the mode log to its end."""
    return largest_bytes(record) <= MAX_RECORD_BYTES


def largest_bytes(record: TopicRecord) -> int:
    """Return an upper bound of the record's bytes through the rest of its change, with the groups that it names now."""
    row = _largest_row(record)
    keys_bytes = len(_json({key: [] for key in row}))
    rest_bytes = len(_largest_rest(record).to_json()) + (_REPLACEMENT_BYTES if record.replacement is not None else 0)
    return rest_bytes + keys_bytes + _partitions(record) * _row_bytes(row)


def most_partitions(record: TopicRecord) -> int:
    """Return how many partitions could be retired with the groups that the record names."""
    row_bytes = _row_bytes(_largest_row(record))
    return _partitions(record) + (MAX_RECORD_BYTES - largest_bytes(record)) // row_bytes


def fitted(record: TopicRecord) -> TopicRecord:
    """Return the record, without what no decision rests on where it would not fit otherwise."""
    if len(record.to_json()) <= MAX_RECORD_BYTES:
        return record
    retired = {
        p: replace(each, straggler=None, reason=None if each.reason is None else reasons.code_of(each.reason))
        for p, each in record.retired.items()
    }
    return replace(record, retired=retired, drained_groups=None)


def _partitions(record: TopicRecord) -> int:
    return len(record.retired) if record.replacement is None else len(record.modes)


def _largest_row(record: TopicRecord) -> dict[str, Any]:
    """Return the JSON of one partition as it takes the most room in this change."""
    row, replacement = _LARGEST, record.replacement
    if replacement is not None:
        row = replace(row, read_up_to=_OFFSET)
    if replacement is not None and replacement.evacuation_epoch is not None:
        row = replace(row, evacuated_to=_OFFSET)
    return row.to_dict()


def _largest_rest(record: TopicRecord) -> TopicRecord:
    """Return the record without its partitions, with every number that is still to come."""
    return replace(record, epoch=_OFFSET, controller_epoch=_OFFSET, changed_ms=_OFFSET, retired={}, drained_groups=())


def _row_bytes(row: dict[str, Any]) -> int:
    return len(_json(list(row.values()))) + _RANGES_BYTES


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

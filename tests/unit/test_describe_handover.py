"""What a description says of keys that moved: how far they are handed over, and whom they wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modeaware.cluster.cluster import LogOffsets
from modeaware.lifecycle.facts import GroupFacts
from modeaware.modelog.records import TopicRecord
from modeaware.reports.describe import HandoverDescription, describe_handover
from tests.support.lifecycle import admitted, after, facts, group, log, shrink

OFFSETS = {p: LogOffsets(0, 10, 10, 3) for p in range(4)}
ALL_READ = dict.fromkeys(range(4), 10)


def shrinking(committed: Mapping[int, int]) -> TopicRecord:
    """From 4 partitions to 3, sealed; what the noted group "g" has read there is handed over."""
    seen = facts(4, {p: log(10) for p in range(4)}, {"g": group(committed)})
    return after(admitted(shrink(3, delay_ms=86_400_000), seen=seen), seen)


def described(record: TopicRecord, groups: Mapping[str, GroupFacts]) -> HandoverDescription | None:
    return describe_handover(record, OFFSETS, groups)


def test_groups_that_have_to_read_on_are_named() -> None:
    record = shrinking({0: 10, 1: 10, 2: 3})
    slow, done = group(ALL_READ | {3: 1}), group(ALL_READ)
    assert described(record, {"g": done, "slow": slow}) == HandoverDescription(4, (0, 1), ("slow",))
    assert described(record, {"g": done, "slow": replace(slow, caught_up=frozenset({3}))}) == HandoverDescription(
        4, (0, 1)
    )


def test_a_group_that_was_noted_and_is_gone_is_named() -> None:
    assert described(shrinking({0: 10}), {}) == HandoverDescription(4, (0,), ("g",))


def test_what_came_to_a_survivor_since_need_not_be_read() -> None:
    record = shrinking({0: 10, 1: 10, 3: 10})
    assert described(record, {"g": group({2: 3})}) == HandoverDescription(4, (0, 1, 3), ("g",))
    busy = {**OFFSETS, 2: LogOffsets(0, 99, 99, 3)}
    assert describe_handover(record, busy, {"g": group({2: 10})}) == HandoverDescription(4, (0, 1, 3))


def test_there_is_nothing_to_tell_where_all_is_handed_over() -> None:
    assert described(shrinking(ALL_READ), {"g": group()}) is None
    assert described(replace(shrinking({}), deletion=None, retired={}), {}) is None

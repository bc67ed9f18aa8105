"""When keys that moved in a shrink are handed over: all groups have read what was written before the switch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from modeaware.cluster.cluster import LogOffsets
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.handover import survivors_to_watch, waits_for_groups
from modeaware.lifecycle.state import awaits_handover
from modeaware.modelog.records import TopicRecord
from modeaware.reports.describe import HandoverDescription, describe_handover
from tests.support.lifecycle import LATER_MS, QUIET_MS, admitted, after, facts, group, grow, log, look, shrink

WEEK_MS = 7 * 86_400_000
FULL = {p: log(10) for p in range(4)}
"""Four partitions with ten records each; a shrink to 3 retires partition 3."""
ALL_READ = dict.fromkeys(range(4), 10)


def seen(
    committed: Mapping[int, int] | None = None, logs: Mapping[int, PartitionFacts] | None = None, **more: object
) -> TopicFacts:
    groups = {"g": group(committed, members=True)}
    return facts(4, FULL | dict(logs or {}), groups, **more)


def shrinking(to: int = 3, **fields: object) -> TopicRecord:
    return admitted(shrink(to, **fields), seen=seen({0: 1}))


def sealed(to: int = 3, **fields: object) -> TopicRecord:
    """Every retired partition has its seal, every survivor its offset; the group has read nothing."""
    record = after(shrinking(to, **{"delay_ms": WEEK_MS, **fields}), seen({0: 1}))
    assert all(record.retired[p].seal_offset == 10 for p in record.retired)
    return record


def handed_over(record: TopicRecord) -> tuple[int, ...] | None:
    """None: all."""
    assert record.deletion is not None
    if record.deletion.handed_over:
        assert (record.handed_over, record.handover_offsets) == ((), {})
        return None
    return record.handed_over


class TestOffsets:
    def test_survivors_are_looked_at_from_the_last_seal_on_and_no_longer_than_needed(self) -> None:
        """At once after the seal: every pass before would have to ask for their offsets, and wait for nothing."""
        record = shrinking(delay_ms=WEEK_MS)
        assert survivors_to_watch(record) == ()
        step = look(record, replace(seen({0: 1}), partitions={3: log(10)}))
        assert step.record is not None
        assert survivors_to_watch(step.record) == (0, 1, 2)
        assert step.due_ms == LATER_MS
        assert survivors_to_watch(after(step.record, seen({1: 10}))) == (0, 2)
        assert survivors_to_watch(after(step.record, seen(ALL_READ))) == ()


class TestWhoIsWaitedFor:
    @pytest.mark.parametrize(
        ("committed", "expected"),
        [
            ({0: 1}, ()),
            ({0: 9, 1: 10, 2: 10, 3: 9}, (1, 2)),
            ({0: 10, 3: 10}, (0, 3)),
            (ALL_READ, None),
        ],
    )
    def test_a_partition_is_handed_over_when_the_group_has_read_it(
        self, committed: dict[int, int], expected: tuple[int, ...] | None
    ) -> None:
        assert handed_over(after(sealed(), seen(committed))) == expected

    def test_a_doubtful_listing_hands_nothing_over_but_what_is_empty(self) -> None:
        unsure = seen(ALL_READ, {1: log(10, 10)}, groups_doubt=GroupsDoubt("a rebalance"))
        assert handed_over(after(sealed(), unsure)) == (1,)


class TestOtherChanges:
    def test_after_a_part_was_undone_it_begins_anew_and_waits_for_producers_to_hear_of_it(self) -> None:
        """No seal tells that they have: nothing was unsealed."""
        record = after(sealed(2), seen(ALL_READ))
        assert handed_over(record) is None
        record = admitted(grow(3), record, seen(), now_ms=LATER_MS)
        assert handed_over(record) == ()
        assert handed_over(after(record, seen(ALL_READ), LATER_MS + QUIET_MS - 1)) == (3,)
        grown = {1: log(13)}
        record = after(record, seen(ALL_READ, grown), LATER_MS + QUIET_MS)
        assert record.handover_offsets == {1: 13}
        assert handed_over(record) == (0, 2, 3)
        assert handed_over(after(record, seen(ALL_READ | {1: 13}, grown), LATER_MS + QUIET_MS)) is None


class TestViews:
    def test_clients_are_told_until_all_is_handed_over(self) -> None:
        record = sealed()
        assert (record.view().previous_count, record.view().handed_over) == (4, frozenset())
        record = after(record, seen({0: 10, 2: 10}))
        assert (record.view().previous_count, record.view().handed_over) == (4, {0, 2})
        record = after(record, seen(ALL_READ))
        assert (record.view().previous_count, record.view().handed_over) == (None, frozenset())

    @pytest.mark.parametrize("record", [shrinking(), sealed(), after(sealed(), seen({0: 10}))])
    def test_where_an_earlier_version_writes_the_record_nothing_is_waited_for(self, record: TopicRecord) -> None:
        """It knows no handover and would never report one. A later one does not begin in the middle either."""
        fields = json.loads(record.to_json())
        for name in ("handed_over", "handover_offsets"):
            fields.pop(name, None)
        del fields["deletion"]["handed_over"]
        old = TopicRecord.from_json(json.dumps(fields).encode())
        assert old.view().previous_count is None
        assert not awaits_handover(old)
        assert survivors_to_watch(old) == waits_for_groups(old) == ()
        again = after(old, seen({0: 10}))
        assert (again.handed_over, again.handover_offsets, again.view().previous_count) == ((), {}, None)


# What a description says of it


OFFSETS = {p: LogOffsets(0, 10, 10, 3) for p in range(4)}


def read_to(committed: Mapping[int, int]) -> TopicRecord:
    """Sealed; what the noted group "g" has read is handed over."""
    return after(sealed(), seen(committed))


def described(record: TopicRecord, groups: Mapping[str, GroupFacts]) -> HandoverDescription | None:
    return describe_handover(record, OFFSETS, groups)


def test_groups_that_have_to_read_on_are_named() -> None:
    record = read_to({0: 10, 1: 10, 2: 3})
    slow, done = group(ALL_READ | {3: 1}), group(ALL_READ)
    assert described(record, {"g": done, "slow": slow}) == HandoverDescription(4, (0, 1), ("slow",))
    assert described(record, {"g": done, "slow": replace(slow, caught_up=frozenset({3}))}) == HandoverDescription(
        4, (0, 1)
    )


def test_a_group_that_was_noted_and_is_gone_is_named() -> None:
    assert described(read_to({0: 10}), {}) == HandoverDescription(4, (0,), ("g",))


def test_what_came_to_a_survivor_since_need_not_be_read() -> None:
    record = read_to({0: 10, 1: 10, 3: 10})
    assert described(record, {"g": group({2: 3})}) == HandoverDescription(4, (0, 1, 3), ("g",))
    busy = {**OFFSETS, 2: LogOffsets(0, 99, 99, 3)}
    assert describe_handover(record, busy, {"g": group({2: 10})}) == HandoverDescription(4, (0, 1, 3))


def test_there_is_nothing_to_tell_where_all_is_handed_over() -> None:
    assert described(read_to(ALL_READ), {"g": group()}) is None
    assert described(replace(read_to({}), deletion=None, retired={}), {}) is None

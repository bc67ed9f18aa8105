"""The judge of chaos runs: histories in which nothing is wrong, and what it counts."""

from __future__ import annotations

import pytest

from tests.chaos.history import Bounds, Fault, Gone, Outcome, Shrink, Transaction
from tests.chaos.journal import UNPLACED, Kind
from tests.chaos.judge import judge
from tests.chaos.rereading import PREFETCH_MS, SETTLE_MS
from tests.chaos.windows import Windows
from tests.support.told_history import Story, at, killed_with, not_deleted, read_again, read_while_none


def test_a_right_history_is_right() -> None:
    verdict = judge(Story().history())
    assert verdict.ok
    assert (verdict.acknowledged, verdict.read, verdict.duplicates) == (6, {"a": 6, "b": 6}, {"a": 0, "b": 0})
    assert (verdict.deleted, verdict.unsettled) == (0, 0)
    assert verdict.as_json()["lost"] == 0


def test_what_every_group_had_read_may_be_deleted() -> None:
    story = Story()
    story.delete_below(4)
    story.more["gone"] = [Gone(1_036, 0, 4, "None"), Gone(1_040, 0, 4, "deleted")]
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.deleted == 4


def test_what_was_fetched_before_it_was_deleted_may_be_given_a_little_later() -> None:
    for gone in (Gone(1_040, 0, 4, "deleted"), Gone(1_040, 0, 4, "None")):
        story = Story()
        story.more["gone"] = [gone]
        read_again(story, 1_040 + PREFETCH_MS)
        assert judge(story.history()).ok


def test_a_partition_that_is_readable_again_may_be_read_again() -> None:
    story = Story()
    story.more["gone"] = [Gone(1_040, 0, 4, "None", 30_000)]
    read_again(story, 30_001)
    assert judge(story.history()).ok


def test_plain_consumers_know_no_none() -> None:
    story = Story()
    read_while_none(story)
    story.more["plain"] = frozenset("a")
    assert judge(story.history()).ok
    story.delete_below(4)
    story.more["gone"] = [Gone(1_040, 0, 4, "deleted")]
    assert judge(story.history()).violations == {"read-deleted": 1}


def test_a_shrink_is_complete_when_kafka_says_so() -> None:
    story = Story()
    story.more["shrinks"] = [
        Shrink(2_000, 4, {0: 6, 1: 0}, {0: 6, 1: 0}, {0: 7, 1: 0}, {}),
        Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 0}),  # a control record is left
        Shrink(4_000, 4, {0: 6}, {0: 6}, {}, {}),
        Shrink(5_000, 4, {}, {}, {}, {}),
    ]
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.shrinks == {"confirmed": 2, "unconfirmed": 2}
    not_deleted(story)
    assert judge(story.history()).shrinks == {"denied": 2}


def test_a_straggler_behind_what_was_deleted_has_its_own_time() -> None:
    story = Story()
    story.delete_below(6)
    story.more["gone"] = [Gone(1_036, 0, 4, "deleted"), Gone(1_056, 0, 6, "deleted")]
    assert judge(story.history()).ok


def test_what_was_never_acknowledged_may_be_there_or_not() -> None:
    story = Story()
    story.add(at(1, 7), 7, acked=False)  # sequence 6 never arrived
    assert judge(story.history()).ok


def test_what_was_acknowledged_without_an_offset_is_found_where_it_is() -> None:
    story = Story()
    story.acks[3] = (at(1, 3), UNPLACED, 1_030, 0, Kind.ACKED)
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.acknowledged == 6


def test_a_gap_of_control_records_is_not_missing() -> None:
    story = Story()
    story.add(at(1, 6), 60)
    assert judge(story.history()).ok


def test_aborted_transactions_are_not_expected() -> None:
    story = Story(records=3)
    story.acks += [(at(1, n), n, 1_100, 0, Kind.ACKED) for n in (3, 4)]
    story.writer["transactions"] = [Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 5, Outcome.ABORTED)]
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.acknowledged == 3
    assert verdict.transactions == {"committed": 1, "aborted": 1}


def test_a_transaction_of_unknown_end_of_which_nothing_is_seen_is_unsettled() -> None:
    story = Story(records=3)
    story.acks += [(at(1, n), n, 1_100, 0, Kind.ACKED) for n in (3, 4)]
    killed_with(story, Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 1 << 32, Outcome.UNKNOWN))
    verdict = judge(story.history())
    assert verdict.ok
    assert (verdict.acknowledged, verdict.unsettled) == (3, 2)
    assert (verdict.unsettled_transactions, verdict.most_unsettled) == (1, 1)


@pytest.mark.parametrize("how", ["fault", "commit", "taken"])
def test_a_group_may_read_again_after_a_fault_of_its_own_or_a_failed_commit(how: str) -> None:
    story = Story()
    taken_ms = 0
    if how == "fault":
        story.more["faults"] = [Fault(900, 1_056, "consumer-kill", "a-2", "a")]
    elif how == "commit":
        story.note("a", Kind.COMMIT_FAILED, 2_000, since_ms=1_900)
    else:
        story.more["faults"] = [Fault(1, 2, "broker-kill", "broker-1", "*")]
        taken_ms = 2 + SETTLE_MS
    story.note("a", Kind.TAKEN, taken_ms)
    story.read("a", at(1, 5), 5, 19_000)
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.duplicates == {"a": 1, "b": 0}


def test_a_view_that_changed_while_a_record_was_sent_decides_nothing() -> None:
    story = Story()
    story.more["writable"] = {5: [0], 6: [0, 1]}
    story.writer["bounds"] = [Bounds(0, 5, 5), Bounds(6, 5, 6), Bounds(7, 6, 6)]
    story.add(at(1, 6), 0, partition=1)
    story.add(at(1, 7), 1, partition=1)
    assert judge(story.history()).ok


def test_the_checks_of_modes_are_for_aware_writers() -> None:
    story = Story()
    story.writer["aware"] = False
    story.more["writable"] = {5: [7]}
    story.add(at(1, 6), 0, partition=1)
    assert judge(story.history()).ok


@pytest.mark.parametrize(
    ("span", "touched"),
    [((0, 9), False), ((0, 10), True), ((15, 16), True), ((26, 29), False), ((30, 30), True), ((41, 99), False)],
)
def test_windows(span: tuple[int, int], touched: bool) -> None:
    assert Windows([(30, 40), (10, 20), (18, 25), (12, 13)]).touch(*span) is touched

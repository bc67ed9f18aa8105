"""The judge of chaos runs: histories made wrong on purpose, one for each kind of violation, and right ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.clients import GAVE_UP
from tests.chaos.history import Bounds, Chain, Fault, Gone, Outcome, Shrink, Transaction
from tests.chaos.journal import UNPLACED, Kind
from tests.chaos.judge import judge
from tests.chaos.lifeline import BROKERS_LOST
from tests.chaos.report import Report
from tests.chaos.rereading import PREFETCH_MS, SETTLE_MS
from tests.chaos.setting import CHAINS
from tests.chaos.verdict import VIOLATIONS
from tests.support.told_history import GROUPS, Story, at, killed_with, not_deleted, read_again, read_while_none


def lost(story: Story) -> None:
    story.unread_by("b", 2)
    story.delete_below(4)


def lost_without_a_trace(story: Story) -> None:
    story.acks.append((at(1, 6), 6, 2_000, 0, Kind.ACKED))


def vanished(story: Story) -> None:
    story.stored = [entry for entry in story.stored if entry[1] != 2]  # every group had read it


def unread(story: Story) -> None:
    story.unread_by("b", 5)


def deleted_before_read(story: Story) -> None:
    story.delete_below(4)
    story.more["gone"] = [Gone(1_030, 0, 4, "deleted")]  # offset 3 is read at 1 035


def none_before_read(story: Story) -> None:
    story.unread_by("b", 1)
    story.read("b", at(1, 1), 1, 5_000)
    story.note("b", Kind.TAKEN)
    story.reads["b"].insert(-2, (0, 0, 0, 0, Kind.DROPPED))
    story.more["gone"] = [Gone(4_000, 0, 4, "None")]


def read_after_deletion(story: Story) -> None:
    story.delete_below(4)
    story.more["gone"] = [Gone(1_040, 0, 4, "deleted")]
    read_again(story, 1_041 + PREFETCH_MS)


def overwritten_for_a_reader(story: Story) -> None:
    story.add(at(1, 6), 6, acked=False)
    story.reads["b"][-1] = (at(1, 7), 6, 1_065, 0, Kind.READ)


def overwritten_under_an_acknowledgement(story: Story) -> None:
    story.acks[5] = (at(1, 6), 5, 1_050, 0, Kind.ACKED)


def duplicate_in_log(story: Story) -> None:
    story.add(at(1, 2), 6, acked=False)


def out_of_order(story: Story) -> None:
    story.add(at(1, 9), 6)
    story.add(at(1, 6), 7)


def moved(story: Story) -> None:
    story.more["writable"] = {5: [0, 1]}
    story.add(at(1, 6), 0, partition=1)


def retired_chosen(story: Story) -> None:
    story.more["writable"] = {5: [1, 2]}


def aborted_read(story: Story) -> None:
    story.writer["transactions"] = [Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 6, Outcome.ABORTED)]
    story.acks = story.acks[:3]


def stranger(story: Story) -> None:
    story.add(at(2, 0), 6, acked=False)


def read_backwards(story: Story) -> None:
    story.read("a", at(1, 3), 3, 1_058)
    story.more["faults"] = [Fault(1_000, 2_000, "broker-kill", "broker-1", "*")]


def unexplained_duplicate(story: Story) -> None:
    story.note("a", Kind.DROPPED)
    story.read("a", at(1, 5), 5, 9_000)
    story.more["faults"] = [
        Fault(9_001, 9_500, "broker-kill", "broker-1", "*"),
        Fault(2_000, 2_001, "consumer-kill", "b-1", "b"),
        Fault(2_000, 2_001, "producer-kill", "w", None),
    ]


def twice_after_a_commit_that_failed_before(story: Story) -> None:
    story.note("a", Kind.COMMIT_FAILED, 1_054, since_ms=1_000)  # offset 5 is read at 1 055
    story.note("a", Kind.TAKEN, 8_000)
    story.read("a", at(1, 5), 5, 9_000)


def two_unsettled_of_one_writer(story: Story) -> None:
    unknown = [Transaction(first, end, Outcome.UNKNOWN) for first, end in ((0, 4), (4, 6))]
    killed_with(story, *unknown)
    story.more["faults"] = 2 * [Fault(1_060, 1_070, "writer-kill", "w")]


def unsettled_of_a_writer_that_nobody_harmed(story: Story) -> None:
    killed_with(story, Transaction(0, 6, Outcome.UNKNOWN))
    story.more["faults"] = [
        Fault(1_060, 1_070, "writer-pause", "w"),
        Fault(1_060, 1_070, "writer-kill", "v"),
    ]


def half_of_a_transaction(story: Story) -> None:
    killed_with(story, Transaction(0, 6, Outcome.UNKNOWN))
    for group in GROUPS:
        story.unread_by(group, 4)
    story.stored = [entry for entry in story.stored if entry[1] != 4]


def chain(story: Story, **ends: object) -> None:
    well = Chain("range", 100, {"idempotent": [], "plain": []}, {"idempotent": 0}, [])
    story.more["chains"] = [well, well._replace(name="consumer", **ends)]


def lost_in_a_chain(story: Story) -> None:
    chain(story, unread={"idempotent": ["idempotent-3 7"], "plain": ["plain-0 1", "plain-0 2"]})


def out_of_order_in_a_chain(story: Story) -> None:
    chain(story, out_of_order={"idempotent": 5})


def deleted_and_back(story: Story) -> None:
    chain(story, back=["chain-v2"])


def not_over(story: Story) -> None:
    story.more["contents"] = None


WRONG: list[tuple[Callable[[Story], None], dict[str, int]]] = [
    (lost, {"lost": 1}),
    (lost_without_a_trace, {"lost": 1, "vanished": 1}),
    (vanished, {"vanished": 1}),
    (unread, {"unread": 1}),
    (deleted_before_read, {"deleted-unread": 2}),  # one record, two groups
    (none_before_read, {"deleted-unread": 1}),
    (read_after_deletion, {"read-deleted": 1}),
    (read_while_none, {"read-deleted": 1}),
    (not_deleted, {"not-deleted": 2}),
    (overwritten_for_a_reader, {"overwritten": 2}),  # it stands there again at the end
    (overwritten_under_an_acknowledgement, {"overwritten": 1, "lost": 1, "vanished": 1}),
    (duplicate_in_log, {"duplicate-in-log": 1}),
    (out_of_order, {"order": 1}),
    (moved, {"moved": 1}),
    (retired_chosen, {"retired-chosen": 6}),
    (aborted_read, {"aborted-read": 3}),
    (stranger, {"stranger": 1}),
    (read_backwards, {"read-backwards": 1, "unexplained-duplicate": 1}),
    (unexplained_duplicate, {"unexplained-duplicate": 1}),
    (twice_after_a_commit_that_failed_before, {"unexplained-duplicate": 1}),
    (two_unsettled_of_one_writer, {"unsettled": 1}),
    (unsettled_of_a_writer_that_nobody_harmed, {"unsettled": 1}),
    (half_of_a_transaction, {"lost": 1, "vanished": 1}),
    (lost_in_a_chain, {"unread-in-chain": 3}),
    (out_of_order_in_a_chain, {"order-in-chain": 1}),
    (deleted_and_back, {"back": 1}),
    (not_over, {"unjudged": 1}),
]


@pytest.mark.parametrize(("spoil", "violations"), WRONG, ids=lambda each: getattr(each, "__name__", ""))
def test_a_wrong_history_is_found_out(spoil: Callable[[Story], None], violations: dict[str, int]) -> None:
    story = Story()
    spoil(story)
    verdict = judge(story.history())
    assert dict(verdict.violations) == violations
    assert not verdict.ok
    assert set(verdict.examples) == set(violations)


def test_every_kind_of_violation_has_a_wrong_history() -> None:
    assert {kind for _, violations in WRONG for kind in violations} == set(VIOLATIONS)


def test_a_right_history_is_right() -> None:
    verdict = judge(Story().history())
    assert verdict.ok
    assert (verdict.acknowledged, verdict.read, verdict.duplicates) == (6, {"a": 6, "b": 6}, {"a": 0, "b": 0})
    assert (verdict.deleted, verdict.unsettled) == (0, 0)
    assert verdict.as_json()["lost"] == 0


def fetched_before_it_was_deleted(story: Story) -> None:
    story.more["gone"] = [Gone(1_040, 0, 4, "deleted")]
    read_again(story, 1_040 + PREFETCH_MS)


def fetched_before_it_was_none(story: Story) -> None:
    story.more["gone"] = [Gone(1_040, 0, 4, "None")]
    read_again(story, 1_040 + PREFETCH_MS)


def readable_again(story: Story) -> None:
    story.more["gone"] = [Gone(1_040, 0, 4, "None", 30_000)]
    read_again(story, 30_001)


def straggler_that_goes_later(story: Story) -> None:
    story.delete_below(6)
    story.more["gone"] = [Gone(1_036, 0, 4, "deleted"), Gone(1_056, 0, 6, "deleted")]


def acknowledged_without_an_offset(story: Story) -> None:
    story.acks[3] = (at(1, 3), UNPLACED, 1_030, 0, Kind.ACKED)


def view_changed_while_a_record_was_sent(story: Story) -> None:
    story.more["writable"] = {5: [0], 6: [0, 1]}
    story.writer["bounds"] = [Bounds(0, 5, 5), Bounds(6, 5, 6), Bounds(7, 6, 6)]
    story.add(at(1, 6), 0, partition=1)
    story.add(at(1, 7), 1, partition=1)


def writer_that_is_not_aware(story: Story) -> None:
    story.writer["aware"] = False
    story.more["writable"] = {5: [7]}
    story.add(at(1, 6), 0, partition=1)


RIGHT = (
    fetched_before_it_was_deleted,
    fetched_before_it_was_none,
    readable_again,
    straggler_that_goes_later,
    acknowledged_without_an_offset,
    view_changed_while_a_record_was_sent,
    writer_that_is_not_aware,
)


@pytest.mark.parametrize("tell", RIGHT)
def test_an_unusual_history_is_right(tell: Callable[[Story], None]) -> None:
    story = Story()
    tell(story)
    assert judge(story.history()).ok


def test_what_every_group_had_read_may_be_deleted() -> None:
    story = Story()
    story.delete_below(4)
    story.more["gone"] = [Gone(1_036, 0, 4, "None"), Gone(1_040, 0, 4, "deleted")]
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.deleted == 4


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


def test_chains_in_good_order_are_counted() -> None:
    story = Story()
    chain(story)
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.chained == 200


def events(**ends: object) -> list[dict[str, object]]:
    """What a run's chronicle has of its chains."""
    well = {"acknowledged": {"plain": 100}, "void": {}, "duplicates": 0, "errors": {}, "deleted": 1, **ends}
    chains = [{"event": "chain", "name": name, **well} for name in CHAINS]
    return [{"at_ms": 1, **event} for event in ({"event": "replaced"}, {"event": "replaced"}, *chains)]


def missed(run: list[dict[str, object]], story: Story, minutes: float = 0.5) -> set[str]:
    report = Report(1, run, judge(story.history()), 0.0, minutes)
    return {goal.what for goal in report.goals if not goal.met} - {"records whose routing was judged"}


def test_a_run_whose_chains_were_not_judged_is_not_well() -> None:
    story = Story()
    chain(story)
    assert missed(events(), story) == set()
    assert missed(events()[:-1], story) == {"chains of replaced topics that were judged"}
    assert missed(events(), Story()) == {"records acknowledged in them"}


def test_a_long_run_has_to_replace_topics() -> None:
    story = Story()
    chain(story)
    assert "replacements completed" in missed(events(), story, minutes=2)
    assert "replacements completed" not in missed(2 * events(), story, minutes=2)


def test_a_record_lost_in_a_chain_fails_the_run() -> None:
    story = Story()
    chain(story, unread={"idempotent": ["idempotent-3 7"]})
    report = Report(1, events(), judge(story.history()), 0.0, 0.5)
    assert not report.ok
    assert "VIOLATION unread-in-chain: 1" in "\n".join(report.lines())
    assert report.as_json()["replacements"] == {
        "completed": 2,
        "not_deleted": 0,
        "undone": 0,
        "topics_deleted": len(CHAINS),
    }


@pytest.mark.parametrize(
    ("process", "last_words", "failed"),
    [
        ("range-0", f"ERROR client: {GAVE_UP}: {BROKERS_LOST}", False),
        ("range-0", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FATAL}}", True),
        ("unaware-transactional", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FENCED}}", False),
        ("unaware-idempotent", f"ERROR client: {GAVE_UP}: KafkaError{{FATAL,code=_FENCED}}", True),
    ],
)
def test_a_client_that_ends_by_itself_fails_the_run_unless_the_fault_is_known(
    process: str, last_words: str, failed: bool
) -> None:
    story = Story()
    chain(story)
    ended = {"at_ms": 1, "event": "ended-by-itself", "process": process, "last_words": last_words}
    assert missed([*events(), ended], story) == ({"ended by itself"} if failed else set())

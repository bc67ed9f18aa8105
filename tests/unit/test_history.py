"""The judge of chaos runs: histories made wrong on purpose, one for each kind of violation, and right ones."""

from __future__ import annotations

import pytest

from tests.chaos.clients import GAVE_UP
from tests.chaos.history import Bounds, Fault, Gone, Outcome, Shrink, Transaction
from tests.chaos.journal import UNPLACED, Kind
from tests.chaos.judge import judge
from tests.chaos.lifeline import BROKERS_LOST
from tests.chaos.report import Report
from tests.chaos.rereading import PREFETCH_MS, SETTLE_MS
from tests.chaos.setting import CHAINS
from tests.chaos.verdict import VIOLATIONS
from tests.support.stories import Steps, Story
from tests.support.told_history import NOT_DELETED, READ_WHILE_NONE, Told, at

do = Steps()
UNKNOWN = Outcome.UNKNOWN
BROKER_KILL = Fault(9_001, 9_500, "broker-kill", "broker-1", "*")

WRONG: dict[str, tuple[Story, dict[str, int]]] = {
    "lost": (Story(do.unread_by("b", 2), do.delete_below(4)), {"lost": 1}),
    "lost without a trace": (Story(do.acknowledge(6, 6, 2_000)), {"lost": 1, "vanished": 1}),
    "vanished, when every group had read it": (Story(do.lose(2)), {"vanished": 1}),
    "unread": (Story(do.unread_by("b", 5)), {"unread": 1}),
    "deleted before it is read at 1 035, of two groups": (
        Story(do.delete_below(4), do.says(gone=[Gone(1_030, 0, 4, "deleted")])),
        {"deleted-unread": 2},
    ),
    "None before it is read": (
        Story(
            (do.unread_by("b", 1), do.read("b", at(1, 1), 1, 5_000), do.note("b", Kind.TAKEN)),
            (do.drop_before_the_last("b"), do.says(gone=[Gone(4_000, 0, 4, "None")])),
        ),
        {"deleted-unread": 1},
    ),
    "read after its deletion": (
        Story((do.delete_below(4), do.says(gone=[Gone(1_040, 0, 4, "deleted")])), do.read_again(1_041 + PREFETCH_MS)),
        {"read-deleted": 1},
    ),
    "read while its partition is None": (Story(READ_WHILE_NONE), {"read-deleted": 1}),
    "not deleted": (Story(NOT_DELETED), {"not-deleted": 2}),
    "overwritten for a reader: it stands there again at the end": (
        Story(do.add(at(1, 6), 6, acked=False), do.read_instead("b", 7, 6, 1_065)),
        {"overwritten": 2},
    ),
    "overwritten under an acknowledgement": (
        Story(do.acknowledge_instead(5, 6, 5, 1_050)),
        {"overwritten": 1, "lost": 1, "vanished": 1},
    ),
    "duplicate in the log": (Story(do.add(at(1, 2), 6, acked=False)), {"duplicate-in-log": 1}),
    "out of order": (Story(do.add(at(1, 9), 6), do.add(at(1, 6), 7)), {"order": 1}),
    "moved": (Story(do.says(writable={5: [0, 1]}), do.add(at(1, 6), 0, partition=1)), {"moved": 1}),
    "retired partition chosen": (Story(do.says(writable={5: [1, 2]})), {"retired-chosen": 6}),
    "aborted, and read": (
        Story(
            do.writer_says(transactions=[Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 6, Outcome.ABORTED)]),
            do.acknowledge_first(3),
        ),
        {"aborted-read": 3},
    ),
    "stranger": (Story(do.add(at(2, 0), 6, acked=False)), {"stranger": 1}),
    "read backwards": (
        Story(do.read("a", at(1, 3), 3, 1_058), do.says(faults=[Fault(1_000, 2_000, "broker-kill", "broker-1", "*")])),
        {"read-backwards": 1, "unexplained-duplicate": 1},
    ),
    "unexplained duplicate": (
        Story(
            (do.note("a", Kind.DROPPED), do.read("a", at(1, 5), 5, 9_000)),
            do.says(
                faults=[
                    BROKER_KILL,
                    Fault(2_000, 2_001, "consumer-kill", "b-1", "b"),
                    Fault(2_000, 2_001, "producer-kill", "w", None),
                ]
            ),
        ),
        {"unexplained-duplicate": 1},
    ),
    "twice after a commit that failed before offset 5 was read, at 1 055": (
        Story(
            (do.note("a", Kind.COMMIT_FAILED, 1_054, since_ms=1_000), do.note("a", Kind.TAKEN, 8_000)),
            do.read("a", at(1, 5), 5, 9_000),
        ),
        {"unexplained-duplicate": 1},
    ),
    "two unsettled of one writer": (
        Story(
            do.killed_with(Transaction(0, 4, UNKNOWN), Transaction(4, 6, UNKNOWN)),
            do.says(faults=2 * [Fault(1_060, 1_070, "writer-kill", "w")]),
        ),
        {"unsettled": 1},
    ),
    "unsettled of a writer without a fault": (
        Story(
            do.killed_with(Transaction(0, 6, UNKNOWN)),
            do.says(faults=[Fault(1_060, 1_070, "writer-pause", "w"), Fault(1_060, 1_070, "writer-kill", "v")]),
        ),
        {"unsettled": 1},
    ),
    "half of a transaction": (
        Story((do.killed_with(Transaction(0, 6, UNKNOWN)), do.unread_by("a", 4), do.unread_by("b", 4), do.lose(4))),
        {"lost": 1, "vanished": 1},
    ),
    "lost in a chain": (
        Story(do.chain(unread={"idempotent": ["idempotent-3 7"], "plain": ["plain-0 1", "plain-0 2"]})),
        {"unread-in-chain": 3},
    ),
    "out of order in a chain": (Story(do.chain(out_of_order={"idempotent": 5})), {"order-in-chain": 1}),
    "deleted, and back": (Story(do.chain(back=["chain-v2"])), {"back": 1}),
    "not over": (Story(do.says(contents=None)), {"unjudged": 1}),
}


@pytest.mark.parametrize(("story", "violations"), WRONG.values(), ids=WRONG)
def test_a_wrong_history_is_found_out(story: Story, violations: dict[str, int]) -> None:
    verdict = judge(story.run(Told).history())
    assert dict(verdict.violations) == violations
    assert not verdict.ok
    assert set(verdict.examples) == set(violations)


def test_every_kind_of_violation_has_a_wrong_history() -> None:
    assert {kind for _, violations in WRONG.values() for kind in violations} == set(VIOLATIONS)


RIGHT: dict[str, tuple[Story, dict[str, object]]] = {
    "nothing happens": (
        Story(),
        {
            "acknowledged": 6,
            "read": {"a": 6, "b": 6},
            "duplicates": {"a": 0, "b": 0},
            "deleted": 0,
            "unsettled": 0,
        },
    ),
    "fetched before it was deleted": (
        Story(do.says(gone=[Gone(1_040, 0, 4, "deleted")]), do.read_again(1_040 + PREFETCH_MS)),
        {},
    ),
    "fetched before it was None": (
        Story(do.says(gone=[Gone(1_040, 0, 4, "None")]), do.read_again(1_040 + PREFETCH_MS)),
        {},
    ),
    "readable again": (Story(do.says(gone=[Gone(1_040, 0, 4, "None", 30_000)]), do.read_again(30_001)), {}),
    "straggler that goes later": (
        Story(do.delete_below(6), do.says(gone=[Gone(1_036, 0, 4, "deleted"), Gone(1_056, 0, 6, "deleted")])),
        {},
    ),
    "acknowledged without an offset": (Story(do.acknowledge_instead(3, 3, UNPLACED, 1_030)), {}),
    "view changed while a record was sent": (
        Story(
            do.says(writable={5: [0], 6: [0, 1]}),
            do.writer_says(bounds=[Bounds(0, 5, 5), Bounds(6, 5, 6), Bounds(7, 6, 6)]),
            (do.add(at(1, 6), 0, partition=1), do.add(at(1, 7), 1, partition=1)),
        ),
        {},
    ),
    "writer that is not aware": (
        Story(do.writer_says(aware=False), do.says(writable={5: [7]}), do.add(at(1, 6), 0, partition=1)),
        {},
    ),
    "deleted when every group had read it": (
        Story(do.delete_below(4), do.says(gone=[Gone(1_036, 0, 4, "None"), Gone(1_040, 0, 4, "deleted")])),
        {"deleted": 4},
    ),
    "plain consumers know no None": (Story(READ_WHILE_NONE, do.says(plain=frozenset("a"))), {}),
    "a shrink is complete when Kafka says so": (
        Story(
            do.says(
                shrinks=[
                    Shrink(2_000, 4, {0: 6, 1: 0}, {0: 6, 1: 0}, {0: 7, 1: 0}, {}),
                    Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 0}),  # a control record is left
                    Shrink(4_000, 4, {0: 6}, {0: 6}, {}, {}),
                    Shrink(5_000, 4, {}, {}, {}, {}),
                ]
            )
        ),
        {"shrinks": {"confirmed": 2, "unconfirmed": 2}},
    ),
    "aborted transactions are not expected": (
        Story(
            (do.acknowledge(3, 3, 1_100), do.acknowledge(4, 4, 1_100)),
            do.writer_says(transactions=[Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 5, Outcome.ABORTED)]),
            records=3,
        ),
        {"acknowledged": 3, "transactions": {"committed": 1, "aborted": 1}},
    ),
    "a transaction of unknown end of which nothing is seen is unsettled": (
        Story(
            (do.acknowledge(3, 3, 1_100), do.acknowledge(4, 4, 1_100)),
            do.killed_with(Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 1 << 32, UNKNOWN)),
            records=3,
        ),
        {"acknowledged": 3, "unsettled": 2, "unsettled_transactions": 1, "most_unsettled": 1},
    ),
    "a group reads again after a fault of its own": (
        Story(
            do.says(faults=[Fault(900, 1_056, "consumer-kill", "a-2", "a")]),
            (do.note("a", Kind.TAKEN, 0), do.read("a", at(1, 5), 5, 19_000)),
        ),
        {"duplicates": {"a": 1, "b": 0}},
    ),
    "a group reads again after a commit that failed": (
        Story(
            do.note("a", Kind.COMMIT_FAILED, 2_000, since_ms=1_900),
            (do.note("a", Kind.TAKEN, 0), do.read("a", at(1, 5), 5, 19_000)),
        ),
        {"duplicates": {"a": 1, "b": 0}},
    ),
    "a group reads again that was taken soon after a broker's fault": (
        Story(
            do.says(faults=[Fault(1, 2, "broker-kill", "broker-1", "*")]),
            (do.note("a", Kind.TAKEN, 2 + SETTLE_MS), do.read("a", at(1, 5), 5, 19_000)),
        ),
        {"duplicates": {"a": 1, "b": 0}},
    ),
    "chains in good order are counted": (Story(do.chain()), {"chained": 200}),
}


@pytest.mark.parametrize(("story", "counted"), RIGHT.values(), ids=RIGHT)
def test_a_right_history_is_right(story: Story, counted: dict[str, object]) -> None:
    verdict = judge(story.run(Told).history())
    assert verdict.ok
    assert verdict.as_json()["lost"] == 0
    assert {name: getattr(verdict, name) for name in counted} == counted


def test_plain_consumers_do_not_read_what_is_deleted() -> None:
    deleted = do.says(plain=frozenset("a"), gone=[Gone(1_040, 0, 4, "deleted")])
    told = Story(READ_WHILE_NONE, do.delete_below(4), deleted).run(Told)
    assert judge(told.history()).violations == {"read-deleted": 1}


def test_shrinks_that_are_not_complete_are_denied() -> None:
    assert judge(Story(NOT_DELETED).run(Told).history()).shrinks == {"denied": 2}


def events(**ends: object) -> list[dict[str, object]]:
    """What a run's chronicle has of its chains."""
    well = {"acknowledged": {"plain": 100}, "void": {}, "duplicates": 0, "errors": {}, "deleted": 1, **ends}
    chains = [{"event": "chain", "name": name, **well} for name in CHAINS]
    return [{"at_ms": 1, **event} for event in ({"event": "replaced"}, {"event": "replaced"}, *chains)]


CHAINED = Story(do.chain())


def missed(run: list[dict[str, object]], story: Told, minutes: float = 0.5) -> set[str]:
    report = Report(1, run, judge(story.history()), 0.0, minutes)
    return {goal.what for goal in report.goals if not goal.met} - {"records whose routing was judged"}


def test_a_run_whose_chains_were_not_judged_is_not_well() -> None:
    story = CHAINED.run(Told)
    assert missed(events(), story) == set()
    assert missed(events()[:-1], story) == {"chains of replaced topics that were judged"}
    assert missed(events(), Told()) == {"records acknowledged in them"}


def test_a_long_run_has_to_replace_topics() -> None:
    story = CHAINED.run(Told)
    assert "replacements completed" in missed(events(), story, minutes=2)
    assert "replacements completed" not in missed(2 * events(), story, minutes=2)


def test_a_record_lost_in_a_chain_fails_the_run() -> None:
    story = Story(do.chain(unread={"idempotent": ["idempotent-3 7"]})).run(Told)
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
    story = CHAINED.run(Told)
    ended = {"at_ms": 1, "event": "ended-by-itself", "process": process, "last_words": last_words}
    assert missed([*events(), ended], story) == ({"ended by itself"} if failed else set())

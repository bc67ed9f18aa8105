"""The judge of chaos runs: histories made wrong on purpose, one for each kind of violation, and right ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.chaos.history import Bounds, Contents, Fault, Gone, History, Outcome, ReaderRun, Transaction, WriterRun
from tests.chaos.journal import UNPLACED, Entry, Kind
from tests.chaos.judge import SETTLE_MS, Windows, judge
from tests.chaos.record import Identity
from tests.chaos.verdict import EXAMPLES, VIOLATIONS

GROUPS = ("a", "b")
KEYS = 3


def at(run: int, sequence: int) -> int:
    return Identity(run, sequence % KEYS, sequence).number


@dataclass
class Story:
    """A history in the making: one partition 0 unless said otherwise, every record read by both groups."""

    records: int = 6
    acks: list[Entry] = field(default_factory=list)
    reads: dict[str, list[Entry]] = field(default_factory=lambda: {group: [] for group in GROUPS})
    stored: list[Entry] = field(default_factory=list)
    more: dict[str, object] = field(default_factory=dict)
    writer: dict[str, object] = field(default_factory=dict)
    log_start: int = 0

    def __post_init__(self) -> None:
        for n in range(self.records):
            self.add(at(1, n), n)

    def add(self, number: int, offset: int, partition: int = 0, *, acked: bool = True) -> None:
        at_ms = 1_000 + 10 * offset
        if acked:
            self.acks.append((number, offset, at_ms, partition, Kind.ACKED))
        for group in GROUPS:
            self.read(group, number, offset, at_ms + 5, partition)
        self.stored.append((number, offset, 0, partition, Kind.STORED))

    def read(self, group: str, number: int, offset: int, at_ms: int, partition: int = 0) -> None:
        self.reads[group].append((number, offset, at_ms, partition, Kind.READ))

    def note(self, group: str, kind: Kind, at_ms: int = 0) -> None:
        self.reads[group].append((0, 0, at_ms, 0, kind))

    def unread_by(self, group: str, offset: int) -> None:
        self.reads[group] = [entry for entry in self.reads[group] if entry[1] != offset]

    def delete_below(self, offset: int) -> None:
        self.stored = [entry for entry in self.stored if entry[1] >= offset]
        self.log_start = offset

    def history(self) -> History:
        writer = WriterRun(1, "w", aware=True, acks=self.acks, bounds=[Bounds(0, 5, 5)])
        history = History(
            groups=GROUPS,
            writers=[replace(writer, **self.writer)],
            readers=[ReaderRun(f"{group}-1", group, entries) for group, entries in self.reads.items()],
            contents=Contents({0: self.log_start}, self.stored),
            writable={5: [0]},
        )
        return replace(history, **self.more)


def lost(story: Story) -> None:
    story.unread_by("b", 2)
    story.delete_below(4)


def lost_without_a_trace(story: Story) -> None:
    story.acks.append((at(1, 6), 6, 2_000, 0, Kind.ACKED))


def lost_somewhere(story: Story) -> None:
    story.acks.append((at(1, 6), UNPLACED, 2_000, 0, Kind.ACKED))


def unread_somewhere(story: Story) -> None:
    story.acks[5] = (at(1, 5), UNPLACED, 1_050, 0, Kind.ACKED)
    story.unread_by("b", 5)


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


def half_of_a_transaction(story: Story) -> None:
    story.writer["transactions"] = [Transaction(0, 6, Outcome.UNKNOWN)]
    for group in GROUPS:
        story.unread_by(group, 4)
    story.stored = [entry for entry in story.stored if entry[1] != 4]


def not_over(story: Story) -> None:
    story.more["contents"] = None


WRONG: list[tuple[Callable[[Story], None], dict[str, int]]] = [
    (lost, {"lost": 1}),
    (lost_without_a_trace, {"lost": 1}),
    (lost_somewhere, {"lost": 1}),
    (unread, {"unread": 1}),
    (unread_somewhere, {"unread": 1}),
    (deleted_before_read, {"deleted-unread": 2}),  # one record, two groups
    (none_before_read, {"deleted-unread": 1}),
    (overwritten_for_a_reader, {"overwritten": 2}),  # it stands there again at the end
    (overwritten_under_an_acknowledgement, {"overwritten": 1, "lost": 1}),
    (duplicate_in_log, {"duplicate-in-log": 1}),
    (out_of_order, {"order": 1}),
    (moved, {"moved": 1}),
    (retired_chosen, {"retired-chosen": 6}),
    (aborted_read, {"aborted-read": 3}),
    (stranger, {"stranger": 1}),
    (read_backwards, {"read-backwards": 1}),
    (unexplained_duplicate, {"unexplained-duplicate": 1}),
    (half_of_a_transaction, {"lost": 1}),
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


def test_what_every_group_had_read_may_be_deleted() -> None:
    story = Story()
    story.delete_below(4)
    story.more["gone"] = [Gone(1_036, 0, 4, "None"), Gone(1_040, 0, 4, "deleted")]
    verdict = judge(story.history())
    assert verdict.ok
    assert verdict.deleted == 4


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
    story.writer["transactions"] = [Transaction(0, 3, Outcome.COMMITTED), Transaction(3, 1 << 32, Outcome.UNKNOWN)]
    verdict = judge(story.history())
    assert verdict.ok
    assert (verdict.acknowledged, verdict.unsettled) == (3, 2)


def test_a_group_may_read_again_after_a_fault_or_a_failed_commit() -> None:
    for how in ("fault", "commit"):
        story = Story()
        if how == "fault":
            story.more["faults"] = [Fault(900, 1_056 - SETTLE_MS, "consumer-kill", "a-2", "a")]
        else:
            story.note("a", Kind.COMMIT_FAILED, 2_000)
        story.note("a", Kind.TAKEN)
        story.read("a", at(1, 5), 5, 9_000)
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


def test_gaps_of_a_writer_with_and_without_faults_of_its_own() -> None:
    story = Story(records=0)
    for n, at_ms in enumerate((1_000, 3_000, 9_000, 9_500)):
        story.add(at(1, n), n)
        story.acks[-1] = (*story.acks[-1][:2], at_ms, *story.acks[-1][3:])
    story.more["faults"] = [
        Fault(4_000, 8_000, "producer-pause", "w"),
        Fault(1_500, 2_000, "broker-kill", "broker-1", "*"),
    ]
    assert judge(story.history()).longest_gap_ms == {"w": (6_000, 2_000)}


def test_only_a_few_examples_are_kept() -> None:
    story = Story(records=50)
    for offset in range(50):
        story.unread_by("a", offset)
    verdict = judge(story.history())
    assert verdict.violations == {"unread": 50}
    assert len(verdict.examples["unread"]) == EXAMPLES


@pytest.mark.parametrize(
    ("span", "touched"),
    [((0, 9), False), ((0, 10), True), ((15, 16), True), ((26, 29), False), ((30, 30), True), ((41, 99), False)],
)
def test_windows(span: tuple[int, int], touched: bool) -> None:
    assert Windows([(30, 40), (10, 20), (18, 25), (12, 13)]).touch(*span) is touched

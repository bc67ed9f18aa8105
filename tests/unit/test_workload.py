"""The verdict on workloads: runs made wrong on purpose, one for each kind of violation, and right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.workload.evidence import Evidence, Fault, Gone, Shrink, crc32_place
from tests.workload.journal import UNPLACED, Journal, Kind, pack_bounds, read_journal, replay
from tests.workload.judge import judge
from tests.workload.ledger import Ledger
from tests.workload.record import Identity, key_bytes, log_of
from tests.workload.rereading import PREFETCH_MS, SETTLE_MS
from tests.workload.verdict import VIOLATIONS, Verdict

GROUPS = ("a", "b")
KEYS = 3
LOG, OTHER, NEW = log_of("old", 0), log_of("old", 1), log_of("new", 0)
OF_TWO = [crc32_place(key_bytes(key), 2) for key in range(KEYS)]
AFTER_ALL_MS = 5_000


def at(sequence: int, run: int = 1, key: int | None = None) -> int:
    return Identity(run, sequence % KEYS if key is None else key, sequence).number


class Story:
    """Records 0 to 5 of one writer at offsets 0 to 5 of one log, read by groups a and b and found there in the end.

    Args:
        lacks: what does not happen: ``ack N``, ``a N`` or ``b N`` (read by a group), ``stored N``.
    """

    def __init__(self, *lacks: str, records: int = 6, ordered: Iterable[str] = (), **writer: Any) -> None:
        self.ledger = Ledger(GROUPS, tuple(ordered))
        self.writer = self.ledger.writer(1, "w", **writer)
        self.readers = {group: self.ledger.reader(group, f"{group}-1", holds=True) for group in GROUPS}
        self.more: dict[str, Any] = {"starts": {LOG: 0, OTHER: 0, NEW: 0}, "faults": ()}
        for sequence in range(records):
            self.add(at(sequence), sequence, lacks=lacks)

    def add(self, number: int, offset: int, log: int = LOG, *, lacks: Iterable[str] = ()) -> Story:
        if f"ack {offset}" not in lacks:
            self.writer.note(Kind.ACKED, number, log, offset)
        for group in GROUPS:
            if f"{group} {offset}" not in lacks:
                self.read(group, number, offset, 1_005 + 10 * offset, log)
        if f"stored {offset}" not in lacks:
            self.ledger.store(number, log, offset)
        return self

    def read(self, group: str, number: int, offset: int, at_ms: int, log: int = LOG) -> None:
        self.readers[group].note(Kind.READ, number, log, offset, at_ms)

    def take(self, group: str, at_ms: int = 0) -> None:
        self.readers[group].note(Kind.TAKEN, log=LOG, at_ms=at_ms)

    def transaction(self, first: int, end: Kind | None) -> None:
        self.writer.note(Kind.BEGUN, offset=first)
        if end is not None:
            self.writer.note(end)

    def again(self, at_ms: int, group: str = "a", sequence: int = 3) -> None:
        """A group reads a record again: some member's fault excuses that."""
        self.more["faults"] = [Fault(900, 2_000, "reader-kill", "a-1", group)]
        self.take(group, 2_000)
        self.read(group, at(sequence), sequence, at_ms)

    def verdict(self, **more: Any) -> Verdict:
        return judge(self.ledger, Evidence(**{**self.more, **more}))


def deleted(*lacks: str, below: int = 4, at_ms: int = 1_040, how: str = "deleted", until_ms: int = 1 << 32) -> Story:
    """The records below an offset go."""
    story = Story(*lacks, *(f"stored {n}" for n in range(below) if how == "deleted"))
    story.more["gone"] = [Gone(at_ms, LOG, below, how, until_ms)]
    if how == "deleted":
        story.more["starts"] = {LOG: below}
    return story


def read_after(at_ms: int, **gone: Any) -> Story:
    story = deleted(**gone)
    story.again(at_ms)
    return story


def shrunk(*shrinks: Shrink) -> Story:
    story = Story()
    story.more["shrinks"] = shrinks
    return story


def with_more(number: int, offset: int, log: int = LOG, *lacks: str, **writer: Any) -> Story:
    story = Story(**writer)
    story.add(number, offset, log, lacks=lacks)
    return story


def found_instead(number: int, offset: int) -> Story:
    """A record that nobody was told of lies where another one was."""
    return with_more(number, offset, LOG, f"ack {offset}", f"a {offset}", f"b {offset}")


def acknowledged(number: int, offset: int, *lacks: str) -> Story:
    """An acknowledgement that nothing else has seen."""
    story = Story(*lacks)
    story.writer.note(Kind.ACKED, number, LOG, offset)
    return story


def between_topics(first: int, then: int, *ordered: str) -> Story:
    """Two records of key 0, each in a topic of its own, read in this order by both groups."""
    story = Story(records=0, ordered=ordered)
    story.add(at(first), 0, LOG)
    story.add(at(then), 0, NEW)
    return story


def routed(key: int, partition: int, *, aware: bool = True, upper: int = 5, **more: Any) -> Story:
    """One record under a view that calls two partitions writable."""
    story = Story(records=0, aware=aware)
    story.writer.note(Kind.VIEW, pack_bounds(5, upper))
    story.add(at(0, key=key), 0, log_of("old", partition))
    story.more |= {"writable": {5: [0, 1]}, **more}
    return story


def killed(*transactions: tuple[int, Kind | None], lacks: Iterable[str] = (), kills: Iterable[str] = ("w",)) -> Story:
    story = Story(*lacks, transactional=True)
    for each in transactions:
        story.transaction(*each)
    story.more["faults"] = [Fault(1_060, 1_070, "writer-kill", name) for name in kills]
    return story


def twice(*faults: Fault, commit_failed_ms: int | None = None, taken_ms: int = 0, held: bool = False) -> Story:
    """Group a reads the last record again."""
    story = Story()
    if commit_failed_ms is not None:
        story.readers["a"].note(Kind.COMMIT_FAILED, offset=commit_failed_ms - 100, at_ms=commit_failed_ms)
    if not held:
        story.take("a", taken_ms)
    story.read("a", at(5), 5, 9_000 if not taken_ms else 19_000)
    story.more["faults"] = faults
    return story


def ended(story: Story, **more: Any) -> Story:
    story.more |= more
    return story


def ended_well(story: Story) -> Story:
    story.writer.note(Kind.ENDED)
    return story


NOT_MINE = (
    Fault(9_001, 9_500, "broker-kill", "broker-1", "*"),
    Fault(2_000, 2_001, "consumer-kill", "b-1", "b"),
    Fault(2_000, 2_001, "producer-kill", "w", None),
)
WRONG: list[tuple[str, Callable[[], Story], dict[str, int]]] = [
    ("deleted and not read", lambda: deleted("b 2", at_ms=9_000), {"lost": 1, "deleted-unread": 1}),
    ("in a deleted topic, not read", lambda: ended(Story("b 2", "stored 2"), starts={}), {"lost": 1}),
    ("acknowledged without a trace", lambda: acknowledged(at(6), 6), {"lost": 1, "vanished": 1}),
    ("deleted without a trace", lambda: deleted("a 2", "b 2", at_ms=9_000), {"lost": 1}),
    ("acknowledged somewhere without a trace", lambda: acknowledged(at(6), UNPLACED), {"lost": 1}),
    ("vanished when all had read it", lambda: Story("stored 2"), {"vanished": 1}),
    ("not read", lambda: Story("b 5"), {"unread": 1}),
    ("deleted before it was read", lambda: deleted(at_ms=1_030), {"deleted-unread": 2}),  # one record, two groups
    ("none before it was read", lambda: deleted(at_ms=1_030, how="None"), {"deleted-unread": 2}),
    ("read after its deletion", lambda: read_after(1_041 + PREFETCH_MS), {"read-deleted": 1}),
    ("read while none", lambda: read_after(59_999, how="None", until_ms=60_000), {"read-deleted": 1}),
    (
        "shrinks that left records",
        lambda: shrunk(
            Shrink(2_000, 4, {0: 6, 1: 9}, {0: 6, 1: 8}, {0: 6, 1: 7}, {1: 0}),  # 1 starts below a commit
            Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 1}),  # and here a record is left
        ),
        {"not-deleted": 2},
    ),
    ("a place with two records", lambda: found_instead(at(7), 5), {"overwritten": 1}),
    (
        "an acknowledgement of a place with another",
        lambda: acknowledged(at(7), 5),
        {"overwritten": 1, "lost": 1, "vanished": 1},
    ),
    ("twice in a log", lambda: with_more(at(2), 6, LOG, "ack 6"), {"doubled": 3}),  # two readings, and the contents
    ("read elsewhere than acknowledged", lambda: with_more(at(5), 0, NEW, "ack 0", "b 0", "stored 0"), {"doubled": 1}),
    ("a key out of order in a log", lambda: with_more(at(9), 6).add(at(6), 7), {"order": 1}),
    ("a key out of order across topics", lambda: between_topics(3, 0, "a"), {"order": 1}),
    ("a key in another partition than its hash", lambda: routed(0, 1 - OF_TWO[0]), {"misplaced": 1}),
    ("a retired partition", lambda: routed(0, OF_TWO[0], writable={5: [1 - OF_TWO[0]]}), {"misplaced": 1}),
    (
        "another place in a replaced topic",
        lambda: routed(1, 1 - OF_TWO[1], aware=False, counts={"old": 2}),
        {"misplaced": 1},
    ),
    ("behind the seal", lambda: ended(Story(), seals={LOG: 4}), {"after-seal": 2}),
    ("aborted and read", lambda: killed((0, Kind.COMMITTED), (3, Kind.ABORTED)), {"aborted-read": 3}),
    ("no writer's", lambda: with_more(at(0, run=2), 6, LOG, "ack 6"), {"stranger": 1}),
    ("the same held offset again", lambda: twice(held=True), {"read-backwards": 1, "unexplained-duplicate": 1}),
    ("again for faults of others", lambda: twice(*NOT_MINE), {"unexplained-duplicate": 1}),
    ("again for an earlier failed commit", lambda: twice(commit_failed_ms=1_054), {"unexplained-duplicate": 1}),
    ("again in other hands without a fault", lambda: twice(taken_ms=2_000), {"unexplained-duplicate": 1}),
    ("unknown though it ended well", lambda: ended_well(killed((0, None))), {"unsettled": 1}),
    ("two unknown transactions", lambda: killed((0, None), (4, None), kills="ww"), {"unsettled": 1}),
    ("unknown though unharmed", lambda: killed((0, None), kills="v"), {"unsettled": 1}),
    (
        "half of a transaction",
        lambda: killed((0, None), lacks=("a 4", "b 4", "stored 4")),
        {"lost": 1, "vanished": 1},
    ),
    ("a deleted topic is back", lambda: ended(Story(), back=["old"]), {"back": 1}),
    ("no contents", lambda: ended(Story(), starts=None), {"unjudged": 1}),
]


@pytest.mark.parametrize(("tell", "violations"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_a_wrong_run_is_found_out(tell: Callable[[], Story], violations: dict[str, int]) -> None:
    verdict = tell().verdict()
    assert dict(verdict.violations) == violations
    assert not verdict.ok
    assert set(verdict.examples) == set(violations)


def test_every_kind_of_violation_has_a_wrong_run() -> None:
    assert {kind for *_, violations in WRONG for kind in violations} == set(VIOLATIONS)


OWN = Fault(900, 1_056, "consumer-kill", "a-2", "a")
BROKER = Fault(1, 2, "broker-kill", "broker-1", "*")
RIGHT: list[tuple[str, Callable[[], Story]]] = [
    ("all read", Story),
    ("fetched before its deletion", lambda: read_after(1_040 + PREFETCH_MS)),
    ("fetched before none", lambda: read_after(1_040 + PREFETCH_MS, how="None")),
    ("readable again", lambda: read_after(30_001, how="None", until_ms=30_000)),
    ("none to a plain group", lambda: ended(read_after(59_999, how="None", until_ms=60_000), plain=["a"])),
    ("acknowledged without an offset", lambda: acknowledged(at(3), UNPLACED, "ack 3")),
    ("in its place", lambda: routed(0, OF_TWO[0])),
    ("the view changed meanwhile", lambda: routed(0, 1 - OF_TWO[0], upper=6)),
    ("a writer that knows no view", lambda: routed(0, 1 - OF_TWO[0], aware=False)),
    ("twice by a writer that promises nothing", lambda: with_more(at(2), 6, LOG, "ack 6", once=False)),
    ("in order across topics", lambda: between_topics(0, 3, *GROUPS)),
    ("groups that keep no order across partitions", lambda: between_topics(3, 0)),
    ("below the seal", lambda: ended(Story(), seals={LOG: 6})),
    ("a name that two topics had", lambda: ended(found_instead(at(7), 5), reused=[LOG])),
    ("aborted and not read", lambda: killed((0, Kind.COMMITTED), (6, Kind.ABORTED))),
    ("again after a fault of the group", lambda: twice(OWN)),
    (
        "again after a long fault around a short one",
        lambda: twice(OWN._replace(to_ms=8_000), OWN._replace(from_ms=950, to_ms=1_000)),
    ),
    ("again after a failed commit", lambda: twice(commit_failed_ms=2_000)),
    ("again in other hands after a broker's fault", lambda: twice(BROKER, taken_ms=2 + SETTLE_MS)),
    ("a group that had not to read", lambda: ended(Story("b 5"), groups=["a"])),
]


@pytest.mark.parametrize("tell", [each[1] for each in RIGHT], ids=[each[0] for each in RIGHT])
def test_an_unusual_run_is_right(tell: Callable[[], Story]) -> None:
    assert tell().verdict().violations == {}


def test_the_figures_of_a_run() -> None:
    story = Story()
    assert (story.ledger.acknowledged, story.ledger.unread()) == (6, {"a": 0, "b": 0})
    story.again(19_000)
    verdict = story.verdict()
    assert (verdict.acknowledged, verdict.read, verdict.duplicates) == (6, {"a": 6, "b": 6}, {"a": 1, "b": 0})
    assert (verdict.deleted, verdict.unsettled, verdict.as_json()["lost"]) == (0, 0, 0)
    assert deleted(at_ms=1_036).verdict().deleted == 4


def test_a_ledger_tells_what_a_group_has_read_so_far() -> None:
    story = Story("b 2", "b 5")
    story.add(at(6), 0, NEW)
    assert story.ledger.unread() == {"a": 0, "b": 2}
    assert story.ledger.unread(["a"]) == {"a": 0}
    assert story.ledger.distinct == {"a": 7, "b": 5}
    assert {record.sequence for record in story.ledger.read_by("b")} == {0, 1, 3, 4, 6}
    assert story.ledger.read_by("b", "new") == {Identity.of(at(6)): (1_005, 1_005)}
    assert len(story.ledger.committed()) == 7


def test_a_shrink_is_complete_when_kafka_says_so() -> None:
    story = shrunk(
        Shrink(2_000, 4, {0: 6, 1: 0}, {0: 6, 1: 0}, {0: 7, 1: 0}, {}),
        Shrink(3_000, 4, {0: 6}, {0: 5}, {0: 5}, {0: 0}),  # a control record is left
        Shrink(4_000, 4, {0: 6}, {0: 6}, {}, {}),
        Shrink(5_000, 4, {}, {}, {}, {}),
    )
    verdict = story.verdict()
    assert verdict.ok
    assert verdict.shrinks == {"confirmed": 2, "unconfirmed": 2}


def test_a_transaction_of_unknown_end_of_which_nothing_is_seen_is_unsettled() -> None:
    lacks = [f"{what} {n}" for what in ("a", "b", "stored") for n in (3, 4, 5)]
    story = killed((0, Kind.COMMITTED), (3, None), lacks=lacks)
    assert story.ledger.unread() == {"a": 0, "b": 0}
    verdict = story.verdict()
    assert verdict.ok
    assert (verdict.acknowledged, verdict.unsettled) == (3, 3)
    assert (verdict.unsettled_transactions, verdict.most_unsettled) == (1, 1)
    assert verdict.transactions == {"committed": 1, "unknown": 1}


def test_the_records_of_a_run_are_judged_and_dropped_in_parts() -> None:
    story = Story("b 2", "stored 2")
    later = story.ledger.writer(2, "w")
    later.note(Kind.ACKED, at(0, run=2), LOG, 6)
    part = story.ledger.split(2)
    assert judge(part, Evidence()).violations == {"lost": 1}
    story.read("b", at(2), 2, AFTER_ALL_MS)  # too late: its topic is gone
    assert (story.ledger.acknowledged, story.ledger.unread(), [*story.ledger.runs]) == (1, {"a": 1, "b": 1}, [2])


def test_a_journal_keeps_what_a_killed_process_has_noted(tmp_path: Path) -> None:
    path = tmp_path / "w.journal"
    journal = Journal(path, lambda: 7)
    journal.note(Kind.ACKED, at(0), LOG, 0)
    journal.note(Kind.REFUSED, at(1), LOG, 10)
    journal.flush()
    journal.note(Kind.ACKED, at(2), LOG, 2)
    with path.open("ab") as file:
        file.write(b"torn")
    assert list(read_journal(path)) == [(at(0), LOG, 0, 7, Kind.ACKED), (at(1), LOG, 10, 7, Kind.REFUSED)]
    ledger = Ledger(["a"])
    replay(path, ledger.writer(1, "w"))
    assert (ledger.acknowledged, ledger.runs[1].refused) == (1, {10: 1})
    journal.close()

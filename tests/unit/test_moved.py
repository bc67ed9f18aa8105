"""Which groups have an open gate to the new topic, as a table of stories, and when that is looked at again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.lifecycle.drain import required_of
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt
from modeaware.lifecycle.moved import (
    Decision,
    Limits,
    Seen,
    append_due_ms,
    broken_seal_alarm,
    check_due_ms,
    decide,
    groups_that_matter,
    observe,
)
from modeaware.lifecycle.progress import progress_of
from modeaware.modelog.group_rules import CLOSED, WAIVE, GroupRule
from modeaware.modelog.moved import MovedRecord
from modeaware.modelog.records import MAX_RECORD_BYTES, Replacement, RetiredPartition, TopicRecord
from modeaware.notes import BUSY, GIVEN, OPENED, READ, Note, kind_of
from modeaware.topic_view import NONE_MOVED, Moved
from tests.support.lifecycle import NOW_MS, RO, TOPIC, TOPIC_ID, facts, group, log, rule
from tests.support.stories import Steps, Story

UNNOTED_MS, GATE_TIMEOUT_MS = 300_000, 10_000
LIMITS = Limits(UNNOTED_MS, GATE_TIMEOUT_MS)
READ_NOTE, GIVEN_NOTE, BUSY_NOTE = Note.READ, Note.GIVEN, Note.BUSY
FOREIGN, OPENED_NOTE = Note.FOREIGN, Note.OPENED


class Topic:
    """An old topic of two partitions that end at 10, one group, and the controller that looks at them."""

    def __init__(self, *, closed: bool = False, required: tuple[str, ...] = ("g",)) -> None:
        self.rules: list[GroupRule] = [rule(CLOSED)] if closed else []
        self.record = TopicRecord(
            TOPIC,
            TOPIC_ID,
            1,
            1,
            (RO, RO),
            retired={p: RetiredPartition(seal_offset=11, read_up_to=10) for p in (0, 1)},
            required_groups=required,
            replacement=Replacement("orders-v2", 2, 0, new_topic_id="id-2", announced_ms=1, switched_ms=2),
        )
        self.logs = {0: log(11), 1: log(11)}
        self.groups: dict[str, GroupFacts] = {}
        self.on_new: dict[str, GroupFacts] = {}
        self.doubt: GroupsDoubt | None = None
        self.unclear: dict[str, GroupsDoubt] = {}
        self.held: MovedRecord | None = None
        self.seen: Seen | None = None
        self.decision = Decision()
        self.at_ms = 0
        self.further = NONE_MOVED

    # What happens

    def commits(self, *offsets: int, note: Note = Note.NONE, of: str = "g", **more: Any) -> None:
        """The group has members; a partition without an offset has no commit."""
        committed = dict(enumerate(offsets))
        notes = dict.fromkeys(committed, note) if note is not Note.NONE else {}
        defaults = {"members": True, "owned": frozenset({0, 1})}
        self.groups[of] = group(committed, notes=notes, **{**defaults, **more})

    def notes(self, partition: int, note: Note) -> None:
        self.groups["g"] = replace(self.groups["g"], notes={**self.groups["g"].notes, partition: note})

    def has(self, **changes: Any) -> None:
        self.groups["g"] = replace(self.groups["g"], **changes)

    def is_deleted(self) -> None:
        self.groups.pop("g", None)

    def commits_on_new(self, *offsets: int, note: Note = Note.NONE, of: str = "g") -> None:
        committed = dict(enumerate(offsets))
        self.on_new[of] = group(committed, notes=dict.fromkeys(committed, note))

    def reads_a_later_topic(self) -> None:
        self.further = Moved(groups=frozenset({"g"}))

    def every_group_reads_a_later_topic(self) -> None:
        self.further = Moved(all=True)

    def reads_no_later_topic(self) -> None:
        self.further = NONE_MOVED

    def waived(self) -> None:
        self.rules.append(rule(WAIVE, "g"))

    def emptied(self, *partitions: int) -> None:
        self.logs |= {p: log(11, 10) for p in partitions}

    def silent(self, partition: int) -> None:
        del self.logs[partition]

    def released(self) -> None:
        self.record = replace(self.record, replacement=replace(self.record.replacing, released_ms=3))

    def breaks(self) -> None:
        self.record = replace(self.record, retired={**self.record.retired, 0: RetiredPartition()})

    def in_doubt(self, *groups: str) -> None:
        why = GroupsDoubt("a broker is silent")
        self.doubt, self.unclear = (None if groups else why), dict.fromkeys(groups, why)

    def look(self, after_ms: int = 100) -> None:
        self.at_ms += after_ms
        new_topic = replace(facts(2, {0: log(50), 1: log(50)}, self.on_new), topic_id="id-2")
        doubts = {"groups_doubt": self.doubt, "unclear_groups": self.unclear}
        found = facts(2, None, self.groups, partitions=self.logs, new_topic=new_topic, **doubts)
        requirement = required_of(self.record.required_groups, found, self.rules, (), NOW_MS)
        names = {*groups_that_matter(self.record, found, requirement), *(self.held.groups if self.held else ())}
        self.seen = observe(self.seen, found, sorted(names), range(2), self.at_ms)
        self.decision = decide(self.record, self.held, found, requirement, self.seen, LIMITS, self.at_ms, self.further)
        if self.decision.record is not None:
            self.held = self.decision.record.stamped(1, self.at_ms)

    # What is seen

    def opens(self, *groups: str, every: bool = False) -> None:
        held = self.held or MovedRecord(TOPIC_ID)
        assert (held.groups, held.all) == (groups, every)

    def waits(self, *, due_in_ms: int | None = None, **partitions: list[int]) -> None:
        """What the group waits for -> on which partitions; and when that is over by itself."""
        (verdict,) = self.decision.verdicts.values()
        found: dict[str, list[int]] = {}
        for p, each in verdict.partitions.items():
            if each.wait is not None:
                found.setdefault(each.wait.value, []).append(p)
        assert found == partitions
        assert self.decision.due_ms == (None if due_in_ms is None else self.at_ms + due_in_ms)

    def warns(self, *words: str) -> None:
        assert len(self.decision.alarms) == len(words), self.decision.alarms
        for alarm, word in zip(self.decision.alarms, words, strict=True):
            assert word in alarm


step = Steps()
STORIES = {
    "a group that has read and said so": Story(
        [step.commits(9, 10, note=READ_NOTE), step.look(), step.opens(), step.waits(unread=[0])],
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.opens("g"), step.warns()],
    ),
    "metadata of the application's own say as much": Story(
        [step.commits(10, 11, note=FOREIGN), step.look(), step.opens("g"), step.warns()],
    ),
    "the application works on the last record": Story(
        [step.commits(10, 10, note=READ_NOTE), step.notes(1, BUSY_NOTE), step.look(), step.opens()],
        [step.look(10 * UNNOTED_MS), step.opens(), step.waits(busy=[1])],
        [step.notes(1, READ_NOTE), step.look(), step.opens("g")],
    ),
    "a commit of a stock client proves nothing before the longest poll interval is over": Story(
        [step.commits(10, 10, note=READ_NOTE), step.notes(0, Note.NONE), step.look(), step.opens()],
        [step.look(UNNOTED_MS - 1), step.opens(), step.waits(due_in_ms=1, unnoted=[0])],
        [step.look(1), step.opens("g"), step.warns("no client has confirmed that all records were handled")],
    ),
    "that time begins anew with another commit": Story(
        [step.commits(10, 10), step.look(), step.look(UNNOTED_MS - 1), step.opens()],
        [step.commits(10, 11), step.look(1), step.opens(), step.waits(due_in_ms=UNNOTED_MS, unnoted=[1])],
    ),
    "a batch committer that has been given all": Story(
        [step.commits(10, 7, note=GIVEN_NOTE), step.notes(0, READ_NOTE), step.look(), step.opens()],
        [step.look(GATE_TIMEOUT_MS - 1), step.opens(), step.waits(due_in_ms=1, given=[1])],
        [
            step.look(1),
            step.opens("g"),
            step.warns("records of partitions 1 are delivered, but the application has not committed 3 of them"),
        ],
    ),
    "a batch committer that commits meanwhile has more time": Story(
        [step.commits(10, 7, note=GIVEN_NOTE), step.notes(0, READ_NOTE), step.look()],
        [
            step.commits(10, 9, note=GIVEN_NOTE),
            step.notes(0, READ_NOTE),
            step.look(GATE_TIMEOUT_MS),
            step.opens(),
        ],
    ),
    "given counts short of the end alone": Story(
        [step.commits(10, 10, note=GIVEN_NOTE), step.look(), step.look(GATE_TIMEOUT_MS), step.opens()],
        [step.waits(due_in_ms=UNNOTED_MS - GATE_TIMEOUT_MS, unnoted=[0, 1])],
    ),
    "a note of an earlier end proves nothing": Story(
        [
            step.commits(9, 9, note=READ_NOTE),
            step.look(),
            step.look(UNNOTED_MS),
            step.opens(),
            step.waits(unread=[0, 1]),
        ],
    ),
    "a group without members, in two looks": Story(
        [step.commits(10, 10, members=False), step.look(), step.opens()],
        [step.look(), step.opens("g"), step.warns()],
    ),
    "not where the offset is another one by then": Story(
        [
            step.commits(9, 10, members=False),
            step.look(),
            step.commits(10, 10, members=False),
            step.look(),
            step.opens(),
        ],
        [step.look(), step.opens("g")],
    ),
    "not where a member came between": Story(
        [step.commits(10, 10, members=False), step.look(), step.commits(10, 10), step.look(), step.opens()],
        [step.commits(10, 10, members=False), step.look(), step.opens(), step.look(), step.opens("g")],
    ),
    "a group that has stopped before the end has to run": Story(
        [step.commits(10, 9, members=False), step.look(), step.look(UNNOTED_MS), step.look(), step.opens()],
        [step.waits(unread=[1])],
    ),
    "a partition that no member owns": Story(
        [step.commits(10, 4, note=READ_NOTE, owned=frozenset({0})), step.look(), step.opens()],
        [step.look(UNNOTED_MS - 1), step.opens(), step.waits(due_in_ms=1, unread=[1])],
        [step.look(1), step.opens("g"), step.warns("no member owns partitions 1, which have 6 unread records")],
    ),
    "a rebalance shows neither, an owner ends it": Story(
        [step.commits(10, 4, note=READ_NOTE, owned=frozenset({0})), step.look()],
        [step.has(owned=None), step.look(UNNOTED_MS - 1), step.opens()],
        [step.has(owned=frozenset({0, 1})), step.look(1), step.opens(), step.waits(unread=[1])],
        [step.has(owned=frozenset({0})), step.look(1), step.waits(due_in_ms=UNNOTED_MS, unread=[1])],
    ),
    "what retention has taken need not be read": Story(
        [step.emptied(0, 1), step.look(), step.opens("g"), step.warns()],
    ),
    "a leader that does not answer proves nothing, a commit does": Story(
        [
            step.silent(1),
            step.commits(10, 9, note=READ_NOTE),
            step.look(),
            step.opens(),
            step.waits(unread=[1]),
        ],
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.opens("g")],
    ),
    "a commit on a part of the log that was truncated proves nothing": Story(
        [step.commits(10, 10, note=READ_NOTE, truncated=frozenset({1})), step.look(), step.opens()],
        [step.waits(invalid=[1])],
    ),
    "a commit beyond the end of the log proves nothing": Story(
        [step.commits(10, 12, note=READ_NOTE), step.look(), step.opens(), step.waits(invalid=[1])],
        [step.commits(10, 12, members=False), step.look(), step.look(), step.look(UNNOTED_MS), step.opens()],
        [step.commits(10, 12, owned=frozenset({0})), step.look(), step.look(UNNOTED_MS), step.opens()],
        [step.commits(10, 11, members=False), step.look(), step.look(), step.opens("g"), step.warns()],
    ),
    "nor does it hold up a group that is waived": Story(
        [step.commits(10, 12, note=READ_NOTE), step.waived(), step.look(), step.opens("g")],
        [step.warns("the group is waived on partitions 1, which have 0 unread records")],
    ),
    "what retention has taken need not be read, whatever was committed": Story(
        [step.emptied(0, 1), step.commits(10, 12), step.look(), step.opens("g"), step.warns()],
    ),
    "a waiver": Story(
        [step.commits(3), step.look(), step.opens(), step.waived(), step.look(), step.opens("g")],
        [step.warns("the group is waived on partitions 0-1, which have 17 unread records")],
    ),
    "our metadata on the new topic prove that the gate was open before": Story(
        [step.commits(), step.commits_on_new(0, note=OPENED_NOTE), step.look(), step.opens()],
        [step.commits_on_new(0, 0), step.look(), step.opens()],
        [step.commits_on_new(0, 0, note=OPENED_NOTE), step.look(), step.opens("g"), step.warns()],
    ),
    "and so does a commit behind its start": Story(
        [step.commits(), step.commits_on_new(0, 7), step.look(), step.opens("g"), step.warns()],
    ),
    "a seal that breaks takes no group out, and lets none through": Story(
        [
            step.commits(10, 10, note=READ_NOTE),
            step.look(),
            step.opens("g"),
            step.breaks(),
            step.look(),
            step.opens("g"),
        ],
        [step.commits(10, 10, note=READ_NOTE, of="late"), step.look(), step.opens("g")],
    ),
    "a group that is deleted begins anew": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.opens("g")],
        [
            step.is_deleted(),
            step.look(),
            step.opens("g"),
            step.look(),
            step.opens(),
            step.warns("no members, and its offsets on"),
        ],
    ),
    "not while the gate of a later topic is open for it: its offsets have expired": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.reads_a_later_topic(), step.is_deleted()],
        [step.look(), step.look(), step.look(), step.opens("g"), step.warns()],
        [step.every_group_reads_a_later_topic(), step.look(), step.opens("g")],
        [step.reads_no_later_topic(), step.look(), step.opens()],
    ),
    "nor where offsets on a part of the partitions have expired": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.reads_a_later_topic()],
        [step.commits(10, members=False), step.look(), step.look(), step.look(), step.opens("g")],
    ),
    "a group that is set back on both reads them again, whatever it has read of a later topic": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.reads_a_later_topic()],
        [step.commits(0, 0, members=False), step.commits_on_new(0, 0), step.look(), step.look(), step.opens()],
    ),
    "not while it may only be hidden": Story(
        [
            step.commits(10, 10, note=READ_NOTE),
            step.look(),
            step.opens("g"),
            step.is_deleted(),
            step.in_doubt(),
        ],
        [step.look(), step.look(), step.look(), step.opens("g")],
    ),
    "nor where it has offsets on the new topic": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.is_deleted(), step.commits_on_new(3, 4)],
        [step.look(), step.look(), step.look(), step.opens("g")],
    ),
    "nor a group that has read and stopped before it had any": Story(
        [
            step.commits(10, 10, members=False),
            step.look(),
            step.look(),
            step.opens("g"),
            step.look(),
            step.opens("g"),
        ],
    ),
    "a group that is set back on both begins anew, one that is on the old topic alone does not": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.opens("g"), step.commits_on_new(5, 5)],
        [step.commits(0, 0, members=False), step.look(), step.look(), step.look(), step.opens("g")],
        [step.commits_on_new(0, 0), step.look(), step.opens()],
    ),
    "and stays closed where the note that its gate was open is left on the new topic": Story(
        [step.commits(10, 10, note=READ_NOTE), step.look(), step.opens("g")],
        [step.commits(0, 0, members=False), step.commits_on_new(0, 0, note=OPENED_NOTE), step.look(), step.look()],
        [step.opens(), step.look(), step.opens(), step.look(), step.opens()],
    ),
    "a closed list of groups": Story(
        [step.commits(10, 9, note=READ_NOTE), step.look(), step.opens(), step.released(), step.look()],
        [step.opens(every=True)],
        closed=True,
    ),
    "the release opens nothing where the list is open": Story(
        [step.commits(10, 9, note=READ_NOTE), step.released(), step.look(), step.opens()],
    ),
    "a group whose offsets cannot be read": Story(
        [step.commits(10, 9, members=False), step.look(), step.in_doubt("g"), step.is_deleted(), step.look()],
        [step.opens(), step.waits(unknown=[0, 1])],
    ),
    "nothing counts by the time alone while the group's offsets cannot be read": Story(
        [step.commits(10, 10), step.look(), step.in_doubt("g"), step.look(UNNOTED_MS)],
        [step.opens(), step.waits(unknown=[0, 1]), step.in_doubt("other"), step.look(), step.opens("g")],
    ),
    "late groups count as well": Story(
        [step.commits(10, 10, note=READ_NOTE), step.commits(10, 10, note=READ_NOTE, of="late"), step.look()],
        [step.opens("g", "late")],
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_gates_open_and_exceptions_are_logged(story: Story) -> None:
    story.run(Topic)


class TestNamesBeyondTheRoomOfTheRecord:
    SWITCH = tuple(f"{number:04}-{'n' * 250}" for number in range(1_000))
    LATE = tuple(f"0-late-{number:04}-{'n' * 250}" for number in range(4_000))

    def topic(self) -> Topic:
        """All groups but the last one of the switch and the last late one have read."""
        topic = Topic(required=self.SWITCH)
        for name in (*self.LATE[:-1], *self.SWITCH[:-1]):
            topic.commits(10, 10, note=READ_NOTE, of=name)
        topic.commits(10, 9, of=self.LATE[-1])
        assert len(MovedRecord(TOPIC_ID, (*self.SWITCH, *self.LATE)).to_json()) > MAX_RECORD_BYTES
        return topic

    def test_as_many_as_fit_have_an_open_gate_those_of_the_switch_first(self) -> None:
        topic = self.topic()
        topic.look()
        held = topic.held or MovedRecord("")
        assert set(self.SWITCH[:-1]) < set(held.groups)
        assert MAX_RECORD_BYTES - 600 < len(held.to_json()) < MAX_RECORD_BYTES - 250, "room is kept for the last"
        assert self.LATE[-2] in topic.decision.verdicts
        topic.look()
        topic.opens(*held.groups)
        assert topic.decision.record is None

    def test_nothing_is_said_of_a_group_that_has_a_closed_gate(self) -> None:
        topic = self.topic()
        topic.commits(10, 7, note=GIVEN_NOTE, of=self.LATE[-2])
        topic.look()
        topic.look(GATE_TIMEOUT_MS)
        topic.warns()

    def test_group_that_begins_anew_is_taken_out_meanwhile(self) -> None:
        topic = self.topic()
        topic.look()
        gone = self.LATE[0]
        del topic.groups[gone]
        topic.look()
        topic.look()
        assert gone not in (topic.held or MovedRecord("")).groups
        topic.warns("no members, and its offsets on")

    def test_all_have_an_open_gate_once_no_required_group_is_missing(self) -> None:
        topic = self.topic()
        topic.look()
        topic.commits(10, 10, note=READ_NOTE, of=self.SWITCH[-1])
        topic.look()
        assert self.SWITCH[-1] in (topic.held or MovedRecord("")).groups
        topic.commits(10, 10, note=READ_NOTE, of=self.LATE[-1])
        topic.look()
        topic.opens(every=True)
        topic.warns("gate opened for every group from 'orders' to 'orders-v2', and for later groups")
        assert topic.decision.verdicts == {}


def test_reports_say_what_a_group_waits_for() -> None:
    topic = Topic(required=("a", "b", "c", "d", "e", "f"))
    topic.commits(10, 8, note=GIVEN_NOTE, of="a")
    topic.commits(2, 3, of="b")
    topic.commits(10, 10, of="c")
    topic.commits(10, 10, note=BUSY_NOTE, of="d")
    topic.commits(10, 10, note=READ_NOTE, of="e")
    topic.commits(10, 10, note=READ_NOTE, of="f")
    found = facts(2, None, topic.groups, partitions=topic.logs, new_topic=facts(2))
    progress = progress_of(topic.record, found, required_of((), found, (), (), 0), Moved(groups=frozenset({"f"})))
    assert {name: group.gate for name, group in progress.items()} == {
        "a": "gate closed: all records of partitions 1 are delivered, but the application has not committed 2 of them; "
        "all records of partitions 0 are committed, but no client has confirmed that the records were handled",
        "b": "gate closed: it has 15 unread records in partitions 0-1",
        "c": "gate closed: all records of partitions 0-1 are committed, but no client has confirmed that the "
        "records were handled",
        "d": "gate closed: the application has paused partitions 0-1, or has sought back in them",
        "e": "gate closed: it has read all records; the gate is about to open",
        "f": None,
    }
    assert [name for name, group in progress.items() if group.gate_open] == ["f"]
    unknown = progress_of(topic.record, found, required_of((), found, (), (), 0))
    assert {(group.gate, group.gate_open) for group in unknown.values()} == {(None, None)}


@pytest.mark.parametrize(
    ("metadata", "note"),
    [
        (None, Note.NONE),
        ("", Note.NONE),
        ("\0", Note.NONE),
        (READ, Note.READ),
        (f"{READ}\0", Note.READ),
        (BUSY, Note.BUSY),
        (GIVEN, Note.GIVEN),
        (OPENED, Note.OPENED),
        ("mine", Note.FOREIGN),
    ],
)
def test_metadata_are_notes(metadata: str | None, note: Note) -> None:
    assert kind_of(metadata) is note


@pytest.mark.parametrize(
    ("after", "breaks"),
    [
        ({"seal_offset": 12}, False),
        ({"seal_offset": None, "stragglers": 1}, True),
        ({"seal_offset": 12, "stragglers": 1}, True),
        ({"seal_offset": 9, "truncated_to": 9}, True),
        ({"seal_offset": 9}, True),
    ],
    ids=["moved behind markers", "late records", "late records, sealed again", "truncated", "truncated once more"],
)
def test_warning_of_a_seal_that_broke_behind_an_open_gate(after: dict[str, Any], breaks: bool) -> None:
    before = Topic().record
    broken = replace(before, retired={**before.retired, 1: replace(before.retired[1], **after)})
    assert broken_seal_alarm(before, broken, None) is None
    alarm = broken_seal_alarm(before, broken, MovedRecord(TOPIC_ID, groups=("g",)))
    assert (alarm is not None and "before the seals of partitions 1 broke" in alarm) is breaks


@pytest.mark.parametrize(
    ("quiet_ms", "cost_ms", "took_ms", "due_in_ms", "expected_ms"),
    [
        (0, 0, 0, None, 100),
        (1_000, 0, 0, None, 500),
        (60_000, 0, 0, None, 10_000),
        (60_000, 0, 0, 700, 700),
        (60_000, 0, 0, -5, 100),
        (0, 40, 50, None, 400),
        (0, 0, 5_000, None, 5_000),
        (60_000, 900, 1_000, None, 10_000),
        (60_000, 1_500, 2_000, 700, 15_000),
    ],
)
def test_pace_of_looks(quiet_ms: int, cost_ms: int, took_ms: int, due_in_ms: int | None, expected_ms: int) -> None:
    at_ms = 1_000_000
    due_ms = None if due_in_ms is None else at_ms + due_in_ms
    assert check_due_ms(at_ms - quiet_ms, cost_ms, took_ms, due_ms, at_ms) == at_ms + expected_ms


@pytest.mark.parametrize(("groups", "due_ms"), [(100, 1_005), (101, 10_005)])
def test_pace_of_records(groups: int, due_ms: int) -> None:
    assert append_due_ms(5, groups) == due_ms

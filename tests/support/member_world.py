"""A member of a group over a model of everything around it: a client library, a group, brokers, a controller, and an
application. A seeded random walk; what it must not do is checked at each step, and that it comes to its end at the end.

Two libraries with their own orders of events: librdkafka (eager, incremental) keeps the pause flags of partitions over
assignments, or has forgotten them with a topic, ignores a pause of what it is not assigned, and is not ready to seek
for a while after an assignment; kafka-python has assigned partitions before the member hears of it, and waits for their
starts.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from modeaware.clients.actions import (
    Action,
    Asked,
    Assign,
    Commit,
    CommitStored,
    Committed,
    Event,
    Pause,
    Place,
    Request,
    Resume,
    Seek,
    Show,
    Start,
    Subscribe,
)
from modeaware.clients.member import Member, Traits
from modeaware.clients.partition import Committing, State
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Reader
from modeaware.modes import PartitionMode
from modeaware.notes import READ, Note, kind_of
from modeaware.topic_view import Moved, ReplacedBy, TopicView

GROUP = "g"
CHAIN = ("a", "b", "c")
RECORDS = 4
PARTITIONS = 2
LIBRARIES = {
    "librdkafka, eager": Traits(incremental=False),
    "librdkafka, incremental": Traits(incremental=True),
    "kafka-python, eager": Traits(incremental=False, keeps_pauses=False, waits_for_starts=True),
    "kafka-python, incremental": Traits(incremental=True, keeps_pauses=False, waits_for_starts=True),
}
APPLICATIONS = {
    "auto-commit": Committing(automatic=True),
    "stores what is handled": Committing(automatic=True, stores=False),
    "commits each": Committing(automatic=False),
    "commits each with metadata": Committing(automatic=False),
    "commits batches": Committing(automatic=False),
    "commits batches and when revoked": Committing(automatic=False),
    "commits batches and drops the rest when revoked": Committing(automatic=False),
    "transactions": Committing(automatic=False, transactional=True),
}
STAGES = ("plain", "announced", "switched", "sealed", "open", "released", "gone")


@dataclass
class Fetched:
    """A partition in the library.

    Attributes:
        next: the offset that is given next; None: not known.
        position: behind the last record that was given since the assignment or a seek.
        stored: what an automatic commit commits.
    """

    next: int | None = None
    position: int | None = None
    stored: int | None = None
    ready_in: int = 0


@dataclass
class World:
    """One walk."""

    seed: int
    library: str
    application: str
    paused: set[Key] = field(default_factory=set)  # in the library
    assignment: dict[Key, Fetched] = field(default_factory=dict)
    commits: dict[Key, Committed] = field(default_factory=dict)
    given: set[Key] = field(default_factory=set)  # by the group, to this member
    held: set[Key] = field(default_factory=set)  # as the application was shown it
    paused_by_application: set[Key] = field(default_factory=set)
    at_work: dict[Key, int] = field(default_factory=dict)  # the record that a worker handles, its partition paused
    in_hand: tuple[Key, int] | None = None  # given by the last poll
    handled: dict[Key, int] = field(default_factory=dict)  # offset behind the last record that was handled
    replayed: dict[Key, int] = field(default_factory=dict)  # up to where it had been handled when it was gone back in
    uncommitted: dict[Key, int] = field(default_factory=dict)
    floors: dict[Key, int] = field(default_factory=dict)  # nothing below was to be given again
    stages: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    by_timeout: set[str] = field(default_factory=set)  # opened without the whole commit
    hidden: set[Key] = field(default_factory=set)  # in mode None
    now_s: float = 0.0
    failing: float = 0.2
    subscribed: tuple[str, ...] = ()
    looked_stage: int = 0
    seen_stage: int = 0  # that the member has acted by
    pending: list[Callable[[], None]] = field(default_factory=list)  # results of commits, for the next poll
    seen: Counter[str] = field(default_factory=Counter)  # what has happened, so that a test may see that it has

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.traits = LIBRARIES[self.library]
        names = self.random.choice((("a",), ("a", "b"), ("^[abc]$",)))
        match = lambda pattern, topic: topic in pattern  # noqa: E731 - a set of letters
        self.member = Member(Reader(GROUP, (), match), self.traits, APPLICATIONS[self.application])
        self.look()
        self.member.subscribe(names, sees_revocations=self.application != "commits batches")
        self.run()

    # What is around the member

    def count(self, topic: str) -> int:
        return PARTITIONS if topic == "a" else PARTITIONS + 1

    def end(self, key: Key) -> int:
        """How many records a partition has: a new topic gets its own at the switch."""
        old = {"b": "a", "c": "b"}.get(key[0])
        return RECORDS if old is None or self.stages[old] >= STAGES.index("switched") else 0

    def views(self) -> dict[str, TopicView]:
        found = {}
        for topic, new in (("a", "b"), ("b", "c")):
            stage = self.stages[topic]
            modes = [PartitionMode.READ_WRITE if stage < 2 else PartitionMode.READ_ONLY] * self.count(topic)
            for each in range(self.count(topic)):
                if (topic, each) in self.hidden and stage < 2:
                    modes[each] = PartitionMode.NONE
            sealed = {p: self.end((topic, p)) for p in range(self.count(topic))} if stage >= 3 else {}
            new_topic = ReplacedBy(
                new, f"id-{new}", self.count(new), stage >= 2, stage >= 5, stage >= 6, sealed, frozenset({GROUP}),
                moved=Moved(groups=frozenset({GROUP} if stage >= 4 else ())),
            )  # fmt: skip
            view = TopicView(topic, f"id-{topic}", (1, stage), tuple(modes), replaced_by=new_topic if stage else None)
            if stage or self.hidden:
                found[topic] = view
        return found

    def look(self) -> None:
        self.looked_stage = self.stages["a"]
        self.member.viewed(self.views())

    def control(self, *, is_late: bool = False) -> None:
        """The controller's next step, where it is due."""
        for topic in ("a", "b"):
            stage = self.stages[topic]
            if topic == "b" and self.stages["a"] < 4:
                continue
            if stage == 1 and topic == "a" and self.seen_stage < 1:
                continue  # it waits until clients hold the new topic back
            if stage == 3 and not self.is_through(topic):
                continue
            if stage == 5 and any(self.commits.get((topic, p)) is None for p in range(self.count(topic))):
                continue
            if stage == 4 and not is_late and self.random.random() < 0.8:
                continue
            if stage < 6:
                self.stages[topic] += 1
                if self.random.random() < 0.5 or is_late:
                    self.look()
                return

    def is_through(self, topic: str) -> bool:
        """The rule of the controller, without its delays: :mod:`modeaware.lifecycle`."""
        is_given = False
        for each in range(self.count(topic)):
            end, at = self.end((topic, each)), self.commits.get((topic, each))
            if at is None:
                return False
            note = kind_of(at.metadata)
            if at.offset >= end and note in (Note.READ, Note.FOREIGN):
                continue
            if at.offset < end and note is Note.GIVEN:
                is_given = True
            else:
                return False
        if is_given:
            self.by_timeout.add(topic)
        return True

    def rebalance(self) -> None:
        """The group gives this member other partitions; those of the others are read by members that say so."""
        topics = [each for each in self.subscribed if not each.startswith("^")]
        if len(topics) < len(self.subscribed):
            there = [t for t in CHAIN if t == "a" or self.stages[{"b": "a", "c": "b"}[t]] >= 1]
            topics = list(dict.fromkeys([*topics, *there]))
        topics = [topic for topic in topics if self.stages.get(topic, 0) < 6]
        every = [(topic, each) for topic in sorted(topics) for each in range(self.count(topic))]
        now = {key for key in every if self.random.random() < 0.7}
        if not self.failing and self.random.random() < 0.5:
            now = set(every)  # no other is there
        if self.traits.incremental:
            gone, new = self.given - now, now - self.given
        else:
            gone, new = set(self.given), now
        self.revoke(gone)
        for key in every:  # what others have, they read
            if key not in now and (key[0] == "a" or self.stages["a"] >= 4):
                self.others_read(key)
        self.given = now
        if not self.traits.keeps_pauses:
            for key in new:
                self.assignment[key] = Fetched()
                self.paused.discard(key)
                self.paused_by_application.discard(key)
        self.look()  # the log is read to its end first
        self.member.assigned(new)
        self.run(rebalancing=True)
        assert not self.traits.keeps_pauses or self.assignment.keys() == self.given, (
            "the library has another assignment"
        )

    def revoke(self, gone: set[Key]) -> None:
        if not gone and self.traits.incremental:
            return
        self.member.revoked(gone)
        self.run(rebalancing=True)
        assert not self.held & gone, "the application holds what was revoked"
        for key in sorted(gone & self.assignment.keys()):
            self.auto_commit(key, is_leaving=True)
            self.assignment.pop(key)
            if self.random.random() < 0.2:
                self.paused.discard(key)  # the library has forgotten the topic
        for key in gone:
            assert key not in self.at_work
            self.uncommitted.pop(key, None)
            self.floors.pop(key, None)
            self.handled[key] = max(self.handled.get(key, 0), self.replayed.pop(key, 0))  # it goes on at the commit
        if self.in_hand is not None and self.in_hand[0] in gone:
            self.in_hand = None
        self.given -= gone

    def others_read(self, key: Key) -> None:
        stage = self.stages.get(key[0], 0)
        if key[0] != "c" and stage >= 3:
            self.commits[key] = Committed(self.end(key), "modeaware: read")
        elif self.random.random() < 0.5:
            at = self.commits.get(key, Committed(0)).offset
            self.commits[key] = Committed(max(at, self.random.randint(0, self.end(key))))
        self.handled[key] = max(self.handled.get(key, 0), self.commits.get(key, Committed(0)).offset)

    # The library

    def auto_commit(self, key: Key, *, is_leaving: bool = False) -> None:
        if not self.member.committing.automatic:
            return
        stored, at = self.assignment[key].stored, self.commits.get(key)
        if stored is not None and (at is None or at.offset != stored or is_leaving):
            self.commits[key] = at = Committed(stored)
            if not is_leaving and self.traits.keeps_pauses:
                self.pending.append(lambda: self.member.committed({key: at}))

    def run(self, *, rebalancing: bool = False, carrying: bool = False) -> None:
        """Carry out all that is to be done now."""
        for _ in range(1000):
            action = self.member.next(self.now_s, rebalancing=rebalancing, carrying=carrying)
            if action is None:
                self.seen_stage = self.seen_stage if rebalancing or carrying else self.looked_stage
                return
            self.perform(action)
        raise AssertionError(f"no end of actions: {action}")

    def perform(self, action: Action) -> None:
        is_optional = not isinstance(action, Show | Assign | Pause | Resume | Subscribe)
        if is_optional and self.random.random() < self.failing:
            self.member.failed(action, self.now_s)
            return
        answer = self.answer(action)
        if isinstance(action, Commit | CommitStored) and self.random.random() < 0.5:
            assert self.member._begun is None, "a commit before the last one is answered"
            self.member.begun(action)
            self.pending.append(lambda: self.member.done(action, answer, self.now_s))
        elif isinstance(action, Show) and answer is None and self.random.random() < self.failing / 4:
            self.member.failed(action, self.now_s)
            self.seen["raised"] += 1
        else:
            self.member.done(action, answer, self.now_s)

    def hear(self) -> None:
        """The results of commits come, in their order."""
        while self.pending:
            self.pending.pop(0)()

    def answer(self, action: Action) -> Any:
        match action:
            case Show():
                return self.callback(action)
            case Assign(places, whole):
                if whole and self.traits.keeps_pauses:
                    self.assignment.clear()
                for key, place in sorted(places.items()):
                    at = self.commits[key].offset if place is None and key in self.commits else place or 0
                    self.assignment[key] = Fetched(at, ready_in=self.random.choice((0, 0, 2)))
                    self.floors[key] = max(self.floors.get(key, 0), at)
            case Pause(keys):
                self.paused |= keys & self.assignment.keys()
                assert keys <= self.assignment.keys(), "paused before it was assigned"
            case Resume(keys):
                assert not keys & self.paused_by_application, "resumed what the application has paused"
                self.paused -= keys
            case Seek(places):
                return self.seek_places(places)
            case Commit(offsets):
                return self.commit_notes(offsets)
            case CommitStored():
                return self.commit_stored()
            case Subscribe(topics):
                self.subscribed = topics
            case Request(what, keys):
                return dict(self.found(what, keys))
        return None

    def seek_places(self, places: Mapping[Key, int | None]) -> set[Key]:
        done = set()
        for key, place in sorted(places.items()):
            fetched = self.assignment[key]
            if fetched.ready_in > 0:
                fetched.ready_in -= 1
                continue
            if place is not None:
                assert place >= self.floors.get(key, 0), f"{key} is read again from {place}"
                fetched.next, fetched.position = place, None
            done.add(key)
        return done

    def commit_notes(self, offsets: Mapping[Key, Committed]) -> set[Key]:
        for key, at in offsets.items():
            before = self.commits.get(key)
            if self.member.committing.transactional and before is not None:
                assert (self.assignment[key].position or 0) <= before.offset, f"{key}: beside a transaction"
            assert before is None or at.offset >= before.offset, f"{key} was set back from {before} to {at}"
            assert before is None or kind_of(before.metadata) is not Note.FOREIGN, "metadata of the application"
            if at.metadata == READ:
                assert key not in self.at_work, "a worker is at the last record"
                assert self.handled.get(key, 0) >= min(self.end(key), at.offset), f"{key} is not handled"
            self.seen[at.metadata] += 1
            self.commits[key] = at
        return {key for key in sorted(offsets) if self.random.random() >= self.failing / 4}

    def commit_stored(self) -> dict[Key, Committed]:
        found = {}
        for key, fetched in self.assignment.items():
            at = self.commits.get(key)
            if fetched.stored is not None and (at is None or at.offset < fetched.stored):
                self.commits[key] = found[key] = Committed(fetched.stored)
        return found

    def found(self, what: Asked, keys: frozenset[Key]) -> Iterator[tuple[Key, Any]]:
        for key in sorted(keys):
            if self.random.random() < self.failing:
                continue
            at = self.commits.get(key)
            if what in (Asked.STARTS, Asked.OTHER_STARTS):
                yield key, Start(0 if at is None else at.offset, at)
            elif what is Asked.PLACES:
                fetched = self.assignment[key]
                at = fetched.next if fetched.position is None else fetched.position
                yield key, Place(at, fetched.position is not None)
            elif what is Asked.RESTARTS:
                position = self.assignment[key].next
                yield key, Start(0 if at is None else at.offset if position is None else min(at.offset, position), at)
            elif what is Asked.COMMITTED:
                yield key, at
            else:
                yield key, True

    # The application

    def callback(self, show: Show) -> Mapping[Key, int | None] | None:
        if show.event is Event.ASSIGNED:
            assert self.traits.incremental or not self.held, "assigned over what it holds"
            assert not self.held & show.keys, "shown twice"
            taken = set(show.keys)
            if self.failing and taken and self.random.random() < 0.05:
                taken = taken - {min(taken)} if self.traits.incremental else set()
                self.seen["declined"] += 1
            self.held |= taken
            return None if taken == show.keys else dict.fromkeys(taken)
        assert show.keys <= self.held, "revoked what it does not hold"
        assert self.traits.incremental or show.keys == self.held, "eager: all is revoked"
        if self.member.partitions.keys() >= show.keys and self.stages["a"] == 3:
            self.seen["shown revocation"] += all(self.member.partitions[key].polled for key in show.keys)
        self.held -= show.keys
        for key in sorted(show.keys):
            self.floors.pop(key, None)
            if self.application == "commits batches and drops the rest when revoked":
                self.drop(key)
                continue
            if (record := self.at_work.pop(key, None)) is not None:  # it waits for its worker
                self.finish(key, record)
                self.paused_by_application.discard(key)
                self.paused -= self.member.resume([key])
            if self.in_hand is not None and self.in_hand[0] == key:
                self.finish(*self.in_hand)
                self.in_hand = None
            if self.application == "commits batches and when revoked" and key in self.uncommitted:
                self.commit({key: self.uncommitted.pop(key)})
            self.uncommitted.pop(key, None)
        return None

    def drop(self, key: Key) -> None:
        """The application drops what it has not committed of a partition: it gets it again."""
        self.uncommitted.pop(key, None)
        if self.at_work.pop(key, None) is not None:
            self.paused_by_application.discard(key)
            self.paused -= self.member.resume([key])
        if self.in_hand is not None and self.in_hand[0] == key:
            self.in_hand = None
        committed = self.commits.get(key, Committed(0)).offset
        self.seen["dropped"] += committed < self.handled.get(key, 0)
        self.handled[key] = min(self.handled.get(key, 0), committed)

    def commit(self, offsets: Mapping[Key, int], *, in_transaction: bool = False) -> None:
        sent = {}
        for key, at in offsets.items():
            position = self.assignment[key].position
            sent[key] = Committed(at, self.member.metadata(key, at, position, in_transaction=in_transaction))
        if sent:
            self.commits |= sent
            if not in_transaction:
                self.member.committed(sent)

    def is_given(self, key: Key) -> bool:
        fetched = self.assignment[key]
        return fetched.next is not None and fetched.next < self.end(key) and key not in self.paused

    def poll(self) -> None:
        """The application has handled what it was given, and polls."""
        if self.in_hand is not None:
            self.finish(*self.in_hand)
            self.in_hand = None
        if self.random.random() < 0.7:
            self.hear()
        if self.random.random() < 0.9:  # else within a call of the library: nothing is looked at
            self.look_at_positions({})
            self.run()
        if not (ready := sorted(filter(self.is_given, self.assignment))):
            return
        key = self.random.choice(ready)
        position, record = self.assignment[key].position, self.take(key)
        if self.traits.keeps_pauses and self.random.random() < 0.3:  # it waits for the rest of its batch
            if self.random.random() < 0.3:
                self.hide_or_show()
            self.look_at_positions({key: position})
            self.run(carrying=True)
            self.seen["carried"] += 1
        self.receive(key, record)

    def look_at_positions(self, without_taken: Mapping[Key, int | None]) -> None:
        positions = {key: self.assignment[key].position for key in self.member.watched() & self.assignment.keys()}
        self.member.polled({key: without_taken.get(key, at) for key, at in positions.items()})

    def take(self, key: Key) -> int:
        """Return the next record of a partition; the library counts it as delivered."""
        fetched = self.assignment[key]
        assert fetched.next is not None
        record = fetched.next
        fetched.next += 1
        fetched.position = fetched.next
        if self.member.committing.stores:
            fetched.stored = fetched.next
        return record

    def receive(self, key: Key, record: int) -> None:
        assert key in self.held, f"a record of {key}, which the application does not hold"
        assert self.member.partitions[key].state is State.SHOWN
        assert key not in self.paused_by_application
        assert record >= self.floors.get(key, 0), f"record {record} of {key} is given again"
        assert record <= self.handled.get(key, 0), f"a record of {key} before {record} is skipped"
        self.judge(key)
        self.floors[key] = record + 1
        self.seen[f"record of {key[0]}"] += 1
        if self.random.random() < 0.2:
            self.paused.add(key)
            self.paused_by_application.add(key)
            self.member.pause([key])
            self.at_work[key] = record
        else:
            self.in_hand = key, record

    def judge(self, key: Key) -> None:
        """No record of a new topic comes before its gate was open, and before the old one's are handled."""
        old = {"b": "a", "c": "b"}.get(key[0])
        if old is None or self.stages[old] == 0:
            return
        assert self.stages[old] >= STAGES.index("open"), f"{key} before the gate was open"
        if old not in self.by_timeout:
            late = [p for p in range(self.count(old)) if self.handled.get((old, p), 0) < self.end((old, p))]
            assert not late, f"{key} before {old} {late} was handled"
            assert not any(each[0] == old for each in self.at_work), "while a worker is at the old topic"

    def finish(self, key: Key, record: int) -> None:
        """A record is handled."""
        self.handled[key] = max(self.handled.get(key, 0), record + 1)
        if key not in self.given:
            return
        match self.application:
            case "commits each":
                self.commit({key: record + 1})
            case "commits each with metadata":
                self.commits[key] = Committed(record + 1, "mine")
                self.member.committed({key: self.commits[key]})
            case "transactions":
                self.commit({key: record + 1}, in_transaction=True)
            case "stores what is handled":
                self.assignment[key].stored = record + 1
                self.member.stored([key])
            case "commits batches" | "commits batches and when revoked":
                self.uncommitted[key] = record + 1
                if self.random.random() < 0.3:
                    self.commit({key: self.uncommitted.pop(key)})

    def seek(self) -> None:
        """It goes back in a partition."""
        free = sorted(key for key in self.held - self.at_work.keys() if self.assignment[key].position is not None)
        if not free or not self.failing:
            return
        key = self.random.choice(free)
        if self.in_hand is not None and self.in_hand[0] == key:
            self.finish(*self.in_hand)
            self.in_hand = None
        fetched = self.assignment[key]
        at = self.random.randint(0, min(fetched.position or 0, self.handled.get(key, 0)))
        fetched.next, fetched.position = at, None
        self.floors[key] = at
        self.replayed[key] = max(self.replayed.get(key, 0), self.handled.get(key, 0))
        self.handled[key] = min(self.handled.get(key, 0), at)
        self.member.sought(key, at)
        self.run()
        self.seen["sought"] += 1
        noted = self.commits.get(key)
        is_said = noted is not None and kind_of(noted.metadata) in (Note.READ, Note.FOREIGN)
        if is_said or self.stages.get(key[0], 6) > 3:
            self.by_timeout.add(key[0])  # too late

    def work(self) -> None:
        """A worker finishes its record, and its partition is resumed."""
        for key, record in sorted(self.at_work.items()):
            if self.random.random() < 0.5:
                del self.at_work[key]
                self.finish(key, record)
                self.paused_by_application.discard(key)
                self.paused -= self.member.resume([key])

    def never_commits(self) -> bool:
        """Whether nothing can be said for an application: it commits nothing, and the library has decided its start."""
        unsaid = [key for key, each in self.member.partitions.items() if each.start is None and key not in self.commits]
        return bool(unsaid) and self.application == "commits batches"

    def declined(self) -> set[Key]:
        """The partitions that the application was assigned, and has not taken."""
        return {key for key, each in self.member.partitions.items() if each.state is State.DECLINED}

    # The walk

    def step(self) -> None:
        self.now_s += self.random.choice((0.0, 0.05, 0.3, 2.0))
        chance = self.random.random()
        if chance < 0.7:
            self.poll()
        elif chance < 0.78:
            self.work()
        elif chance < 0.80:
            self.seek()
        elif chance < 0.82:
            self.look()
        elif chance < 0.9:
            self.control()
        elif chance < 0.94:
            self.rebalance()
        elif chance < 0.97 and self.stages["a"] < 2:
            self.hide_or_show()
        else:
            for key in self.assignment:
                self.auto_commit(key)

    def hide_or_show(self) -> None:
        self.hidden ^= {("a", self.random.randrange(PARTITIONS))}
        self.look()

    def walk(self, steps: int = 120) -> World:
        for _ in range(steps):
            self.step()
        self.settle()
        return self

    def settle(self) -> None:
        """Nothing fails any more: each topic is read to its end, and nothing is left to be done."""
        self.failing, self.hidden = 0.0, set()
        self.look()
        for attempt in range(1000):
            self.now_s += 1.0
            self.work()
            self.poll()
            if attempt % 5 == 0:
                self.control(is_late=True)
            if attempt % 25 == 0:
                self.rebalance()
            # Named by the controller: its application is started again.
            if attempt == 500 and (self.never_commits() or self.declined()):
                self.revoke(set(self.given))
                self.rebalance()
            if self.stages == {"a": 6, "b": 6}:
                break
        assert self.stages == {"a": 6, "b": 6}, f"{self.stages}: not open, or no commit on the new topic"
        self.look()
        self.rebalance()
        for _ in range(3):  # the library is ready to seek by then
            self.now_s += 1.0
            self.hear()
            self.run()
        assert {t for t in self.subscribed if not t.startswith("^")} <= {"a", "b", "c"}
        shown = {key for key, each in self.member.partitions.items() if each.state is State.SHOWN}
        assert shown == self.held == self.given - self.declined(), "not all is shown"
        assert not self.paused & self.held - self.paused_by_application, "paused for nothing"


def as_world(seed: int) -> World:
    """Return the walk of a seed, which decides library and application, too."""
    chosen = random.Random(-seed - 1)
    world = World(seed, chosen.choice(sorted(LIBRARIES)), chosen.choice(sorted(APPLICATIONS)))
    world.failing = chosen.choice((0.0, 0.2, 0.5))
    return world


if __name__ == "__main__":  # python -m tests.support.member_world FIRST LAST: many walks
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            as_world(seed).walk()
        except AssertionError as error:
            sys.exit(f"seed {seed}: {error}")

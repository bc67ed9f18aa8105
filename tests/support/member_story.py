"""A member of a group for stories (:mod:`tests.support.stories`). Requests are answered from tables; the actions of the
client library are noted as short texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
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
from modeaware.clients.partition import Committing
from modeaware.clients.starts import Key
from modeaware.clients.subscription import Reader
from modeaware.modes import PartitionMode
from modeaware.topic_view import Moved, ReplacedBy, TopicView
from tests.support.stories import Step, Steps

READ_WRITE, READ_ONLY, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
END = 5


def matches(pattern: str, topic: str) -> bool | None:
    return re.search(pattern, topic) is not None


def replaced(old: str = "a", new: str = "b", topic_id: str | None = None, **state: Any) -> TopicView:
    """The view of a topic with two partitions of five records, which another topic replaces."""
    given: dict[str, Any] = {"switched": True, "read_up_to": {0: END, 1: END}, "groups": frozenset({"g"}), **state}
    new_topic = ReplacedBy(new, f"id-{new}", 2, **given)
    return TopicView(old, topic_id or f"id-{old}", (1, 5), (READ_ONLY, READ_ONLY), replaced_by=new_topic)


def plain(*modes: PartitionMode) -> TopicView:
    """The view of topic a, which nothing replaces."""
    return TopicView("a", "id-a", (1, 1), modes)


def shrunk(**ends: int) -> TopicView:
    """The view of topic s, of which the partitions with an end (``p1=5``) are retired."""
    retired = {int(name[1]): end for name, end in ends.items()}
    modes = tuple(READ_ONLY if partition in retired else READ_WRITE for partition in range(3))
    return TopicView("s", "id-s", (1, 1), modes, retired)


MOVED = Moved(groups=frozenset({"g"}))


class Around:
    """A member, and what is around it: requests are answered from tables, actions noted as short texts."""

    def __init__(
        self,
        names: tuple[str, ...] = ("a",),
        traits: Traits = Traits(),  # noqa: B008 - immutable
        group: str = "g",
        on_replace: str = "ordered",
        sees_revocations: bool = False,
        **committing: bool,
    ) -> None:
        reader = Reader(group, (), matches, on_replace)
        self.member = Member(reader, traits, Committing(**committing))
        self.now_s = 0.0
        self.committed: dict[Key, Committed | None] = {}
        self.stored: dict[Key, int] = {}
        self.silent: set[Key] = set()
        self.unready: set[Key] = set()
        self.begun: set[Key] = set()
        self.starts: dict[Key, int | None] = {}  # where there is no commit; else 0
        self.log_starts: dict[Key, int | None] = {}
        self.choices: list[Mapping[Key, int | None] | None] = []
        self.raises = 0  # how often the next callbacks for a revocation raise
        self.fails: list[type] = []  # the next actions of these kinds fail, in this order
        self.takes_s = 0.0  # how long each action takes
        self.meanwhile: dict[str, tuple[Step, ...]] = {}  # what happens while an action that begins so is carried out
        self.answers_later = False
        self.is_idle = False  # nothing has happened since the member had nothing to do
        self.begun_commits: list[Commit | CommitStored] = []
        self.owned: set[str] = {"b"}
        self.done: list[str] = []
        self.member.subscribe(names, sees_revocations=sees_revocations)

    # What happens

    def view(self, *views: TopicView) -> None:
        self.call("viewed", {view.topic: view for view in views})

    def assign(self, *keys: Key, withheld: tuple[Key, ...] = ()) -> None:
        self.member.assigned(keys, withheld=withheld)
        self.run(rebalancing=True)

    def revoke(self, *keys: Key, lost: bool = False) -> None:
        self.member.revoked(keys, lost=lost)
        self.run(rebalancing=True)

    def poll(self, wait_s: float = 0.0, *, carrying: bool = False, **positions: int) -> None:
        """``a0=5``: it was given records of partition 0 of topic a up to 5."""
        self.now_s += wait_s
        due_s = self.member.due_s
        if self.is_idle and (due_s is None or due_s > self.now_s):
            assert self.member.next(self.now_s) is None, "due too late"
        given = {(name[0], int(name[1])): at for name, at in positions.items()}
        self.member.polled({key: given.get(key) for key in self.member.watched()})
        self.run(carrying=carrying)

    def joins(self, joining: bool) -> None:
        """The library says whether it joins the group again."""
        self.member.joining, self.is_idle = joining, False

    def call(self, method: str, *args: Any, **named: Any) -> None:
        self.is_idle = False
        getattr(self.member, method)(*args, **named)

    def choose(self, *choices: Mapping[Key, int | None] | None) -> None:
        self.choices += choices

    def set(self, **tables: Any) -> None:
        for name, value in tables.items():
            setattr(self, name, value)

    # What is seen

    def does(self, *expected: str) -> None:
        done, self.done = self.done, []
        assert done == list(expected)

    def add(self, places: Mapping[Key, int | None]) -> None:
        self.is_idle = False
        self.member.assigned_by_application(places, incremental=True)

    def holds(self, *keys: Key) -> None:
        assert self.member.partitions.keys() == set(keys)

    def watches(self, *keys: Key) -> None:
        assert self.member.watched() == set(keys)

    def is_due(self) -> None:
        assert self.member.due_s == self.now_s

    def is_not_due(self) -> None:
        assert self.member.due_s is None

    def rides(self, key: Key, offset: int, metadata: str, position: int | None = END, **how: bool) -> None:
        assert self.member.metadata(key, offset, position, **how) == metadata

    def resumes(self, *keys: Key, now: AbstractSet[Key]) -> None:
        self.is_idle = False
        assert self.member.resume(keys) == now

    # The shell

    def run(self, **how: bool) -> None:
        while (action := self.member.next(self.now_s, **how)) is not None:
            self.done.append(text_of(action))
            assert len(self.done) < 50, self.done
            self.now_s += self.takes_s
            begin = next(filter(self.done[-1].startswith, self.meanwhile), None)
            for step in () if begin is None else self.meanwhile.pop(begin):
                getattr(self, step.method)(*step.args, **step.named)
            if self.answers_later and isinstance(action, Commit | CommitStored):
                self.member.begun(action)
                self.begun_commits.append(action)
            elif self.raises and isinstance(action, Show) and action.event is Event.REVOKED:
                self.raises -= 1
                self.member.failed(action, self.now_s)
            elif self.fails and isinstance(action, self.fails[0]):
                del self.fails[0]
                self.member.failed(action, self.now_s)
            else:
                self.member.done(action, self.answer(action), self.now_s)
        self.is_idle = not any(how.values())
        due_s = self.member.due_s
        assert not self.is_idle or due_s is None or due_s > self.now_s, "due at once, with nothing to do"

    def hears(self, *, fails: bool = False) -> None:
        """The commit that is under way has its result."""
        self.is_idle, action = False, self.begun_commits.pop(0)
        if fails:
            self.member.failed(action, self.now_s)
        else:
            self.member.done(action, self.answer(action), self.now_s)

    def answer(self, action: Action) -> Any:
        match action:
            case Show(Event.ASSIGNED):
                return self.choices.pop(0) if self.choices else None
            case Seek(places):
                return places.keys() - self.unready
            case Commit(offsets):
                self.committed |= offsets
                return offsets.keys() - self.silent
            case CommitStored():
                stored = {key: Committed(at) for key, at in self.stored.items()}
                self.committed |= stored
                return stored
            case Request(what, keys):
                return {key: self.found(what, key) for key in keys - self.silent}
        return None

    def found(self, what: Asked, key: Key) -> Any:
        at = self.committed.get(key)
        match what:
            case Asked.STARTS | Asked.OTHER_STARTS:
                return Start(self.starts.get(key, 0) if at is None else at.offset, at)
            case Asked.PLACES:
                each = self.member.partitions[key]
                return Place(self.log_starts.get(key, each.given_up_to), key in self.begun or each.position is not None)
            case Asked.RESTARTS:
                start = self.member.partitions[key].start
                return Start(self.log_starts.get(key, start) if at is None else at.offset, at)
            case Asked.COMMITTED:
                return at
        return key[0] in self.owned


def text_of(action: Action) -> str:
    """``assign a0=3 b0``, ``show revoked a0``, ``commit a0=5 read``, ..."""
    match action:
        case Show(event, keys):
            return " ".join(["show", event.value, *names_of(keys)])
        case Assign(places, whole):
            return " ".join(["assign" if whole else "add", *(f"{n}={places[k]}" for n, k in named(places))])
        case Seek(places):
            return " ".join(["seek", *(f"{name}={places[key]}" for name, key in named(places))])
        case Commit(offsets):
            at = {name: offsets[key] for name, key in named(offsets)}
            return " ".join(
                ["commit", *(f"{n}={c.offset} {c.metadata.rpartition(': ')[2]}".strip() for n, c in at.items())]
            )
        case Request(what, keys):
            return " ".join([what.name.lower(), *names_of(keys)])
        case Pause(keys) | Resume(keys):
            return " ".join([type(action).__name__.lower(), *names_of(keys)])
        case Subscribe(topics, left_out):
            return " ".join(["subscribe", *topics, *(f"-{topic}" for topic in sorted(left_out))])
    return type(action).__name__


def named(keys: Any) -> list[tuple[str, Key]]:
    return [(f"{topic}{partition}", (topic, partition)) for topic, partition in sorted(keys)]


def names_of(keys: Any) -> list[str]:
    return [name for name, _ in named(keys)]


do = Steps()
A0, A1, B0, B1 = ("a", 0), ("a", 1), ("b", 0), ("b", 1)
S0, S1, S2, T0 = ("s", 0), ("s", 1), ("s", 2), ("t", 0)
COMMON = Traits(incremental=True)
EAGER = Traits()
KAFKA_PYTHON = Traits(incremental=True, keeps_pauses=False, waits_for_starts=True)


def joined(*keys: Key, **state: Any) -> tuple[Any, ...]:
    """It subscribes, and is assigned ``keys``."""
    return (do.view(replaced(**state)), do.poll(), do.assign(*keys), do.poll(), do.set(done=[]))

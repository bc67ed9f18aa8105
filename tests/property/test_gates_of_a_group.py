"""The gates of the members of one group, for any course of replacements, rebalances, restarts, and missing answers.

A chain of topics is replaced one after the other as the controller does it, while the members see its records late.
Their real gates are asked; the group, its commits and the client library are a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from modeaware.clients.gate import READ
from modeaware.clients.gates import Committed, Gates
from modeaware.clients.starts import Key, Starts
from modeaware.config import ClientConfig
from modeaware.modes import PartitionMode
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import FakeViews

GROUP = "g"
CHAINS = (("t0", "t1", "t2", "t3"), ("t0", "t1", "t0", "t2"))
"""The names of its topics: the second one leads back to its first name."""
LENGTH = 4
COUNT = 2
STAGES = ("", "announced", "switched", "let_go", "gone")
FOR_EVER_MS = 10**9
FAILED = -1001
"""Where a member starts that received no answer: librdkafka finds out by itself."""

Record = tuple[int, int, int]
"""Which topic of the chain, its partition, its offset."""


@dataclass
class Topic:
    """A topic of the chain.

    Attributes:
        number: its place, and its id.
        ends: partition -> how many records it has in the end. Those of a successor are there from its switch on.
        stage: how far its own replacement has come.
        known: partitions whose end is final.
        groups: noted at the switch.
    """

    number: int
    name: str
    ends: tuple[int, ...]
    stage: str = ""
    known: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return f"id-{self.number}"

    @property
    def keys(self) -> list[Key]:
        return [(self.name, partition) for partition in range(COUNT)]

    @property
    def records(self) -> set[Record]:
        return {(self.number, p, offset) for p in range(COUNT) for offset in range(self.ends[p])}

    def has_come_to(self, stage: str) -> bool:
        return STAGES.index(self.stage) >= STAGES.index(stage)

    def view(self, successor: Topic) -> TopicView:
        found = Successor(
            successor.name, successor.id, COUNT, read_up_to={p: self.ends[p] for p in self.known}, groups=self.groups,
            switched=self.has_come_to("switched"), let_go=self.has_come_to("let_go"), gone=self.has_come_to("gone"),
        )  # fmt: skip
        mode = PartitionMode.READ_ONLY if found.switched else PartitionMode.READ_WRITE
        epoch = 10 * STAGES.index(self.stage) + len(self.known)
        return TopicView(self.name, self.id, (1, epoch), (mode,) * COUNT, successor=found)


@dataclass
class World:
    """What the members share.

    Attributes:
        by_position: the client library commits positions, as kafka-python does; else what it has delivered.
        committed: by the group.
        silent: partitions about which no answer comes; None: no request is answered.
        delivered, handled: records that some application was given, and after which it has asked for more.
    """

    topics: list[Topic]
    by_position: bool
    auto_commit: bool
    ordered: bool
    committed: dict[Key, Committed] = field(default_factory=dict)
    silent: set[Key] | None = field(default_factory=set)
    delivered: set[Record] = field(default_factory=set)
    handled: set[Record] = field(default_factory=set)
    now_s: float = 0.0

    @property
    def there(self) -> dict[str, Topic]:
        """The topics that brokers have, by name."""
        pairs = zip([None, *self.topics], self.topics, strict=False)
        return {topic.name: topic for before, topic in pairs if topic.stage != "gone" and (not before or before.stage)}

    def has_records(self, topic: Topic) -> bool:
        return topic.number == 0 or self.topics[topic.number - 1].has_come_to("switched")

    def answers(self, keys: Collection[Key]) -> list[Key]:
        return [] if self.silent is None else [key for key in keys if key not in self.silent]

    def committed_offset(self, key: Key) -> int | None:
        at = self.committed.get(key)
        return None if at is None else at.offset

    def has_commits(self, topic: Topic) -> bool:
        return all(key in self.committed for key in topic.keys)

    def has_read(self, topic: Topic) -> bool:
        return all((self.committed_offset(key) or 0) >= topic.ends[key[1]] for key in topic.keys)


class Member:
    """A member, and its client library."""

    def __init__(self, world: World, names: tuple[str, ...]) -> None:
        self.world = world
        self.names = names
        self.views = FakeViews()
        self.starts = Starts(self.views, "earliest", GROUP)
        config = ClientConfig(on_replace="ordered" if world.ordered else "unordered", gate_timeout_ms=FOR_EVER_MS)
        self.gates = Gates(
            self, GROUP, world.auto_commit, config, self.views, self.starts, lambda: world.now_s,
            match=lambda pattern, topic: None,
        )  # fmt: skip
        self.given: set[Key] = set()
        self.places: dict[Key, int] = {}
        self.moved: set[Key] = set()
        self.working: set[Record] = set()
        self.left: set[int] = set()
        self.see()

    def see(self) -> None:
        for topic, successor in zip(self.world.topics, self.world.topics[1:], strict=False):
            if topic.stage and topic.view(successor) != self.views.view(topic.name):
                self.views.put(topic.view(successor))

    # What its gates and its starts request

    @property
    def offsets(self) -> Offsets:
        return Offsets(self.world)

    def positions(self, keys: Collection[Key]) -> Mapping[Key, int | None]:
        return {key: self.places[key] if key in self.moved else None for key in keys if key in self.places}

    def committed(self, keys: Collection[Key], *, after_own: bool = False) -> Mapping[Key, Committed | None]:
        self.world.now_s += 0.01
        return {key: self.world.committed.get(key) for key in self.world.answers(keys)}

    def log_starts(self, keys: Collection[Key]) -> Mapping[Key, int]:
        return self.offsets.log_starts(keys)

    def commit_delivered(self) -> None:
        for key, place in self.places.items():
            if (key in self.moved or self.world.by_position) and key[0] not in self.gates.shut:
                successor = self.views.view(key[0]).successor
                is_end = successor is not None and place >= successor.read_up_to.get(key[1], FOR_EVER_MS)
                self._commit(key, Committed(place, READ if self.world.by_position and is_end else ""))

    def commit(self, offsets: Mapping[Key, Committed]) -> None:
        for key, at in offsets.items():
            self._commit(key, at)

    def _commit(self, key: Key, at: Committed) -> None:
        topic = self.world.there.get(key[0])
        if topic is not None:
            assert at.offset >= (self.world.committed_offset(key) or 0), f"{key} is set back to {at}"
            assert at.offset <= topic.ends[key[1]]
            self.world.committed[key] = at

    def have_topics(self, topics: Mapping[str, bool]) -> Collection[str]:
        return topics.keys() & self.world.there.keys()

    def is_polling(self) -> bool:
        return False

    # What its application and its group do

    def join(self) -> None:
        self.gates.ask_before_joining(self.names)
        self.gates.topics(self.names)

    def assign(self, keys: set[Key]) -> None:
        self.given = keys
        self.gates.on_assign(keys, keys)
        found = self.starts.find(keys, self.offsets).starts
        for key in keys:
            self.starts.started(key, found.get(key, FAILED))
            self.places[key] = found.get(key, self.world.committed_offset(key) or 0)

    def revoke(self) -> None:
        self.polled()
        self.commit_delivered()
        self.starts.forget(self.given)
        self.given, self.places, self.moved = set(), {}, set()

    def crash(self) -> None:
        """What its library committed while its application worked on it is read by nobody else."""
        names = {topic.number: topic.name for topic in self.world.topics}
        self.world.handled |= {
            (n, p, offset)
            for n, p, offset in self.working
            if offset < (self.world.committed_offset((names[n], p)) or 0)
        }

    def polled(self) -> None:
        self.world.handled |= self.working
        self.working = set()

    def poll(self) -> bool:
        """Return whether the member subscribes to something else."""
        self.polled()
        if self._subscribes_anew():
            return True
        for key in sorted(self.given):
            topic = self.world.there.get(key[0])
            if topic is None or key[0] in self.gates.shut or not self.world.has_records(topic):
                continue
            for offset in range(self.places[key], min(self.places[key] + 2, topic.ends[key[1]])):
                self._deliver(topic, (topic.number, key[1], offset))
                self.places[key] = offset + 1
                self.moved.add(key)
        return False

    def _subscribes_anew(self) -> bool:
        before = self.gates.subscribed
        if self.given:
            self.gates.follow(self.given, self.names)
            self.gates.look(self.given, {key for key in self.given if key[0] not in self.gates.shut})
        else:
            self.gates.ask_before_joining(self.names)
        after = self.gates.topics(self.names)
        numbers = {topic.number: name for name, topic in self.world.there.items()}
        self.left |= {n for n, name in numbers.items() if name in before and name not in after}
        is_back = any(name in after for n, name in numbers.items() if n in self.left)
        assert not is_back or not self.world.ordered, "a rebalance too many"
        return before != after

    def _deliver(self, topic: Topic, record: Record) -> None:
        world = self.world
        world.delivered.add(record)
        self.working.add(record)
        if world.ordered:
            for before in world.topics[: topic.number]:
                assert before.stage == "gone" or before.records <= world.handled, f"{record} before {before}"
            later = {each for each in world.delivered if each[0] > topic.number}
            assert not later, f"{record} after {later}"


@dataclass(frozen=True)
class Offsets:
    """What brokers return of start offsets."""

    world: World

    def committed(self, keys: Collection[Key]) -> Mapping[Key, int | None]:
        return {key: self.world.committed_offset(key) for key in self.world.answers(keys)}

    committed_elsewhere = committed

    def log_starts(self, keys: Collection[Key]) -> Mapping[Key, int]:
        return dict.fromkeys(self.world.answers(keys), 0)

    log_ends = log_starts


class Group:
    """Its members, and the controller and the brokers around them.

    Args:
        names: what the application subscribes to.
    """

    def __init__(self, world: World, names: tuple[str, ...]) -> None:
        self.world = world
        self.names = names
        self.members: list[Member] = []
        self.has_begun = False

    def _member(self, n: int) -> Member | None:
        return self.members[n % len(self.members)] if self.members else None

    def member_joins(self, n: int = 0) -> None:
        if len(self.members) < 3:
            self.has_begun = True
            self.members.append(Member(self.world, self.names))
            self.members[-1].join()
            self.rebalance()

    def member_ends(self, n: int) -> None:
        if (member := self._member(n)) is not None:
            self.members.remove(member)
            if n % 2:
                member.revoke()
            else:
                member.crash()
            self.rebalance()

    def rebalance(self, n: int = 0) -> None:
        for member in self.members:
            member.revoke()
        given: list[set[Key]] = [set() for _ in self.members]
        for name, topic in self.world.there.items():
            readers = [each for each, member in enumerate(self.members) if name in member.gates.subscribed]
            for key in topic.keys if readers else ():
                given[readers[(key[1] + n) % len(readers)]].add(key)
        for member, keys in zip(self.members, given, strict=True):
            member.assign(keys)

    def poll(self, n: int, after_s: float | None = None) -> None:
        self.world.now_s += (0.1, 1.1, 11.0)[n % 3] if after_s is None else after_s
        if (member := self._member(n)) is not None and member.poll():
            self.rebalance()

    def commit(self, n: int) -> None:
        """By the library with ``enable.auto.commit``, else by the application."""
        if (member := self._member(n)) is not None:
            if not self.world.auto_commit or self.world.by_position:
                member.polled()
            member.commit_delivered()

    def see(self, n: int) -> None:
        if (member := self._member(n)) is not None:
            member.see()

    def fall_silent(self, n: int) -> None:
        keys = [key for topic in self.world.topics for key in topic.keys]
        self.world.silent = None if n == 0 else {keys[n % len(keys)]}

    def answer(self, n: int = 0) -> None:
        self.world.silent = set()

    def expire(self, n: int) -> None:
        """Commits expire, of a topic that the group has read and is not subscribed to any more."""
        topic = self.world.topics[n % LENGTH]
        held = {key: offset for key in topic.keys if (offset := self.world.committed_offset(key)) is not None}
        is_unread = any(offset < topic.ends[key[1]] for key, offset in held.items())
        if GROUP not in topic.groups:  # offset 0 alone does not show that a group that came late has moved
            following = self.world.topics[min(n % LENGTH + 1, LENGTH - 1)]
            is_unread |= not any(self.world.committed_offset(key) for key in following.keys)
        if topic.stage != "let_go" or self._is_subscribed(topic) or is_unread or not self.members:
            return
        is_part = n >= LENGTH and GROUP in topic.groups
        for key in topic.keys[:1] if is_part else topic.keys:
            self.world.committed.pop(key, None)

    def _is_subscribed(self, topic: Topic) -> bool:
        return any(topic.name in member.gates.subscribed for member in self.members)

    def replace(self, n: int) -> None:
        """The first replacement from ``n`` on that can go on goes on."""
        next((each for each in range(n % (LENGTH - 1), LENGTH - 1) if self.goes_on(each)), None)

    def goes_on(self, n: int) -> bool:
        """Return whether it does."""
        topic, successor = self.world.topics[n], self.world.topics[n + 1]
        before = self.world.topics[:n]
        is_back = topic.name in (each.name for each in before) and before[-1].stage != "gone"
        if not self.world.has_records(topic) or is_back:  # clients know it by an alias
            return False
        if topic.stage == "" and successor.name not in self.world.there:
            topic.stage = "announced"
        elif topic.stage == "announced":
            for member in self.members if successor.name in self.names else ():
                member.see()  # else it reads the successor as one of its own topics
            topic.stage = "switched"
            topic.groups = frozenset({GROUP} if self.has_begun else ())
        elif topic.stage == "switched" and len(topic.known) < COUNT:
            topic.known |= {len(topic.known)}
        elif topic.stage == "switched" and self._may_let_go(topic, successor):
            topic.stage = "let_go"
        elif topic.stage == "let_go" and self._may_delete(topic, successor):
            topic.stage = "gone"
            for key in topic.keys:
                self.world.committed.pop(key, None)
        else:
            return False
        return True

    def _may_let_go(self, topic: Topic, successor: Topic) -> bool:
        return not self.has_begun or (self.world.has_read(topic) and self.world.has_commits(successor))

    def _may_delete(self, topic: Topic, successor: Topic) -> bool:
        is_first = topic.number == 0 or self.world.topics[topic.number - 1].stage == "gone"
        if self._is_subscribed(topic) or not is_first:
            return False
        has_offsets = any(key in self.world.committed for key in topic.keys)
        if has_offsets and not self.world.has_read(topic):
            return False
        return self.world.has_commits(successor) or not (has_offsets or GROUP in topic.groups)

    def comes_to(self, let_go: int, expired: int) -> None:
        """The first topics are let go, and the group's commits on some of them have expired.

        Args:
            let_go: how many.
            expired: a bit for each of them.
        """
        self.member_joins()
        for n in range(let_go):
            for _ in range(12):
                self.members[0].see()
                self.poll(0, 11.0)
                if self.world.topics[n].stage != "let_go":
                    self.goes_on(n)
        for n in range(let_go):
            if expired & 1 << n:
                self.expire(n)
        if let_go:
            self.member_ends(1)

    def comes_to_rest(self) -> None:
        """In the end every record is read, and no topic is kept."""
        self.answer()
        while self.members:
            self.member_ends(1)
        self.member_joins()  # it commits again what has expired, if the controller looks for it
        for turn in range(40):
            for n, topic in enumerate(self.world.topics[:-1]):
                if turn == 20 and not self.world.has_commits(topic):
                    self.expire(n)  # the rest of it
                if topic.has_come_to("switched"):
                    self.goes_on(n)
            for n, member in enumerate(self.members):
                member.see()
                self.poll(n, 11.0)
                self.commit(n)
        there = self.world.there
        assert not {topic.stage for topic in there.values()} & {"switched", "let_go"}, "a topic is kept"
        for topic in there.values():
            assert not self.world.has_records(topic) or topic.records <= self.world.handled
        for member in self.members:
            assert set(member.gates.subscribed) - {*self.names} <= there.keys()


ACTIONS = {
    "member_joins": 2, "member_ends": 2, "rebalance": 1, "poll": 12, "commit": 3, "see": 4,
    "fall_silent": 2, "answer": 3, "expire": 3, "replace": 5,
}  # fmt: skip
actions = st.sampled_from([name for name, weight in ACTIONS.items() for _ in range(weight)])
ends = st.tuples(*[st.integers(0, 3)] * COUNT)
steps = st.lists(st.tuples(actions, st.integers(0, 11)), min_size=50, max_size=150)


@given(
    st.sampled_from(CHAINS),
    st.tuples(*[ends] * LENGTH),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.integers(0, LENGTH - 1), st.integers(0, 2**LENGTH - 1)),
    st.sampled_from([("t0",), ("t0", "t1"), ("t0", "t2")]),
    steps,
)
def test_members_read_a_chain_topic_by_topic_and_leave_each_for_good(
    chain: tuple[str, ...],
    ends: tuple[tuple[int, ...], ...],
    kind: tuple[bool, bool, bool],
    late: tuple[int, int],
    names: tuple[str, ...],
    steps: list[tuple[str, int]],
) -> None:
    group = Group(World([Topic(n, chain[n], ends[n]) for n in range(LENGTH)], *kind), names)
    group.comes_to(*late)
    for action, n in steps:
        getattr(group, action)(n)
    group.comes_to_rest()

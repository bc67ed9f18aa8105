"""A member of a group, with its gates, over a client that answers from tables: requests, positions, commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from modeaware.clients.gate import READ
from modeaware.clients.gates import LOOK_S
from modeaware.clients.starts import Starts
from modeaware.config import ClientConfig
from modeaware.confluent.gates import Gates, Onlooker
from modeaware.topic_view import Successor, TopicView
from tests.support.fake_views import FakeViews, modes_of

Key = tuple[str, int]
REFRESH_S = 300.0
OWN = {("a", 0), ("b", 0)}
"""What the member is assigned: partitions of the topic ``a`` and of ``b``, which replaces it."""
SILENT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Stock:
    """A client and its group."""

    def __init__(self) -> None:
        self.committed_offsets: dict[Key, tuple[int, str | None]] = {}
        self.positions: dict[Key, int] = {}
        self.first: dict[Key, int] = {}
        self.stored: dict[Key, int] = {}
        self.requests = 0
        self.listings: list[set[str]] = []
        self.absent: set[str] = set()
        self.renewed: list[str] = []
        self.down: Exception | None = None
        self.silent_about = ""

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.requests += 1
        if self.down:
            raise self.down
        known = [p for p in partitions if p.topic != self.silent_about]
        found = [(p, self.committed_offsets.get((p.topic, p.partition), (OFFSET_INVALID, None))) for p in known]
        return [TopicPartition(p.topic, p.partition, offset, note or "") for p, (offset, note) in found]

    def commit(self, offsets: list[TopicPartition] | None = None, asynchronous: bool = True) -> None:
        assert asynchronous, "a commit that is waited for may block the polling thread"
        if offsets is None:
            self.committed_offsets |= {key: (offset, None) for key, offset in self.stored.items()}
            self.stored.clear()
        else:
            self.committed_offsets |= {(p.topic, p.partition): (p.offset, p.metadata) for p in offsets}

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition(p.topic, p.partition, self.positions.get((p.topic, p.partition), OFFSET_INVALID))
            for p in partitions
        ]

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.listings.append({p.topic for p in partitions})
        return self.listed(partitions)

    def listed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if self.absent.intersection(p.topic for p in partitions):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return [TopicPartition(p.topic, p.partition, self.first.get((p.topic, p.partition), 0)) for p in partitions]

    def list_topics(self, topic: str, timeout: float) -> None:
        self.renewed.append(topic)


class SomeOnlooker(Onlooker):
    """Returns what the stock client does, and topics."""

    def __init__(self, stock: Stock) -> None:
        self._stock = stock
        self.there: set[str] = set()
        self.sees_all = False
        self.lists = self.closes = 0
        self.listings: list[set[str]] = []

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._stock.committed(partitions, timeout)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.listings.append({p.topic for p in partitions})
        return partitions if self.sees_all else self._stock.listed(partitions)

    def topics(self) -> frozenset[str]:
        self.lists += 1
        return frozenset(self.there)

    def close(self) -> None:
        self.closes += 1


class Member:
    """A member of group ``g`` that is subscribed to ``a``, and its clock."""

    def __init__(
        self,
        *,
        absent: tuple[str, ...] = (),
        auto_commit: bool = True,
        reset: str = "latest",
        whole_names: bool = False,
        creates_topics: bool = False,
        **config: Any,
    ) -> None:
        self.stock = Stock()
        self.stock.absent |= set(absent)
        self.views = FakeViews()
        self.now_s = 100.0
        self.polling = self.inside = False
        self.starts = Starts(self.views, reset, "g")
        self.onlooker = SomeOnlooker(self.stock)
        self.gates = Gates(
            self.stock, "g", auto_commit, ClientConfig(**config), self.views, self.starts,
            lambda: self.polling, lambda: self.now_s, lambda: self.inside, self.onlooker,
            whole_names=whole_names, refresh_s=REFRESH_S, creates_topics=creates_topics,
        )  # fmt: skip
        self.names = ["a"]
        self.mine: set[Key] = set(OWN)
        self.view = TopicView("a", "id-a", (1, 1), modes_of(2, 2), successor=Successor("b", "id-b", 2))
        self.views.put(self.view)
        self.gates.follow((), self.names)
        self.gates.topics(self.names)

    def told(self, **changed: Any) -> None:
        """The view of ``a`` says something else of its successor."""
        assert self.view.successor is not None
        successor = replace(self.view.successor, **changed)
        controller, epoch = self.view.version
        self.view = replace(self.view, version=(controller, epoch + 1), successor=successor)
        self.views.put(self.view)

    def sealed(self, *ends: int) -> None:
        self.told(switched=True, groups=frozenset({"g"}), read_up_to=dict(enumerate(ends)))

    def deliver(self, topic: str, partition: int, end: int) -> None:
        """The application was given the partition up to ``end``, and has polled again."""
        self.stock.positions[topic, partition] = self.stock.stored[topic, partition] = end

    def commits(self, topic: str, *offsets: int | None, note: str | None = READ) -> None:
        """The group's other members commit."""
        found = {(topic, partition): offset for partition, offset in enumerate(offsets)}
        self.stock.committed_offsets |= {key: (at, note) for key, at in found.items() if at is not None}

    def look(self, after_s: float = LOOK_S, *, is_open: bool | None = None, waits: str = "") -> bool:
        """One more poll; whether the successor is read. ``is_open`` and ``waits``: what it has to show."""
        self.now_s += after_s
        self.gates.follow(self.mine, self.names)
        self.gates.look(self.mine, {key for key in self.mine if key[0] not in self.gates.shut})
        found = "b" not in self.gates.shut
        assert is_open in (None, found), f"the gate is {'open' if found else 'shut'}"
        assert not waits or waits in self.waits_for, self.waits_for
        return found

    def topics(self) -> tuple[str, ...]:
        return self.gates.topics(self.names)

    @property
    def waits_for(self) -> str:
        (stats,) = self.gates.stats()
        return str(stats["waits_for"])

    # What else happens in stories, and what they look at

    def undo(self) -> None:
        """The replacement of ``a`` is undone."""
        controller, epoch = self.view.version
        self.view = replace(self.view, version=(controller, epoch + 1), successor=None)
        self.views.put(self.view)

    def put(self, *views: TopicView) -> None:
        for view in views:
            self.views.put(view)

    def removed(self, topic: str) -> None:
        self.views.remove(topic)

    def lacks(self, topic: str) -> None:
        """Brokers do not have it, and say so to this client."""
        self.stock.absent.add(topic)

    def brokers_have(self, *topics: str) -> None:
        """The list of all topics, by another client; no topic is missing to this one."""
        self.onlooker.there = set(topics)
        self.stock.absent.clear()

    def coordinator(self, down: Exception | None = None) -> None:
        self.stock.down = down

    def silent_about(self, topic: str = "") -> None:
        """It answers, but not for this topic."""
        self.stock.silent_about = topic

    def passes(self, time_s: float) -> None:
        self.now_s += time_s

    def has_met_none(self) -> None:
        """It has seen no gate yet: it begins now."""
        self.gates._met.clear()  # private

    def counts_closes(self) -> None:
        self.onlooker.closes = 0

    def still_reads(self, name: str) -> None:
        topics = self.topics()
        assert name in topics, f"subscribed to {topics}"

    def begins(self) -> None:
        """It has not subscribed to anything yet."""
        self.gates.subscribed = ()

    def follows(self, *names: str) -> None:
        self.gates.follow((), list(names))

    def joins(self, *names: str) -> None:
        """It asks what its group has committed, before it joins with these names."""
        self.gates.ask_before_joining(list(names) or self.names)

    def assigned(self, *keys: Key) -> None:
        """The group gives these to it, all of them; ``OWN`` without any."""
        given = set(keys) or OWN
        self.gates.on_assign(given, given)

    def assigned_more(self, *keys: Key) -> None:
        """Within what the group has given, nothing is new."""
        self.gates.on_assign((), set(keys))

    def is_assigned(self, *keys: Key) -> None:
        self.mine = set(keys)

    def reads(self, *names: str, mine: set[Key] | None = None) -> None:
        """The application subscribes to these names, and is assigned ``mine``."""
        self.names = list(names)
        self.mine = self.mine if mine is None else mine

    def starts_at(self, topic: str, partition: int, offset: int | None) -> None:
        self.starts.started((topic, partition), offset)

    def assigning(self, topic: str) -> None:
        self.starts.assigning([topic])

    def position(self, topic: str, partition: int, offset: int) -> None:
        self.stock.positions[topic, partition] = offset

    def within_poll(self, polling: bool) -> None:
        self.polling = polling

    def counts_requests(self) -> None:
        self.stock.requests = 0

    def subscribed(self) -> None:
        self.gates.topics(self.names)

    def reads_replaced(self, count: int = 9, **state: Any) -> None:
        """It subscribes to topics that are replaced, too: ``t0`` and so on by ``u0`` and so on."""
        for n in range(count):
            successor = Successor(f"u{n}", f"id-u{n}", 2, **state)
            self.put(TopicView(f"t{n}", f"id-t{n}", (1, 1), modes_of(2, 2), successor=successor))
        self.names = [f"t{n}" for n in range(count)]

    def retention(self, topic: str, partition: int, first: int) -> None:
        """The log of a partition begins there."""
        self.stock.first[topic, partition] = first

    def has(self, topics: tuple[str, ...] | set[str] | None = None, **found: Any) -> None:
        """Check the subscription, in this order or in any, and what ``SEEN`` names."""
        if topics is not None:
            now = self.topics()
            assert (now if isinstance(topics, tuple) else {*now}) == topics, f"subscribed to {now}"
        shown = {name: SEEN[name](self) for name in found}
        assert shown == found, f"found {shown}"

    def hides(self, topic: str, *, hidden: bool = True) -> None:
        """Check whether the gate of a topic is shut."""
        assert (topic in self.gates.shut) is hidden, f"shut: {self.gates.shut}"

    def gate(self, topic: str, waits: str) -> None:
        """Check what the gate of a topic waits for."""
        found = {gate["topic"]: gate["waits_for"] for gate in self.gates.stats()}
        assert waits in found[topic], f"waits for {found}"

    def absent(self, topic: str, code: int = KafkaError.UNKNOWN_TOPIC_OR_PART, *, is_event: bool = False) -> None:
        """Check whether the application gets the error that the topic is absent."""
        error: Any = SimpleNamespace(topic=lambda: topic, error=lambda: KafkaError(code))
        assert self.gates.is_absence(error) is not is_event, f"{topic} {'is no' if is_event else 'is an'} event"

    def commit_of(self, topic: str, partition: int, *expected: Any) -> None:
        """Check the offset and the note, or that there is none."""
        found = self.stock.committed_offsets.get((topic, partition))
        assert found == (expected or None), f"committed {found}"


SEEN: Mapping[str, Callable[[Member], Any]] = {
    "due_s": lambda member: member.gates.due_s(),
    "due_in_s": lambda member: (member.gates.due_s() or 0.0) - member.now_s,
    "shut": lambda member: set(member.gates.shut),
    "undone": lambda member: set(member.gates.undone),
    "anew": lambda member: member.starts.is_of_another_topic(("b", 0)),
    "requests": lambda member: member.stock.requests,
    "is_over": lambda member: member.gates.due_s() is None,
    "closes": lambda member: member.onlooker.closes,
    "is_answered": lambda member: member.stock.requests > 0,
    "lists": lambda member: member.onlooker.lists,
    "renewed": lambda member: member.stock.renewed,
    "committed": lambda member: member.stock.committed_offsets,
    "stats": lambda member: member.gates.stats(),
}

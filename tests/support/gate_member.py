"""A member of a group, with its gates, over a client that answers from tables: requests, positions, commits."""

from __future__ import annotations

from dataclasses import replace
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

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.requests += 1
        if self.down:
            raise self.down
        found = [(p, self.committed_offsets.get((p.topic, p.partition), (OFFSET_INVALID, None))) for p in partitions]
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
        *absent: str,
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

    def look(self, after_s: float = LOOK_S) -> bool:
        """One more poll; whether the successor is read."""
        self.now_s += after_s
        self.gates.follow(self.mine, self.names)
        self.gates.look(self.mine, {key for key in self.mine if key[0] not in self.gates.shut})
        return "b" not in self.gates.shut

    def topics(self) -> tuple[str, ...]:
        return self.gates.topics(self.names)

    @property
    def waits_for(self) -> str:
        (stats,) = self.gates.stats()
        return str(stats["waits_for"])

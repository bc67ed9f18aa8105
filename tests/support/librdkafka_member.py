"""A member of a group as :class:`~modeaware.confluent.group.Membership` makes it of librdkafka, over a client that
answers from tables: requests, positions, commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from modeaware.clients.partition import State
from modeaware.clients.starts import Key, Starts
from modeaware.config import ClientConfig
from modeaware.confluent.group import Callback, Membership, Subscription, member_of
from modeaware.confluent.offsets import NonMember
from modeaware.confluent.own_commits import OwnCommits
from modeaware.confluent.ownership import GroupConf
from tests.support.fake_views import FakeViews

SILENT = KafkaError._TIMED_OUT


class Stock:
    """A client and its group.

    Attributes:
        committed_offsets: what the group has committed: offset and metadata.
        first, end: of the logs of partitions.
        failures: method -> the codes that its next calls raise.
        silent: partitions whose leader does not answer.
        absent: topics that brokers do not have.
        placed: partition -> where it was assigned; ``sought``: where it was sought since.
        reads: partition -> the offset that it reads next if it has delivered nothing: a logical one is resolved once.
        is_cooperative: the protocol of the group, or None before its first assignment.
        stored: the offsets that the application has stored.
        known: partitions that the client has heard of; it ignores a pause of others.
        starting: partitions that were just assigned; the client may drop a pause of these, so it does.
    """

    def __init__(self) -> None:
        self.committed_offsets: dict[Key, tuple[int, str]] = {}
        self.leader_epochs: dict[Key, int] = {}
        self.first: dict[Key, int] = defaultdict(int)
        self.end: dict[Key, int] = defaultdict(int)
        self.positions: dict[Key, int] = {}
        self.placed: dict[Key, TopicPartition] = {}
        self.assigns = self.unassigns = 0
        self.sought: dict[Key, int] = {}
        self.reads: dict[Key, int] = {}
        self.stored: dict[Key, int] = {}
        self.is_cooperative: bool | None = None
        self.paused: set[Key] = set()
        self.known: set[Key] = set()
        self.starting: set[Key] = set()
        self.failures: dict[str, list[int]] = defaultdict(list)
        self.silent: set[Key] = set()
        self.absent: set[str] = set()
        self.commits: list[dict[Key, int]] = []
        self.results: list[tuple[KafkaError | None, list[TopicPartition]]] = []
        self.subscribed: tuple[str, ...] = ()
        self.listings: list[set[str]] = []
        self.renewed: list[str] = []
        self.unanswered: set[str] = set()
        self.stale: set[str] = set()
        self.now_s = 0.0

    def fail(self, method: str) -> None:
        if self.failures[method]:
            raise KafkaException(KafkaError(self.failures[method].pop(0)))

    def memberid(self) -> str:
        return "me"

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.subscribed = tuple(topics)

    def unsubscribe(self) -> None:
        self.subscribed = ()

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._refuse_if(self.is_cooperative is True, KafkaError._STATE)
        self._clear()
        self._add(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        self._refuse_if(self.is_cooperative is False, KafkaError._STATE)
        self._add(partitions)

    def _add(self, partitions: list[TopicPartition]) -> None:
        keys = {(p.topic, p.partition) for p in partitions}
        self._refuse_if(any(partition < 0 for _, partition in keys), KafkaError._INVALID_ARG)
        self._refuse_if(not self.placed.keys().isdisjoint(keys), KafkaError._CONFLICT)
        self.assigns += 1
        self.placed |= {(p.topic, p.partition): p for p in partitions}
        self.reads |= {(p.topic, p.partition): self._resolved(p) for p in partitions}
        self.known |= self.placed.keys()
        self.starting = keys

    def _resolved(self, partition: TopicPartition) -> int:
        key = (partition.topic, partition.partition)
        return {OFFSET_BEGINNING: self.first[key], OFFSET_END: self.end[key]}.get(partition.offset, partition.offset)

    def unassign(self) -> None:
        self.unassigns += 1
        self._clear()

    def _clear(self) -> None:
        for table in (self.placed, self.positions, self.sought, self.reads, self.stored):
            table.clear()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        keys = {(p.topic, p.partition) for p in partitions}
        self._refuse_if(not keys <= self.placed.keys(), KafkaError._INVALID_ARG)
        self.unassigns += 1
        for key in keys:
            del self.placed[key]

    @staticmethod
    def _refuse_if(refused: bool, code: int) -> None:
        if refused:
            raise KafkaException(KafkaError(code))

    def store_offsets(self, *, offsets: list[TopicPartition]) -> None:
        self.stored |= {(p.topic, p.partition): p.offset for p in offsets}

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*key) for key in self.placed]

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(p.topic, p.partition) for p in partitions} & self.known - self.starting

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(p.topic, p.partition) for p in partitions}

    def seek(self, partition: TopicPartition) -> None:
        self.fail("seek")
        key = (partition.topic, partition.partition)
        self.sought[key], self.reads[key] = partition.offset, self._resolved(partition)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        keys = [(p.topic, p.partition) for p in partitions]
        self.known.update(keys)
        return [TopicPartition(*key, self.positions.get(key, OFFSET_INVALID)) for key in keys]

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.fail("committed")
        found = []
        for key in [(p.topic, p.partition) for p in partitions]:
            offset, metadata = self.committed_offsets.get(key, (OFFSET_INVALID, ""))
            found.append(TopicPartition(*key, offset, metadata, leader_epoch=self.leader_epochs.get(key, -1)))
        return found

    def commit(self, offsets: list[TopicPartition] | None = None, *, asynchronous: bool) -> list[TopicPartition] | None:
        self.fail("commit")
        parts = offsets or []
        self.commits.append({(p.topic, p.partition): p.offset for p in parts})
        self.committed_offsets |= {(p.topic, p.partition): (p.offset, p.metadata or "") for p in parts}
        if not asynchronous:
            return parts
        self.results.append((None, parts))
        return None

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        self.listings.append({p.topic for p in partitions})
        self.fail("offsets_for_times")
        return self.listed(partitions, timeout)

    def listed(self, partitions: list[TopicPartition], timeout: float = 0.0) -> list[TopicPartition]:
        keys = [(p.topic, p.partition) for p in partitions]
        if not self.silent.isdisjoint(keys):
            self.now_s += timeout
            raise KafkaException(KafkaError(SILENT))
        if self.absent.intersection(topic for topic, _ in keys):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        tables = [self.first if p.offset == -2 else self.end for p in partitions]
        return [TopicPartition(*key, table[key]) for key, table in zip(keys, tables, strict=True)]

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.renewed.append(topic)
        if topic in self.unanswered:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = None if topic in self.stale else KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error)})


class SomeNonMember(NonMember):
    """Answers as the client does, and lists topics."""

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


class World:
    """A member of group ``g``, what is around it, and its clock."""

    def __init__(
        self, reset: str = "latest", *names: str, config: Mapping[str, Any] | None = None, **conf: Any
    ) -> None:
        self.stock = Stock()
        self.views = FakeViews()
        self.now_s = 100.0
        self.conf = GroupConf("g", may_be_range=False, offset_reset=reset, **conf)
        self.starts = Starts(self.views, reset, "g")
        self.non_member = SomeNonMember(self.stock)
        self.ownership = SimpleNamespace(
            changed=lambda topic: False,
            before_join=lambda: None,
            assigned=lambda given: given,
            is_uncertain=False,
            resolve=lambda *_: None,
            needs_rejoin=lambda given: False,
            due_s=lambda: None,
            withheld=set[Key](),
            unowned=set[Key](),
        )
        self.apply_soon = Mock()
        self._commits = OwnCommits({})
        self._on_commit = self._commits.listening({})["on_commit"]
        self.member = member_of(self.conf, ClientConfig(**(config or {})))
        stock: Any = self.stock
        self.membership = Membership(
            stock, lambda: None, self.conf, self.member, cast(Any, self.ownership), self.starts, self.non_member,
            self._commits, self.views, self.apply_soon, lambda: self.now_s,
        )  # fmt: skip
        if names:
            self.subscribe(*names)

    # What happens

    def subscribe(self, *topics: str, on_assign: Callback | None = None, on_revoke: Callback | None = None) -> None:
        """The application subscribes, or again."""
        self.membership.subscription = Subscription(topics, on_assign, on_revoke)
        self.membership.join()

    def assign(self, *keys: Key) -> None:
        """The group assigns these to the member."""
        given, assigns = [TopicPartition(*key) for key in keys], self.stock.assigns
        self.stock.is_cooperative = self.conf.incremental
        self.membership.on_assign(self.stock, given)
        if self.stock.assigns == assigns and not self.membership._closing:  # as confluent_kafka does by itself
            (self.stock.incremental_assign if self.conf.incremental else self.stock.assign)(given)

    def revoke(self, *keys: Key) -> None:
        gone, unassigns = [TopicPartition(*key) for key in keys], self.stock.unassigns
        self.membership._revoke(gone, lost=False)  # as librdkafka calls it
        if self.stock.unassigns == unassigns and self.conf.incremental:  # as confluent_kafka does by itself
            self.stock.incremental_unassign(gone)
        elif self.stock.unassigns == unassigns:
            self.stock.unassign()

    def poll(self, after_s: float = 0.0, *, inside: bool = False) -> None:
        """The application polls: results of commits come, and what is due is done."""
        self.now_s += after_s
        self.stock.starting = set()
        results, self.stock.results = self.stock.results, []
        for error, parts in results:
            self._on_commit(error, parts)
        self.membership.apply(inside=inside)

    # What is seen

    def held(self) -> set[Key]:
        return {key for key, each in self.member.partitions.items() if each.state is State.SHOWN}

    def starts_at(self, keys: Iterable[Key]) -> list[int]:
        return [self.stock.placed[key].offset for key in keys]

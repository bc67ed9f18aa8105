"""A keyed writer to a topic that is replaced, and members that read on: is every key read in its order?"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from modeaware import Consumer
from modeaware import Producer as OurProducer
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import ReplaceTopicCommand
from tests.support.background import Background
from tests.support.controlled import Controlled
from tests.support.group import settings_of
from tests.support.plain import leave
from tests.support.waiting import eventually

KEYS = 31


class Following:
    """A topic that is written, and groups of ours that read it, while it is replaced."""

    def __init__(self, served: Controlled, make_topic: Callable[[int], str], group: str) -> None:
        self.served = served
        self.name = self.topic = make_topic(12)
        self.producer = {**served.conf, "modeaware.mode.log.topic": served.log}
        self.successor = f"{self.topic}-v2"
        self.group = group

    def conf(self, strategy: str | None = None, **settings: Any) -> dict[str, Any]:
        """Settings with ``_`` for ``.``."""
        return {
            **self.producer,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            **settings_of(strategy),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def replace(self, to: int = 4, **options: Any) -> None:
        result = self.served.ask(ReplaceTopicCommand(self.topic, self.successor, to, **options))
        assert result.code is ErrorCode.NONE, result.message


class Given(NamedTuple):
    """A record that a member was given."""

    at_s: float
    member: str
    topic: str
    key: bytes
    number: int


class Writer(Background):
    """An aware producer of keyed records, numbered by key, under one name whatever that leads to.

    Attributes:
        sent: key -> how many records of it were acknowledged.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        super().__init__()
        self._producer = OurProducer({**conf, "linger.ms": 2, "enable.idempotence": True})
        self._topic = topic
        self._numbers: dict[bytes, int] = defaultdict(int)
        self.sent: dict[bytes, int] = defaultdict(int)
        self._failed: list[KafkaError] = []

    def work(self) -> None:
        while not self.done.wait(0.05):
            for key in (b"key-%d" % n for n in range(KEYS)):
                self._producer.produce(self._topic, b"%d" % self._numbers[key], key, on_delivery=self._acknowledge)
                self._numbers[key] += 1
            self._producer.poll(0)
        self._producer.flush(30)
        self._producer.close()

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        key = message.key()
        assert isinstance(key, bytes)
        self.sent[key] += 1

    def stop(self) -> None:
        super().stop()
        assert not self._failed, self._failed[:3]


class Reader(Background):
    """A member that appends what it is given to a journal that it shares with others.

    Args:
        topics: what it subscribes to.
        work_s: how long it works on each record.
        every: without ``enable.auto.commit``: it commits after so many records; 0: never.
        stock: a consumer that knows no modes.
        batch: it calls ``consume`` for so many records; 0: ``poll``.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        conf: dict[str, Any],
        journal: list[Given],
        *,
        work_s: float = 0.0,
        every: int = 50,
        stock: bool = False,
        batch: int = 0,
    ) -> None:
        super().__init__()
        self.name = name
        known = {name: value for name, value in conf.items() if not (stock and name.startswith("modeaware."))}
        self.consumer: Any = confluent_kafka.Consumer(known) if stock else Consumer(known)
        self._topics = list(topics)
        self._manual = not conf.get("enable.auto.commit", True)
        self._journal = journal
        self._work_s = work_s
        self._every = every
        self._batch = batch
        self.held: frozenset[tuple[str, int]] = frozenset()
        self.errors: list[str] = []

    def stats(self) -> object:
        """What it waits for, for messages."""
        return self.consumer.modeaware_stats()["gates"] if isinstance(self.consumer, Consumer) else None

    def faster(self) -> None:
        """It works on records no longer."""
        self._work_s = 0.0

    def work(self) -> None:
        self.consumer.subscribe(self._topics)
        try:
            self._read()
        finally:  # one that is dropped in a rebalance, unclosed, hangs librdkafka when it is collected
            leave(self.consumer)

    def _read(self) -> None:
        uncommitted = 0
        while not self.done.is_set():
            messages = self.consumer.consume(self._batch, 0.1) if self._batch else [self.consumer.poll(0.1)]
            self.held = frozenset((p.topic, p.partition) for p in self.consumer.assignment())
            for message in (each for each in messages if each is not None):
                uncommitted += self._take(message)
            if uncommitted >= self._every or all(each is None for each in messages):
                uncommitted = self._commit(uncommitted)

    def _take(self, message: Message) -> bool:
        """Handle what ``poll`` returned; return whether it was a record."""
        if message.error() is not None:
            self.errors.append(str(message.error()))
            return False
        topic, key, value = message.topic(), message.key(), message.value()
        assert topic is not None
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        self._journal.append(Given(time.monotonic(), self.name, topic, key, int(value)))
        if self._work_s:
            time.sleep(self._work_s)  # its work
        return True

    def _commit(self, uncommitted: int) -> int:
        """Return how many records are still uncommitted."""
        if uncommitted and self._manual and self._every:
            try:
                self.consumer.commit(asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION):
                    raise
                return uncommitted
        return 0


class Readers:
    """The members of one group. A context manager that stops them."""

    def __init__(self, members: Sequence[Reader], journal: list[Given]) -> None:
        self.members = list(members)
        self.journal = journal

    def __enter__(self) -> Self:
        for member in self.members:
            member.start()
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stops:
            for member in self.members:
                stops.callback(member.stop)

    def fine(self) -> bool:
        return all(member.fine() for member in self.members)

    def await_held(self, topic: str, count: int) -> None:
        """Wait until the group holds ``count`` partitions of the topic, each once."""

        def all_held() -> bool:
            assert sorted(self.held(topic)) == list(range(count)), [(m.name, sorted(m.held)) for m in self.members]
            return self.fine()

        eventually(all_held, 60)

    def held(self, topic: str) -> list[int]:
        return [partition for member in self.members for name, partition in member.held if name == topic]

    def await_given(self, topic: str, count: int = 1) -> None:
        """Wait until the group was given ``count`` records of the topic."""

        def given() -> bool:
            found = sum(given.topic == topic for given in list(self.journal))
            assert found >= count or not self.fine(), [member.stats() for member in self.members]
            return True

        eventually(given, 60)

    def await_last(self, key: bytes, number: int) -> None:
        """Wait until the group was given that record of the key."""

        def given() -> bool:
            assert any(each.key == key and each.number == number for each in list(self.journal)) or not self.fine()
            return True

        eventually(given, 60)

    def check(self, sent: dict[bytes, int], *, ordered: bool = True) -> None:
        """All that was sent is given, the records of each key for the first time in their order; and no error."""

        def firsts() -> dict[bytes, list[int]]:
            found: dict[bytes, dict[int, None]] = defaultdict(dict)
            for given in list(self.journal):
                found[given.key][given.number] = None
            return {key: list(numbers) for key, numbers in found.items()}

        def all_given() -> bool:
            found = firsts()
            missing = {key: count - len(found.get(key, ())) for key, count in sent.items()}
            assert not any(missing.values()) or not self.fine(), (missing, [each.stats() for each in self.members])
            return True

        eventually(all_given, 60)
        disordered = {key: numbers for key, numbers in firsts().items() if numbers != sorted(numbers)}
        assert not disordered or not ordered, {key: _first_wrong(numbers) for key, numbers in disordered.items()}
        assert not (found := [error for member in self.members for error in member.errors]), found

    def pause_s(self, before: str, after: str) -> float:
        """How long no record was given between the last one of a topic and the first one of the next."""
        journal = list(self.journal)
        last = max(given.at_s for given in journal if given.topic == before)
        return min(given.at_s for given in journal if given.topic == after) - last


def _first_wrong(numbers: list[int]) -> tuple[int, int]:
    return next((a, b) for a, b in itertools.pairwise(numbers) if b < a)

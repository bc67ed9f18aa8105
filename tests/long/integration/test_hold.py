"""Key order across shrinks: producers that hold keys that move (``modeaware.on.resize=hold``), before a plain group."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from contextlib import ExitStack

import confluent_kafka

from modeaware.confluent.producer import Producer
from modeaware.errors import KeyHeld
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.waiting import eventually

KEYS = 60
TARGETS = range(20, 0, -2)
"""Ten shrinks from 22 partitions; most targets do not divide the count before, so keys move between survivors, too."""


class Sender(threading.Thread):
    """Numbers the records of its own keys, and tries a held one again before the key's next."""

    def __init__(self, served: Controlled, topic: str, name: str) -> None:
        super().__init__(daemon=True)
        conf = {**served.conf, "modeaware.mode.log.topic": served.log, "modeaware.mode.source": "log"}
        self.producer = Producer({**conf, "modeaware.on.resize": "hold", "linger.ms": 5})
        self._topic = topic
        self._keys = [f"{name}-{number}".encode() for number in range(KEYS)]
        self._stopping = threading.Event()
        self.sent: Counter[bytes] = Counter()
        self.held: set[int | None] = set()
        self.rounds = 0
        self.failed: list[object] = []

    def run(self) -> None:
        while not self._stopping.wait(0.02):
            for key in self._keys:
                try:
                    value = b"%d" % self.sent[key]
                    self.producer.produce(self._topic, value, key, on_delivery=self._delivered)
                except KeyHeld as held:
                    self.held.add(held.partition)
                else:
                    self.sent[key] += 1
            self.producer.poll(0)
            self.rounds += 1
        self.producer.flush(30)
        self.producer.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)


class Readers:
    """Two members of a plain group; what they were given, in the order in which they were."""

    def __init__(self, served: Controlled, topic: str) -> None:
        conf = {
            **served.conf,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "fetch.error.backoff.ms": 10,
        }
        self.given: list[tuple[bytes, int, int, int]] = []
        self.assigned: dict[int, int] = {}
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(conf, topic, n), daemon=True) for n in range(2)]
        for thread in self._threads:
            thread.start()

    def _read(self, conf: dict[str, object], topic: str, number: int) -> None:
        consumer = confluent_kafka.Consumer(conf)
        consumer.subscribe([topic])
        while not self._stopping.is_set():
            message = consumer.poll(0.1)
            self.assigned[number] = len(consumer.assignment())
            if message is not None and message.error() is None:
                self.given.append((message.key(), int(message.value()), message.partition(), number))
        consumer.close()

    def seen(self) -> set[int]:
        """The partitions that records came from: each has a leader that answers."""
        return {partition for _, _, partition, _ in list(self.given)}

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


def test_a_plain_group_sees_each_key_in_the_order_of_sending_across_ten_shrinks(
    served: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(22)
    with ExitStack() as stack:
        readers = Readers(served, topic)
        stack.callback(readers.stop)
        eventually(lambda: sorted(readers.assigned.values()) == [11, 11], 30)
        senders = [Sender(served, topic, name) for name in ("a", "b")]
        for sender in senders:
            stack.callback(sender.stop)
            sender.start()
        eventually(lambda: readers.seen() == set(range(22)), 60)
        for target in TARGETS:
            rounds = [sender.rounds for sender in senders]
            eventually(lambda rounds=rounds: all(s.rounds > n for s, n in zip(senders, rounds, strict=True)), 30)
            served.shrink(topic, target)
            served.wait_done(topic)
            for sender in senders:
                before = Counter(sender.sent)
                eventually(lambda s=sender, before=before: all(s.sent[key] > before[key] for key in before), 30)
        for sender in senders:
            sender.stop()
        total = sum(sum(sender.sent.values()) for sender in senders)
        eventually(lambda: len(readers.given) >= total, 60)
    assert [sender.failed for sender in senders] == [[], []]
    for sender in senders:
        assert_in_order(sender, readers)
        assert sender.held & set(range(2)), "keys that moved between survivors were held as well"
        assert sender.held & set(range(2, 22)), "and those of retired partitions"
    assert len({number for *_, number in readers.given}) == 2, "both members read"
    assert {partition for _, _, partition, _ in readers.given[-2 * KEYS :]} <= {0, 1}


def assert_in_order(sender: Sender, readers: Readers) -> None:
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, number, _, _ in readers.given:
        by_key[key].append(number)
    for key, count in sender.sent.items():
        assert by_key[key] == list(range(count)), key

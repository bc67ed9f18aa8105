"""Key order across shrinks: producers that hold keys that move (``modeaware.on.resize=hold``), before a plain group."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import ExitStack

import confluent_kafka

from modeaware.confluent.producer import Producer
from modeaware.errors import KeyHeld
from tests.conftest import MakeTopic
from tests.support.background import Background
from tests.support.controlled import Controlled
from tests.support.group import Unending
from tests.support.waiting import eventually

KEYS = 60
TARGETS = range(20, 0, -2)
"""Ten shrinks from 22 partitions; most targets do not divide the count before, so keys move between survivors, too."""


class Sender(Unending[Producer]):
    """Numbers the records of its own keys, and tries a held one again before the key's next."""

    def __init__(self, served: Controlled, topic: str, name: str) -> None:
        conf = {**served.conf, "modeaware.mode.log.topic": served.log, "modeaware.mode.source": "log"}
        super().__init__(Producer({**conf, "modeaware.on.resize": "hold", "linger.ms": 5}))
        self._topic = topic
        self._keys = [f"{name}-{number}".encode() for number in range(KEYS)]
        self.sent: Counter[bytes] = Counter()
        self.held: set[int | None] = set()
        self.rounds = 0

    def write(self) -> None:
        for key in self._keys:
            try:
                self.producer.produce(self._topic, b"%d" % self.sent[key], key, on_delivery=self.to(lambda _: None))
            except KeyHeld as held:
                self.held.add(held.partition)
            else:
                self.sent[key] += 1
        self.producer.poll(0)
        self.rounds += 1

    def stop(self) -> None:
        super().stop()
        self.producer.close()


class Reader(Background):
    """A member of a plain group; what it was given goes to ``given``, in the order in which it was."""

    def __init__(self, served: Controlled, topic: str, given: list[tuple[bytes, int, int, int]], number: int) -> None:
        super().__init__()
        conf = {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 100}
        self._consumer = confluent_kafka.Consumer({**served.conf, **conf, "fetch.error.backoff.ms": 10})
        self._consumer.subscribe([topic])
        self._given, self._number = given, number
        self.assigned = 0

    def work(self) -> None:
        while not self.done.is_set():
            message = self._consumer.poll(0.1)
            self.assigned = len(self._consumer.assignment())
            if message is not None and message.error() is None:
                self._given.append((message.key(), int(message.value()), message.partition(), self._number))
        self._consumer.close()


def test_a_plain_group_sees_each_key_in_the_order_of_sending_across_ten_shrinks(
    served: Controlled, make_topic: MakeTopic
) -> None:
    topic, given = make_topic(22), list[tuple[bytes, int, int, int]]()
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(served, topic, given, number)) for number in range(2)]
        eventually(lambda: [reader.assigned for reader in readers] == [11, 11], 30)
        senders = [stack.enter_context(Sender(served, topic, name)) for name in ("a", "b")]
        eventually(lambda: {partition for _, _, partition, _ in list(given)} == set(range(22)), 60)
        for target in TARGETS:
            rounds = [sender.rounds for sender in senders]
            eventually(lambda rounds=rounds: all(s.rounds > n for s, n in zip(senders, rounds, strict=True)), 30)
            served.shrink(topic, target)
            served.wait_done(topic)
            for sender in senders:
                before = Counter(sender.sent)
                eventually(lambda s=sender, before=before: all(s.sent[key] > before[key] for key in before), 30)
        for sender in senders:
            sender.stop()  # nothing has failed
        total = sum(sum(sender.sent.values()) for sender in senders)
        eventually(lambda: len(given) >= total, 60)
    for sender in senders:
        assert_in_order(sender, given)
        assert sender.held & set(range(2)), "keys that moved between survivors were held as well"
        assert sender.held & set(range(2, 22)), "and those of retired partitions"
    assert len({number for *_, number in given}) == 2, "both members read"
    assert {partition for _, _, partition, _ in given[-2 * KEYS :]} <= {0, 1}


def assert_in_order(sender: Sender, given: list[tuple[bytes, int, int, int]]) -> None:
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for key, number, _, _ in given:
        by_key[key].append(number)
    for key, count in sender.sent.items():
        assert by_key[key] == list(range(count)), key

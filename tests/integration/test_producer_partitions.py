"""After a shrink, records lie where librdkafka itself would put them on a topic of the writable partitions only."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from modeaware.confluent.producer import Producer
from modeaware.local import Kafka
from partitioners import RULES
from tests.conftest import MakeTopic
from tests.support.fake_views import FakeViews, modes_of
from tests.support.plain import drain_topic

MANY = [b"key-%d" % n for n in range(200)]
KEYS: list[bytes | str | None] = [*MANY, "", b"", "schlüssel", b"\x00", b"\xff" * 99, None]
BEFORE, AFTER = 12, 4


def where(kafka: Kafka, topic: str) -> dict[bytes | None, list[int]]:
    """The partitions of each key's records, in the order in which they were sent (the value is a number)."""
    found: dict[bytes | None, list[tuple[int, int]]] = {}
    for message in drain_topic(kafka.bootstrap_servers, topic):
        found.setdefault(message.key(), []).append((int(message.value() or b"0"), message.partition()))
    return {key: [partition for _, partition in sorted(pairs)] for key, pairs in found.items()}


def send_all(producer: Any, topic: str) -> None:
    for number, key in enumerate(KEYS):
        producer.produce(topic, value=str(number), key=key)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("partitioner", list(RULES))
@pytest.mark.parametrize("batch", [False, True], ids=["produce", "produce_batch"])
def test_keys_lie_where_librdkafka_puts_them_on_a_topic_of_four(
    kafka: Kafka, make_topic: MakeTopic, fake_views: FakeViews, partitioner: str, batch: bool
) -> None:
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": partitioner}
    rule = RULES[partitioner]
    small, shrunk = make_topic(AFTER), make_topic(BEFORE)
    fake_views.set(shrunk, modes_of(BEFORE, AFTER))

    stock = confluent_kafka.Producer(conf)
    send_all(stock, small)
    with Producer(conf) as ours:
        if batch:
            messages = [{"key": key, "value": str(number)} for number, key in enumerate(KEYS)]
            assert ours.produce_batch(shrunk, messages) == len(KEYS)
            assert ours.flush(30) == 0
        else:
            send_all(ours, shrunk)

    theirs, got = where(kafka, small), where(kafka, shrunk)
    assert got.keys() == theirs.keys() == {key.encode() if isinstance(key, str) else key for key in KEYS}
    assert {partition for partitions in got.values() for partition in partitions} <= set(range(AFTER))
    hashed = {key for key in got if rule.is_hashed(key)}
    assert {key: got[key] for key in hashed} == {key: theirs[key] for key in hashed}
    assert (None in hashed) == (partitioner in ("consistent", "murmur2", "fnv1a"))


def test_the_time_of_the_call_decides_which_view_places_a_record(
    kafka: Kafka, make_topic: MakeTopic, fake_views: FakeViews
) -> None:
    """Invariant I7: what was handed over stays where it was put; an alias taken before follows at once."""
    topic = make_topic(BEFORE)
    conf = {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random", "linger.ms": 1000}
    with Producer(conf) as producer:
        producer.list_topics(topic)
        send = producer.produce
        for number, writable in enumerate((BEFORE, AFTER, 6)):
            fake_views.set(topic, modes_of(BEFORE, writable))
            for key in MANY:
                send(topic, str(number), key)
        assert producer.flush(30) == 0
    for key, partitions in where(kafka, topic).items():
        assert key is not None
        assert partitions == [confluent_kafka.murmur2(key, count) for count in (BEFORE, AFTER, 6)]

"""Producers with a partitioner that librdkafka does not have. No broker is needed: how many partitions there are is
given."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from modeaware import librdkafka
from modeaware.confluent import producer as producer_module
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.confluent.route_table import EveryTopic, partition_count  # private: when brokers are asked for counts
from modeaware.confluent.statistics import QueueLoads, stats_settings  # private: no figures come without a broker
from modeaware.errors import ConfigError
from partitioners import RoundRobin
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, Acquired, finish
from tests.support.waiting import eventually


def last_byte(key: bytes | None, count: int) -> int:
    return key[-1] % count if key else 0


class LastByte:
    """A user's partitioner."""

    def for_topic(self, topic: str) -> LastByte:
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        return key is not None

    def partition(self, key: bytes | None, count: int) -> int:
        return last_byte(key, count)


NAME = "tests.unit.test_producer_partitioners:"


@pytest.mark.parametrize("chosen", [LastByte, LastByte(), last_byte, NAME + "last_byte"])
def test_a_users_partitioner_picks_among_all_and_then_among_the_writable(
    views: FakeViews, monkeypatch: pytest.MonkeyPatch, chosen: Any
) -> None:
    given: list[int] = []

    class Recording(Producer.__mro__[1]):  # type: ignore[misc] # the stock class
        def produce(self, topic: str, value: Any = None, key: Any = None, partition: int = -1, **more: Any) -> None:
            given.append(partition)

    monkeypatch.setattr(producer_module, "partition_count", lambda producer, timeout_s: lambda topic: 12)
    monkeypatch.setattr("confluent_kafka.Producer", Recording)
    producer = Producer({**CONF, "partitioner": chosen})
    send = producer.produce
    send("orders", b"v", b"\x0b")
    views.set("orders", modes_of(12, 5))
    send("orders", b"v", b"\x0b")
    with pytest.raises(RetiredPartitionChosen):
        send("orders", b"v", b"\x0b", 11)
    send("other", b"v", b"\x0b")
    views.set("orders", modes_of(12, 12))
    producer.produce("orders", b"v", b"\x0b", 3)
    assert given == [11, 1, 11, 3]
    finish(producer)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ("no.such.module:name", "cannot load"),
        (NAME + "CONF", "is not a partitioner"),
        ("sticky", "uniform_sticky"),
    ],
)
def test_what_is_none_is_refused_before_anything_is_made(acquired: Acquired, chosen: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer({**CONF, "partitioner": chosen})
    assert acquired.asked == []


def test_the_count_is_asked_again_when_it_is_old_and_no_answer_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, counts, asked = [0.0], [4], []

    def count(topic: str) -> int:
        asked.append(topic)
        if not counts[0]:
            raise KafkaException("no brokers")
        return counts[0]

    routes = EveryTopic(RoundRobin(), count, 300.0, clock=lambda: now[0])
    first = routes.get("orders")
    assert first.writable == (0, 1, 2, 3)
    assert routes.get("orders") is first
    now[0] = 301.0
    assert routes.get("orders") is first  # with its partitioner's state: nothing has changed
    counts[0], now[0] = 0, 602.0
    assert routes.get("orders") is routes.get("orders") is first
    assert len(asked) == 3  # brokers that do not answer are not asked again with each record
    assert "orders: partition count unknown; continuing with 4: no brokers" in caplog.text
    counts[0], now[0] = 6, 903.0
    grown = routes.get("orders")
    assert len(grown.writable) == 6
    assert asked == ["orders"] * 4
    with pytest.raises(KafkaException, match="of another"):
        EveryTopic(RoundRobin(), Mock(side_effect=KafkaException("of another")), 300.0).get("orders")


def test_partition_count_is_awaited_while_a_topic_is_being_created(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown, refused = (
        KafkaError(code) for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    )
    answers = [(unknown, {}), (None, {}), (None, dict.fromkeys(range(12))), (refused, {}), (unknown, {})]

    class Stock:
        def list_topics(self, topic: str, timeout: float) -> Any:
            error, partitions = answers.pop(0)
            return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=partitions)})

    monkeypatch.setattr(librdkafka, "Producer", Stock)
    stock: Any = Stock()
    assert partition_count(stock, 30.0)("orders") == 12
    for timeout_s, error in ((30.0, refused), (0.0, unknown)):
        with pytest.raises(KafkaException) as caught:
            partition_count(stock, timeout_s)("orders")
        assert caught.value.args[0] == error


# The load that uniform_sticky follows


BROKERS = {
    "a": {"nodeid": 1, "outbuf_msg_cnt": 2, "waitresp_msg_cnt": 3},
    "b": {"nodeid": 2, "outbuf_msg_cnt": 0, "waitresp_msg_cnt": 0},
}


def figures(*partitions: tuple[int, int, int]) -> str:
    """Of partition 0, 1, ...: its leader, the records produced and the records sent."""
    found = {str(n): {"leader": leader, "msgs": m, "txmsgs": t} for n, (leader, m, t) in enumerate(partitions)}
    unassigned = {"leader": -1, "msgs": 5, "txmsgs": 0}
    return json.dumps({"brokers": BROKERS, "topics": {"orders": {"partitions": {**found, "-1": unassigned}}}})


def test_what_waits_and_what_the_leader_has_not_answered() -> None:
    loads, all_of_it = QueueLoads(), (0, 1, 2)
    assert loads.of("orders", all_of_it) == ()
    loads.add(figures((1, 10, 4), (2, 10, 4), (2, 4, 9)))  # sent more often than produced: retries
    assert loads.of("orders", all_of_it) == [11, 6, 0]
    assert loads.of("orders", all_of_it) is loads.of("orders", all_of_it)
    assert loads.of("orders", (1, 7)) == [6, 0]
    assert loads.of("others", (0,)) == ()


def test_the_lowest_of_three_looks_counts() -> None:
    loads, one = QueueLoads(), (0,)
    for waiting, lowest in ((9, 9), (4, 4), (7, 4), (8, 4), (6, 6), (5, 5)):
        loads.add(figures((2, 10 + waiting, 10)))
        assert loads.of("orders", one) == [lowest]


@pytest.mark.parametrize(
    ("configured", "interval"),
    [({}, 1000), ({"statistics.interval.ms": 2500}, 625), ({"statistics.interval.ms": "?"}, None)],
)
def test_statistics_come_at_a_fraction_of_the_interval_configured(configured: Any, interval: int | None) -> None:
    assert stats_settings(configured, print).get("statistics.interval.ms") == interval


def test_a_producer_looks_at_the_statistics_that_its_caller_asked_for_too(
    acquired: Acquired, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    looked: list[str] = []
    monkeypatch.setattr(QueueLoads, "add", lambda _loads, statistics: looked.append(statistics))
    conf = {**CONF, "partitioner": "uniform_sticky", "stats_cb": given.append, "statistics.interval.ms": 10}
    producer = Producer(conf)
    eventually(lambda: producer.poll(0.01) >= 0 and given and looked)
    assert given[0] == looked[0]
    finish(producer)


IN_CALLBACKS = """
import time, modeaware
from modeaware.testing import ScriptedModes
with ScriptedModes():
    producer = modeaware.Producer({
        "test.mock.num.brokers": 1, "bootstrap.servers": "127.0.0.1:1", "partitioner": "minimal_movement"})
    done = []
    def delivered(error, message):
        done.append(message.topic())
        if len(done) == 1:
            producer.produce("dead-letters", b"v", b"k", on_delivery=delivered)
    for _ in range(3):
        producer.produce("orders", b"v", b"k", on_delivery=delivered)
    deadline_s = time.monotonic() + 20
    while len(done) < 4 and time.monotonic() < deadline_s:
        producer.poll(0.5)
    producer.close()
    print(sorted(done))
"""


def test_records_of_another_topic_are_sent_in_a_delivery_callback() -> None:
    """A request for its partitions in the thread of the callback would end the process (confluent_kafka 2.16)."""
    told = subprocess.run([sys.executable, "-c", IN_CALLBACKS], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout) == (0, "['dead-letters', 'orders', 'orders', 'orders']\n"), told.stderr

"""The load that ``uniform_sticky`` follows: what librdkafka's statistics say is on its way to each partition."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaException

from modeaware.confluent._load import QueueLoads  # private: librdkafka sends no figures without a broker
from modeaware.confluent.producer import Producer
from tests.support.offline import CONF, Acquired, finish
from tests.support.waiting import eventually

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
    loads.look(figures((1, 10, 4), (2, 10, 4), (2, 4, 9)))  # sent more often than produced: retries
    assert loads.of("orders", all_of_it) == [11, 6, 0]
    assert loads.of("orders", all_of_it) is loads.of("orders", all_of_it)
    assert loads.of("orders", (1, 7)) == [6, 0]
    assert loads.of("others", (0,)) == ()


def test_the_lowest_of_three_looks_counts() -> None:
    loads, one = QueueLoads(), (0,)
    for waiting, lowest in ((9, 9), (4, 4), (7, 4), (8, 4), (6, 6), (5, 5)):
        loads.look(figures((2, 10 + waiting, 10)))
        assert loads.of("orders", one) == [lowest]


def test_a_producer_looks_at_the_statistics_that_its_caller_asked_for_too(
    acquired: Acquired, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    looked: list[str] = []
    monkeypatch.setattr(QueueLoads, "look", lambda _loads, statistics: looked.append(statistics))
    conf = {**CONF, "partitioner": "uniform_sticky", "stats_cb": given.append, "statistics.interval.ms": 10}
    producer = Producer(conf)

    def seen() -> bool:
        producer.poll(0.01)
        return bool(given and looked)

    eventually(seen)
    assert given[0] == looked[0]
    finish(producer)


def test_a_bad_interval_is_librdkafkas_to_refuse(acquired: Acquired) -> None:
    with pytest.raises(KafkaException, match=r"statistics\.interval\.ms"):
        Producer({**CONF, "partitioner": "uniform_sticky", "statistics.interval.ms": "soon"})

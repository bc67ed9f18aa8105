"""The load that ``uniform_sticky`` follows: what librdkafka's statistics say is on its way to each partition."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaException

from modeaware.confluent._load import QueueLoads
from modeaware.confluent._routed import Unverified
from modeaware.confluent.producer import Producer
from tests.support.fake_views import FakeViews, modes_of
from tests.support.offline import CONF, Acquired, finish

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


def test_a_shrunk_topics_producer_draws_by_it(acquired: Acquired, views: FakeViews) -> None:
    views.set("orders", modes_of(4, 3))
    given: list[Any] = []
    producer = Producer({**CONF, "partitioner": "uniform_sticky", "batch.size": 1, "stats_cb": given.append})
    assert producer._modeaware is not None
    route = producer._modeaware.router._routes["orders"]
    assert isinstance(route, Unverified)
    route = route.route
    assert route.load is not None
    loads: Any = route.load
    loads.__self__.look(figures((2, 1_000_000, 0), (2, 0, 0), (2, 1_000_000, 0)))
    assert {route.pick(None, 100) for _ in range(50)} == {1}
    finish(producer)


def test_another_partitioner_asks_for_no_statistics(acquired: Acquired, views: FakeViews) -> None:
    producer = Producer({**CONF, "partitioner": "round_robin"})
    assert producer._modeaware is not None
    assert producer._modeaware.router._load is None
    finish(producer)


def test_a_bad_interval_is_librdkafkas_to_refuse(acquired: Acquired) -> None:
    with pytest.raises(KafkaException, match=r"statistics\.interval\.ms"):
        Producer({**CONF, "partitioner": "uniform_sticky", "statistics.interval.ms": "soon"})

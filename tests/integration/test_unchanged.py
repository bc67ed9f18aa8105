"""Looks that are compared as bytes, on a real Kafka: each change shows, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition

from modeaware.cluster.cluster import Cluster
from modeaware.cluster.metadata import ids_of_each_broker
from modeaware.cluster.unchanged import IdsOfOneBroker, OffsetsWatch
from modeaware.errors import ClusterError, ErrorCode
from modeaware.local import Kafka
from modeaware.wire.brokers import Brokers
from modeaware.wire.requests import MetadataRequest
from modeaware.wire.transport import Repeated
from tests.support.modelog import RealLog
from tests.support.plain import create_topic, produce_keyed
from tests.support.waiting import eventually

PARTITIONS = 3


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with closing(Cluster({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        yield cluster


@pytest.fixture
def topics(kafka: Kafka) -> Iterator[list[str]]:
    log = RealLog(kafka.bootstrap_servers)
    names = sorted(f"{log.topic}-{name}" for name in "abc")
    for name in names:
        create_topic(kafka.bootstrap_servers, name, PARTITIONS, configs={})
    yield names
    log.close()


def test_ids_are_decoded_where_they_differ(cluster: Cluster, topics: list[str], kafka: Kafka) -> None:
    look, missing = IdsOfOneBroker(cluster.brokers), f"{topics[0]}-missing"
    (every,) = ids_of_each_broker(cluster.brokers, [*topics, missing]).values()
    first = look([*topics, missing])
    assert first == every
    assert look([*topics, missing]) is first
    assert set(look(topics)) == set(topics), "of other names"
    create_topic(kafka.bootstrap_servers, missing, 1, configs={})
    eventually(lambda: look([*topics, missing])[missing] is not None)
    cluster.admin.delete_topics([missing])[missing].result(30)
    eventually(lambda: look([*topics, missing]) == first)


def test_a_request_that_failed_is_made_anew(
    cluster: Cluster, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next broker may be of another version."""
    look, ask, asked = IdsOfOneBroker(cluster.brokers), cluster.brokers.ask, list[object]()

    def failing_once(request: object) -> object:
        asked.append(request)
        if len(asked) == 3:
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        return ask(request)

    monkeypatch.setattr(cluster.brokers, "ask", failing_once)
    first = look(topics)
    assert look(topics) is first
    with pytest.raises(ClusterError):
        look(topics)
    assert look(topics) == first
    assert asked[0] is asked[1] is asked[2] is not asked[3]


def test_any_change_of_a_log_shows_once(cluster: Cluster, topics: list[str], kafka: Kafka) -> None:
    shapes = {name: cluster.shape(name) for name in topics}
    leaders = {
        (name, p): shape.leaders[p] for name, shape in shapes.items() if shape is not None for p in range(PARTITIONS)
    }
    watch = OffsetsWatch(cluster.brokers)
    assert [watch.unchanged(leaders) for _ in range(3)] == [False, True, True]
    produce_keyed(kafka.bootstrap_servers, topics[1], [(b"k", b"v")] * 3, partition=2)
    assert [watch.unchanged(leaders) for _ in range(2)] == [False, True], "an end"
    last = TopicPartition(topics[1], 2, 2)
    cluster.admin.delete_records([last])[last].result(30)
    assert [watch.unchanged(leaders) for _ in range(2)] == [False, True], "a log start"
    fewer = {key: leader for key, leader in leaders.items() if key[0] != topics[0]}
    assert [watch.unchanged(fewer) for _ in range(2)] == [False, True], "other partitions"
    later = {key: (node, epoch + 1) for key, (node, epoch) in leaders.items()}
    assert [watch.unchanged(later) for _ in range(3)] == [False] * 3, "an error that stays is no rest"
    nowhere = leaders | {(topics[0], 0): (-1, -1)}
    assert [watch.unchanged(nowhere) for _ in range(2)] == [False, False], "no leader"
    assert [watch.unchanged(leaders) for _ in range(2)] == [False, True]
    assert [watch.unchanged({}) for _ in range(2)] == [True, True]
    cluster.admin.delete_topics([topics[0]])[topics[0]].result(30)
    eventually(lambda: not watch.unchanged(leaders))


def test_a_version_that_brokers_do_not_have_is_named(cluster: Cluster) -> None:
    brokers: Brokers = cluster.brokers
    with pytest.raises(ClusterError, match="Metadata") as raised:
        brokers.ask(Repeated(MetadataRequest(topics=[], min_version=99)))
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION

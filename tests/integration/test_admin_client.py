"""Our AdminClient against a real controller on a real Kafka; every test has a mode log of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient as StockAdminClient
from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions
from modeaware.controller.daemon import Controller
from modeaware.errors import ControllerUnavailable, ErrorCode
from modeaware.local import Kafka
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import produce_keyed, watermarks
from tests.support.waiting import eventually

TIMEOUT_S = 30.0
RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.fixture
def mode_log(request: pytest.FixtureRequest, make_group: Callable[[], str]) -> str:
    """That of the module's controller where the test asks for one, else one that nobody has made."""
    served: Controlled | None = request.getfixturevalue("served") if "controller" in request.fixturenames else None
    return served.log if served is not None else f"modes-{make_group()}"


@pytest.fixture
def admin(kafka: Kafka, mode_log: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "modeaware.mode.log.topic": mode_log}) as admin:
        yield admin


def _modes(admin: AdminClient, topic: str) -> tuple[PartitionMode, ...]:
    return admin.describe_modes([topic])[topic].result(TIMEOUT_S).modes


def _count(kafka: Kafka, topic: str) -> int:
    admin = StockAdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions)


def test_shrink_to_none_revive_and_grow(
    kafka: Kafka, admin: AdminClient, controller: Controller, make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    produce_keyed(kafka.bootstrap_servers, topic, ((b"k%d" % i, b"v") for i in range(100)))
    result = admin.delete_partitions({topic: DeletePartitions(2)}, delay_ms=0)[topic].result(TIMEOUT_S)
    assert dict(result.retired) == dict.fromkeys(range(2, 6), RO)

    eventually(lambda: _modes(admin, topic) == (RW,) * 2 + (NONE,) * 4)
    eventually(lambda: all(watermarks(kafka.bootstrap_servers, topic)[p][0] > 0 for p in range(2, 6)))

    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    assert _modes(admin, topic) == (RW,) * 4 + (NONE,) * 2
    assert _count(kafka, topic) == 6, "revived, not created"

    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(TIMEOUT_S)
    eventually(lambda: _modes(admin, topic) == (RW,) * 8)
    assert _count(kafka, topic) == 8


def test_a_topic_never_changed_is_grown_by_the_brokers(
    kafka: Kafka, admin: AdminClient, controller: Controller, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    admin.create_partitions([NewPartitions(topic, 5)], validate_only=True)[topic].result(TIMEOUT_S)
    assert _count(kafka, topic) == 2
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    eventually(lambda: _count(kafka, topic) == 5)
    assert _modes(admin, topic) == ()


def test_without_a_mode_log_it_is_the_stock_client_and_creates_none(
    kafka: Kafka, admin: AdminClient, mode_log: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    assert admin.describe_modes() == {}
    assert _modes(admin, topic) == ()
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    assert caught.value.args[0].code() == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(ControllerUnavailable, match="start one with"):
        admin.delete_partitions({topic: DeletePartitions(1)}, request_timeout=2.0)[topic].result(TIMEOUT_S)
    assert mode_log not in admin.list_topics(timeout=TIMEOUT_S).topics

"""KIP-195's createPartitions on three real brokers: each of its errors that a KRaft broker emits, and growth by 199."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from modeaware import AdminClient, CreationResult, NewPartitions
from modeaware.admin.creation import created_partitions
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.state import topic_phase
from modeaware.local import LocalKafka
from modeaware.modes import PartitionMode
from modeaware.wire.brokers import Brokers
from tests.conftest import topic_maker
from tests.support.controlled import Controlled, produce
from tests.support.plain import create_topic
from tests.support.reassigning import on_every_broker
from tests.support.waiting import eventually

TIMEOUT_S = 40.0
RW, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE


@pytest.fixture
def admin(setting: Controlled) -> Iterator[AdminClient]:
    with AdminClient({**setting.conf, "modeaware.mode.log.topic": setting.log}) as admin:
        yield admin


@pytest.fixture
def topic(kafka3: LocalKafka) -> str:
    """One partition, two replicas, and every broker knows it."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    create_topic(kafka3.bootstrap_servers, name, 1, replication_factor=2, configs={})
    with closing(Brokers({"bootstrap.servers": kafka3.bootstrap_servers})) as brokers:
        eventually(lambda: all(on_every_broker(brokers, name)))
    return name


def replicas(kafka: LocalKafka, topic: str) -> dict[int, tuple[int, ...]]:
    with closing(Brokers({"bootstrap.servers": kafka.bootstrap_servers})) as brokers:
        return created_partitions(brokers, [topic]).get(topic, {})


def grow(admin: AdminClient, topic: str, *args: Any, **kwargs: Any) -> CreationResult:
    result = admin.create_partitions({topic: NewPartitions.increase_to(*args)}, **kwargs)[topic].result(TIMEOUT_S)
    assert isinstance(result, CreationResult)
    return result


def refused(admin: AdminClient, topic: str, *args: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        grow(admin, topic, *args)
    assert caught.value.topic == topic
    return caught.value


def test_from_1_to_200_in_one_call_and_the_answer_waits_for_them(
    kafka3: LocalKafka, admin: AdminClient, topic: str
) -> None:
    result = grow(admin, topic, 200, timeout_ms=30_000)
    assert result == CreationResult(topic, tuple(range(1, 200)))
    result.raise_for_under_replication()
    eventually(lambda: len(replicas(kafka3, topic)) == 200)


def test_what_cannot_be_is_refused_with_the_brokers_code(kafka3: LocalKafka, admin: AdminClient, topic: str) -> None:
    before = replicas(kafka3, topic)
    for count in (0, 1):
        assert refused(admin, topic, count).code is ErrorCode.INVALID_PARTITIONS
    for assignment in ([[1]], [[1, 2, 3]], [[1, 1]], [[1, 9]], [[1, 2], [2, 3]]):
        assert refused(admin, topic, 2, assignment).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    # The KIP has INVALID_REQUEST for too few lists; KRaft says this.
    assert refused(admin, topic, 3, [[1, 2]]).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert replicas(kafka3, topic) == before


def test_retired_partitions_are_revived_first_and_assignments_are_for_the_new_ones(
    kafka3: LocalKafka, setting: Controlled, admin: AdminClient
) -> None:
    topic = topic_maker(kafka3)(4)
    setting.start()
    produce(setting, topic, 50)
    setting.shrink(topic, 2)
    eventually(lambda: setting.modes(topic) == (RW, RW, NONE, NONE), TIMEOUT_S)
    before = replicas(kafka3, topic)

    assert grow(admin, topic, 3) == CreationResult(topic, ())
    assert setting.modes(topic) == (RW, RW, RW, NONE)
    assert replicas(kafka3, topic) == before, "revived, not created"

    assert refused(admin, topic, 5, [[1], [2]]).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    placed = tuple(reversed(before[3]))
    assert grow(admin, topic, 5, [placed], validate_only=True).partitions == (4,)
    assert replicas(kafka3, topic) == before
    assert grow(admin, topic, 5, [placed]) == CreationResult(topic, (4,))
    # Any broker is asked, and each learns of it in its own time.
    eventually(lambda: replicas(kafka3, topic) == {**before, 4: placed}, TIMEOUT_S)
    setting.wait_for(topic, lambda record: topic_phase(record) == "done")
    assert setting.modes(topic) == (RW,) * 5

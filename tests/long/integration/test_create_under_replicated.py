"""KIP-409 on three real brokers in three racks, of which one has been killed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from modeaware import AdminClient, CreationResult, NewPartitions, NewTopic
from modeaware.admin.creation import created_partitions, missing_replicas
from modeaware.cluster.metadata import registered_brokers
from modeaware.config import ENABLED, PREFER_OBSERVED
from modeaware.errors import CreatedUnderReplicated, ErrorCode, RequestRefused
from modeaware.local import LocalKafka
from modeaware.modelog.reader import read_mode_log
from modeaware.wire.brokers import Brokers
from modeaware.wire.retries import Deadline
from tests.support.controlled import Controlled, produce
from tests.support.plain import create_topic
from tests.support.waiting import eventually

TIMEOUT_S = 60.0
RACKS = {1: "rack-1", 2: "rack-2", 3: "rack-3"}
DOWN = 3


def follow(setting: Controlled, policy: str) -> None:
    """Start a controller with a policy, and wait until it has written it and the brokers down."""
    setting.start(under_replicated_creation=policy)

    def seen() -> bool:
        record = read_mode_log(setting.conf, setting.log, 20).observed_brokers
        return record is not None and (record.policy, dict(record.brokers)) == (policy, RACKS)

    eventually(seen, TIMEOUT_S)


@pytest.fixture
def brokers(kafka3: LocalKafka) -> Iterator[Brokers]:
    with closing(Brokers({"bootstrap.servers": kafka3.bootstrap_servers})) as brokers:
        yield brokers


@contextmanager
def killed(kafka3: LocalKafka, brokers: Brokers) -> Iterator[None]:
    """Broker 3 is dead, and the cluster knows it; afterwards it is back."""
    broker = kafka3.brokers[DOWN - 1]
    broker.kill()
    try:
        eventually(lambda: not registered_brokers(brokers).brokers[DOWN].live, TIMEOUT_S)
        yield
    finally:
        broker.start()
        eventually(lambda: registered_brokers(brokers).brokers[DOWN].live, TIMEOUT_S)


def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def create(admin: AdminClient, topic: str, count: int, factor: int, minimum: int, **kwargs: bool) -> CreationResult:
    new = NewTopic(topic, count, factor, min_required_replication_factor=minimum)
    result = admin.create_topics([new], **kwargs)[topic].result(TIMEOUT_S)
    assert isinstance(result, CreationResult)
    return result


def grow(admin: AdminClient, topic: str, count: int, minimum: int) -> CreationResult:
    new = NewPartitions.increase_to(count, min_required_replication_factor=minimum)
    result = admin.create_partitions({topic: new})[topic].result(TIMEOUT_S)
    assert isinstance(result, CreationResult)
    return result


def refused(step: Callable[[], object]) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        step()
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    return caught.value


def replicas(brokers: Brokers, topic: str) -> dict[int, tuple[int, ...]]:
    return created_partitions(brokers, [topic]).get(topic, {})


def placed(brokers: Brokers, topic: str, count: int) -> dict[int, tuple[int, ...]]:
    """The replicas of so many partitions, of which the broker that is asked may hear a little later."""
    eventually(lambda: len(replicas(brokers, topic)) == count, TIMEOUT_S)
    return replicas(brokers, topic)


def full(brokers: Brokers, topic: str) -> bool:
    """Whether all of its replicas are in sync."""
    known = list(replicas(brokers, topic))
    return bool(known) and not missing_replicas(brokers, topic, known, Deadline(10.0))


@pytest.mark.parametrize("policy", [ENABLED, PREFER_OBSERVED])
def test_with_one_rack_down(kafka3: LocalKafka, setting: Controlled, brokers: Brokers, policy: str) -> None:
    follow(setting, policy)
    grown, few, all_of_them, none = name(), name(), name(), name()
    create_topic(setting.servers, grown, 1, replication_factor=3, configs={})
    conf = {**setting.conf, "modeaware.mode.log.topic": setting.log}
    with killed(kafka3, brokers), AdminClient(conf) as admin:
        told = create(admin, all_of_them, 6, 3, 2, validate_only=True)
        assert (told.validate_only, dict(told.under_replicated)) == (True, dict.fromkeys(range(6), (DOWN,)))
        assert not replicas(brokers, all_of_them)

        made = create(admin, all_of_them, 6, 3, 2)
        assert made == CreationResult(all_of_them, tuple(range(6)), dict.fromkeys(range(6), (DOWN,)))
        with pytest.raises(CreatedUnderReplicated, match=r"0 \(brokers 3\)"):
            made.raise_for_under_replication()
        made_of = placed(brokers, all_of_them, 6).values()
        assert all(sorted(ids) == [1, 2, DOWN] and ids[0] != DOWN for ids in made_of)
        assert sorted(ids[0] for ids in made_of) == [1, 1, 1, 2, 2, 2], "leaders are even, and alive"

        assert "only 2 brokers are alive (1, 2)" in str(refused(lambda: create(admin, none, 1, 3, 3)))
        assert not replicas(brokers, none)
        refused(lambda: create(admin, none, 1, 4, 2))

        # With two replicas the policies differ: the live racks are enough, or all racks are used.
        two = create(admin, few, 6, 2, 1)
        assert (two.under_replicated == {}) is (policy == ENABLED)
        if policy == PREFER_OBSERVED:
            assert set(two.under_replicated.values()) == {(DOWN,)}
        produce(setting, all_of_them, 20)

        refused(lambda: grow(admin, grown, 2, 3))
        assert len(placed(brokers, grown, 1)) == 1
        assert grow(admin, grown, 3, 2) == CreationResult(grown, (1, 2), {1: (DOWN,), 2: (DOWN,)})
    for topic in (all_of_them, few, grown):
        eventually(partial(full, brokers, topic), TIMEOUT_S)
        assert {n for ids in replicas(brokers, topic).values() for n in ids} >= {1, 2}

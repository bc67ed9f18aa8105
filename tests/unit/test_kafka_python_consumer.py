"""Parts of modeaware.kafka_python.KafkaConsumer without a broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kafka.consumer.subscription_state import SubscriptionState
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndMetadata, TopicPartition

from modeaware.kafka_python import KafkaConsumer
from modeaware.kafka_python._holding import Holding
from modeaware.kafka_python._idle import IdleCommits
from modeaware.kafka_python._starts import Starts
from modeaware.modes import PartitionMode
from tests.support.fake_views import FakeViews, modes_of
from tests.support.kafka_python_offline import OFFLINE, TOPIC
from tests.support.waiting import eventually

# kafka-python leaves a socket open that has not connected when its client is closed.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
ZERO, ONE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
NONE = PartitionMode.NONE


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()  # those sockets, while their warnings are ignored


class World:
    """What is assigned, and which of it is readable."""

    def __init__(self) -> None:
        self.views = FakeViews()
        self.state = SubscriptionState("earliest")
        self.state.subscribe([TOPIC])
        self.holding = Holding(self.state, Starts(self.views.view, "earliest"), self.views.view)
        self.give(ZERO, ONE)

    def give(self, *partitions: TopicPartition) -> None:
        self.state.assign_from_subscribed(list(partitions))
        self.holding.settle()

    def readable(self, count: int) -> None:
        self.views.set(TOPIC, modes_of(2, count, NONE))
        self.holding.settle()

    def pause(self, partition: TopicPartition) -> None:
        self.state.pause(partition)
        self.holding.paused_by_application([partition])

    def resume(self, partition: TopicPartition) -> None:
        for each in self.holding.resumed_by_application([partition]):
            self.state.resume(each)


def test_what_the_application_paused_is_paused_when_it_is_shown_again_and_nothing_else() -> None:
    world = World()
    world.pause(ONE)
    world.readable(1)
    world.readable(1)
    assert (world.holding.held(), world.holding.hidden) == ({ZERO}, {ONE})
    world.readable(2)
    assert world.state.is_paused(ONE)
    world.readable(1)
    world.resume(ONE)
    assert world.state.is_paused(ONE), "hidden"
    world.readable(2)
    assert not world.state.is_paused(ONE)


class Coordinator:
    """Keeps the commits of a group."""

    def __init__(self, **committed: int) -> None:
        self.committed = {TopicPartition(TOPIC, int(name[1:])): offset for name, offset in committed.items()}
        self.away = False

    def fetch_committed_offsets(self, partitions: set[TopicPartition], timeout_ms: int) -> dict[TopicPartition, Any]:
        if self.away:
            raise KafkaTimeoutError
        return {p: OffsetAndMetadata(self.committed[p], "", -1) for p in partitions & self.committed.keys()}

    def commit_offsets_sync(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int) -> None:
        self.committed.update({partition: offset.offset for partition, offset in offsets.items()})


@pytest.mark.parametrize(
    ("before_moves", "changed", "committed"),
    [(True, {TOPIC}, {ZERO: 3, ONE: 9}), (True, set(), {ONE: 9}), (False, {TOPIC}, {ONE: 9})],
)
def test_what_a_cooperative_rebalance_may_take_is_committed_while_its_position_is_known(
    before_moves: bool, changed: set[str], committed: dict[TopicPartition, int]
) -> None:
    world = World()
    world.views.set(TOPIC, modes_of(2, 1))
    starts = Starts(world.views.view, "latest")
    starts.starts = {ZERO: 3, ONE: 9}
    for partition, offset in starts.starts.items():
        world.state.seek(partition, offset)
    coordinator = Coordinator()
    commits = IdleCommits(coordinator, world.holding, starts, changed, before_moves=before_moves)
    coordinator.away = True
    assert not commits.commit()
    coordinator.away = False
    assert commits.commit()
    assert coordinator.committed == committed
    coordinator.away = True
    assert commits.commit(), "nothing is left to ask for"


def test_a_consumer_that_is_dropped_gives_its_views_back(views: FakeViews) -> None:
    consumer = KafkaConsumer(TOPIC, **OFFLINE, group_id="g")
    assert views.listener_count == 1
    consumer.pause()
    net, coordinator = consumer._net, consumer._coordinator
    del consumer
    gc.collect()
    eventually(lambda: views.closed and views.listener_count == 0)
    coordinator.close(autocommit=False, timeout_ms=0)  # kafka-python leaves its thread running
    net.stop()

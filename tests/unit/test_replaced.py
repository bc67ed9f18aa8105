"""Records of topics that were deleted or made anew: noticed within seconds, removed on every broker's word."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from modeaware.cluster.metadata import topic_ids
from modeaware.controller.cluster_watch import (
    COST_SHARE,
    LONGEST_INTERVAL_S,
    TOPICS_INTERVAL_S,
    TopicWatch,
    replaced_records,
)
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from tests.support.engine_world import INTERVAL_MS, World
from tests.support.lifecycle import TOPIC_ID, admitted, shrink
from tests.support.modelog import fold

OTHER = "another-id"
RECORD = admitted(shrink(4))


@pytest.mark.parametrize(
    ("told", "replaced"),
    [
        ([OTHER, OTHER], True),
        ([OTHER, "a-third"], True),
        ([OTHER, TOPIC_ID], False),
        ([OTHER, None], False),
        ([None, None], False),
        ([TOPIC_ID], False),
        ([], False),
    ],
)
def test_a_record_is_replaced_when_every_broker_names_another_id(told: Sequence[str | None], replaced: bool) -> None:
    found = replaced_records([RECORD], [{RECORD.topic: topic_id, "other": "x"} for topic_id in told])
    assert found == ((RECORD,) if replaced else ())
    assert replaced_records([RECORD], [{RECORD.topic: OTHER}, {}]) == ()


def test_broker_that_returns_no_topic_id_decides_nothing() -> None:
    told = SimpleNamespace(name="orders", error_code=KafkaError.LEADER_NOT_AVAILABLE, topic_id=uuid.UUID(int=0))
    assert topic_ids(SimpleNamespace(topics=[told])) == {}


class Brokers:
    """What two brokers say of the one topic; the first is the one that any question goes to."""

    def __init__(self, world: World) -> None:
        self.told: list[str | None] = [world.cluster.topic_id] * 2
        self.failure: ClusterError | None = None
        self.asked: list[str] = []
        self.cost_ms = 0
        self._world = world

    def one(self, names: Sequence[str]) -> Mapping[str, str | None]:
        self.asked.append("one")
        self._world.clock.advance(self.cost_ms)
        return dict.fromkeys(names, self.told[0])

    def each(self, names: Sequence[str]) -> Mapping[int, Mapping[str, str | None]]:
        self.asked.append("each")
        if self.failure is not None:
            raise self.failure
        return {node: dict.fromkeys(names, topic_id) for node, topic_id in enumerate(self.told)}


class TestWatch:
    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.shrink(4)
        world.run(20_000)
        return world

    @pytest.fixture
    def brokers(self, world: World) -> Brokers:
        return Brokers(world)

    @pytest.fixture
    def watch(self, world: World, brokers: Brokers) -> TopicWatch:
        return TopicWatch(world.engine, brokers.one, brokers.each, world.clock)

    @pytest.mark.parametrize("doubt", [None, "the record's id", "no such topic", "no answer"])
    def test_a_topic_made_anew_loses_its_record_once_every_broker_tells_another_id(
        self, world: World, brokers: Brokers, watch: TopicWatch, doubt: str | None
    ) -> None:
        watch.step()
        assert len(world.engine.records) == 1
        if doubt is not None:
            brokers.told = [OTHER, world.record.topic_id if doubt == "the record's id" else None]
            brokers.failure = ClusterError(doubt, code=ErrorCode.REQUEST_TIMED_OUT) if doubt == "no answer" else None
            world.clock.advance(round(TOPICS_INTERVAL_S * 1000))
            watch.step()
            assert len(world.engine.records) == 1
        brokers.told, brokers.failure = [OTHER, OTHER], None
        world.clock.advance(round(TOPICS_INTERVAL_S * 1000))
        watch.step()
        assert world.engine.records == ()
        assert fold(world.log.entries).records == {}
        assert world.engine.schedule.next_ms() is None

    def test_ids_that_stay_the_same_are_compared_with_records_that_are_new(
        self, world: World, brokers: Brokers
    ) -> None:
        same = {world.record.topic: world.record.topic_id}
        watch = TopicWatch(world.engine, lambda _: same, brokers.each, world.clock)
        watch.step()
        newer = replace(world.record, topic_id=OTHER)
        brokers.told = [world.record.topic_id] * 2
        world.log.append([(newer.topic_id, newer.to_json())])
        world.engine.claim("test")
        assert len(world.engine.records) == 2
        world.clock.advance(round(TOPICS_INTERVAL_S * 1000))
        watch.step()
        assert [record.topic_id for record in world.engine.records] == [world.cluster.topic_id]

    @pytest.mark.parametrize(
        ("cost_ms", "apart_ms"),
        [(0, round(TOPICS_INTERVAL_S * 1000)), (10, COST_SHARE * 10), (1_000, round(LONGEST_INTERVAL_S * 1000))],
    )
    def test_looks_are_the_further_apart_the_longer_they_take(
        self, world: World, brokers: Brokers, watch: TopicWatch, cost_ms: int, apart_ms: int
    ) -> None:
        brokers.cost_ms = cost_ms
        watch.step()
        world.clock.advance(apart_ms - 1)
        watch.step()
        assert brokers.asked == ["one"]
        world.clock.advance(1)
        watch.step()
        assert brokers.asked == ["one"] * 2

    def test_a_topic_that_is_missing_is_checked_at_once_and_goes_on_the_careful_path(
        self, world: World, brokers: Brokers, watch: TopicWatch
    ) -> None:
        world.cluster.topic_id, brokers.told = None, [None, None]
        (topic_id,) = (record.topic_id for record in world.engine.records)
        for _ in range(2):  # noticed once
            watch.step()
            world.clock.advance(round(TOPICS_INTERVAL_S * 1000))
        assert world.engine.schedule.due(world.clock.now_ms()) == [topic_id]
        assert not world.engine.check([topic_id])
        assert brokers.asked == ["one"] * 2
        next_ms = world.engine.schedule.next_ms()
        assert next_ms is not None
        assert next_ms - world.clock.now_ms() < INTERVAL_MS / 100, "it is not looked at as a settled topic is"
        world.cluster.gone = True
        assert world.engine.check([topic_id])
        assert world.engine.records == ()

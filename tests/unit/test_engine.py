"""The engine over a log in memory and a simulated cluster: the order of things, and what survives a crash."""

from __future__ import annotations

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.effects import DeleteRecords, Effect
from modeaware.lifecycle.phases import topic_phase
from modeaware.modes import PartitionMode
from tests.support.engine_world import INTERVAL_MS, QUIET_MS, TOPIC, World
from tests.support.simulated import SimGroup, SimPartition

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
REFUSED = ClusterError("no", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@pytest.fixture
def world() -> World:
    return World()


class TestShrink:
    def test_the_whole_way(self, world: World) -> None:
        for partition in range(12):
            world.cluster.produce(partition, 5)
            world.cluster.consume("g", partition)
        result = world.engine.execute(DeletePartitionsCommand(TOPIC, 4, 0))
        assert (result.code, result.modes) == (ErrorCode.NONE, (RW,) * 4 + (RO,) * 8)
        assert world.modes == result.modes
        world.run(QUIET_MS - 1)
        assert topic_phase(world.record) == "seal"
        world.run(1)
        assert topic_phase(world.record) == "done"
        assert world.modes == (RW,) * 4 + (NONE,) * 8
        (done,) = world.cluster.performed
        assert isinstance(done, DeleteRecords)
        assert (done.topic_id, done.offsets) == (world.record.topic_id, dict.fromkeys(range(4, 12), 5))
        assert [log.log_start for log in world.cluster.partitions] == [0] * 4 + [5] * 8
        assert world.engine.schedule.next_ms() == world.clock.now_ms() + INTERVAL_MS

    def test_a_refusal_appends_nothing(self, world: World) -> None:
        before = list(world.log.entries)
        result = world.engine.execute(DeletePartitionsCommand(TOPIC, 99))
        assert result.code is ErrorCode.INVALID_PARTITIONS
        assert "modeaware grow" in (result.message or "")
        assert world.engine.execute(DeletePartitionsCommand("other", 1)).code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.log.entries == before

    def test_a_cluster_that_does_not_answer_refuses(self, world: World) -> None:
        world.cluster.failure = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        assert world.shrink(4) is ErrorCode.THROTTLING_QUOTA_EXCEEDED, "no doubt: nothing was done"
        assert world.engine.records == ()


class TestCrash:
    @pytest.mark.parametrize("lost_answer", [False, True])
    def test_an_append_of_unknown_outcome(self, world: World, lost_answer: bool) -> None:
        """A new claim reads what became of it."""
        world.log.failure, world.log.lost_answer = ClusterError("timed out"), lost_answer
        with pytest.raises(ClusterError):
            world.shrink(4)
        world.engine.claim("test")
        assert bool(world.engine.records) == lost_answer
        world.run(QUIET_MS)
        assert world.shrink(4) in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)


class TestGrow:
    def test_refused_by_the_brokers_beforehand_changes_nothing(self, world: World) -> None:
        world.cluster.refuses_checks = REFUSED
        entries = list(world.log.entries)
        assert world.grow(14, assignments=((9,), (9,))) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert world.log.entries == entries

    def test_refused_by_the_brokers_after_all_is_taken_back(self, world: World) -> None:
        world.cluster.refuses = REFUSED
        result = world.engine.execute(CreatePartitionsCommand(TOPIC, 14))
        assert result.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert result.modes == (RW,) * 12
        assert world.modes == (RW,) * 12
        assert topic_phase(world.record) == "done"

    @pytest.mark.parametrize("done", [False, True])
    def test_a_creation_without_an_answer_is_gone_on_with(self, world: World, done: bool) -> None:
        """Whether the partitions exist is not known: they stay listed and closed."""
        world.cluster.groups["mute"] = SimGroup({0: 1})
        world.cluster.refuses = ClusterError("no answer in time", code=ErrorCode.REQUEST_TIMED_OUT)
        assert world.grow(14) is ErrorCode.REQUEST_TIMED_OUT
        world.cluster.partitions += [SimPartition(), SimPartition()] if done else []
        world.cluster.refuses = None
        world.run(10_000)
        assert world.modes == (RW,) * 12 + (RO,) * 2
        assert len(world.cluster.partitions) == 14
        world.run(ControllerConfig().open_timeout_ms)
        assert world.modes == (RW,) * 14

    def test_a_growth_that_timed_out_and_is_refused_then_is_given_up(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing else would ever end it: neither a shrink nor another growth is taken meanwhile."""
        world.cluster.refuses = ClusterError("no answer in time", code=ErrorCode.REQUEST_TIMED_OUT)
        assert world.grow(14) is ErrorCode.REQUEST_TIMED_OUT
        world.run(INTERVAL_MS)
        assert len(world.modes) == 14, "it may be done all the same"
        world.cluster.refuses = ClusterError("another topic of this name?", code=ErrorCode.UNKNOWN_TOPIC_ID)
        world.run(INTERVAL_MS)
        assert len(world.modes) == 14, "no broker has refused it"
        world.cluster.refuses = REFUSED
        world.run(INTERVAL_MS)
        assert world.modes == (RW,) * 12
        assert topic_phase(world.record) == "done"
        assert "its growth to 14 is given up: no" in caplog.text
        world.cluster.refuses = None
        assert world.grow(13) is ErrorCode.NONE
        assert len(world.cluster.partitions) == 13

    @pytest.mark.parametrize("look", ["grown", "fails"])
    def test_a_refused_growth_that_may_have_been_done_is_not_given_up(
        self, world: World, look: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The refusal may be the answer to a growth that an earlier request has brought."""
        world.cluster.refuses = ClusterError("no answer in time", code=ErrorCode.REQUEST_TIMED_OUT)
        world.grow(14)
        perform = world.cluster.perform

        def refuse(effect: Effect) -> None:
            world.cluster.partitions += [SimPartition(), SimPartition()]
            if look == "fails":
                world.cluster.failure = ClusterError("no answer")
            perform(effect)

        world.cluster.refuses = REFUSED
        world.cluster.perform = refuse  # type: ignore[method-assign]  # that is the fault injected here
        world.engine.check(world.record.topic_id)
        assert len(world.modes) == 14
        world.cluster.perform, world.cluster.failure = perform, None  # type: ignore[method-assign]  # it is over
        world.run(INTERVAL_MS)
        assert world.modes == (RW,) * 14
        assert "given up" not in caplog.text


class TestTopicGone:
    def test_deleted(self, world: World) -> None:
        world.shrink(4)
        topic_id, world.cluster.topic_id = world.cluster.topic_id, None
        world.cluster.gone = True
        world.run()
        assert world.engine.records == ()
        assert world.log.entries[-1] == (topic_id, None)
        assert world.engine.schedule.next_ms() is None

    def test_recreated_under_its_name(self, world: World) -> None:
        """The new topic's records are its own, whatever the clock says of the old one's."""
        world.cluster.produce(11, 5)
        world.cluster.consume("g", 11)
        world.shrink(11)
        world.run(QUIET_MS)
        world.cluster.topic_id = "id-of-orders-2"
        world.cluster.performed.clear()
        world.clock.advance(-60_000)
        assert world.shrink(6) is ErrorCode.NONE
        assert world.grow(12) is ErrorCode.NONE
        (new,) = (record for record in world.engine.records if record.topic_id == "id-of-orders-2")
        assert new.epoch == 1
        assert world.cluster.performed == []
        world.cluster.gone = True
        world.run(2 * INTERVAL_MS)
        assert [record.topic_id for record in world.engine.records] == ["id-of-orders-2"]

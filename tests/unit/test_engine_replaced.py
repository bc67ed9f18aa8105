"""A controller that was replaced without noticing, such as one that was paused: it touches nothing any more (I5)."""

from __future__ import annotations

import pytest

from modeaware.errors import ControllerFenced, ErrorCode
from modeaware.lifecycle.effects import CommitOffsets, Effect
from modeaware.lifecycle.phases import topic_phase
from tests.support.engine_world import QUIET_MS, World
from tests.support.simulated import SimGroup


def test_it_deletes_nothing() -> None:
    """Between None and DeleteRecords nothing is appended that would tell it."""
    world = World()
    world.cluster.produce(11, 3)
    world.cluster.consume("g", 11)
    world.shrink(11)
    world.clock.advance(QUIET_MS)
    world.engine.check(world.record.topic_id)
    assert topic_phase(world.record) == "reclaim"
    world.log.failure = ControllerFenced("another took over")
    with pytest.raises(ControllerFenced):
        world.engine.check(world.record.topic_id)
    assert world.cluster.performed == []
    assert world.cluster.partitions[11].log_start == 0


def test_it_does_no_second_thing_after_the_first() -> None:
    """It may be paused between two effects of one pass: each comes right after an append."""
    world = World(2)
    for name in ("one", "two"):  # groups without members, which get the open offset committed for them
        world.cluster.groups[name] = SimGroup({0: 0}, has_members=False)
    assert world.grow(3) is ErrorCode.NONE
    appended = len(world.log.entries)
    effect = world.cluster.perform

    def replaced_after_the_first(done: Effect) -> None:
        effect(done)
        world.log.failure = ControllerFenced("another took over")

    world.cluster.perform = replaced_after_the_first  # type: ignore[method-assign]  # that is the fault injected here
    with pytest.raises(ControllerFenced):
        world.engine.check(world.record.topic_id)
    assert [e.group for e in world.cluster.performed if isinstance(e, CommitOffsets)] == ["one"]
    assert len(world.log.entries) == appended + 1

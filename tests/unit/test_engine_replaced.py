"""A controller that was replaced without noticing, such as one that was paused: it touches nothing any more (I5)."""

from __future__ import annotations

import pytest

from modeaware.errors import ControllerFenced
from modeaware.lifecycle.phases import topic_phase
from tests.support.engine_world import QUIET_MS, World


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

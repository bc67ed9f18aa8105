"""The engine takes up the log: the epoch it claims, what it finds, and what it leaves alone once replaced (I5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.errors import ClusterError, ErrorCode
from modeaware.modelog.records import CLAIM_KEY
from modeaware.modelog.replay import fold
from modeaware.modes import PartitionMode
from tests.support.engine_world import World

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.fixture
def world() -> World:
    return World()


class TestClaim:
    def test_release_takes_the_address_back(self, world: World) -> None:
        world.engine.release()
        claim = fold(world.log.entries).claim
        assert claim is not None
        assert (claim.controller_epoch, claim.address) == (1, None)
        world.engine.release()
        assert len(world.log.entries) == 2, "twice is harmless"

    def test_a_topic_of_a_newer_version_is_left_alone(self, world: World) -> None:
        world.shrink(4)
        newer = replace(world.record, min_reader=2).stamped(1, world.clock.now_ms())
        world.log.entries.append((newer.topic_id, newer.to_json()))
        world.restart()
        assert world.shrink(3) is ErrorCode.UNSUPPORTED_VERSION
        assert world.grow(12) is ErrorCode.UNSUPPORTED_VERSION
        world.run(3_600_000)
        assert world.log.entries[-1][0] == CLAIM_KEY, "nothing but the claim was written"

    def test_a_log_that_lost_its_tail_gives_no_epoch_out_twice(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The same (controller epoch, topic epoch) would come with other content."""
        kept = list(world.log.entries)
        world.engine.claim("test")
        world.shrink(4)
        assert (world.record.controller_epoch, world.record.epoch) == (2, 0)
        assert "tail" not in caplog.text
        world.log.entries = kept
        assert world.engine.claim("test") == 3
        assert "has lost its tail: it ends with epoch 1, and 2 was there" in caplog.text
        world.shrink(6)
        assert (world.record.controller_epoch, world.record.epoch) == (3, 0)

    def test_an_epoch_that_was_seen_on_the_log_is_not_given_out_again(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It was another controller's, and the log has lost it."""
        assert world.engine.claim("test", seen_epoch=7) == 8
        assert "has lost its tail" in caplog.text

    def test_a_claim_of_unknown_outcome_is_not_made_again_under_its_epoch(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.log.failure = ClusterError("timed out")
        with pytest.raises(ClusterError):
            world.engine.claim("test")
        assert world.engine.claim("test") == 3
        assert "tail" not in caplog.text, "it may never have been there"

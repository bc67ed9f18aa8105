"""The engine over a log in memory and a simulated cluster: the order of things, what survives a crash, and claims."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.controller import engine as engine_module
from modeaware.controller import log as log_module
from modeaware.controller.log import ClaimWatch, Contact
from modeaware.controller.schedule import MOST_SMALL_SNAPSHOTS, elapsed_ms
from modeaware.errors import ClusterError, ConfigError, ControllerFenced, ErrorCode
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand, DeleteRecords, Effect
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.passes import Advance
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.moved import MovedRecord, moved_key
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound
from modeaware.modelog.records import CLAIM_KEY, ClaimRecord, TopicRecord
from modeaware.modes import PartitionMode
from tests.support.engine_world import INTERVAL_MS, QUIET_MS, TOPIC, World
from tests.support.modelog import fold, for_newer_readers, topic_record
from tests.support.simulated import SimGroup, SimPartition

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
REFUSED = ClusterError("no", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT)


@pytest.fixture
def world() -> World:
    return World()


def test_a_cluster_that_does_not_answer_refuses(world: World) -> None:
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

    def test_a_tombstone_of_unknown_outcome(self, world: World) -> None:
        """What is not on the log any more is not planned any more."""
        world.shrink(4)
        world.cluster.topic_id, world.cluster.gone = None, True
        world.log.failure, world.log.lost_answer = ClusterError("timed out"), True
        with pytest.raises(ClusterError):
            world.run()
        world.engine.claim("test")
        world.run(INTERVAL_MS)
        assert world.engine.records == ()


class TestGrow:
    def test_refused_by_the_brokers_beforehand_changes_nothing(self, world: World) -> None:
        world.cluster.refuses_checks = REFUSED
        entries = list(world.log.entries)
        assert world.grow(14, assignments=((9,), (9,))) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert world.log.entries == entries

    def test_refused_by_the_brokers_after_all_is_taken_back(self, world: World) -> None:
        world.cluster.refuses = REFUSED
        result = world.engine.execute([CreatePartitionsCommand(TOPIC, 14)])[0]
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
        for passing in (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.NOT_CONTROLLER, None):
            world.cluster.refuses = ClusterError("not now", code=passing)
            world.run(INTERVAL_MS)
            assert len(world.modes) == 14, "a later request may succeed"
        world.cluster.refuses = REFUSED
        world.run(INTERVAL_MS)
        assert world.modes == (RW,) * 12
        assert topic_phase(world.record) == "done"
        assert "growth to 14 given up: no" in caplog.text
        world.cluster.refuses = None
        assert world.grow(13) is ErrorCode.NONE
        assert len(world.cluster.partitions) == 13

    def test_a_growth_that_brokers_have_by_now_is_not_given_up(self, world: World) -> None:
        """A repeated request is refused because the first one has succeeded; the broker that is asked is behind."""
        world.cluster.refuses = ClusterError("already has 14", code=ErrorCode.INVALID_PARTITIONS)
        assert world.grow(14) is ErrorCode.INVALID_PARTITIONS
        world.run(INTERVAL_MS)
        assert len(world.modes) == 14
        world.cluster.partitions += [SimPartition(), SimPartition()]
        world.run(INTERVAL_MS)
        assert world.modes == (RW,) * 14

    @pytest.mark.parametrize("look", ["grown", "fails"])
    def test_a_refused_growth_that_may_have_been_done_is_not_given_up(
        self, world: World, look: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The refusal may be the answer to a growth that an earlier request has brought."""
        world.cluster.refuses = ClusterError("no answer in time", code=ErrorCode.REQUEST_TIMED_OUT)
        world.grow(14)
        perform = world.cluster.perform

        def refuse(effects: Sequence[Effect]) -> list[ClusterError | None]:
            world.cluster.partitions += [SimPartition(), SimPartition()]
            if look == "fails":
                world.cluster.failure = ClusterError("no answer")
            return perform(effects)

        world.cluster.refuses = REFUSED
        world.cluster.perform = refuse  # type: ignore[method-assign]  # that is the fault injected here
        world.engine.check([world.record.topic_id])
        assert len(world.modes) == 14
        world.cluster.perform, world.cluster.failure = perform, None  # type: ignore[method-assign]  # it is over
        world.run(INTERVAL_MS)
        assert world.modes == (RW,) * 14
        assert "given up" not in caplog.text


class TestAtRest:
    """An idle topic whose small snapshot shows no change gets no whole snapshot."""

    @pytest.fixture
    def resting(self, world: World) -> World:
        world.shrink(4)
        world.run(QUIET_MS)
        assert topic_phase(world.record) == "done"
        world.run(3 * INTERVAL_MS)
        return world

    def whole_snapshots(self, world: World) -> int:
        """In three intervals more."""
        before = world.cluster.whole_snapshots
        world.run(3 * INTERVAL_MS)
        return world.cluster.whole_snapshots - before

    def test_small_snapshots_are_enough_and_update_the_check_time(self, resting: World) -> None:
        assert self.whole_snapshots(resting) == 0
        (seen,) = resting.engine.watched.seen().topics
        assert seen.checked_ms is not None
        assert resting.clock.now_ms() - seen.checked_ms < INTERVAL_MS
        assert seen.facts is not None

    @pytest.mark.parametrize("between", [False, True])
    def test_a_straggler_is_seen_whenever_it_comes(self, resting: World, between: bool) -> None:
        """Also between a small snapshot and the whole one that follows, or the other way round."""
        if between:
            small = resting.cluster.unchanged

            def compare_and_write(topic_ids: Iterable[str]) -> bool:
                unchanged = small(topic_ids)
                resting.cluster.unchanged = small  # type: ignore[method-assign]  # once
                resting.cluster.produce(7)
                return unchanged

            resting.cluster.unchanged = compare_and_write  # type: ignore[method-assign]  # that is when it is written
        else:
            resting.cluster.produce(7)
        resting.run(2 * INTERVAL_MS)
        assert resting.record.retired[7].stragglers == 1

    def test_no_whole_snapshot_counts_for_ever(self, resting: World) -> None:
        before = resting.cluster.whole_snapshots
        resting.run(MOST_SMALL_SNAPSHOTS * INTERVAL_MS)
        assert resting.cluster.whole_snapshots == before + 1

    def test_failed_small_snapshot_leads_to_a_whole_one(self, resting: World) -> None:
        resting.cluster.failure = ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        assert self.whole_snapshots(resting) > 3

    def test_a_topic_that_is_to_be_checked_at_once_is(self, resting: World) -> None:
        resting.engine.check_at_once(resting.record.topic_id)
        before = resting.cluster.whole_snapshots
        resting.run()
        assert resting.cluster.whole_snapshots == before + 1

    def test_due_topic_gets_a_whole_snapshot(self, resting: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "advance", lambda *_: Advance(alarms=("look again",)))
        resting.engine.check_at_once(resting.record.topic_id)
        resting.run(INTERVAL_MS)
        assert self.whole_snapshots(resting) == 3

    def test_a_log_that_is_not_known_is_asked_for_until_it_is(self, resting: World) -> None:
        lost = resting.cluster.partitions.pop()
        assert self.whole_snapshots(resting) == 3
        resting.cluster.partitions.append(lost)
        resting.run(2 * INTERVAL_MS)
        assert self.whole_snapshots(resting) == 0


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


# Taking up the log (I5)


class TestClaim:
    def test_release_takes_the_addresses_back(self, world: World) -> None:
        world.engine.claim("test", Contact("127.0.0.1:2", pages="127.0.0.1:3"))
        assert fold(world.log.entries).claim.pages == "127.0.0.1:3"
        world.engine.release()
        claim = fold(world.log.entries).claim
        assert (claim.controller_epoch, claim.address, claim.pages) == (2, None, None)
        world.engine.release()
        assert len(world.log.entries) == 3, "twice is harmless"

    def test_a_topic_of_a_newer_version_is_left_alone(self, world: World) -> None:
        world.shrink(4)
        newer = world.record.stamped(1, world.clock.now_ms())
        world.log.entries.append((newer.topic_id, for_newer_readers(newer)))
        world.restart()
        assert world.shrink(3) is ErrorCode.UNSUPPORTED_VERSION
        assert world.grow(12) is ErrorCode.UNSUPPORTED_VERSION
        world.run(3_600_000)
        assert world.log.entries[-1][0] == CLAIM_KEY, "nothing but the claim was written"

    def test_nothing_is_deleted_while_a_topic_of_a_newer_version_may_be_an_earlier_one_of_the_chain(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        for log in world.cluster.partitions:
            log.end = 5
        later = topic_record("clicks")
        world.log.entries.append((later.topic_id, for_newer_readers(later)))
        world.log.entries.append((moved_key("id-of-views"), for_newer_readers(MovedRecord("id-of-views"))))
        world.restart()
        assert world.shrink(4) is ErrorCode.NONE
        world.run(3_600_000)
        assert world.cluster.performed == []
        assert "put off: the record of topic id id-of-clicks needs a newer version of modeaware" in caplog.text
        (seen,) = (each for each in world.engine.watched.seen().topics if each.record.topic == TOPIC)
        assert "needs a newer version of modeaware" in str(seen.trouble)
        world.log.entries.append((later.topic_id, None))
        world.restart()
        world.run(3_600_000)
        assert [type(effect) for effect in world.cluster.performed] == [DeleteRecords]

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
        assert "has lost its tail: its last epoch is 1, but 2 was read before" in caplog.text
        world.shrink(6)
        assert (world.record.controller_epoch, world.record.epoch) == (3, 0)
        assert world.engine.claim("test", seen_epoch=7) == 8, "it was another controller's, and the log has lost it"

    def test_a_claim_of_unknown_outcome_is_not_made_again_under_its_epoch(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.log.failure = ClusterError("timed out")
        with pytest.raises(ClusterError):
            world.engine.claim("test")
        assert world.engine.claim("test") == 3
        assert "tail" not in caplog.text, "it may never have been there"


# What nobody foresaw in the work on one topic, and time


ODD = "an-odd-topic"


class Odd(World):
    """Beside the world's topic there is one that cannot be looked at: ``error`` is raised."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.shrink(4)
        odd = replace(self.record, topic=ODD, topic_id="odd")
        self.log.entries.append(("odd", odd.to_json()))
        self.engine.claim("test")
        observe = self.cluster.observe

        def look(topic: str, record: TopicRecord | None) -> TopicFacts:
            if topic == ODD and self.error is not None:
                raise self.error
            return observe(topic, record)

        self.cluster.observe = look  # type: ignore[method-assign]  # that is the fault injected here

    def told(self, caplog: pytest.LogCaptureFixture) -> list[int]:
        """The levels of what was told with its traceback."""
        return [entry.levelno for entry in caplog.records if entry.exc_info and ODD in entry.getMessage()]


@pytest.fixture
def odd(caplog: pytest.LogCaptureFixture) -> Odd:
    caplog.set_level(logging.DEBUG, "modeaware.controller")  # which a command in an earlier test may have set
    return Odd()


def test_a_topic_that_cannot_be_looked_at_holds_up_no_other(odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    odd.error = ValueError("year 58859 is out of range")
    odd.run(QUIET_MS + 10_000)
    phases = {record.topic: topic_phase(record) for record in odd.engine.records}
    assert phases == {TOPIC: "done", ODD: "seal"}
    assert odd.told(caplog) == [logging.ERROR] + [logging.DEBUG] * 4
    assert "ValueError: year 58859 is out of range" in caplog.text
    assert caplog.text.count(f"topic {ODD}: check failed, retrying") == 5, "after 1, 2, 4, 8 s"


def test_a_command_for_such_a_topic_is_refused(odd: Odd, caplog: pytest.LogCaptureFixture) -> None:
    odd.error = ConfigError("a file is missing for a moment")
    entries = list(odd.log.entries)
    (result,) = odd.engine.execute([DeletePartitionsCommand(ODD, 2)])
    assert result.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ConfigError: a file is missing for a moment" in (result.message or "")
    assert odd.log.entries == entries
    assert odd.told(caplog) == [logging.ERROR]


@pytest.mark.parametrize("error", [ControllerFenced("fenced"), KeyboardInterrupt(), SystemExit()])
def test_what_is_no_failure_of_a_topic_passes(odd: Odd, error: BaseException) -> None:
    odd.error = error
    with pytest.raises(type(error)):
        odd.engine.check(["odd"])
    with pytest.raises(type(error)):
        odd.engine.execute([DeletePartitionsCommand(ODD, 2)])


@pytest.mark.parametrize("error", [ControllerFenced("fenced"), ClusterError("in doubt"), OSError("a bug")])
def test_what_becomes_of_the_log_is_never_kept_apart(odd: Odd, error: Exception) -> None:
    odd.clock.advance(QUIET_MS)
    for topic_id in (record.topic_id for record in odd.engine.records if record.topic == TOPIC):
        odd.log.failure = error
        with pytest.raises(type(error)):
            odd.engine.check([topic_id])
    odd.log.failure = error
    with pytest.raises(type(error)):
        odd.grow(12)


# Time


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_stops_no_check(step_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.shrink(4)
    topic_id = world.record.topic_id
    world.engine.check([topic_id])
    monkeypatch.setattr(world.clock, "now_ms", lambda: world.clock.time_ms + step_ms)
    checks = []
    for _ in range(10):
        world.clock.advance(INTERVAL_MS)
        if topic_id in world.engine.schedule.due(elapsed_ms(world.clock)):
            checks.append(world.engine.check([topic_id]))
    assert len(checks) == 10


# Following the claim of another controller


CLAIM = ClaimRecord(7, "127.0.0.1:7", "the-other", claimed_ms=70, host="afar")
Apply = Callable[[Sequence[LogRecord]], None]


class Reads:
    """A mode log: each read returns a claim, or an error."""

    def __init__(self, *claims: ClaimRecord | Exception | None) -> None:
        self._claims = list(claims)
        self.starts: list[int] = []

    def __call__(self, conf: Any, topic: str, start: int, apply: Apply, timeout_s: float) -> int:
        self.starts.append(start)
        claim = self._claims.pop(0)
        if isinstance(claim, Exception):
            raise claim
        if claim is not None:
            apply([LogRecord(start, CLAIM_KEY.encode(), claim.to_json())])
        return start + 1


def test_a_claim_goes_with_its_log_and_the_highest_epoch_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(CLAIM, LogRewound("shorter"), None, LogAbsent("none"), replace(CLAIM, controller_epoch=3))
    monkeypatch.setattr(log_module, "read_to_end", reads)
    seen = ClaimWatch({}, "modes")
    seen.read(1)
    assert seen.read(1) is None, "a log that was made again has no claim of the one before"
    assert reads.starts == [0, 1, 0]
    assert seen.highest_epoch == 7, "what was written under it may still be known to another client"
    seen.read(1)
    seen.read(1)
    assert (seen.claim.controller_epoch, seen.highest_epoch) == (3, 7)


def test_a_claim_is_no_earlier_than_it_is_told_to_be_nor_is_its_release() -> None:
    """On a host whose clock is behind: who joins the election goes by the claim's time."""
    world = World()
    world.restart()
    later_ms = world.clock.now_ms() + 60_000
    world.engine.claim("test", Contact("127.0.0.1:2"), not_before_ms=later_ms)
    assert fold(world.log.entries).claim.claimed_ms == later_ms
    world.engine.release()
    assert fold(world.log.entries).claim.claimed_ms == later_ms


def test_a_claim_is_renewed_once_in_a_generation_and_keeps_its_epoch() -> None:
    world = World()
    claim = fold(world.log.entries).claim
    assert claim is not None
    for generation in (4, 4, -1, 5):
        world.engine.renew(generation)
    claims = [ClaimRecord.from_json(value) for key, value in world.log.entries if key == CLAIM_KEY and value]
    assert claims == [claim, replace(claim, generation=4), replace(claim, generation=5)]

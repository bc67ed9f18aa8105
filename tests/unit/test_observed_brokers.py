"""The record of the brokers ever seen: its form, its place in the log, and who keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from modeaware.cluster.metadata import Registered, RegisteredBroker
from modeaware.controller.cluster_watch import BROKERS_INTERVAL_S, BrokerWatch
from modeaware.errors import ControllerFenced, RecordError
from modeaware.modelog.records import CLAIM_KEY, OBSERVED_BROKERS_KEY, ClaimRecord, ObservedBrokersRecord
from tests.support.engine_world import World as EngineWorld
from tests.support.modelog import fold
from tests.support.simulated import SimClock

HELD = ObservedBrokersRecord("enabled", {1: "a", 2: None}, controller_epoch=3, epoch=4)
KEY = OBSERVED_BROKERS_KEY


def cluster(live: dict[int, str | None], down: Sequence[int] = (), *, complete: bool = True) -> Registered:
    brokers = {n: RegisteredBroker(n, rack, True) for n, rack in live.items()}
    return Registered(brokers | {n: RegisteredBroker(n, f"rack-{n}", False) for n in down}, complete)


def test_record_comes_back_as_it_was() -> None:
    assert ObservedBrokersRecord.from_json(HELD.to_json()) == HELD
    assert ObservedBrokersRecord.from_json(ObservedBrokersRecord().to_json()) == ObservedBrokersRecord()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HELD.to_json(), b"[]"),
        (b'"enabled"', b'"sometimes"'),
        (b'"a"', b"7"),
        (b'"id":1', b'"id":"x"'),
        (b'"min_reader":1', b'"min_reader":2'),
    ],
)
def test_rubbish_keeps_the_last_record(old: bytes, new: bytes) -> None:
    value = HELD.to_json().replace(old, new)
    with pytest.raises(RecordError):
        ObservedBrokersRecord.from_json(value)
    replay = fold([(KEY, HELD.to_json()), (KEY, value)])
    assert (replay.observed_brokers, replay.is_unreadable(KEY)) == (HELD, True)


def test_record_of_a_replaced_controller_is_dropped_and_a_tombstone_removes_it() -> None:
    claim = (CLAIM_KEY, ClaimRecord(4, None, "c").to_json())
    replay = fold([(KEY, HELD.to_json()), claim, (KEY, replace(HELD, brokers={}, epoch=5).to_json())])
    assert (replay.observed_brokers, replay.rejected) == (HELD, 1)
    assert fold([(KEY, HELD.to_json()), (KEY, None)]).observed_brokers is None


def test_the_next_claim_comes_after_it() -> None:
    world = EngineWorld()
    world.log.entries[:] = [(KEY, replace(HELD, controller_epoch=50).to_json())]
    assert world.engine.claim("another") == 51


class Log:
    """The controller's log, as far as the watch uses it."""

    def __init__(self, observed: ObservedBrokersRecord | None) -> None:
        self.observed = observed
        self.observed_unreadable = False
        self.appended: list[ObservedBrokersRecord] = []
        self.failure: Exception | None = None

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        if self.failure is not None:
            raise self.failure
        ((key, value),) = records
        assert key == OBSERVED_BROKERS_KEY
        assert value is not None
        self.appended.append(ObservedBrokersRecord.from_json(value))


class World:
    """A watch over a cluster that the test changes."""

    def __init__(self, observed: ObservedBrokersRecord | None = None, policy: str | None = None) -> None:
        self.clock = SimClock()
        self.log = Log(observed)
        self.cluster: Registered | Exception = cluster({1: "a"})
        self.listings = 0
        self.watch = BrokerWatch(self._list_brokers, self.log, policy, self.clock)

    def _list_brokers(self) -> Registered:
        self.listings += 1
        if isinstance(self.cluster, Exception):
            raise self.cluster
        return self.cluster

    def step(self, epoch: int = 7) -> list[ObservedBrokersRecord]:
        """Step now and when it is due; what was appended."""
        before = len(self.log.appended)
        self.watch.step(epoch)
        self.clock.advance(round(BROKERS_INTERVAL_S * 1000))
        self.watch.step(epoch)
        return self.log.appended[before:]


class TestWatch:
    def test_it_writes_what_it_sees_and_only_when_it_has_changed(self) -> None:
        world = World(ObservedBrokersRecord())
        assert world.step() == [ObservedBrokersRecord("disabled", {1: "a"}, 7, 0)]
        assert world.step() == []
        world.cluster = cluster({1: "a", 2: "b"})
        assert world.step(8) == [ObservedBrokersRecord("disabled", {1: "a", 2: "b"}, 8, 1)]
        world.cluster = cluster({1: "a", 2: "c"})
        assert [record.brokers[2] for record in world.step(8)] == ["c"]
        assert world.listings == 5

    def test_a_record_that_cannot_be_read_is_written_again_though_nothing_has_changed(self) -> None:
        held = ObservedBrokersRecord("enabled", {1: "a"}, 1, 3)
        world = World(held)
        world.log.observed_unreadable = True
        assert world.step() == [replace(held, controller_epoch=7, epoch=4)]
        assert world.step() == []

    def test_what_nobody_foresaw_in_the_look_does_not_end_the_controller(self) -> None:
        world = World(ObservedBrokersRecord())
        world.cluster = ValueError("what is this")
        assert world.step() == []
        world.cluster = cluster({1: "a"})
        assert len(world.step()) == 1

    def test_a_broker_that_is_down_stays_and_one_that_is_unregistered_goes(self) -> None:
        world = World(ObservedBrokersRecord("disabled", {1: "a", 2: "rack-2"}, 1, 0))
        world.cluster = cluster({1: "a"}, down=[2])
        assert world.step() == []
        world.cluster = cluster({1: "a"})
        assert [dict(record.brokers) for record in world.step()] == [{1: "a"}]

    def test_what_could_not_be_appended_is_written_again_after_the_next_claim(self) -> None:
        world = World(ObservedBrokersRecord())
        world.log.failure = ControllerFenced("fenced")
        with pytest.raises(ControllerFenced):
            world.step()
        world.log.failure = None
        assert [dict(record.brokers) for record in world.step(9)] == [{1: "a"}]

"""The election's callbacks, with a consumer that is made up: what happens on brokers is in test_takeover.py."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.controller.election import Election, Seat
from modeaware.errors import ClusterError, ConfigError
from modeaware.librdkafka import KafkaError, TopicPartition
from tests.support.simulated import SimClock

LOG = "modes"
THE_PARTITION = [TopicPartition(LOG, 0)]


class MadeUp:
    """A consumer whose events the test puts in; like librdkafka's, it calls back in ``poll``."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.conf = conf
        self.member: str | None = None
        self.generation = 0
        self.events: deque[Callable[[], object]] = deque()
        self.held: list[list[TopicPartition]] = []
        self.answers: deque[int | None] = deque()
        self.closed = False
        self.subscribed = True
        self.callbacks: dict[str, Callable[..., None]] = {}

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        assert topics == [LOG]
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.subscribed = False

    def poll(self, timeout_s: float) -> object:
        return self.events.popleft()() if self.events else None

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.held.append(partitions)

    def memberid(self) -> str | None:
        return self.member

    def consumer_group_metadata(self) -> bytes:
        return f"{self.member}/{self.generation}".encode()

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        assert asynchronous
        answer = self.answers.popleft() if self.answers else None
        if answer is not None:
            error = KafkaError(answer) if answer else None
            self.events.append(lambda: self.conf["on_commit"](error, offsets))

    def close(self) -> None:
        self.closed = True
        self.callbacks["on_revoke"](self, THE_PARTITION)

    def is_assigned(self, partitions: list[TopicPartition], member: str = "a") -> None:
        def event() -> None:
            self.member, self.generation = member, self.generation + 1
            self.callbacks["on_assign"](self, partitions)

        self.events.append(event)

    def is_revoked(self) -> None:
        self.events.append(lambda: self.callbacks["on_revoke"](self, THE_PARTITION))

    def is_lost(self) -> None:
        def event() -> None:
            self.member = None
            self.callbacks["on_lost"](self, THE_PARTITION)

        self.events.append(event)


class Room:
    """One election, and every consumer it has made."""

    def __init__(self) -> None:
        self.clock = SimClock(time_ms=5_000)
        self.made: list[MadeUp] = []
        self.election = Election({"bootstrap.servers": "b:1", "client.id": "mine"}, LOG, 8_000, self.clock, self._make)
        self.election.join()

    def _make(self, conf: dict[str, Any]) -> Any:
        self.made.append(MadeUp(conf))
        return self.made[-1]

    @property
    def consumer(self) -> MadeUp:
        return self.made[-1]

    def elected(self) -> Election:
        self.consumer.is_assigned(THE_PARTITION)
        self.poll()
        assert self.election.leader
        return self.election

    def poll(self) -> None:
        while self.consumer.events:
            self.election.poll()


@pytest.fixture
def room() -> Room:
    return Room()


def test_who_comes_later_sorts_behind_even_with_a_clock_that_is_behind(room: Room) -> None:
    names = [room.consumer.conf["client.id"]]
    room.clock.advance(1)
    room.election.join()
    names.append(room.consumer.conf["client.id"])
    room.election.join(after_ms=10**12)
    assert room.election.since_ms == 10**12 + 1
    names.append(room.consumer.conf["client.id"])
    room.election.join(after_ms=10**13 - 1)
    names.append(room.consumer.conf["client.id"])
    assert names == sorted(set(names)), "as text, which is how members are ordered"
    assert all(consumer.closed for consumer in room.made[:-1])


def test_metadata_are_those_of_the_assignment_with_the_partition(room: Room) -> None:
    room.consumer.is_assigned([])
    room.poll()
    assert (room.election.seat, room.election.group_metadata, room.election.term) == (Seat.STANDBY, None, 0)
    room.consumer.is_revoked()
    room.consumer.is_assigned(THE_PARTITION)
    room.poll()
    assert (room.election.seat, room.election.group_metadata, room.election.term) == (Seat.LEADER, b"a/2", 1)
    room.consumer.generation = 9  # what it would say now
    room.poll()
    assert room.election.group_metadata == b"a/2"
    assert room.consumer.held == [[], []], "nothing is ever fetched"


def test_a_rebalance_that_gives_the_partition_back_is_the_same_term(room: Room) -> None:
    election = room.elected()
    room.consumer.is_revoked()
    room.poll()
    assert (election.seat, election.group_metadata, election.lost) == (Seat.WAITING, None, False)
    room.consumer.is_assigned(THE_PARTITION)
    room.poll()
    assert (election.seat, election.group_metadata, election.term) == (Seat.LEADER, b"a/2", 1)


def test_a_place_that_is_lost_is_given_up(room: Room) -> None:
    election = room.elected()
    room.consumer.is_lost()
    room.poll()
    assert (election.seat, election.group_metadata, election.lost) == (Seat.WAITING, None, True)
    assert not room.consumer.subscribed, "it does not come back under its old name"
    room.clock.advance(1)
    election.join()
    assert not election.lost
    assert room.made[0].closed
    assert room.made[0].conf["client.id"] < room.made[1].conf["client.id"]
    assert room.elected().term == 2


def test_metadata_of_a_member_that_is_none_any_more_are_refused(room: Room) -> None:
    """Brokers take commits without a member id from anybody."""

    def event() -> None:
        room.consumer.member = None
        room.consumer.callbacks["on_assign"](room.consumer, THE_PARTITION)

    room.consumer.events.append(event)
    room.poll()
    assert (room.election.leader, room.election.group_metadata, room.election.lost) == (False, None, True)


def test_confirm(room: Room) -> None:
    assert room.election.confirm(1) is False, "not the leader: the brokers need not be asked"
    election = room.elected()
    room.consumer.answers.append(0)
    assert election.confirm(1) is True
    room.consumer.answers.append(KafkaError.REBALANCE_IN_PROGRESS)
    assert election.confirm(1) is None
    room.consumer.events.append(lambda: room.clock.advance(1_001))  # no answer in time
    assert election.confirm(1) is None
    assert election.leader
    room.consumer.is_revoked()
    assert election.confirm(1) is False, "revoked while the brokers were asked"
    for code in (KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID):
        room.election.join()
        election = room.elected()
        room.consumer.answers.append(code)
        assert election.confirm(1) is False
        assert (election.leader, election.lost, election.group_metadata) == (False, True, None)


def test_a_missing_right_is_told_and_passing_trouble_is_not(room: Room) -> None:
    room.consumer.events.append(lambda: SimpleNamespace(error=lambda: KafkaError(KafkaError._TRANSPORT)))
    room.poll()
    assert room.election.refusal is None
    assert "_TRANSPORT" in str(room.election.trouble), "for whoever gives up waiting"
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    room.consumer.events.append(lambda: SimpleNamespace(error=lambda: refused))
    room.poll()
    assert isinstance(room.election.refusal, ClusterError)
    assert "modeaware-controller.modes" in str(room.election.refusal)
    room.consumer.is_assigned([])
    room.poll()
    assert (room.election.refusal, room.election.trouble) == (None, None)


def test_setting_that_librdkafka_rejects_is_a_config_error_and_a_lost_place() -> None:
    election = Election({"bootstrap.servers": "b:1", "security.protocol": "rubbish"}, LOG, 8_000, SimClock())
    with pytest.raises(ConfigError, match="client settings: "):
        election.join()
    election.poll()
    assert (election.lost, election.leader, election.confirm(1)) == (True, False, False)


@pytest.mark.parametrize("in_between", ["standby", "another member id"])
def test_otherwise_it_is_a_new_term(room: Room, in_between: str) -> None:
    election = room.elected()
    room.consumer.is_revoked()
    if in_between == "standby":
        room.consumer.is_assigned([])
        room.consumer.is_revoked()
    room.consumer.is_assigned(THE_PARTITION, "a" if in_between == "standby" else "b")
    room.poll()
    assert (election.leader, election.term) == (True, 2)


def test_a_consumer_that_joins_by_mistake_sorts_behind_every_controller(room: Room) -> None:
    """Member ids begin with client ids, and the first one is assigned the partition."""
    ours = room.consumer.conf["client.id"]
    theirs = [
        "",
        "-",
        "0",
        "A",
        "a-tool",
        "console-consumer",
        "consumer-1",
        "rdkafka",
        "kafka-python-3.0.12",
        "modeaware",
    ]
    assert min(f"{name}-0f" for name in [ours, *theirs]) == f"{ours}-0f"


def test_generation_is_the_one_of_the_last_assignment(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def metadata(consumer: MadeUp) -> bytes:
        return b"CGMDv2:" + struct.pack("=i", consumer.generation) + b"group\0member\0\1"

    monkeypatch.setattr(MadeUp, "consumer_group_metadata", metadata)
    assert room.election.generation is None
    for generation, partitions in ((1, []), (2, THE_PARTITION)):
        room.consumer.is_assigned(partitions)
        room.poll()
        assert room.election.generation == generation
    room.election.join()
    assert room.election.generation is None

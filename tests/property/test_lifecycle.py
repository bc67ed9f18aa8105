"""The lifecycle under arbitrary schedules: one topic, its clients, its groups, a controller that may crash anywhere.

What is checked after every step: nothing is deleted that a required group has not got, and never above the recorded
seal (I1); versions only rise (I4); modes and states move along their tables. At the end everybody is given time: every
record that is left reaches every group (I2), and every change finishes unless a person has to decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from modeaware.config import ControllerConfig
from modeaware.controller.engine import Engine
from modeaware.errors import ClusterError, ErrorCode
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.effects import DeleteRecords, Effect
from modeaware.lifecycle.phases import in_progress
from modeaware.modelog.records import CLAIM_KEY, TopicRecord
from modeaware.modelog.replay import fold
from modeaware.modes import MODE_TRANSITIONS, REPLICA_TRANSITIONS, PartitionMode, ReplicaState
from modeaware.topic_view import TopicView
from tests.support.simulated import MemoryLog, SimClock, SimCluster, SimGroup

TOPIC = "orders"
FIRST_COUNT = 4
QUIET_MS = 10_000
INTERVAL_MS = 300_000
CONFIG = ControllerConfig(check_interval_ms=INTERVAL_MS, seal_quiet_ms=QUIET_MS)
GROUPS = st.sampled_from(["billing", "audit", "late"])
PARTITIONS = st.integers(0, 7)
COUNTS = st.integers(1, 3)
WAITS_MS = [0, 1_000, QUIET_MS, QUIET_MS, QUIET_MS, 60_000, INTERVAL_MS]
FAULTS = ["none"] * 6 + ["crash", "effect", "append fails", "append's answer is lost"]
ANSWERS = {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.REASSIGNMENT_IN_PROGRESS}
NO_LEADER = ErrorCode.UNKNOWN_SERVER_ERROR


class Crash(Exception):
    """The controller dies here."""


class CheckedLog(MemoryLog):
    """Checks each record against the one before (I4, tables)."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[TopicRecord] = []

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        for key, value in records:
            assert value is not None, "nobody deletes the topic here"
            if key != CLAIM_KEY:
                after = TopicRecord.from_json(value)
                held = fold(self.entries).records.get(key)
                _check_successor(held, after)
                if self.failure is None or self.lost_answer:
                    self.history.append(after)
        super().append(records)


def _check_successor(before: TopicRecord | None, after: TopicRecord) -> None:
    retired = {p for p, mode in enumerate(after.modes) if mode is not PartitionMode.READ_WRITE}
    assert set(after.retired) == retired
    assert retired == set(range(after.writable_count, len(after.modes))), "writable ids are dense"
    if before is None:
        return
    assert after.version > before.version
    assert after.epoch == before.epoch + 1
    for partition, (old, new) in enumerate(zip(before.modes, after.modes, strict=False)):
        assert new is old or new in MODE_TRANSITIONS[old], f"partition {partition}: {old} -> {new}"
        if partition in before.retired and partition in after.retired:
            was, now = before.retired[partition].replica_state, after.retired[partition].replica_state
            assert now is was or now in REPLICA_TRANSITIONS[was], f"partition {partition}: {was} -> {now}"


class CheckedCluster(SimCluster):
    """Checks each deletion against what every group really got (I1)."""

    def __init__(self, clock: SimClock, log: MemoryLog) -> None:
        super().__init__(clock, TOPIC, FIRST_COUNT)
        self.log = log
        self.everyone: dict[str, SimGroup] = {}
        self.lost_by_order: set[int] = set()
        self.expired: set[int] = set()
        self.crash = False

    def perform(self, effect: Effect) -> None:
        if self.crash:
            raise Crash
        if isinstance(effect, DeleteRecords):
            self._check_deletion(effect)
        super().perform(effect)

    def _check_deletion(self, effect: DeleteRecords) -> None:
        record = fold(self.log.entries).records[effect.topic_id]
        assert record.deletion is not None
        assert record.deletion.policy != "retention"
        for partition, offset in effect.offsets.items():
            assert record.modes[partition] is PartitionMode.NONE
            assert offset == record.retired[partition].seal_offset
            log = self.partitions[partition]
            going = set(log.records[log.log_start : offset])
            if record.deletion.policy == "immediate":
                self.lost_by_order |= going
                continue
            assert self.clock.now_ms() >= record.deletion.earliest_ms
            assert log.open_from is None or log.open_from >= offset
            in_use = {name for name, group in self.groups.items() if group.committed or group.has_members}
            for name in {*record.required_groups, *in_use}:
                assert going <= self.everyone[name].consumed, f"{name} has not got {going} of {partition}"


class Lifecycle:
    """The world; each public method that takes part in ``ACTIONS`` is one event."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.log = CheckedLog()
        self.cluster = CheckedCluster(self.clock, self.log)
        self.restart()

    def a_topic_in_use(self, names: set[str], read: int) -> None:
        for partition in range(FIRST_COUNT):
            self.write(partition, 2)
        for name in sorted(names):
            self.join(name)
            for partition in range(FIRST_COUNT):
                self.read(name, partition, read)

    # The controller

    def restart(self) -> None:
        self.cluster.forget_quiet()
        self.cluster.crash = False
        self.log.failure = None
        self.engine = Engine(self.log, self.cluster, self.cluster, CONFIG, self.clock)
        self.engine.claim(None, "test")

    def controller(self, *, crash: bool = False) -> None:
        """One pass over the topic; with ``crash`` it dies before the first effect, its record being on the log."""
        self.cluster.crash = crash
        try:
            for record in self.engine.records:
                self.engine.check(record.topic_id)
        except (Crash, ClusterError):
            self.restart()
        self.cluster.crash = False

    def look(self, wait_ms: int, fault: str) -> None:
        """Time passes and the controller looks, until nothing is due: or it dies on the way."""
        self.clock.advance(wait_ms)
        if fault in ("append fails", "append's answer is lost"):
            self.log.failure, self.log.lost_answer = ClusterError("timed out"), fault == "append's answer is lost"
        for _ in range(4):
            self.controller(crash=fault == "effect")
        self.log.failure = None
        if fault == "crash":
            self.restart()

    # Admin

    def shrink(self, to: int, delay_ms: int, immediate: bool) -> None:
        result = self.engine.execute(DeletePartitionsCommand(TOPIC, to, delay_ms, immediate))
        available = all(log.available for log in self.cluster.partitions)
        assert result.code in ANSWERS | (set() if available else {NO_LEADER})

    def grow(self, to: int, crash: bool) -> None:
        self.cluster.crash = crash
        try:
            result = self.engine.execute(CreatePartitionsCommand(TOPIC, to))
        except Crash:
            self.restart()
        else:
            assert result.code in ANSWERS
        self.cluster.crash = False

    # Producers

    def view(self, behind: int = 0) -> TopicView:
        known = self.log.history[: len(self.log.history) - behind] if behind else self.log.history
        return known[-1].view() if known else TopicView.unlisted(TOPIC)

    def write(self, partition: int, count: int) -> None:
        if partition < len(self.cluster.partitions):
            self.cluster.produce(partition, count)

    def aware_producer(self, key: int, count: int, behind: int) -> None:
        """A paused one knows an older view: what it writes may be a straggler."""
        view = self.view(behind)
        choices = view.writable or range(FIRST_COUNT)
        self.write(choices[key % len(choices)], count)

    def unaware_producer(self, partition: int, count: int) -> None:
        self.write(partition, count)

    def transaction(self, partition: int) -> None:
        """Begins one with a record, or ends the one that is open."""
        if partition >= len(self.cluster.partitions):
            return
        log = self.cluster.partitions[partition]
        if log.open_from is None:
            log.open_from = log.end
            self.write(partition, 1)
        else:
            log.open_from = None

    # Groups

    def read(self, name: str, partition: int, count: int) -> None:
        """An aware consumer: it reads what the modes let it read, and never into an open transaction."""
        if partition >= len(self.cluster.partitions) or not self.view().is_readable(partition):
            return
        log = self.cluster.partitions[partition]
        if log.open_from is None:
            self.cluster.consume(name, partition, count)

    def join(self, name: str) -> None:
        group = self.cluster.everyone.setdefault(name, SimGroup())
        self.cluster.groups.setdefault(name, group).has_members = True

    def consume(self, name: str, partition: int, count: int) -> None:
        if name in self.cluster.groups:
            self.read(name, partition, count)

    def consume_all(self, name: str) -> None:
        if name in self.cluster.groups:
            for partition in range(len(self.cluster.partitions)):
                self.read(name, partition, 10**9)

    def leave(self, name: str, offsets_expire: bool) -> None:
        """Its members go; sometimes its offsets as well. What it has consumed it has consumed."""
        if name in self.cluster.groups:
            self.cluster.groups[name].has_members = False
            if offsets_expire:
                self.cluster.groups.pop(name).committed.clear()

    def reset_to_the_start(self, name: str, partition: int) -> None:
        """It wants to read again: what is there now must not go before it has."""
        group = self.cluster.groups.get(name)
        if group is not None and partition in group.committed:
            log = self.cluster.partitions[partition]
            group.committed[partition] = log.log_start
            group.consumed.difference_update(log.readable)

    # Brokers

    def retention(self, partition: int, count: int) -> None:
        if partition < len(self.cluster.partitions):
            self.cluster.expired.update(self.cluster.expire(partition, count))

    def outage(self, partition: int, doubt: bool) -> None:
        """While a leader is away, or groups cannot be listed for sure, the controller looks, and then it is over."""
        if partition >= len(self.cluster.partitions):
            return
        self.cluster.partitions[partition].available = doubt
        self.cluster.groups_doubt = "a broker did not answer" if doubt else None
        self.clock.advance(QUIET_MS)
        self.controller()
        self.shrink(2, 0, immediate=False)
        self.cluster.partitions[partition].available, self.cluster.groups_doubt = True, None

    def memory_is_what_the_log_says(self) -> None:
        replay = fold(self.log.entries)
        assert replay.rejected == 0
        assert {record.topic_id: record for record in self.engine.records} == replay.records

    def settle(self) -> None:
        """Producers stop, everything is up, groups read what they may read: all is delivered, all is done."""
        for log in self.cluster.partitions:
            log.open_from = None
        if not self.engine.records:
            return
        for _ in range(8):
            for name in self.cluster.groups:
                for partition in range(len(self.cluster.partitions)):
                    self.read(name, partition, 10**9)
            if (deletion := self.engine.records[0].deletion) is not None and deletion.policy == "retention":
                for partition in range(deletion.delete_partitions, len(self.cluster.partitions)):
                    self.cluster.expired.update(self.cluster.expire(partition))
            self.clock.advance(INTERVAL_MS)
            self.controller()
        for name, group in self.cluster.groups.items():
            left = {number for log in self.cluster.partitions for number in log.readable} - group.consumed
            assert not left, f"{name} never gets {left}"
        (record,) = self.engine.records
        reasons = {str(retired.reason) for retired in record.retired.values()}
        waiting_for_a_person = any(reason.startswith("group-gone:") for reason in reasons)
        assert not in_progress(record) or waiting_for_a_person, reasons
        for partition, retired in record.retired.items():
            if retired.replica_state is ReplicaState.DELETION_SUCCESSFUL:
                assert self.cluster.partitions[partition].readable == []


def _event(method: str, **arguments: SearchStrategy[object]) -> SearchStrategy[tuple[str, dict[str, object]]]:
    return st.tuples(st.just(method), st.fixed_dictionaries(arguments))


# Listed as often as they weigh: a schedule has to get through a shrink for anything to go wrong in it.
ACTIONS = st.one_of(
    *[_event("look", wait_ms=st.sampled_from(WAITS_MS), fault=st.sampled_from(FAULTS))] * 6,
    _event(
        "shrink",
        to=st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5]),
        delay_ms=st.sampled_from([-1, 0, 0, 0, 0, 60_000]),
        immediate=st.sampled_from([False] * 6 + [True]),
    ),
    _event("grow", to=st.integers(1, 7), crash=st.booleans()),
    *[_event("aware_producer", key=PARTITIONS, count=COUNTS, behind=st.sampled_from([0, 0, 0, 1, 3]))] * 2,
    _event("unaware_producer", partition=PARTITIONS, count=COUNTS),
    _event("transaction", partition=PARTITIONS),
    _event("join", name=GROUPS),
    *[_event("consume", name=GROUPS, partition=PARTITIONS, count=COUNTS)] * 3,
    *[_event("consume_all", name=GROUPS)] * 3,
    _event("leave", name=GROUPS, offsets_expire=st.sampled_from([False] * 5 + [True])),
    _event("reset_to_the_start", name=GROUPS, partition=PARTITIONS),
    _event("retention", partition=PARTITIONS, count=COUNTS),
    _event("outage", partition=PARTITIONS, doubt=st.booleans()),
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.sets(GROUPS), read=st.integers(0, 3), events=st.lists(ACTIONS, min_size=30, max_size=100))
def test_any_schedule(names: set[str], read: int, events: list[tuple[str, dict[str, object]]]) -> None:
    world = Lifecycle()
    world.a_topic_in_use(names, read)
    for method, arguments in events:
        getattr(world, method)(**arguments)
        world.memory_is_what_the_log_says()
    world.settle()

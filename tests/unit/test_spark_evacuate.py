"""An evacuation's decisions: what the topic's record requires, where keys belong, which value is the newest, and copies
among records of producers that write the same keys at any moment."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.modelog.records import Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.spark.errors import EvacuationFailed, NothingToEvacuate
from modeaware.spark.evacuation import copies as module
from modeaware.spark.evacuation.copies import Copied, Copy, Copying, CopyJob, TargetLog
from modeaware.spark.evacuation.job import Evacuation, evacuation_in, new_record
from modeaware.spark.evacuation.versions import (
    HEADER,
    KeyPlaces,
    NewRecord,
    OldRecord,
    Verdict,
    decide,
    digest,
    is_newer,
)

RO = PartitionMode.READ_ONLY
SEALED = {0: RetiredPartition(seal_offset=30, seal_leader_epoch=2), 1: RetiredPartition(seal_offset=9, evacuated_to=9)}


def work_of(retired: dict[int, RetiredPartition] = SEALED, **changes: Any) -> Evacuation | None:
    """Of a topic of 2 partitions that is replaced by one of 3: partition 1 is evacuated."""
    about = {"new_topic": "v2", "num_partitions": 3, "requested_ms": 1, "new_topic_id": "id-2", "switched_ms": 8_000}
    now = Replacement(**{**about, "evacuation_epoch": 4, **changes})
    record = TopicRecord("orders", "id", 7, 1, (RO, RO), retired=retired, replacement=now)
    return evacuation_in(record, now, (0, 1, 2))


def test_the_work_is_what_the_record_says() -> None:
    work = work_of()
    assert work == Evacuation(
        "orders",
        "id",
        "modeaware-evacuation-orders-4",
        epoch=4,
        count=2,
        seals={0: 30},
        starts={},
        seal_epochs={0: 2},
        switched_ms=8_000,
        new_topic="v2",
        new_topic_id="id-2",
        homes=(0, 1, 2),
    )
    straggler = work_of({**SEALED, 1: RetiredPartition(seal_offset=11, evacuated_to=9)})
    assert straggler is not None
    assert (straggler.seals, straggler.starts) == ({0: 30, 1: 11}, {1: 9})
    assert work is not None
    assert work.still_holds(work)
    assert straggler.still_holds(work)
    for other in (
        None,
        straggler,
        work_of(new_topic_id="id-3"),
        work_of(evacuation_epoch=8),
        replace(work, homes=(0,)),
    ):
        assert not work.still_holds(other)


def test_a_replacement_without_an_evacuation_is_refused_and_one_that_is_not_sealed_waited_for() -> None:
    for changes in ({"evacuation_epoch": None}, {"gone_ms": 9_000}):
        with pytest.raises(NothingToEvacuate):
            work_of(**changes)
    assert work_of({**SEALED, 0: RetiredPartition()}) is None
    assert work_of(switched_ms=None) is None


def test_a_partitioner_of_the_users_own_places_keys() -> None:
    places = KeyPlaces.of({"partitioner": "tests.unit.test_spark_evacuate:by_length"}, "orders")
    assert places.indices([b"a", b"bb", b"ccc", b""], 3) == [1, 2, 0, 0]
    assert places.empty_placed


def by_length(key: bytes | None, count: int) -> int:
    return len(key or b"") % count


# Which value of a key is the newest. For histories in which the truth is known see tests/long/pure.


def copied(source: OldRecord, partition: int = 1, offset: int = 20) -> NewRecord:
    return NewRecord(partition, offset, source.timestamp_ms, source)


OLDER, NEWEST = OldRecord(1, 99, 49), OldRecord(0, 40, 50)
"""The key lies in two partitions of the old topic, which was grown once."""


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ([], Verdict.COPY),
        ([NewRecord(1, 0, 5)], Verdict.NEWER),  # whatever the clocks say: groups read the topic to its end first
        ([NewRecord(0, 0, -1)], Verdict.NEWER),
        ([copied(NEWEST)], Verdict.PLACED),
        ([copied(NEWEST, partition=2)], Verdict.COPY),  # elsewhere: the new topic was grown since
        ([copied(OldRecord(0, 39, 50))], Verdict.COPY),  # its partition holds a newer one since: a straggler
        ([copied(OldRecord(0, 39, 99))], Verdict.COPY),
        ([copied(OldRecord(1, 99, 49))], Verdict.COPY),  # older by its time
        ([copied(OldRecord(2, 3, 51))], Verdict.NEWER),  # of a partition that was evacuated before
        ([copied(NEWEST), NewRecord(0, 3, 5)], Verdict.NEWER),
    ],
)
def test_what_producers_write_to_the_new_topic_is_newer(new: list[NewRecord], verdict: Verdict) -> None:
    assert decide([OLDER, NEWEST], new, home=1) == (verdict, NEWEST)


@pytest.mark.parametrize(
    ("found", "newer"),
    [
        (NewRecord(1, 0, 5), True),
        (copied(NEWEST), True),
        (copied(OldRecord(2, 3, 51)), True),
        (copied(OldRecord(2, 3, 49)), False),
        (copied(OldRecord(0, 39, 99)), False),
    ],
)
def test_copy_is_not_written_behind_what_is_as_new(found: NewRecord, newer: bool) -> None:
    assert is_newer(found, NEWEST, home=1) is newer


def test_straggler_is_newer_than_the_copy_of_a_value_from_between_switch_and_fence() -> None:
    """The key lies in both partitions: the topic was grown once. Partition 1 was evacuated before the straggler."""
    straggler, copy = OldRecord(0, 29, 8_090), copied(OldRecord(1, 7, 8_020), 2)
    assert decide([straggler], [copy], home=2) == (Verdict.COPY, straggler)
    assert decide([straggler], [copy._replace(source=None)], home=2) == (Verdict.NEWER, straggler)


def test_record_of_the_new_topic_is_written_once_more_unless_a_later_one_has_followed() -> None:
    written, copy = NewRecord(1, 5, 50), copied(NEWEST, offset=6)
    assert is_newer(NewRecord(1, 7, 10), written, home=1)
    assert not is_newer(copy, written, home=1), "a copy, of another job"
    assert is_newer(written, copy, home=1)


def test_headers_are_read_and_those_of_others_are_not() -> None:
    for source in (OldRecord(7, 40, -1), OldRecord(0, 40, 5)):
        assert OldRecord.parse(source.header(3, "id", "digest"), "id", "digest") == source
    others = (None, b"", b"7@40@5@3", b"7@40@5@3@id", b"7@40@x@3@id@digest", b"7@40@5@3@id@digest@more")
    assert [OldRecord.parse(header, "id", "digest") for header in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("key", "value", "topic_id"),
    [(b"k", b"new", "id"), (b"k", None, "id"), (b"k", b"", "id"), (b"kol", b"d", "id"), (b"k", b"old", "another-id")],
    ids=["another value", "a tombstone", "an empty value", "another key", "another topic"],
)
def test_header_that_an_application_passes_on_makes_no_copy_of_its_record(
    key: bytes, value: bytes | None, topic_id: str
) -> None:
    """What an application writes since the switch is newer than the record whose copy it has read."""
    passed_on = OldRecord(0, 40, 50).header(3, "id", digest(b"k", b"old"))
    row = {"partition": 1, "offset": 20, "timestamp_ms": 60, "source": passed_on.decode()}
    held = OldRecord(0, 41, 55)
    assert decide([held], [new_record({**row, "digest": digest(b"k", b"old")}, "id")], 1)[0] is Verdict.COPY
    written = new_record({**row, "digest": digest(key, value)}, topic_id)
    assert decide([held], [written], 1)[0] is Verdict.NEWER
    assert is_newer(written, held, 1)


# Copies: none overtakes a newer value


HOME = 1
KEYS = [b"a", b"b", b"c"]


@dataclass
class Record:
    key: bytes
    value: bytes
    whose: str  # "producer", or "copy"
    state: str  # "open", "committed" or "aborted"
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int = 0


@dataclass
class Target:
    """The partition, and producers that write to it by a script, a step at each thing that the evacuation does.

    It is also what the evacuation works with: its :class:`TargetLog` and its transactional producer.
    """

    script: Iterator[tuple[str, bytes]]
    log: list[Record] = field(default_factory=list)
    written: int = 0
    newest: dict[bytes, Copy[NewRecord]] = field(default_factory=dict)
    position: int = 0
    clean_up_to: int = 0
    reports: list[Callable[[], None]] = field(default_factory=list)
    topic_id: str = "id-1"

    def meanwhile(self, *_: object) -> bool:
        step, key = next(self.script, ("end", b""))
        match step:
            case "write" | "open":
                self.written += 1
                state = "committed" if step == "write" else "open"
                # As Kafka Streams does, it passes on the headers of what it has read.
                headers = next((r.headers for r in reversed(self.log) if r.key == key), [])
                self.log.append(Record(key, b"new-%d" % self.written, "producer", state, headers))
            case "committed" | "aborted":
                self.settle(step, "producer")
        return step != "end"

    def settle(self, state: str, whose: str) -> None:
        for record in self.log:
            if record.state == "open" and record.whose == whose:
                record.state = state

    @property
    def stable(self) -> int:
        return next((n for n, record in enumerate(self.log) if record.state == "open"), len(self.log))

    def ends_with(self, key: bytes, *, uncommitted: bool) -> bytes | None:
        seen = [r for r in self.log if r.key == key and (uncommitted or r.state == "committed")]
        return seen[-1].value if seen else None

    # The log

    def catch_up(self, at_least: int = 0) -> None:
        self.meanwhile()
        while self.stable < at_least:
            if not self.meanwhile():
                self.settle("committed", "producer")
        for offset in range(self.position, self.stable):
            record = self.log[offset]
            header = next((value for name, value in record.headers if name == HEADER), None)
            source = OldRecord.parse(header, "id", digest(record.key, record.value))
            if record.state == "committed":
                found = NewRecord(HOME, offset, record.timestamp_ms, source)
                self.newest[record.key] = Copy(record.key, record.value, record.headers, found)
        self.position = max(self.position, self.stable)

    def others(self, own: Container[int], last: int) -> dict[bytes, int]:
        self.meanwhile()
        found: dict[bytes, int] = {}
        for offset in range(self.position, last + 1):
            if offset not in own:
                found.setdefault(self.log[offset].key, offset)
        self.clean_up_to = self.position if found else last + 1
        return found

    def pass_over(self) -> None:
        self.meanwhile()
        self.position = self.clean_up_to

    # The producer

    begin_transaction = poll = meanwhile

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Callable[..., None], **more: Any
    ) -> None:
        assert (topic, partition) == ("orders", HOME)
        self.meanwhile()
        offset = len(self.log)
        self.log.append(Record(key, value, "copy", "open", more["headers"], more["timestamp"]))
        self.reports.append(lambda: on_delivery(None, SimpleNamespace(key=lambda: key, offset=lambda: offset)))

    def flush(self, timeout_s: float) -> int:
        self.meanwhile()
        while self.reports:
            self.reports.pop(0)()
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        self.meanwhile()
        self.settle("committed", "copy")

    def abort_transaction(self, timeout_s: float) -> None:
        self.meanwhile()
        self.settle("aborted", "copy")


def copies(keys: list[bytes]) -> list[Copy[OldRecord]]:
    headers = [("trace", b"1"), (HEADER, b"9@9@9@9")]
    return [Copy(key, b"old", headers, OldRecord(HOME, n, 50)) for n, key in enumerate(keys)]


def copying(target: Target, tries: int = 100) -> Copying:
    made: Any = Copying
    return made(CopyJob("orders", "id", 3, {}, {HOME: 0}, tries, "id-1"), HOME, target, target, lambda: target.topic_id)


STEPS = st.tuples(st.sampled_from(["write", "write", "open", "committed", "aborted", "pass"]), st.sampled_from(KEYS))


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60), st.integers(1, 3))
def test_no_copy_overtakes_a_newer_value(script: list[tuple[str, bytes]], size: int) -> None:
    target = Target(iter(script))
    work = copying(target)
    work.size = size
    work.write(copies(KEYS))
    target.settle("committed", "producer")
    for key in KEYS:
        records = [r for r in target.log if r.key == key]
        newer = [r.value for r in records if r.whose == "producer" and r.state == "committed"]
        wanted = newer[-1] if newer else b"old"
        assert target.ends_with(key, uncommitted=False) == wanted, target.log
        # Consumers that read uncommitted records see what producers abort as well: the truth is theirs alone then.
        if not any(r.whose == "producer" and r.state == "aborted" for r in records):
            assert target.ends_with(key, uncommitted=True) == wanted, target.log
    assert work.done.copied + work.done.superseded == len(KEYS)


def test_a_newer_value_before_an_aborted_copy_is_written_once_more() -> None:
    target = Target(iter([("pass", b"")] * 2 + [("write", b"a")]))
    work = copying(target)
    work.write(copies([b"a"]))
    assert [(r.value, r.state) for r in target.log] == [
        (b"new-1", "committed"), (b"old", "aborted"), (b"new-1", "committed"),
    ]  # fmt: skip
    assert target.log[-1].headers == [], "it is no copy"
    assert work.done == Copied(superseded=1, repaired=1, retries=1)


def test_no_copy_is_committed_to_a_topic_that_was_created_again() -> None:
    """Its newer values were not read: they lie below the offset from which the first topic was followed."""
    target = Target(iter([]))
    target.topic_id = "id-2"
    with pytest.raises(EvacuationFailed, match="created again"):
        copying(target).write(copies([b"a"]))
    assert [r.state for r in target.log] == ["aborted"]


def test_copy_that_is_there_is_not_written_again() -> None:
    target = Target(iter([]))
    copying(target).write(copies([b"a"]))
    again = copying(Target(iter([]), target.log))
    again.write(copies([b"a"]))
    assert (again.done, len(target.log)) == (Copied(placed=1), 1)


def test_a_key_that_is_written_all_the_time_is_given_up_in_the_end() -> None:
    write_before_each_copy = cycle([("pass", b"")] * 2 + [("write", b"a")] + [("pass", b"")] * 3)
    target = Target(write_before_each_copy)
    with pytest.raises(EvacuationFailed, match="each of the 3 tries"):
        copying(target, tries=3).write(copies([b"a"]))
    assert [r.state for r in target.log if r.whose == "copy"] == ["aborted"] * 3


class SlowLog:
    """A consumer of one partition: each poll takes a second, and returns the next record, if there is one."""

    def __init__(self, records: int, end: int) -> None:
        self.records, self.end, self.now_s, self.position = records, end, 0.0, 0

    def assign(self, places: list[Any]) -> None:
        self.position = places[0].offset

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        return 0, self.end

    def poll(self, timeout_s: float) -> Any:
        self.now_s += 1
        if self.position >= self.records:
            return None
        self.position += 1
        facts = {"error": None, "offset": self.position - 1, "partition": 0, "key": b"k", "value": b"v"}
        facts |= {"headers": None, "timestamp": (1, 5)}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in facts.items()})

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        return []

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(("records", "fails"), [(200, False), (150, True)])
def test_a_busy_partition_is_read_for_as_long_as_records_come(
    monkeypatch: pytest.MonkeyPatch, records: int, fails: bool
) -> None:
    log = SlowLog(records, end=200)
    monkeypatch.setattr(module, "Consumer", lambda conf: log)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: log.now_s))
    target = TargetLog(CopyJob("v2", "id", 4, {"bootstrap.servers": "127.0.0.1:1"}, {0: 0}, 3), 0)
    if fails:
        with pytest.raises(EvacuationFailed, match="offset 150 was not read within 60 s"):
            target.catch_up()
    else:
        target.catch_up()
        assert target.newest[b"k"].record.offset == 199

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

from modeaware.modelog.records import DeleteTopicPartitions, Replacement, RetiredPartition, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.spark.errors import EvacuationFailed, NothingToEvacuate
from modeaware.spark.evacuation.copies import Copied, Copy, Copying, CopyJob
from modeaware.spark.evacuation.job import EvacuatingShrink, replaced_of, shrink_of, version_of
from modeaware.spark.evacuation.versions import HEADER, KeyPlaces, Order, Source, Verdict, Version, digest, number

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def record(**changes: Any) -> TopicRecord:
    """6 -> 3 partitions, of 8 once: 3 and 4 are sealed, 5 is evacuated, 6 has a straggler, 7 is new."""
    deletion = DeleteTopicPartitions(3, None, False, 9_000, 6, evacuate=True, evacuation_epoch=4)
    made = TopicRecord(
        "orders",
        "id",
        epoch=7,
        controller_epoch=1,
        modes=(RW, RW, RW, RO, RO, NONE, RO, RO),
        deletion=deletion,
        retired={
            3: RetiredPartition(seal_offset=30, seal_leader_epoch=2),
            4: RetiredPartition(seal_offset=40),
            5: RetiredPartition(seal_offset=50, evacuated=True),
            6: RetiredPartition(seal_offset=60, resume_offset=55, stragglers=1, evacuated_to=50, switch_offset=45),
            7: RetiredPartition(seal_offset=0, opening=True),
        },
        switch_offsets={0: 10, 1: 11},
    )
    return replace(made, **changes)


def test_the_work_is_what_the_record_says() -> None:
    assert shrink_of("orders", record()) == EvacuatingShrink(
        "orders",
        "id",
        "modeaware-evacuation-orders-4",
        epoch=4,
        count=6,
        survivors=(0, 1, 2),
        seals={3: 30, 4: 40, 6: 60},
        starts={6: 50},
        seal_epochs={3: 2},
        order=Order({0: 10, 1: 11}, {3: 30, 4: 40, 6: 45}, 9_000),
    )


def test_a_partition_without_a_seal_is_waited_for() -> None:
    retired = record().retired
    assert shrink_of("orders", record(retired={**retired, 4: RetiredPartition()})) is None
    assert shrink_of("orders", record(retired={**retired, 5: RetiredPartition()})) is not None  # it is None


def test_what_asks_for_no_evacuation_is_refused() -> None:
    for found in (None, record(deletion=None), record(deletion=DeleteTopicPartitions(3, None, False, 9_000, 6))):
        with pytest.raises(NothingToEvacuate):
            shrink_of("orders", found)


def test_work_counts_while_the_record_asks_for_it() -> None:
    def then(**changes: Any) -> EvacuatingShrink | None:
        return shrink_of("orders", record(**changes))

    work, retired, modes = then(), record().retired, record().modes
    assert work is not None
    assert work.still_holds(work)
    assert not work.still_holds(None)
    assert work.still_holds(then(epoch=99))
    assert work.still_holds(then(modes=(*modes[:4], NONE, *modes[5:])))  # 4 was empty
    assert not work.still_holds(then(retired={**retired, 3: RetiredPartition(seal_offset=31)}))
    assert not work.still_holds(then(modes=(*modes[:5], RO, *modes[6:])))  # a straggler in 5
    deletion = record().deletion
    assert deletion is not None
    assert not work.still_holds(then(deletion=replace(deletion, evacuation_epoch=8)))


SEALED = {0: RetiredPartition(seal_offset=30, seal_leader_epoch=2), 1: RetiredPartition(seal_offset=9, evacuated_to=9)}


def replaced(retired: dict[int, RetiredPartition] | None = None, **changes: Any) -> EvacuatingShrink | None:
    """A topic of 2 partitions that is replaced by one of 3: partition 1 is evacuated."""
    about = {"successor": "v2", "num_partitions": 3, "requested_ms": 1, "successor_id": "id-2", "switched_ms": 8_000}
    now = Replacement(**{**about, "evacuation_epoch": 4, **changes})
    retired = SEALED if retired is None else retired
    return replaced_of(TopicRecord("orders", "id", 7, 1, (RO, RO), retired=retired, replacement=now), now, (0, 1, 2))


def test_a_whole_topic_is_evacuated_into_its_successor() -> None:
    work = replaced()
    assert work == EvacuatingShrink(
        "orders",
        "id",
        "modeaware-evacuation-orders-4",
        epoch=4,
        count=2,
        survivors=(0, 1, 2),
        seals={0: 30},
        starts={},
        seal_epochs={0: 2},
        order=Order({0: 0, 1: 0, 2: 0}, {-1: 30, -2: 9}, 8_000),
        successor="v2",
        successor_id="id-2",
    )
    straggler = replaced({**SEALED, 1: RetiredPartition(seal_offset=11, evacuated_to=9)})
    assert straggler is not None
    assert (straggler.seals, straggler.starts) == ({0: 30, 1: 11}, {1: 9})
    assert work is not None
    assert work.still_holds(work)
    assert not work.still_holds(straggler)
    assert not work.still_holds(replaced(successor_id="id-3"))


def test_straggler_is_newer_than_the_copy_of_a_value_from_between_switch_and_fence() -> None:
    """The key lies in both partitions: the topic was grown once. Partition 1 was evacuated before the straggler."""
    work = replaced()
    assert work is not None
    straggler, copied = Version(number(0), 29, 8_090), Version(2, 12, 8_020, Source(number(1), 7, 8_020))
    assert work.order.decide([straggler], [copied], home=2) == (Verdict.COPY, straggler)
    assert work.order.decide([straggler], [copied._replace(source=None)], home=2)[0] is Verdict.NEWER


def test_a_replacement_without_an_evacuation_is_refused_and_one_that_is_not_sealed_waited_for() -> None:
    for changes in ({"evacuation_epoch": None}, {"gone_ms": 9_000}):
        with pytest.raises(NothingToEvacuate):
            replaced(**changes)
    assert replaced({**SEALED, 0: RetiredPartition()}) is None
    assert replaced(switched_ms=None) is None


def test_a_partitioner_of_the_users_own_places_keys() -> None:
    places = KeyPlaces.of({"partitioner": "tests.unit.test_spark_evacuate:by_length"}, "orders")
    assert places.indices([b"a", b"bb", b"ccc", b""], 3).tolist() == [1, 2, 0, 0]
    assert places.empty_placed


def by_length(key: bytes | None, count: int) -> int:
    return len(key or b"") % count


# Which value of a key is the newest. For histories in which the truth is known see tests/long/pure.


ORDER = Order({1: 10, 2: 10}, {7: 100, 8: 100}, admitted_ms=1000)


def copy(offset: int, source: Source) -> Version:
    return Version(1, offset, source.timestamp_ms, source)


@pytest.mark.parametrize(
    ("survivor", "verdict"),
    [
        (Version(1, 10, 5), Verdict.NEWER),  # behind the switch, though its clock was slow
        (Version(1, 9, 5), Verdict.COPY),
        (Version(1, 9, 50), Verdict.COPY),  # at the same time: the count before the shrink was the last one
        (Version(2, 9, 51), Verdict.NEWER),  # elsewhere, and readable there
        (copy(20, Source(7, 40, 50)), Verdict.PLACED),
        (copy(20, Source(7, 39, 99)), Verdict.COPY),  # of a value that its own partition has replaced
        (copy(20, Source(1, 15, 5)), Verdict.NEWER),  # a value written once more: what counts is its place before
        (Version(1, 9, -1), Verdict.COPY),
    ],
)
def test_one_survivor_against_a_retired_partition(survivor: Version, verdict: Verdict) -> None:
    assert ORDER.decide([Version(7, 40, 50)], [survivor], home=1)[0] is verdict


@pytest.mark.parametrize(("survivor_ms", "verdict"), [(60, Verdict.NEWER), (50, Verdict.NEWER), (49, Verdict.COPY)])
def test_a_straggler_is_compared_by_time(survivor_ms: int, verdict: Verdict) -> None:
    straggler = Version(7, 100, 50)
    assert ORDER.decide([straggler], [Version(1, 10, survivor_ms)], home=1)[0] is verdict
    assert ORDER.decide([straggler], [Version(1, 9, 99)], home=1)[0] is Verdict.COPY


OF_PREDECESSOR = Order({0: 0, 1: 0}, {number(0): 100, number(1): 100}, admitted_ms=1000)


@pytest.mark.parametrize(
    ("survivors", "verdict"),
    [
        ([], Verdict.COPY),
        ([Version(1, 0, 5)], Verdict.NEWER),  # whatever the clocks say: groups read the topic to its end first
        ([Version(0, 0, -1)], Verdict.NEWER),
        ([copy(20, Source(number(0), 40, 50))], Verdict.PLACED),
        ([copy(20, Source(number(0), 39, 50))], Verdict.COPY),  # its partition holds a newer one since: a straggler
        ([copy(20, Source(number(1), 90, 40))], Verdict.COPY),  # of the count before: older by its time
        ([copy(20, Source(0, 99, 5))], Verdict.NEWER),  # the successor's own record, written once more
        ([copy(20, Source(number(0), 40, 50)), Version(0, 3, 5)], Verdict.NEWER),
    ],
)
def test_what_producers_write_to_the_successor_is_newer(survivors: list[Version], verdict: Verdict) -> None:
    newest = Version(number(0), 40, 50)
    found, version = OF_PREDECESSOR.decide([Version(number(1), 99, 49), newest], survivors, home=1)
    assert found is verdict
    if verdict is Verdict.COPY:
        assert version == newest
        assert OF_PREDECESSOR.stands_for(version) == Source(number(0), 40, 50)
    for each in survivors:
        is_older_copy = each.source in (Source(number(0), 39, 50), Source(number(1), 90, 40))
        assert OF_PREDECESSOR.is_newer(each, newest, 1) is not is_older_copy


def test_a_later_shrink_of_the_successor_takes_a_copy_for_the_record_that_it_is() -> None:
    """The partition of its source is another topic's: partition 7 there says nothing of partition 7 here."""
    of_predecessor = copy(10, Source(number(7), 3, 5))
    assert ORDER.decide([Version(7, 40, 50)], [of_predecessor], home=1)[0] is Verdict.NEWER, "behind the switch"
    assert ORDER.decide([Version(7, 40, 50)], [of_predecessor._replace(offset=9)], home=1)[0] is Verdict.COPY
    assert ORDER.is_newer(of_predecessor, Version(7, 40, 50), 1)


def test_partitions_of_a_predecessor_are_numbered_apart() -> None:
    assert [number(p) for p in (0, 1, 11)] == [-1, -2, -12]
    assert [number(number(p)) for p in (0, 1, 11)] == [0, 1, 11]
    source = Source(number(0), 40, 5)
    assert Source.parse(source.header(3, "id", "digest"), "id", "digest") == source


def test_a_copy_that_lies_in_a_retired_partition_stands_for_itself() -> None:
    retired = Version(7, 40, 50, Source(9, 3, 30))
    assert retired.itself == Source(7, 40, 30)
    assert ORDER.decide([retired], [copy(20, Source(7, 40, 30))], home=1)[0] is Verdict.PLACED


def test_headers_are_read_and_those_of_others_are_not() -> None:
    source = Source(7, 40, -1)
    assert Source.parse(source.header(3, "id", "digest"), "id", "digest") == source
    others = (None, b"", b"7@40@5@3", b"7@40@5@3@id", b"7@40@x@3@id@digest", b"7@40@5@3@id@digest@more")
    assert [Source.parse(header, "id", "digest") for header in others] == [None] * len(others)


@pytest.mark.parametrize(
    ("key", "value", "topic_id"),
    [(b"k", b"new", "id"), (b"k", None, "id"), (b"k", b"", "id"), (b"kol", b"d", "id"), (b"k", b"old", "another-id")],
    ids=["another value", "a tombstone", "an empty value", "another key", "another topic"],
)
@pytest.mark.parametrize(("order", "retired"), [(ORDER, 7), (OF_PREDECESSOR, number(0))])
def test_header_that_an_application_passes_on_makes_no_copy_of_its_record(
    order: Order, retired: int, key: bytes, value: bytes | None, topic_id: str
) -> None:
    """What an application writes since the switch is newer than the record whose copy it has read."""
    passed_on = Source(retired, 40, 50).header(3, "id", digest(b"k", b"old"))
    row = {"partition": 1, "offset": 20, "timestamp_ms": 60, "source": passed_on.decode()}
    held = Version(retired, 41, 55)
    assert order.decide([held], [version_of({**row, "digest": digest(b"k", b"old")}, "id")], 1)[0] is Verdict.COPY
    written = version_of({**row, "digest": digest(key, value)}, topic_id)
    assert order.decide([held], [written], 1)[0] is Verdict.NEWER
    assert order.is_newer(written, held, 1)


# Copies: none overtakes a newer value


HOME, RETIRED = 1, 7
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
class Survivor:
    """The partition, and producers that write to it by a script, a step at each thing that the evacuation does.

    It is also what the evacuation works with: its :class:`SurvivorLog` and its transactional producer.
    """

    script: Iterator[tuple[str, bytes]]
    log: list[Record] = field(default_factory=list)
    written: int = 0
    newest: dict[bytes, Copy] = field(default_factory=dict)
    position: int = 0
    clean_up_to: int = 0
    reports: list[Callable[[], None]] = field(default_factory=list)

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
            source = Source.parse(header, "id", digest(record.key, record.value))
            if record.state == "committed":
                version = Version(HOME, offset, record.timestamp_ms, source)
                self.newest[record.key] = Copy(record.key, record.value, record.headers, version)
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


def copies(keys: list[bytes], retired: int = RETIRED) -> list[Copy]:
    return [
        Copy(key, b"old", [("trace", b"1"), (HEADER, b"9@9@9@9")], Version(retired, n, 50))
        for n, key in enumerate(keys)
    ]


def copying(survivor: Survivor, tries: int = 100, retired: int = RETIRED) -> Copying:
    order = Order({HOME: 0}, {retired: 1000}, 0)
    job = CopyJob("orders", "id", 3, {}, order, {HOME: 0}, tries)
    made: Any = Copying
    return made(job, HOME, survivor, survivor)


STEPS = st.tuples(st.sampled_from(["write", "write", "open", "committed", "aborted", "pass"]), st.sampled_from(KEYS))


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60), st.integers(1, 3), st.sampled_from([RETIRED, number(HOME)]))
def test_no_copy_overtakes_a_newer_value(script: list[tuple[str, bytes]], size: int, retired: int) -> None:
    survivor = Survivor(iter(script))
    work = copying(survivor, retired=retired)
    work.size = size
    work.write(copies(KEYS, retired))
    survivor.settle("committed", "producer")
    for key in KEYS:
        records = [r for r in survivor.log if r.key == key]
        newer = [r.value for r in records if r.whose == "producer" and r.state == "committed"]
        wanted = newer[-1] if newer else b"old"
        assert survivor.ends_with(key, uncommitted=False) == wanted, survivor.log
        # Consumers that read uncommitted records see what producers abort as well: the truth is theirs alone then.
        if not any(r.whose == "producer" and r.state == "aborted" for r in records):
            assert survivor.ends_with(key, uncommitted=True) == wanted, survivor.log
    assert work.done.copied + work.done.superseded == len(KEYS)


def test_a_newer_value_before_an_aborted_copy_is_written_once_more() -> None:
    survivor = Survivor(iter([("pass", b"")] * 2 + [("write", b"a")]))
    work = copying(survivor)
    work.write(copies([b"a"]))
    assert [(r.value, r.state) for r in survivor.log] == [
        (b"new-1", "committed"), (b"old", "aborted"), (b"new-1", "committed"),
    ]  # fmt: skip
    assert survivor.log[-1].headers == [(HEADER, Source(1, 0, 0).header(3, "id", digest(b"a", b"new-1")))]
    assert work.done == Copied(superseded=1, repaired=1, retries=1)


def test_a_key_that_is_written_all_the_time_is_given_up_in_the_end() -> None:
    write_before_each_copy = cycle([("pass", b"")] * 2 + [("write", b"a")] + [("pass", b"")] * 3)
    survivor = Survivor(write_before_each_copy)
    with pytest.raises(EvacuationFailed, match="each of the 3 tries"):
        copying(survivor, tries=3).write(copies([b"a"]))
    assert all(r.state == "aborted" for r in survivor.log if r.whose == "copy")

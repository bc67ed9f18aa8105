"""Copies among records of producers that write the same keys, at any moment: none overtakes a newer value."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.spark.errors import EvacuationFailed
from modeaware.spark.evacuation.copies import Copied, Copy, Copying, CopyJob
from modeaware.spark.evacuation.versions import HEADER, Order, Source, Version

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
                self.log.append(Record(key, b"new-%d" % self.written, "producer", state))
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
            source = next((Source.parse(value) for name, value in record.headers if name == HEADER), None)
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


def copies(keys: list[bytes]) -> list[Copy]:
    return [
        Copy(key, b"old", [("trace", b"1"), (HEADER, b"9@9@9@9")], Version(RETIRED, n, 50))
        for n, key in enumerate(keys)
    ]


def copying(survivor: Survivor, tries: int = 100) -> Copying:
    order = Order({HOME: 0}, {RETIRED: 1000}, 0)
    job = CopyJob("orders", 3, {}, order, {HOME: 0}, tries)
    made: Any = Copying
    return made(job, HOME, survivor, survivor)


STEPS = st.tuples(st.sampled_from(["write", "write", "open", "committed", "aborted", "pass"]), st.sampled_from(KEYS))


@settings(max_examples=200)
@given(st.lists(STEPS, max_size=60), st.integers(1, 3))
def test_no_copy_overtakes_a_newer_value(script: list[tuple[str, bytes]], size: int) -> None:
    survivor = Survivor(iter(script))
    work = copying(survivor)
    work.size = size
    work.write(copies(KEYS))
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
    assert survivor.log[-1].headers == [(HEADER, b"1@0@0@3")]
    assert work.done == Copied(superseded=1, repaired=1, retries=1)


def test_a_key_that_is_written_all_the_time_is_given_up_in_the_end() -> None:
    write_before_each_copy = cycle([("pass", b"")] * 2 + [("write", b"a")] + [("pass", b"")] * 3)
    survivor = Survivor(write_before_each_copy)
    with pytest.raises(EvacuationFailed, match="each of the 3 tries"):
        copying(survivor, tries=3).write(copies([b"a"]))
    assert all(r.state == "aborted" for r in survivor.log if r.whose == "copy")

"""Which value of a key is the newest: against a history in which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.spark.evacuation.versions import Order, Source, Verdict, Version

PARTITIONS = 12


@dataclass
class Written:
    value: int
    timestamp_ms: int
    source: Source | None = None


@dataclass
class History:
    """One key of a topic, through shrinks, evacuations, stragglers and growth; producers that write it take turns."""

    number: int
    count: int = PARTITIONS
    before: int = PARTITIONS
    now_ms: int = 1
    admitted_ms: int = 0
    truth: int = 0
    logs: dict[int, list[Written]] = field(default_factory=lambda: {p: [] for p in range(PARTITIONS)})
    read_only: dict[int, int | None] = field(default_factory=dict)  # -> its first seal, once a straggler broke it
    none: set[int] = field(default_factory=set)
    switch: dict[int, int] = field(default_factory=dict)

    def write(self, partition: int) -> None:
        self.truth += 1
        self.logs[partition].append(Written(self.truth, self.now_ms))

    def shrink(self, to: int) -> None:
        if to >= self.count or self.read_only:
            return
        self.now_ms += 1
        self.before, self.count, self.admitted_ms = self.count, to, self.now_ms
        self.switch = {p: len(self.logs[p]) for p in range(to)}
        self.read_only = dict.fromkeys(range(to, self.before))

    def grow(self, to: int) -> None:
        if to <= self.count:
            return
        self.now_ms += 1
        self.count = to
        self.read_only = {p: seal for p, seal in self.read_only.items() if p >= to}
        self.none = {p for p in self.none if p >= to}

    def straggle(self) -> None:
        """A producer that knows no modes writes where the key was before."""
        partition = self.number % self.before
        if partition not in self.read_only and partition not in self.none:
            return
        self.now_ms += 1
        if self.read_only.get(partition) is None:
            self.read_only[partition] = len(self.logs[partition])
        self.none.discard(partition)
        self.write(partition)
        self.now_ms += 1

    def evacuate(self, *, prove: bool) -> Verdict | None:
        home = self.number % self.count
        seals = {p: len(self.logs[p]) if first is None else first for p, first in self.read_only.items()}
        order = Order({p: o for p, o in self.switch.items() if p < self.count}, seals, self.admitted_ms)
        retired = [self.last(p) for p in seals if self.logs[p]]
        survivors = [self.last(p) for p in range(self.count) if self.logs[p]]
        verdict = None
        if retired:
            verdict, version = order.decide(retired, survivors, home)
            if verdict is Verdict.COPY:
                source = version.itself
                found = self.logs[version.partition][version.offset]
                self.logs[home].append(Written(found.value, source.timestamp_ms, source))
                self.assert_kept()
                assert order.decide(retired, [self.last(p) for p in range(self.count) if self.logs[p]], home)[0] in (
                    Verdict.PLACED,
                    Verdict.NEWER,
                ), "a second run would copy it again"
            self.assert_kept()
        if prove:
            self.none |= self.read_only.keys()
            self.read_only = {}
        return verdict

    def last(self, partition: int) -> Version:
        log = self.logs[partition]
        return Version(partition, len(log) - 1, log[-1].timestamp_ms, log[-1].source)

    def assert_kept(self) -> None:
        """Who reads the partitions that stay finds the newest value at the end of one."""
        assert self.truth in [self.logs[p][-1].value for p in range(self.count) if self.logs[p]], self


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 2)),
    st.tuples(st.just("shrink"), st.integers(1, PARTITIONS - 1)),
    st.tuples(st.just("grow"), st.integers(2, PARTITIONS)),
    st.tuples(st.just("straggle"), st.just(0)),
    st.tuples(st.just("evacuate"), st.integers(0, 1)),
)


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.lists(STEPS, max_size=25))
def test_the_newest_value_is_kept_whatever_happens(number: int, steps: list[tuple[str, int]]) -> None:
    history = History(number)
    for step, argument in steps:
        match step:
            case "write":
                history.now_ms += argument
                history.write(number % history.count)
            case "shrink":
                history.shrink(argument)
            case "grow":
                history.grow(argument)
            case "straggle":
                history.straggle()
            case "evacuate":
                history.evacuate(prove=bool(argument))
    history.evacuate(prove=True)


def order(switch: int = 10, first_seal: int = 100) -> Order:
    return Order({1: switch, 2: switch}, {7: first_seal, 8: first_seal}, admitted_ms=1000)


def copy(offset: int, source: Source, partition: int = 1) -> Version:
    return Version(partition, offset, source.timestamp_ms, source)


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
    assert order().decide([Version(7, 40, 50)], [survivor], home=1)[0] is verdict


@pytest.mark.parametrize(("survivor_ms", "verdict"), [(60, Verdict.NEWER), (50, Verdict.NEWER), (49, Verdict.COPY)])
def test_a_straggler_is_compared_by_time(survivor_ms: int, verdict: Verdict) -> None:
    straggler = Version(7, 100, 50)
    assert order().decide([straggler], [Version(1, 10, survivor_ms)], home=1)[0] is verdict
    assert order().decide([straggler], [Version(1, 9, 99)], home=1)[0] is Verdict.COPY


def test_a_copy_that_lies_in_a_retired_partition_stands_for_itself() -> None:
    retired = Version(7, 40, 50, Source(9, 3, 30))
    assert retired.itself == Source(7, 40, 30)
    assert order().decide([retired], [copy(20, Source(7, 40, 30))], home=1)[0] is Verdict.PLACED


@pytest.mark.parametrize(
    ("header", "source"),
    [
        (Source(7, 40, -1).header(3), Source(7, 40, -1)),
        (None, None),
        (b"", None),
        (b"7@40@x@3", None),
    ],
)
def test_headers_are_read_and_those_of_others_are_not(header: bytes | str | None, source: Source | None) -> None:
    assert Source.parse(header) == source

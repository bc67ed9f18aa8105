"""Which value of a key is the newest: against a history in which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.spark.evacuation.versions import Order, Source, Verdict, Version, number

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

    def take(self, step: str, argument: int) -> None:
        if step == "write":
            self.now_ms += argument
            self.write(self.number % self.count)
        elif step == "straggle":
            self.straggle()
        elif step == "evacuate":
            self.evacuate(prove=bool(argument))
        else:
            getattr(self, step)(argument)

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


@settings(max_examples=1000)
@given(st.integers(0, 10_000), st.lists(STEPS, max_size=25))
def test_the_newest_value_is_kept_whatever_happens(number: int, steps: list[tuple[str, int]]) -> None:
    history = History(number)
    for step, argument in steps:
        history.take(step, argument)
    history.evacuate(prove=True)


@given(st.integers(0, 100), st.lists(st.integers(-1, 50), max_size=8), st.lists(st.integers(-1, 50), max_size=8))
def test_in_one_shrink_no_clock_matters(number: int, before: list[int], since: list[int]) -> None:
    history = History(number)
    for history.now_ms in before:
        history.write(number % history.count)
    history.shrink(4)
    for done in range(len(since) + 1):
        for history.now_ms in since[done - 1 : done]:
            history.write(number % history.count)
        if history.truth:
            history.evacuate(prove=False)


@dataclass
class Successor(History):
    """The same of a topic that replaces another one, ``old``, whose clocks may be ahead."""

    old: dict[int, list[Written]] = field(default_factory=dict)

    def write_old(self, count: int, timestamp_ms: int) -> None:
        self.truth += 1
        self.old.setdefault(self.number % count, []).append(Written(self.truth, timestamp_ms))

    def evacuate_old(self) -> None:
        if not self.old:
            return
        home, ends = self.number % self.count, {number(p): len(log) for p, log in self.old.items()}
        order = Order(dict.fromkeys(range(self.count), 0), ends, self.now_ms)
        retired = [Version(number(p), len(log) - 1, log[-1].timestamp_ms) for p, log in self.old.items()]

        def decide() -> tuple[Verdict, Version]:
            return order.decide(retired, [self.last(p) for p in range(self.count) if self.logs[p]], home)

        verdict, version = decide()
        if verdict is Verdict.COPY:
            found, source = self.old[number(version.partition)][version.offset], order.stands_for(version)
            self.logs[home].append(Written(found.value, source.timestamp_ms, source))
            assert decide()[0] is Verdict.PLACED, "a second run would copy it again"
        self.assert_kept()


@settings(max_examples=1000)
@given(
    st.integers(0, 10_000),
    st.integers(1, PARTITIONS),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.lists(st.sampled_from(["write", "evacuate"]), max_size=6),
    st.lists(STEPS, max_size=15),
)
def test_the_newest_value_of_a_topic_that_was_replaced_is_kept_through_later_changes_of_its_successor(
    number: int, count: int, written: tuple[int, int], meanwhile: list[str], steps: list[tuple[str, int]]
) -> None:
    history = Successor(number, count=count, before=count)
    for n in range(sum(written)):  # it was grown once: from then on the key may lie elsewhere
        history.write_old(5 if n < written[0] else PARTITIONS, 1_000 + n)
    for step in (*meanwhile, "evacuate"):
        history.write(number % count) if step == "write" else history.evacuate_old()
    history.now_ms = 2_000
    for step, argument in steps:
        history.take(step, argument)
    history.evacuate(prove=True)

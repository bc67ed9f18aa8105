"""Which value of a key is the newest: against a history in which the truth is known."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from modeaware.spark.evacuation.versions import NewRecord, OldRecord, Verdict, decide

BEFORE, PARTITIONS = 5, 12
"""The old topic was grown once."""


@dataclass
class Written:
    value: int
    timestamp_ms: int
    source: OldRecord | None = None


@dataclass
class History:
    """One key of a topic that is replaced, through stragglers, evacuations and growths of the new topic.

    Producers that write the key take turns. The clocks of those of the old topic are ahead.
    """

    number: int
    count: int
    truth: int = 0
    values: int = 0
    old_ms: int = 1_000
    old: dict[int, list[Written]] = field(default_factory=dict)
    new: dict[int, list[Written]] = field(default_factory=dict)
    proved: dict[int, int] = field(default_factory=dict)  # partition of the old topic -> the end that was evacuated
    is_written: bool = False

    def write_old(self, count: int) -> None:
        """A record before the switch, or a straggler: groups read it before the new topic."""
        self.values += 1
        self.old_ms += 1
        self.old.setdefault(self.number % count, []).append(Written(self.values, self.old_ms))
        if not self.is_written:
            self.truth = self.values

    def write(self, timestamp_ms: int) -> None:
        self.values += 1
        self.truth, self.is_written = self.values, True
        self.new.setdefault(self.number % self.count, []).append(Written(self.values, timestamp_ms))

    def evacuate(self, *, prove: bool) -> None:
        old = [
            OldRecord(p, len(log) - 1, log[-1].timestamp_ms)
            for p, log in self.old.items()
            if len(log) > self.proved.get(p, 0)
        ]
        if not old:
            return
        home = self.number % self.count
        verdict, newest = decide(old, self.last_of_new(), home)
        if verdict is Verdict.COPY:
            found = self.old[newest.partition][newest.offset]
            self.new.setdefault(home, []).append(Written(found.value, newest.timestamp_ms, newest))
            assert decide(old, self.last_of_new(), home)[0] is Verdict.PLACED, "a second run would copy it again"
        assert self.truth in [log[-1].value for log in self.new.values()], self
        if prove:
            self.proved = {p: len(log) for p, log in self.old.items()}

    def last_of_new(self) -> list[NewRecord]:
        return [NewRecord(p, len(log) - 1, log[-1].timestamp_ms, log[-1].source) for p, log in self.new.items()]

    def take(self, step: str, argument: int) -> None:
        if step == "write":
            self.write(argument)
        elif step == "straggle":
            self.write_old(PARTITIONS if argument else BEFORE)
        elif step == "evacuate":
            self.evacuate(prove=bool(argument))
        else:
            self.count = max(self.count, argument)


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(-1, 2)),
    st.tuples(st.just("grow"), st.integers(2, PARTITIONS)),
    st.tuples(st.just("straggle"), st.integers(0, 1)),
    st.tuples(st.just("evacuate"), st.integers(0, 1)),
)


@settings(max_examples=1000)
@given(
    st.integers(0, 10_000),
    st.integers(1, PARTITIONS),
    st.lists(st.sampled_from([BEFORE, PARTITIONS]), max_size=6),
    st.lists(STEPS, max_size=20),
)
def test_the_newest_value_is_kept_whatever_happens(
    number: int, count: int, before: list[int], steps: list[tuple[str, int]]
) -> None:
    history = History(number, count)
    for old_count in before:
        history.write_old(old_count)
    for step, argument in steps:
        history.take(step, argument)
    history.evacuate(prove=True)

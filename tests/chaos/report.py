"""The figures of a run and its verdict, as text and as JSON; and what a run has to reach before it says anything: a run
in which nothing happened loses nothing either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tests.chaos.chronicle import Event
from tests.chaos.clients import TRANSACTION_FAILED
from tests.chaos.lifeline import BROKERS_LOST
from tests.chaos.setting import CHAINS, WRITERS
from tests.workload.verdict import VIOLATIONS, Verdict

SHORT_MINUTES = 2.0
"""A run that does harm for less than this is too short for the figures: what it has to reach is its caller's to say."""
PER_MINUTE = {
    "acknowledged records": 100_000,
    "faults": 4,
    "shrinks that Kafka confirms": 1,
    "replacements completed": 2,
    "switches slept through": 0.3,
}
KINDS, KINDS_AT_ONCE, KINDS_AFTER_MINUTES = 6, 2, 10
MINUTES_A_REMADE_TOPIC = 2.0
_AWARE = {writer.name for writer in WRITERS if writer.aware}
_TRANSACTIONAL = {writer.name for writer in WRITERS if writer.transactional}
_EXPECTED = "FATAL", TRANSACTION_FAILED


class Goal(NamedTuple):
    """Something that is to be so; ``wanted`` and ``found`` are for people."""

    what: str
    wanted: str
    found: str
    met: bool


class Report:
    """One run's events and verdict.

    Args:
        judged_s: how long the judge took, in seconds of CPU time.
        minutes: for how long harm was to be done.
    """

    def __init__(self, seed: int, events: Sequence[Event], verdict: Verdict, judged_s: float, minutes: float) -> None:
        self._verdict = verdict
        self._minutes = minutes
        self._seed = seed
        self._events = events
        self._judged_s = judged_s
        self._kinds = Counter(event["event"] for event in events)
        begun = {event["id"]: event for event in self._of("fault-begins")}
        ends = [event for event in self._of("fault-ends") if event["reached"]]
        self._reached = [(begun[event["id"]], event["at_ms"]) for event in ends]
        self.faults = Counter(begin["kind"] for begin, _ in self._reached)
        """How many of each kind were brought to their end: the process was dead, or stood still, for as long as that
        kind has to last at least; all brokers were restarted."""
        self.goals = list(self._goals())
        self.ok = verdict.ok and all(goal.met for goal in self.goals)

    def _of(self, kind: str) -> list[Event]:
        return [event for event in self._events if event["event"] == kind]

    def _chained(self) -> int:
        """The acknowledged records of the chains of topics that replaced each other."""
        return sum(event["acknowledged"] for event in self._of("chain"))

    def _slept_through(self) -> int:
        """Switches before which an aware writer was paused that went on after the shrink's delay."""
        pauses = [
            (begin["at_ms"], end_ms)
            for begin, end_ms in self._reached
            if begin["kind"] == "writer-pause" and begin["target"] in _AWARE
        ]
        return sum(
            any(
                from_ms <= event["asked_ms"] and event["at_ms"] + event["delay_ms"] <= to_ms
                for from_ms, to_ms in pauses
            )
            for event in self._of("switched")
        )

    def _failed(self) -> list[str]:
        """What ended by itself, one name for each time. Not a transactional writer that said that a transaction failed,
        or that its producer had a fatal error: another incarnation, or the broker after the transaction's timeout, has
        fenced it. And not a reader that librdkafka left without brokers (:mod:`tests.chaos.lifeline`)."""
        return [
            event["process"]
            for event in self._of("ended-by-itself")
            if not (event["process"] in _TRANSACTIONAL and any(each in event["last_words"] for each in _EXPECTED))
            and BROKERS_LOST not in event["last_words"]
        ]

    def _killed_at_the_end(self) -> list[str]:
        return [name for event in self._events for name in event.get("killed", [])]

    def _goals(self) -> Iterator[Goal]:
        """What has to be so, apart from the verdict. How much has to happen is in proportion to the minutes; after ten:
        1 000 000 acknowledged records, 40 faults of 6 kinds, 10 shrinks, 20 replacements with deletions."""
        verdict, minutes, remade = self._verdict, self._minutes, self._of("remade")
        figures = {
            "acknowledged records": verdict.acknowledged,
            "faults": self.faults.total(),
            "shrinks that Kafka confirms": verdict.shrinks["confirmed"],
            "replacements completed": self._kinds["replaced"],
            "switches slept through": self._slept_through(),
        }
        if minutes >= SHORT_MINUTES:
            for what, each in PER_MINUTE.items():
                yield _at_least(what, round(each * minutes), figures[what])
            share = min(minutes / KINDS_AFTER_MINUTES, 1.0)
            kinds = round(KINDS_AT_ONCE + (KINDS - KINDS_AT_ONCE) * share)
            yield _at_least("kinds of faults", kinds, len(self.faults))
        # Whether the checks of routing have checked anything, where there was something to check.
        judged = min(verdict.routing["homes"], verdict.routing["writable"])
        yield _at_least("records whose routing was judged", min(verdict.routing["aware"], 1), judged)
        yield _at_least("chains of replaced topics that were judged", len(CHAINS), self._kinds["chain"])
        yield _at_least("records acknowledged in them", 1, self._chained())
        yield _none("ended by itself", self._failed())
        yield _none("had to be killed at the end", self._killed_at_the_end())
        rounds = sum(event["shrunk"] for event in remade)
        yield _at_least("shrunk topics deleted and created again", int(minutes / MINUTES_A_REMADE_TOPIC), rounds)
        yield _none("records unread in them", [str(event["unread"]) for event in remade if event["unread"]])
        yield _none("sends failed in them", [text for event in remade for text in event["failures"]])
        untrue = [topic for event in self._of("crowd-shrunk") for topic in event["untrue"]]
        yield _none("outcomes of large requests that are untrue", untrue)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "seconds": self._events[-1]["at_ms"] / 1000 if self._events else 0,
            **self._verdict.as_json(),
            "ok": self.ok,
            "goals": [goal._asdict() for goal in self.goals],
            "faults": dict(sorted(self.faults.items())),
            "faults_total": self.faults.total(),
            "faults_begun": self._kinds["fault-begins"],
            "shrinks": {
                "completed": self._verdict.shrinks["confirmed"],
                "not_confirmed": self._verdict.shrinks["unconfirmed"],
                "given_up": self._kinds["not-shrunk"],
            },
            "replacements": {
                "completed": self._kinds["replaced"],
                "not_deleted": self._kinds["not-deleted"],
                "undone": self._kinds["replacement-undone"],
                "topics_deleted": sum(event["deleted"] for event in self._of("chain")),
            },
            "chained": self._chained(),
            "chains": {
                event["name"]: {name: event[name] for name in ("acknowledged", "refused", "duplicates", "errors")}
                for event in self._of("chain")
            },
            "switches_slept_through": self._slept_through(),
            "undos": self._kinds["undone"],
            "grown": self._kinds["grown"],
            "claims": self._kinds["claim"],
            "ended_by_themselves": [
                {key: event[key] for key in ("at_ms", "process", "last_words")} for event in self._of("ended-by-itself")
            ],
            "killed_at_the_end": self._killed_at_the_end(),
            "consumers_not_closed": [event["topic"] for event in self._of("not-closed")],
            "assignments_missed": [event["client_id"] for event in self._of("assignment-missed")],
            "judged_cpu_s": round(self._judged_s, 1),
        }

    def lines(self) -> Iterator[str]:
        """The report as text: its figures, each violation with examples, and the goals."""
        figures = {name: value for name, value in self.as_json().items() if name not in ("goals", "examples")}
        yield from (f"{name:<28} {value}" for name, value in figures.items())
        for kind, count in self._verdict.violations.items():
            yield f"VIOLATION {kind}: {count} ({VIOLATIONS[kind]})"
            yield from (f"    {example}" for example in self._verdict.examples[kind])
        for goal in self.goals:
            yield f"{'met   ' if goal.met else 'MISSED'} {goal.what}: {goal.found} ({goal.wanted} wanted)"
        yield "all is well" if self.ok else "NOT WELL"


def _at_least(what: str, least: int, found: int) -> Goal:
    return Goal(what, f"{least:,}", f"{found:,}", found >= least)


def _none(what: str, found: list[str]) -> Goal:
    return Goal(what, "none", ", ".join(found) or "none", not found)

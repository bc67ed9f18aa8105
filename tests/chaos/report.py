"""The figures of a run and its verdict, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.chaos.chronicle import Event
from tests.chaos.goals import Goal, figures, judged, nobody
from tests.chaos.setting import WRITERS
from tests.chaos.verdict import VIOLATIONS, Verdict

MINUTES_A_REMADE_TOPIC = 2.0
_AWARE = {writer.name for writer in WRITERS if writer.aware}
_TRANSACTIONAL = {writer.name for writer in WRITERS if writer.transactional}


class Report:
    """One run's events and verdict.

    Args:
        seed: the run's.
        judged_s: how long the judge took, in seconds of CPU time.
        minutes: for how long harm was to be done.
    """

    def __init__(
        self, seed: int, events: Sequence[Event], verdict: Verdict, judged_s: float, minutes: float = 0.0
    ) -> None:
        self.verdict = verdict
        self._minutes = minutes
        self._seed = seed
        self._events = events
        self._judged_s = judged_s
        self._kinds = Counter(event["event"] for event in events)
        self._begun = {event["id"]: event for event in events if event["event"] == "fault-begins"}
        self._reached = [event for event in events if event["event"] == "fault-ends" and event["reached"]]

    @property
    def faults(self) -> Counter[str]:
        """How many of each kind were brought to their end: the process was dead, or stood still, for as long as that
        kind has to last at least; all brokers were restarted."""
        return Counter(self._begun[event["id"]]["kind"] for event in self._reached)

    @property
    def shrunk(self) -> int:
        """Shrinks of which Kafka says, too, that they came to their end."""
        return self.verdict.shrinks["confirmed"]

    @property
    def slept_through(self) -> int:
        """Switches before which an aware writer was paused that went on after the shrink's delay."""
        pauses = [
            (begun["at_ms"], event["at_ms"])
            for event in self._reached
            if (begun := self._begun[event["id"]])["kind"] == "writer-pause" and begun["target"] in _AWARE
        ]
        return sum(
            any(
                from_ms <= event["asked_ms"] and event["at_ms"] + event["delay_ms"] <= to_ms
                for from_ms, to_ms in pauses
            )
            for event in self._events
            if event["event"] == "switched"
        )

    def unseals(self, why: str) -> int:
        """How often the controller noted that a seal was broken, by a reason: ``stragglers`` or ``truncations``."""
        total, before = 0, dict[str, int]()
        for event in self._events:
            if event["event"] == "mode-record":
                total += sum(max(count - before.get(p, 0), 0) for p, count in event[why].items())
                before = event[why]
        return total

    @property
    def remade(self) -> list[Event]:
        """Rounds in which a topic was deleted and created again under its name."""
        return [event for event in self._events if event["event"] == "remade"]

    def _remade_goals(self) -> Iterator[Goal]:
        rounds = sum(event["shrunk"] for event in self.remade)
        least = int(self._minutes / MINUTES_A_REMADE_TOPIC)
        yield Goal("shrunk topics deleted and created again", str(least), str(rounds), rounds >= least)
        yield nobody("records unread in them", [str(event["unread"]) for event in self.remade if event["unread"]])
        yield nobody("sends failed in them", [text for event in self.remade for text in event["failures"]])
        crowds = [event for event in self._events if event["event"] == "crowd-shrunk"]
        yield nobody("outcomes of large requests that are untrue", [t for event in crowds for t in event["untrue"]])

    @property
    def killed_at_the_end(self) -> list[str]:
        return [name for event in self._events for name in event.get("killed", [])]

    def failed(self) -> list[str]:
        """Who ended by himself, one name for each time. Not a transactional writer that said that its producer had a
        fatal error: another incarnation, or the broker after the transaction's timeout, has fenced it."""
        return [
            event["process"]
            for event in self._events
            if event["event"] == "ended-by-itself"
            and not (event["process"] in _TRANSACTIONAL and "FATAL" in event["last_words"])
        ]

    def goals(self) -> list[Goal]:
        """What has to be so, apart from the verdict."""
        found = {
            "acknowledged records": self.verdict.acknowledged,
            "faults": self.faults.total(),
            "shrinks that Kafka confirms": self.shrunk,
            "switches slept through": self.slept_through,
        }
        return [
            *figures(self._minutes, found, len(self.faults)),
            judged(self.verdict.routing),
            nobody("ended by itself", self.failed()),
            nobody("had to be killed at the end", self.killed_at_the_end),
            *self._remade_goals(),
        ]

    @property
    def ok(self) -> bool:
        """Nothing was violated, and enough happened."""
        return self.verdict.ok and all(goal.met for goal in self.goals())

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "seconds": self._events[-1]["at_ms"] / 1000 if self._events else 0,
            **self.verdict.as_json(),
            "ok": self.ok,
            "goals": [goal.as_json() for goal in self.goals()],
            "faults": dict(sorted(self.faults.items())),
            "faults_total": self.faults.total(),
            "faults_begun": len(self._begun),
            "shrinks": {
                "completed": self.shrunk,
                "not_confirmed": self.verdict.shrinks["unconfirmed"],
                "given_up": self._kinds["not-shrunk"],
            },
            "switches_slept_through": self.slept_through,
            "unseals": {why: self.unseals(why) for why in ("stragglers", "truncations")},
            "undos": self._kinds["undone"],
            "grown": self._kinds["grown"],
            "claims": self._kinds["claim"],
            "ended_by_themselves": [
                {key: event[key] for key in ("at_ms", "process", "last_words")}
                for event in self._events
                if event["event"] == "ended-by-itself"
            ],
            "killed_at_the_end": self.killed_at_the_end,
            "judged_cpu_s": round(self._judged_s, 1),
        }

    def lines(self) -> Iterator[str]:
        """The report as text: its figures, each violation with examples, and the goals."""
        figures = {name: value for name, value in self.as_json().items() if name not in ("goals", "examples")}
        yield from (f"{name:<28} {value}" for name, value in figures.items())
        for kind, count in self.verdict.violations.items():
            yield f"VIOLATION {kind}: {count} ({VIOLATIONS[kind]})"
            yield from (f"    {example}" for example in self.verdict.examples[kind])
        for goal in self.goals():
            yield f"{'met   ' if goal.met else 'MISSED'} {goal.what}: {goal.found} ({goal.wanted} wanted)"
        yield "all is well" if self.ok else "NOT WELL"

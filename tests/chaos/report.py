"""What a run amounts to: a timeline, figures, the verdict; as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.chaos.chronicle import Event
from tests.chaos.loading import faults_of
from tests.chaos.verdict import VIOLATIONS, Verdict


class Report:
    """One run's events and verdict.

    Args:
        seed: the run's.
        judged_s: how long the judge took, in seconds of CPU time.
    """

    def __init__(self, seed: int, events: Sequence[Event], verdict: Verdict, judged_s: float) -> None:
        self.verdict = verdict
        self._seed = seed
        self._events = events
        self._judged_s = judged_s
        self._kinds = Counter(event["event"] for event in events)
        self._faults = [fault for fault in faults_of(events) if fault.kind != "ended-by-itself"]

    @property
    def faults(self) -> Counter[str]:
        """How many of each kind."""
        return Counter(fault.kind for fault in self._faults)

    @property
    def shrunk(self) -> int:
        """Shrinks that came to their end: every retired partition reclaimed."""
        return self._kinds["shrunk"]

    @property
    def takeovers(self) -> int:
        """Claims by another controller than the one before."""
        claims = [event["controller"] for event in self._events if event["event"] == "claim"]
        return sum(before != after for before, after in pairwise(claims))

    def takeovers_s(self) -> list[tuple[str, float]]:
        """Each harm done to the active controller, and how long it took until another one had claimed the mode log."""
        found: list[tuple[str, float]] = []
        pids: dict[str, int] = {}
        holder, harmed = "", None
        for event in self._events:
            if event["event"] == "started":
                pids[event["process"]] = event["pid"]
            elif event["event"] == "fault-begins" and f"-{pids.get(event['target'])}-" in f"-{holder}-":
                harmed = event
            elif event["event"] == "claim":
                if harmed is not None and event["controller"] != holder:
                    found.append((harmed["kind"], (event["at_ms"] - harmed["at_ms"]) / 1000))
                holder, harmed = event["controller"], None
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "seconds": self._events[-1]["at_ms"] / 1000 if self._events else 0,
            **self.verdict.as_json(),
            "faults": dict(sorted(self.faults.items())),
            "faults_total": self.faults.total(),
            "shrinks": {"completed": self.shrunk, "given_up": self._kinds["not-shrunk"]},
            "undos": self._kinds["undone"],
            "grown": self._kinds["grown"],
            "claims": self._kinds["claim"],
            "takeovers": self.takeovers,
            "takeovers_s": self.takeovers_s(),
            "ended_by_themselves": [
                {key: event[key] for key in ("at_ms", "process", "last_words")}
                for event in self._events
                if event["event"] == "ended-by-itself"
            ],
            "killed_at_the_end": [name for event in self._events for name in event.get("killed", [])],
            "judged_cpu_s": round(self._judged_s, 1),
            "timeline": list(self.timeline()),
        }

    def timeline(self) -> Iterator[dict[str, Any]]:
        """What happened, for people: ``{"at_s", "what"}`` in order of time."""
        for event in self._events:
            text = _text(event)
            if text is not None:
                yield {"at_s": round(event["at_ms"] / 1000, 1), "what": text}

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield "timeline"
        for entry in self.timeline():
            yield f"{entry['at_s']:8.1f} s  {entry['what']}"
        verdict = self.verdict
        yield ""
        yield f"seed                    {self._seed}"
        yield f"acknowledged records    {verdict.acknowledged:,} ({verdict.deleted:,} deleted since)"
        yield f"lost                    {verdict.violations['lost']}"
        yield f"unread                  {verdict.violations['unread']}"
        yield f"transactions            {_counts(verdict.transactions)}; unsettled records: {verdict.unsettled}"
        for group, read in verdict.read.items():
            yield f"read by {group:<15} {read:,} ({verdict.duplicates[group]:,} more than once)"
        yield f"faults                  {self.faults.total()}: {_counts(self.faults)}"
        given_up = self._kinds["not-shrunk"]
        yield f"shrinks                 {self.shrunk} completed, {self._kinds['undone']} undone, {given_up} given up"
        yield f"controllers             {self._kinds['claim']} claims, {self.takeovers} takeovers"
        took = "; ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self.takeovers_s())
        yield f"takeovers after harm    {took or 'none'}"
        for name, (longest, unharmed) in sorted(verdict.longest_gap_ms.items()):
            yield f"longest gap             {name}: {longest / 1000:.1f} s, {unharmed / 1000:.1f} s unharmed"
        ended = Counter(event["process"] for event in self._events if event["event"] == "ended-by-itself")
        yield f"ended by themselves     {_counts(ended) or 'nobody'}"
        yield f"judged in               {self._judged_s:.1f} s of CPU time"
        for kind, count in verdict.violations.items():
            yield ""
            yield f"VIOLATION {kind}: {count} ({VIOLATIONS[kind]})"
            yield from (f"    {example}" for example in verdict.examples[kind])
        yield "all is well" if verdict.ok else "NOT WELL"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


def _text(event: Event) -> str | None:
    match event["event"]:
        case "phase":
            return f"--- {event['phase']}"
        case "fault-begins":
            return f"fault {event['id']}: {event['kind']} of {event['target']}"
        case "fault-ends":
            return f"fault {event['id']} is over"
        case "ended-by-itself":
            return f"{event['process']} ended by itself: {event['last_words']}"
        case "claim":
            return f"{event['controller']} claims the mode log, epoch {event['controller_epoch']}"
        case "view":
            return str(event["text"])
        case "command":
            return f"{event['what']} to {event['to']}: {event['answer']}"
        case "shrunk":
            return f"shrunk to {event['to']} in {event['took_s']} s (delay {event['delay_ms']} ms)"
        case "not-shrunk":
            return f"not shrunk to {event['to']} in {event['after_s']} s: given up"
        case "undone" | "grown":
            return f"{event['event']} (target was {event['target']})"
        case "drained" | "not-drained":
            return f"group {event['group']}: {event['event']} {event['left'] or ''}"
        case "started" | "log-start" | "metadata-failed":
            return None
        case other:
            return f"{other}: { {key: value for key, value in event.items() if key not in ('at_ms', 'event')} }"

"""What a run amounts to: a timeline, figures, the verdict; as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.chaos.chronicle import Event
from tests.chaos.goals import SHORT_MINUTES, Goal, figures, judged, nobody
from tests.chaos.setting import WRITERS
from tests.chaos.verdict import VIOLATIONS, Verdict

TAKEOVERS = "(of a busy machine, with shorter sessions, other faults at the same time; the limit of 15 s is for a \
controller killed alone, with defaults: benchmarks/takeover.py)"
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
            "takeovers": self.takeovers,
            "takeovers_s": self.takeovers_s(),
            "ended_by_themselves": [
                {key: event[key] for key in ("at_ms", "process", "last_words")}
                for event in self._events
                if event["event"] == "ended-by-itself"
            ],
            "killed_at_the_end": self.killed_at_the_end,
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
        yield f"lost                    {verdict.violations['lost']}{self._unsettled()}"
        yield f"unread                  {verdict.violations['unread']}"
        yield f"transactions            {_counts(verdict.transactions)}"
        for group, read in verdict.read.items():
            excused = f"{verdict.excused_share.get(group, 0):.0%} of the time excuses that"
            yield f"read by {group:<15} {read:,} ({verdict.duplicates[group]:,} more than once; {excused})"
        yield f"faults                  {self.faults.total()} of {len(self._begun)} begun: {_counts(self.faults)}"
        unconfirmed, given_up = verdict.shrinks["unconfirmed"], self._kinds["not-shrunk"]
        yield f"shrinks                 {self.shrunk} completed, Kafka confirms ({unconfirmed} not confirmed in time)"
        yield f"                        {self._kinds['undone']} undone, {given_up} given up"
        unseals = f"{self.unseals('stragglers')} by stragglers, {self.unseals('truncations')} by truncation"
        yield f"seals broken            {unseals}"
        yield f"switches slept through  {self.slept_through}, by an aware writer paused for longer than the delay"
        yield f"landed while retired    {verdict.landed_retired:,} records of aware writers, at least"
        yield f"controllers             {self._kinds['claim']} claims, {self.takeovers} takeovers"
        took = "; ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self.takeovers_s())
        yield f"takeovers after harm    {took or 'none'} {TAKEOVERS}"
        for name, (longest, unharmed) in sorted(verdict.longest_gap_ms.items()):
            yield f"longest gap             {name}: {longest / 1000:.1f} s, {unharmed / 1000:.1f} s unharmed"
        ended = Counter(event["process"] for event in self._events if event["event"] == "ended-by-itself")
        yield f"ended by themselves     {_counts(ended) or 'nobody'}"
        yield f"judged in               {self._judged_s:.1f} s of CPU time"
        for kind, count in verdict.violations.items():
            yield ""
            yield f"VIOLATION {kind}: {count} ({VIOLATIONS[kind]})"
            yield from (f"    {example}" for example in verdict.examples[kind])
        yield ""
        if self._minutes < SHORT_MINUTES:
            yield f"goals: a run of less than {SHORT_MINUTES:g} minutes has none but these"
        for goal in self.goals():
            least = "at least " if goal.wanted != "nobody" else ""
            yield f"{'met   ' if goal.met else 'MISSED'} {goal.what}: {goal.found} ({least}{goal.wanted})"
        yield "all is well" if self.ok else "NOT WELL"

    def _unsettled(self) -> str:
        verdict = self.verdict
        if not verdict.most_unsettled:
            return ""
        seen = f"{verdict.unsettled:,} acknowledged records of {verdict.unsettled_transactions} transactions"
        most = f"one for each of {verdict.most_unsettled} writers killed or failed"
        return f", apart from {seen} of which nobody was told the end and nothing was seen (at most {most})"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


def _text(event: Event) -> str | None:
    match event["event"]:
        case "phase":
            return f"--- {event['phase']}"
        case "fault-begins":
            return f"fault {event['id']}: {event['kind']} of {event['target']}"
        case "fault-ends":
            what = (
                f"restarted {event['restarted']}" if event["restarted"] else f"pid {event['pid']}, {event['stood_s']} s"
            )
            return f"fault {event['id']} is over: {what}{'' if event['reached'] else ' (does not count)'}"
        case "ended-by-itself":
            return f"{event['process']} ended by itself: {event['last_words']}"
        case "claim":
            return f"{event['controller']} claims the mode log, epoch {event['controller_epoch']}"
        case "view":
            return str(event["text"])
        case "command":
            return f"{event['what']} to {event['to']}: {event['answer']}"
        case "shrunk":
            starts = (
                f"logs start at {event['log_starts']}, seals {event['seals']}" if event.get("seals") else "no evidence"
            )
            return f"shrunk to {event['to']} in {event['took_s']} s (delay {event['delay_ms']} ms); {starts}"
        case "not-shrunk":
            return f"not shrunk to {event['to']} in {event['after_s']} s: given up"
        case "undone" | "grown":
            return f"{event['event']} (target was {event['target']})"
        case "drained" | "not-drained":
            return f"group {event['group']}: {event['event']} {event['left'] or ''}"
        case "started" | "log-start" | "metadata-failed" | "mode-record" | "ends-of-retired" | "mode-log-error":
            return None
        case other:
            return f"{other}: { {key: value for key, value in event.items() if key not in ('at_ms', 'event')} }"

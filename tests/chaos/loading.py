"""Judges what is in the folder of a run, also of one that ended before its time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.chaos.chronicle import Event, read_events
from tests.chaos.setting import GROUPS, PARTITIONS, WRITERS, Setting
from tests.workload.evidence import OPEN_END, Evidence, Fault, Gone, Shrink
from tests.workload.journal import read_journal, replay
from tests.workload.judge import judge
from tests.workload.ledger import Ledger
from tests.workload.record import log_of
from tests.workload.verdict import Verdict

LATE_MS = 1_000
"""How long after a process has ended by itself its end is noted, at most."""


def judge_run(folder: Path) -> Verdict:
    """Judge the run in a folder.

    Raises:
        OSError: it is not the folder of a run.
    """
    setting = Setting.load(folder)
    events = list(read_events(setting.events_path))
    ledger = Ledger(group.name for group in GROUPS)
    _load_journals(folder, ledger)
    logs = [log_of(setting.topic, partition) for partition in range(PARTITIONS)]
    starts = None
    if setting.log_starts_path.exists():
        starts = {logs[int(p)]: start for p, start in json.loads(setting.log_starts_path.read_text("utf-8")).items()}
        for number, log, offset, _, _ in read_journal(setting.contents_path):
            ledger.store(number, log, offset)
    evidence = Evidence(
        starts=starts,
        writable={event["version"]: event["writable"] for event in events if event["event"] == "view"},
        gone=list(_gone(events, logs)),
        plain=[group.name for group in GROUPS if not group.aware],
        faults=list(_faults(events)),
        shrinks=list(_shrinks(events)),
    )
    verdict = judge(ledger, evidence)
    for event in events:
        if event["event"] == "chain":
            verdict.adopt(event["violations"], event["examples"], event["name"])
    return verdict


def _load_journals(folder: Path, ledger: Ledger) -> None:
    for path in sorted(folder.glob("writer.*.journal")):
        _, name, run, _ = path.name.split(".")
        [kind] = [each for each in WRITERS if each.name == name]
        replay(path, ledger.writer(int(run), name, aware=kind.aware, transactional=kind.transactional))
    for path in sorted(folder.glob("reader.*.journal")):
        _, group, name, run, _ = path.name.split(".")
        replay(path, ledger.reader(group, f"{name} (run {run})", holds=True))


def _faults(events: Sequence[Event]) -> Iterator[Fault]:
    """The faults, and what ended by itself. A fault that has no end goes on for ever."""
    ends = {event["id"]: event["at_ms"] for event in events if event["event"] == "fault-ends"}
    for event in events:
        at_ms = event["at_ms"]
        if event["event"] == "fault-begins":
            to_ms = ends.get(event["id"], OPEN_END)
            yield Fault(at_ms, to_ms, event["kind"], event["target"], event["group"])
        elif event["event"] == "ended-by-itself":
            yield Fault(max(at_ms - LATE_MS, 0), at_ms, "ended-by-itself", event["process"], event["group"])


def _gone(events: Iterable[Event], logs: Sequence[int]) -> Iterator[Gone]:
    """Deletions, and the times in which partitions were None."""
    none: dict[int, Gone] = {}
    for event in events:
        if event["event"] == "log-start":
            yield Gone(event["at_ms"], logs[event["partition"]], event["below"], "deleted")
        elif event["event"] == "view":
            now = {int(partition): below for partition, below in event["none"].items()}
            for partition in [p for p in none if none[p].below != now.get(p)]:
                yield none.pop(partition)._replace(until_ms=event["at_ms"])
            for partition in now.keys() - none.keys():
                none[partition] = Gone(event["at_ms"], logs[partition], now[partition], "None")
    yield from none.values()


def _shrinks(events: Iterable[Event]) -> Iterator[Shrink]:
    for event in events:
        if event["event"] == "shrunk":
            maps = (event.get(name) or {} for name in ("seals", "reclaims", "log_starts", "left"))
            yield Shrink(event["at_ms"], event["to"], *({int(p): n for p, n in each.items()} for each in maps))

"""A history from the folder of a run, also of one that ended before its time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from tests.chaos.chronicle import Event, read_events
from tests.chaos.history import (
    OPEN_END,
    Bounds,
    Chain,
    Contents,
    Fault,
    Gone,
    History,
    Outcome,
    ReaderRun,
    Shrink,
    Transaction,
    WriterRun,
)
from tests.chaos.journal import Entry, JournalFile, Kind, unpack_bounds
from tests.chaos.setting import GROUPS, WRITERS, Setting

LATE_MS = 1_000
"""How long after a process has ended by itself its end is noted, at most."""
_OUTCOMES = {Kind.COMMITTED: Outcome.COMMITTED, Kind.ABORTED: Outcome.ABORTED}


def load_history(folder: Path) -> History:
    """The history in a folder.

    Raises:
        OSError: it is not the folder of a run.
    """
    setting = Setting.load(folder)
    events = list(read_events(setting.events_path))
    return History(
        groups=[group.name for group in GROUPS],
        writers=sorted(map(_writer, folder.glob("writer.*.journal")), key=lambda each: each.run),
        readers=[_reader(path) for path in sorted(folder.glob("reader.*.journal"))],
        contents=_contents(setting),
        gone=list(_gone(events)),
        faults=list(_faults(events)),
        writable={event["version"]: event["writable"] for event in events if event["event"] == "view"},
        plain=frozenset(group.name for group in GROUPS if not group.aware),
        shrinks=list(_shrinks(events)),
        chains=[_chain(event) for event in events if event["event"] == "chain"],
    )


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


def _gone(events: Iterable[Event]) -> Iterator[Gone]:
    """Deletions, and the times in which partitions were None."""
    none: dict[int, Gone] = {}
    for event in events:
        if event["event"] == "log-start":
            yield Gone(event["at_ms"], event["partition"], event["below"], "deleted")
        elif event["event"] == "view":
            now = {int(partition): below for partition, below in event["none"].items()}
            for partition in [p for p in none if none[p].below != now.get(p)]:
                yield none.pop(partition)._replace(until_ms=event["at_ms"])
            for partition in now.keys() - none.keys():
                none[partition] = Gone(event["at_ms"], partition, now[partition], "None")
    yield from none.values()


def _shrinks(events: Iterable[Event]) -> Iterator[Shrink]:
    for event in events:
        if event["event"] == "shrunk":
            maps = (event.get(name) or {} for name in ("seals", "reclaims", "log_starts", "left"))
            yield Shrink(event["at_ms"], event["to"], *({int(p): n for p, n in each.items()} for each in maps))


def _chain(event: Event) -> Chain:
    acknowledged = sum(event["acknowledged"].values())
    return Chain(event["name"], acknowledged, event["unread"], event["out_of_order"], event["back"])


def _writer(path: Path) -> WriterRun:
    _, name, run, _ = path.name.split(".")
    [writer] = [each for each in WRITERS if each.name == name]
    notes = list(JournalFile(path, {*Kind} - {Kind.ACKED}))
    return WriterRun(
        run=int(run),
        name=name,
        aware=writer.aware,
        acks=JournalFile(path, [Kind.ACKED]),
        transactions=list(_transactions(notes)) if writer.transactional else None,
        bounds=[Bounds(offset, *unpack_bounds(number)) for number, offset, _, _, kind in notes if kind == Kind.VIEW],
        ended=any(entry[4] == Kind.ENDED for entry in notes),
    )


def _transactions(notes: Iterable[Entry]) -> Iterator[Transaction]:
    """What has no end noted is of unknown outcome."""
    ours = [entry for entry in notes if entry[4] in (Kind.BEGUN, *_OUTCOMES)]
    end: Entry = (0, OPEN_END, 0, 0, Kind.BEGUN)
    for begun, after in pairwise([*ours, end]):
        if begun[4] == Kind.BEGUN:
            yield Transaction(begun[1], after[1], _OUTCOMES.get(Kind(after[4]), Outcome.UNKNOWN))


def _reader(path: Path) -> ReaderRun:
    _, group, name, run, _ = path.name.split(".")
    kinds = (Kind.READ, Kind.TAKEN, Kind.DROPPED, Kind.COMMIT_FAILED)
    return ReaderRun(f"{name} (run {run})", group, JournalFile(path, kinds))


def _contents(setting: Setting) -> Contents | None:
    if not setting.log_starts_path.exists():
        return None
    starts = json.loads(setting.log_starts_path.read_text(encoding="utf-8"))
    stored = JournalFile(setting.contents_path, [Kind.STORED])
    return Contents({int(partition): start for partition, start in starts.items()}, stored)

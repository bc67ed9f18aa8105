"""Controllers as processes to be killed and paused, and the mode log's history by controller epoch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from modeaware.modelog.reader import LogRecord, read_to_end
from modeaware.modelog.records import CLAIM_KEY
from tests.support.process import LoggedProcess


class Entry(NamedTuple):
    """A committed record of the log: its key, the epoch of the controller that wrote it, and whether it is a claim
    without an address."""

    offset: int
    key: str
    controller_epoch: int
    released: bool


def history(conf: dict[str, str], log: str) -> list[Entry]:
    """All committed records that carry an epoch, in order (what compaction has left of them)."""
    entries: list[Entry] = []

    def note(records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.key is not None and record.value is not None:
                fields, key = json.loads(record.value), record.key.decode()
                released = key == CLAIM_KEY and fields["address"] is None
                entries.append(Entry(record.offset, key, fields["controller_epoch"], released))

    read_to_end(conf, log, 0, note, 30, must_exist=True)
    return entries


def assert_one_at_a_time(entries: list[Entry]) -> None:
    """No record of an older claim comes after a newer claim, and each record's claim comes before it."""
    claimed = 0
    for entry in entries:
        if entry.key == CLAIM_KEY:
            assert entry.controller_epoch >= claimed, entries
            claimed = entry.controller_epoch
        assert entry.controller_epoch == claimed, f"{entry} under claim {claimed}: {entries}"


class ControllerProcess(LoggedProcess):
    """``modeaware controller`` as a process of its own."""

    def __init__(
        self, conf: dict[str, str], log: str, folder: Path, *, listen: str | None = None, **config: object
    ) -> None:
        settings = {"modeaware.mode.log.topic": log, **{name.replace("_", "."): v for name, v in config.items()}}
        words = [word for name, value in settings.items() for word in ("--config", f"{name}={value}")]
        if listen is not None:
            words += ["--listen", listen]
        command = [sys.executable, "-m", "modeaware", "controller", "--bootstrap-server", conf["bootstrap.servers"]]
        super().__init__([*command, *words], folder / f"controller-{id(self)}.log")

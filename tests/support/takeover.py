"""Controllers as processes to be killed and paused, and the mode log's history by controller epoch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modeaware.modelog.reader import LogRecord, read_to_end
from modeaware.modelog.records import CLAIM_KEY
from tests.support.waiting import eventually


@dataclass(frozen=True)
class Entry:
    """A committed record of the log: its key, and the epoch of the controller that wrote it."""

    offset: int
    key: str
    controller_epoch: int


def history(conf: dict[str, str], log: str) -> list[Entry]:
    """All committed records that carry an epoch, in order (what compaction has left of them)."""
    entries: list[Entry] = []

    def note(records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.key is not None and record.value is not None:
                epoch = json.loads(record.value)["controller_epoch"]
                entries.append(Entry(record.offset, record.key.decode(), epoch))

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


class ControllerProcess:
    """``modeaware controller`` as a process of its own; its words go to a file."""

    def __init__(
        self, conf: dict[str, str], log: str, folder: Path, *, listen: str | None = None, **config: object
    ) -> None:
        settings = {"modeaware.mode.log.topic": log, **{name.replace("_", "."): v for name, v in config.items()}}
        words = [word for name, value in settings.items() for word in ("--config", f"{name}={value}")]
        if listen is not None:
            words += ["--listen", listen]
        servers = conf["bootstrap.servers"]
        command = [sys.executable, "-m", "modeaware", "controller", "--bootstrap-server", servers, *words]
        self._said = folder / f"controller-{id(self)}.log"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8")

    def wait_until_it_says(self, text: str, deadline_s: float = 40) -> None:
        def says() -> bool:
            assert text in self.said, f"waiting for {text!r}:\n{self.said}"
            return True

        eventually(says, deadline_s)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def send_sigterm(self) -> None:
        self._process.terminate()

    def terminate(self, deadline_s: float) -> int:
        """SIGTERM; its exit status.

        Raises:
            subprocess.TimeoutExpired: it is still there after ``deadline_s``.
        """
        self.send_sigterm()
        return self.wait(deadline_s)

    def wait(self, deadline_s: float) -> int:
        """Its exit status; raises as :meth:`terminate`."""
        return self._process.wait(deadline_s)

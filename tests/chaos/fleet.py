"""The processes of a run: started, killed, paused, started again; none of them outlives the run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from modeaware.errors import LocalKafkaError
from modeaware.local.process import OwnedProcess, wait_until_stopped
from tests.chaos.chronicle import Chronicle
from tests.chaos.clients import GAVE_UP
from tests.chaos.setting import CONTROLLER_CONFIGS, GROUPS, WRITERS, Setting
from tests.chaos.tasks import Task

KILL_S = 20.0
DEBUG = "%7|"
"""How librdkafka's debug lines begin."""
WATCH_S = 0.5
FATAL_ERROR = "cimpl.KafkaException: KafkaError{FATAL"
TRACEBACK_LINES = 60
"""In a callback a fatal error may be wrapped in others: it stands where the traceback begins."""


class Child:
    """One process and its incarnations. Methods may be called from any thread, one at a time.

    Args:
        name: unique in the run.
        role: ``writer``, ``reader`` or ``controller``.
        group: the group it is a member of, if it is a reader.
        command: what to run; the number of its incarnation is added for writers and readers.

    Attributes:
        run: the number of its present incarnation, or of its last one.
        wanted: whether it is to run; if not, it is not started again when it has ended.
        turn: held by the thread that harms it or looks after it.
    """

    def __init__(self, name: str, role: str, group: str | None, command: list[str], folder: Path) -> None:
        self.name = name
        self.role = role
        self.group = group
        self.run = 0
        self.wanted = False
        self.turn = threading.RLock()
        self._command = [sys.executable, "-m", *command]
        self._log = folder / f"{name}.log"
        self._log_start = 0
        self._process: OwnedProcess | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.running() else None

    def start(self, run: int) -> None:
        """Start its next incarnation."""
        with self.turn:
            self.run = run
            self.wanted = True
            self._log_start = self._log.stat().st_size if self._log.exists() else 0
            numbered = [] if self.role == "controller" else [str(run)]
            self._process = OwnedProcess([*self._command, *numbered], self._log, self._log.with_suffix(".none"))

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        with self.turn:
            self.wanted = False
            if not self.wait(0):
                self.signal(signal.SIGKILL)
                if not self.wait(KILL_S):
                    raise LocalKafkaError(f"{self.name} does not end")

    def pause(self) -> None:
        """SIGSTOP; returns when it stands still."""
        pid = self.pid
        if pid is not None:
            self.signal(signal.SIGSTOP)
            try:
                wait_until_stopped(pid)
            except LocalKafkaError:
                if self.pid == pid:
                    raise
                # It was ending by itself: the fault is not reached.

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        self.wanted = False
        self.signal(signal.SIGTERM)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, within ``timeout_s`` at the latest."""
        return self._process is None or self._process.wait(timeout_s)

    def log_lines(self) -> list[str]:
        """What this incarnation has logged."""
        if not self._log.exists():
            return []
        return self._log.read_bytes()[self._log_start :].decode(errors="replace").splitlines()

    def last_words(self) -> str:
        """Why this incarnation gave up, else the fatal error that its last traceback began with, else the last line."""
        lines = [line for line in self.log_lines() if not line.startswith(DEBUG)]
        causes = (line for line in reversed(lines[-TRACEBACK_LINES:]) if line.startswith(FATAL_ERROR))
        last = next(causes, lines[-1] if lines else "")
        return next((line for line in reversed(lines) if GAVE_UP in line), last)[:400]


class Fleet(Task):
    """All processes but the brokers. Once the task is started, what ends by itself is noted and started again."""

    def __init__(self, setting: Setting, controllers: int, chronicle: Chronicle) -> None:
        super().__init__(chronicle, "fleet")
        self._runs = count(1)
        self.children = list(_children(setting, controllers))

    def of(self, role: str) -> list[Child]:
        return [child for child in self.children if child.role == role]

    def start_child(self, child: Child) -> None:
        """Start the child's next incarnation under a number that no other has in this run."""
        run = next(self._runs)
        child.start(run)
        self.chronicle.note("started", process=child.name, role=child.role, run=run, pid=child.pid)

    def start_all(self, role: str) -> None:
        for child in self.of(role):
            self.start_child(child)

    def end(self, role: str, timeout_s: float) -> list[str]:
        """Terminate all of a role; the names of those that had to be killed."""
        for child in self.of(role):
            child.terminate()
        killed = []
        for child in self.of(role):
            if not child.wait(timeout_s):
                child.kill()
                killed.append(child.name)
            elif GAVE_UP in child.last_words():  # instead of ending in good order
                self._note_end(child)
        return killed

    def stop(self) -> None:
        """Kill all that is left."""
        try:
            super().stop()
        finally:
            for child in self.children:
                child.kill()

    def work(self) -> None:
        while not self.done.wait(WATCH_S):
            for child in self.children:
                if child.turn.acquire(blocking=False):  # else the nemesis has it
                    try:
                        if child.wanted and child.pid is None:
                            self._note_end(child)
                            self.start_child(child)
                    finally:
                        child.turn.release()

    def _note_end(self, child: Child) -> None:
        words = child.last_words()
        self.chronicle.note("ended-by-itself", process=child.name, role=child.role, group=child.group, last_words=words)


def _children(setting: Setting, controllers: int) -> Iterator[Child]:
    folder = setting.folder
    configs = [word for name, value in CONTROLLER_CONFIGS.items() for word in ("--config", f"{name}={value}")]
    controller = ["modeaware", "controller", "--bootstrap-server", setting.bootstrap_servers, *configs]
    for number in range(controllers):
        yield Child(f"controller-{number}", "controller", None, controller, folder)
    for writer in WRITERS:
        yield Child(writer.name, "writer", None, ["tests.chaos.clients", "writer", str(folder), writer.name], folder)
    for group in GROUPS:
        for number in range(group.members):
            name = f"{group.name}-{number}"
            reader = ["tests.chaos.clients", "reader", str(folder), group.name, name]
            yield Child(name, "reader", group.name, reader, folder)

"""A broker's process: one that ends with its owner, or one that outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from modeaware.errors import LocalKafkaError

_POLL_S = 0.01


class BrokerProcess(Protocol):
    """A running program that takes signals."""

    @property
    def pid(self) -> int: ...

    def running(self) -> bool:
        """False once it has ended and been reaped."""

    def signal(self, number: int) -> None:
        """Send a signal; harmless when it has ended."""

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end: True when it has ended in time."""


class OwnedProcess:
    """A program behind :mod:`modeaware.local.supervisor`: it is killed when this process ends, however that happens.

    Thread-safe. Not to be used in a fork of the owner.

    Args:
        command: the program and its arguments.
        log: its output is appended here.
        data: folder that the supervisor removes when the owner vanishes without a word.

    Raises:
        LocalKafkaError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], log: Path, data: Path) -> None:
        script = Path(__file__).with_name("supervisor.py")
        arguments = [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(data), *command]
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                bufsize=0,
                start_new_session=True,  # a Ctrl-C at the terminal is the owner's alone
            )
        self._turn = threading.Lock()
        started = self._read_reply()
        if started is None:
            self.wait(5)
            raise LocalKafkaError(f"{command[0]} could not be started, see {log}")
        self._pid = started

    @property
    def pid(self) -> int:
        return self._pid

    def running(self) -> bool:
        return self._supervisor.poll() is None

    def signal(self, number: int) -> None:
        assert self._supervisor.stdin is not None
        with self._turn:
            if not self.running():
                return
            try:
                self._supervisor.stdin.write(b"%d\n" % number)
            except BrokenPipeError:
                return  # it has just ended
            self._read_reply()

    def wait(self, timeout_s: float) -> bool:
        try:
            self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        return True

    def _read_reply(self) -> int | None:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        return int(line) if line else None


class DetachedProcess:
    """A program in a session of its own that outlives this process and can be found again by its id.

    Args:
        pid: the process id.
        marker: a part of its command line; an id that was given to another program since is not mistaken for it.
    """

    def __init__(self, pid: int, marker: str) -> None:
        self._pid = pid
        self._marker = marker
        self._ended: threading.Event | None = None

    @classmethod
    def launch(cls, command: Sequence[str], log: Path, marker: str) -> DetachedProcess:
        """Start a program whose command line contains ``marker``; its output is appended to ``log``."""
        with log.open("ab") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        process, ended = cls(child.pid, marker), threading.Event()
        process._ended = ended

        def reap() -> None:
            child.wait()
            ended.set()

        threading.Thread(target=reap, name="modeaware-local-reaper", daemon=True).start()
        return process

    @property
    def pid(self) -> int:
        return self._pid

    def running(self) -> bool:
        if self._ended is not None:  # our child: its command line is empty for a moment while it is replaced (exec)
            return not self._ended.is_set()
        return self._marker in command_line(self._pid)

    def signal(self, number: int) -> None:
        if not self.running():
            return
        try:
            os.kill(self._pid, number)
        except ProcessLookupError:
            return  # it has just ended

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.running():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)  # not our child: nothing wakes us
        return True


def command_line(pid: int) -> str:
    """The arguments of a running process; empty when it has ended (a zombie too) or is not ours to see."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()


def wait_until_stopped(pid: int, timeout_s: float = 5) -> None:
    """Wait until SIGSTOP has taken effect: the kernel stops the threads of a process one by one.

    Raises:
        LocalKafkaError: it has not within ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while not _all_threads_stopped(pid):
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"Process {pid} was sent SIGSTOP ({signal.SIGSTOP}) and still runs")
        time.sleep(_POLL_S)  # another process's state: nothing wakes us


def _all_threads_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.exists():
        listed = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return listed.stdout.strip().startswith("T")
    return all(_thread_stopped(task / "stat") for task in tasks.iterdir())


def _thread_stopped(stat: Path) -> bool:
    try:
        fields = stat.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True  # the thread has ended
    return fields.rpartition(")")[2].split()[0] == "T"

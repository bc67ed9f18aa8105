"""Processes to be paused, ended and killed; what they print goes to a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import eventually


class LoggedProcess:
    """Runs ``command``; with ``own_group`` in a process group of its own, which :meth:`kill` kills as a whole."""

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, own_group: bool = False
    ) -> None:
        self._log, self._own_group = log, own_group
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=own_group
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="backslashreplace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until_it_says(self, text: str, deadline_s: float = 40) -> None:
        def says() -> bool:
            assert text in self.said, f"waiting for {text!r}:\n{self.said}"
            return True

        eventually(says, deadline_s)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._own_group:
            os.killpg(self.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(60)

    def send_sigterm(self) -> None:
        self._process.terminate()

    def wait(self, deadline_s: float) -> int:
        """Its exit status.

        Raises:
            subprocess.TimeoutExpired: it is still there after ``deadline_s``.
        """
        return self._process.wait(deadline_s)

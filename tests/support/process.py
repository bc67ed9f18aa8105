"""Processes to be paused, ended and killed; what they print goes to a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import eventually


class LoggedProcess:
    """Runs ``command``; with ``own_session`` in a session of its own, which :meth:`kill` kills as a whole: Spark's
    Python workers are in another process group than what has started them."""

    def __init__(
        self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None, own_session: bool = False
    ) -> None:
        self._log, self._own_session = log, own_session
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=own_session
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
        if self._own_session:
            for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    if os.getsid(pid) == self.pid:
                        os.kill(pid, signal.SIGKILL)
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

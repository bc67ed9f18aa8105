"""What is done to whom, noted when it begins and, with what really was done, when it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.chronicle import Chronicle


class Doing:
    """A fault under way; one thread owns it.

    Attributes:
        pid: of the process that was killed, or stands still; None as long as that has not been seen.
        stood_s: for how long it was so, in seconds.
        restarted: the brokers that were stopped and serve again.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.stood_s = 0.0
        self.restarted: list[int] = []
        self._since_s: float | None = None

    def stands(self, pid: int) -> None:
        """From now on the process is dead, or stands still."""
        self.pid, self._since_s = pid, time.monotonic()

    def is_over(self) -> None:
        """It is revived now."""
        if self._since_s is not None:
            self.stood_s, self._since_s = time.monotonic() - self._since_s, None


class Faults:
    """Notes faults; any thread may."""

    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._count = 0
        self._turn = threading.Lock()

    @contextmanager
    def fault(
        self, kind: str, target: str, group: str | None, *, least_s: float = 0.0, restarts: int = 0
    ) -> Iterator[Doing]:
        """Note a fault around what is done in the block.

        Args:
            group: whose readers may read again because of it, ``"*"`` for all.
            least_s: it counts if a process was dead, or stood still, for so long;
            restarts: or, where this is not 0, if so many brokers were restarted.
        """
        with self._turn:
            self._count += 1
            number = self._count
        self._chronicle.note("fault-begins", id=number, kind=kind, target=target, group=group)
        doing = Doing()
        try:
            yield doing
        finally:
            doing.is_over()
            stood = doing.pid is not None and doing.stood_s >= least_s
            reached = len(doing.restarted) >= restarts if restarts else stood
            self._chronicle.note(
                "fault-ends",
                id=number,
                reached=reached,
                pid=doing.pid,
                stood_s=round(doing.stood_s, 2),
                restarted=doing.restarted,
            )

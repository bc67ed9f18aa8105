"""Work in a thread of its own, until its context ends."""

from __future__ import annotations

import sys
import threading
import traceback
from abc import ABC, abstractmethod
from typing import Self

ENDS_S = 90.0
"""librdkafka may wait 60 s for an answer (``socket.timeout.ms``) before a client is closed."""


class Background(threading.Thread, ABC):
    """A context manager that starts and stops the thread."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self._failure: BaseException | None = None

    @abstractmethod
    def work(self) -> None:
        """Return once :attr:`done` is set."""

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - raised again in the test's thread, by fine()
            self._failure = error

    def fine(self) -> bool:
        """True, or raise what the work has failed with."""
        if self._failure is not None:
            raise self._failure
        return True

    def stack(self) -> traceback.StackSummary:
        """Where it is; empty if it has ended."""
        frame = sys._current_frames().get(self.ident or 0)
        return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()

    def stop(self) -> None:
        self.done.set()
        self.join(ENDS_S)
        if self.is_alive():
            raise AssertionError(f"{self} does not end:\n{''.join(self.stack().format())}")
        self.fine()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

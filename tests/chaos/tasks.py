"""What the parts of a run share: a thread that keeps its failure for the one that stops it, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

from modeaware.errors import ControllerUnavailable, ModeAwareError, RequestRefused
from tests.chaos.chronicle import Chronicle
from tests.support.background import Background

POLL_S = 0.2
ANSWER_S = 65.0
"""Longer than any request of the run may take."""


class Task(Background):
    """Work in a thread of its own between ``start`` and :meth:`stop`. What it has failed with is noted, too."""

    def __init__(self, chronicle: Chronicle, name: str) -> None:
        super().__init__()
        self.chronicle = chronicle
        self._task = name

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def run(self) -> None:
        super().run()
        if self.failed:
            self.chronicle.note(f"{self._task}-failed", error=repr(self._failure))

    def stop(self) -> None:
        """Let what is under way come to its end; raise why the work had ended before."""
        self.done.set()
        if self.ident is not None:
            self.join()
        self.fine()


def until(condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Wait until ``condition`` is true; False: not in time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(poll_s)  # the state of other processes: nothing wakes this thread
    return True


def outcome(future: Future[Any]) -> str:
    """What an admin client's future comes to: ``done``, or an error after ``unchanged:`` or ``unknown:``."""
    try:
        future.result(ANSWER_S)
    except (ControllerUnavailable, RequestRefused) as error:  # by their documentation nothing was changed
        return f"unchanged: {error}"
    except (ModeAwareError, KafkaException, TimeoutError) as error:
        return f"unknown: {error}"
    return "done"

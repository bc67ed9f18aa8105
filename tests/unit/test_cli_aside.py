"""Work aside: Ctrl-C is heard, whatever the work does with it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from modeaware.cli.aside import aside


class Deaf:
    """Work that loses a KeyboardInterrupt, as client libraries do; presses Ctrl-C when it has begun."""

    def __init__(self) -> None:
        self.told_to_stop = threading.Event()
        self.ended = threading.Event()

    def work(self) -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        deadline_s = time.monotonic() + 5
        while not self.told_to_stop.is_set() and time.monotonic() < deadline_s:
            try:
                time.sleep(0.01)  # as a library that waits for a broker
            except KeyboardInterrupt:
                continue
        self.ended.set()


def test_ctrl_c_is_heard() -> None:
    deaf = Deaf()
    with pytest.raises(KeyboardInterrupt):
        aside(deaf.work)
    assert not deaf.ended.is_set(), "it is left behind"
    deaf.told_to_stop.set()


def test_work_that_can_be_stopped_has_ended() -> None:
    deaf = Deaf()
    with pytest.raises(KeyboardInterrupt):
        aside(deaf.work, deaf.told_to_stop.set)
    assert deaf.ended.is_set()

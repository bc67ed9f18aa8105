"""Work aside: Ctrl-C is heard, whatever the work does with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from modeaware.cli import waiting
from modeaware.cli.aside import aside
from modeaware.cli.options import Connection
from modeaware.config import ClientConfig
from modeaware.errors import ClusterError
from modeaware.reports.describe import TopicDescription
from tests.unit.test_cli_waiting import DONE


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


def test_it_gives_what_the_work_gives() -> None:
    def refuse() -> None:
        raise ClusterError("no broker answers")

    assert aside(lambda: 5) == 5
    with pytest.raises(ClusterError, match="no broker answers"):
        aside(refuse)


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


def test_whoever_waits_for_a_topic_looks_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def look(*_: object) -> list[TopicDescription]:
        threads.append(threading.current_thread())
        return [DONE]

    class NoViews:
        def subscribe(self, listen: Callable[..., None]) -> None: ...
        def unsubscribe(self, listen: Callable[..., None]) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(waiting, "describe_topics", look)
    monkeypatch.setattr(waiting.registry, "acquire", lambda conf, config: NoViews())
    with open(os.devnull, "w") as out:
        assert waiting.wait_for_topic(Connection({}, ClientConfig()), "orders", lambda: None, out) is DONE
    assert len(threads) == 1
    assert threading.main_thread() not in threads

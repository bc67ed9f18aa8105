"""Sources of views without Kafka: a tail that the test speaks for, and handles that are closed at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from modeaware.config import ClientConfig
from modeaware.modelog.reader import LogRecord
from modeaware.views import choice, registry
from modeaware.views.choice import THREAD_NAME
from modeaware.views.source import Views
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.modelog import topic_record

Acquire = Callable[..., Views]


def threads() -> list[threading.Thread]:
    """The threads of sources."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@contextmanager
def acquiring(endpoint: FakeEndpoint) -> Iterator[Acquire]:
    """``acquire(mode_source, interval_ms=...)``: a handle that is closed at the end; pauses are short."""
    made: list[Views] = []

    def acquire(mode_source: str = "wire", *, interval_ms: int = 300_000) -> Views:
        config = ClientConfig(mode_source=mode_source, refresh_interval_ms=interval_ms)
        made.append(registry.acquire({"bootstrap.servers": endpoint.address}, config))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "FIRST_BACKOFF_S", 0.05)
        patch.setattr(choice, "LAST_BACKOFF_S", 0.1)
        yield acquire
        for views in made:
            views.close()


class FakeTail:
    """Stands in for the tail of a mode log: tells what it is given, in the thread that runs it."""

    made: list[FakeTail]
    log: list[LogRecord] | None

    def __init__(self, _conf: object, _topic: str, sink: Any, _clock: object) -> None:
        self.sink = sink
        self.stopping = threading.Event()
        self.runs = 0
        FakeTail.made.append(self)

    def read_anew(self) -> None:
        pass

    def stop(self) -> None:
        self.stopping.set()

    def run(self) -> None:
        self.runs += 1
        told: list[LogRecord] | None = []
        begun = False
        while not self.stopping.is_set() and self.sink.wanted():
            if not begun:
                self.sink.begin()
                begun = True
            elif FakeTail.log is None:
                self.sink.absent()
            elif FakeTail.log != told:
                told = list(FakeTail.log)
                self.sink.records(told)
                self.sink.reached_end(len(told))
            self.stopping.wait(0.005)


def log_of(*epochs: int) -> list[LogRecord]:
    records = [topic_record("orders", epoch) for epoch in epochs]
    return [LogRecord(number, b"id-of-orders", record.to_json()) for number, record in enumerate(records)]

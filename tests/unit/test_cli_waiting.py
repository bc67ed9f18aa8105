"""``--wait``: what is shown, when it ends, and that Ctrl-C ends it."""

from __future__ import annotations

import io
import os
import signal
import threading
import time

import pytest
from rich.console import Console
from rich.live import Live

from modeaware.cli.aside import aside
from modeaware.cli.waiting import (
    Line,
    LiveProgress,
    PlainProgress,
    progress_lines,
    wait_until_done,
)
from modeaware.errors import ControllerFenced
from modeaware.lifecycle import reasons
from modeaware.modelog.records import DeleteTopicPartitions
from modeaware.modes import PartitionMode
from modeaware.reports.describe import TopicDescription
from tests.unit.test_cli_display import draining, partition

DELETION = DeleteTopicPartitions(4, 0, False, 0, 6)
NONE = PartitionMode.NONE


def described(phase: str, *retired: object) -> TopicDescription:
    partitions = (*(partition(p) for p in range(4)), *retired)
    return TopicDescription("orders", "id", 3, phase, DELETION, (), partitions)  # type: ignore[arg-type]  # draining()'s type


DRAIN = described("drain", draining(4), draining(5, phase="seal", seal_offset=None, reason=None))
DONE = described("done", *(draining(p, mode=NONE, phase="done", reason=None, lag=0) for p in (4, 5)))


def test_partitions_are_told_by_phase_and_reason() -> None:
    assert progress_lines(DRAIN) == [
        Line("drain", "4", 7, reasons.text("group-lag:billing")),
        Line("seal", "5", 7, ""),
    ]


class Script:
    """Looks at a topic as a test lays them out; each may be an error. Wakes the waiting at once."""

    def __init__(self, *looks: TopicDescription | Exception) -> None:
        self.changed = threading.Event()
        self._looks = list(looks)

    def look(self) -> TopicDescription:
        self.changed.set()
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look


def _wait(script: Script, failure: BaseException | None = None) -> str:
    out = io.StringIO()
    wait_until_done(script.look, script.changed, PlainProgress(out), lambda: failure, 10.0)
    return out.getvalue()


def test_it_waits_until_the_topic_is_done_and_tells_each_change_once() -> None:
    told = [line.split(" ", 1)[1] for line in _wait(Script(DRAIN, DRAIN, DONE)).splitlines()]
    assert told == [
        f"orders: drain 4 ({reasons.text('group-lag:billing')}); seal 5",
        "orders: done 4-5",
    ]


def test_it_ends_when_the_embedded_controller_has_stopped() -> None:
    with pytest.raises(ControllerFenced, match="another"):
        _wait(Script(DRAIN, DRAIN), ControllerFenced("another controller has taken over"))


def test_the_live_display_shows_phases_and_share() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120)
    with Live(console=console, auto_refresh=False) as live:
        progress = LiveProgress(live)
        progress.show(DRAIN)
        progress.note("brokers [away]")
        progress.note("brokers [away]")
        progress.show(DONE)
        live.refresh()
    shown = out.getvalue()
    plain = Console(file=io.StringIO(), width=120, record=True)
    plain.print(live.renderable)
    lines = plain.export_text().splitlines()
    assert lines[0].startswith("orders  2 of 2 partitions done")
    assert lines[2].split() == ["Phase", "Partitions", "Lag", "Waits", "for"]
    assert lines[3].split() == ["done", "4-5", "0", "-"]
    assert "2 of 2 partitions done" in shown
    assert shown.count("brokers [away]") == 1


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

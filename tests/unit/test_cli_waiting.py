"""``--wait``: what is shown, and when it ends."""

from __future__ import annotations

import io
import threading
from dataclasses import replace

import pytest

from modeaware.cli.waiting import (
    Line,
    PlainProgress,
    concerned,
    done_share,
    progress_lines,
    wait_until_done,
)
from modeaware.errors import ControllerFenced
from modeaware.lifecycle import reasons
from modeaware.modelog.deletion import DeleteTopicPartitions
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


def test_what_an_earlier_shrink_is_done_with_does_not_count() -> None:
    earlier = draining(8, mode=NONE, phase="done", reason=None)
    with_earlier = replace(DRAIN, partitions=(*DRAIN.partitions, earlier))
    assert concerned(with_earlier) == concerned(DRAIN)
    assert done_share(with_earlier) == (0, 2)
    assert done_share(DONE) == (2, 2)
    straggler = draining(8, reason="straggler", phase="seal", seal_offset=None)
    assert concerned(replace(DRAIN, partitions=(*DRAIN.partitions, straggler)))[-1] is straggler


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

"""Keys that move wait for what their producer has queued in old partitions (``modeaware.on.resize=hold``)."""

from __future__ import annotations

import time
from typing import Any

import pytest

# librdkafka gives no public way to its statistics of one partition, so what is made of them is tested where it is.
from modeaware.confluent.statistics import MARGIN_S, Backlog, Backlogs

LATER_S = MARGIN_S + 1


def statistics(
    *partitions: tuple[int, int], unassigned: int = 0, left: int = 9, after_s: float = LATER_S
) -> dict[str, Any]:
    """librdkafka's, of ``t``: ``(msgs, acked_msgid)`` of partition 0, 1, 2, ..."""
    told: dict[str, dict[str, int]] = {
        str(p): {"msgs": msgs, "acked_msgid": acked, "msgq_cnt": 0} for p, (msgs, acked) in enumerate(partitions)
    }
    told["-1"] = {"msgs": 1000, "acked_msgid": 0, "msgq_cnt": unassigned}
    ts = int((time.monotonic() + after_s) * 1_000_000)
    return {"ts": ts, "msg_cnt": left, "topics": {"t": {"partitions": told}}}


def drained(backlog: Backlog) -> set[int]:
    return {partition for partition in range(3) if backlog.drained(partition)}


class TestBacklog:
    def test_a_partition_is_drained_when_what_the_first_statistics_count_is_acknowledged(self) -> None:
        backlog = Backlog("t", lambda: 9)
        assert drained(backlog) == set()
        backlog.look(statistics((7, 7), (5, 3), (0, 0)))
        assert drained(backlog) == {0, 2}
        backlog.look(statistics((9, 7), (8, 4), (1, 0)))
        assert drained(backlog) == {0, 2}, "records that were queued since are not waited for"
        assert not backlog.over
        backlog.look(statistics((9, 7), (8, 5), (1, 0)))
        assert backlog.over

    def test_statistics_of_before_that_are_served_late_say_nothing(self) -> None:
        backlog = Backlog("t", lambda: 9)
        backlog.look(statistics((3, 3), after_s=-1))
        backlog.look(statistics((3, 3), left=0, after_s=-1))
        backlog.look(statistics((3, 3), after_s=MARGIN_S / 2))
        assert drained(backlog) == set()
        backlog.look(statistics((5, 3)))
        assert not backlog.drained(0)


class TestSettings:
    @pytest.mark.parametrize(
        ("conf", "idempotent"),
        [
            ({}, True),
            ({"acks": "all", "max.in.flight": 5, "retries": "3", "queuing.strategy": "fifo"}, True),
            ({"acks": -1, "transactional.id": "t"}, True),
            ({"enable.idempotence": False}, False),
            ({"acks": 1}, False),
            ({"max.in.flight.requests.per.connection": 6}, False),
            ({"queuing.strategy": "lifo"}, False),
        ],
    )
    def test_idempotence_where_nothing_speaks_against_it(self, conf: dict[str, Any], idempotent: bool) -> None:
        assert Backlogs(conf).settings().get("enable.idempotence", False) is idempotent

    def test_the_application_gets_its_statistics_as_often_as_it_asked(self) -> None:
        told: list[str] = []
        settings = Backlogs({"statistics.interval.ms": 3000, "stats_cb": told.append}).settings()
        assert settings["statistics.interval.ms"] == 1000
        for figures in "abcdef":
            settings["stats_cb"](figures)
        assert told == ["c", "f"]


def test_records_that_wait_for_the_first_metadata_are_not_counted_yet() -> None:
    backlog = Backlog("t", lambda: 9)
    backlog.look(statistics((0, 0), unassigned=4))
    assert not backlog.drained(0)
    backlog.look(statistics((4, 2)))
    assert not backlog.drained(0)
    backlog.look(statistics((4, 4)))
    assert backlog.drained(0)

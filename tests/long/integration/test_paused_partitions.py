"""Members that hand records to a worker and pause their partitions meanwhile follow a topic that is replaced."""

from __future__ import annotations

import pytest

from tests.support.succession import Following
from tests.workload.applications import Handover
from tests.workload.load import Load

WORK_S = 5.0
"""Longer than it takes to seal a topic: what was written before the switch is then still at the worker."""


@pytest.mark.parametrize("strategy", [None, "cooperative-sticky", "consumer"])
def test_partition_that_is_paused_for_a_worker_is_not_read(following: Following, strategy: str | None) -> None:
    load = Load()
    conf = following.conf(strategy, auto_commit_interval_ms=200)
    following.writer(load)
    (slow,) = following.readers(load, conf, 0, kind=Handover)
    following.readers(load, conf, 0)
    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 300)
        following.announce(load)
        slow.work_s = WORK_S
        following.replace()
        load.await_given(following.successor, 1_000)
        slow.work_s = 0.0
        following.served.wait_done(following.topic)
    load.check()

"""No controller for a minute in the middle of a drain: the gate stays closed, and opens after the next takeover."""

from __future__ import annotations

import time

from tests.support.plain import committed, watermarks
from tests.support.succession import Following
from tests.support.waiting import eventually
from tests.workload.applications import BatchWorker
from tests.workload.load import Load

ABSENT_S = 60.0
FIRST_S = 45.0
"""Within 12 s on an idle machine."""


def test_gate_of_a_group_that_has_read_all_waits_for_the_next_controller(following: Following) -> None:
    served, load, conf = following.served, Load(), following.conf("consumer", auto_commit_interval_ms=200)
    following.writer(load)
    (slow,) = following.readers(load, conf, 0, kind=BatchWorker)
    following.readers(load, conf, 0)

    def has_read_all() -> bool:
        offsets = committed(served.servers, following.group, following.topic)
        ends = watermarks(served.servers, following.topic)
        return load.fine() and all(max(offsets[p], 0) >= end for p, (_, end) in ends.items())

    with load.running():
        load.await_held(following.topic, 12)
        load.await_given(following.topic, 300)
        following.announce(load)
        slow.work_s = 10.0
        following.replace()
        served.wait_for(following.topic, lambda record: record.replacement and record.replacement.switched_ms)
        served.started[-1].stop()
        slow.work_s = 0.0
        eventually(has_read_all, 60)
        time.sleep(ABSENT_S)  # the absence that this is about
        assert load.fine()
        assert not load.ledger.read_by(load.ledger.groups[0], following.new_topic), "only a controller opens a gate"
        served.start()
        eventually(lambda: load.fine() and load.ledger.read_by(load.ledger.groups[0], following.new_topic), FIRST_S)
        load.await_given(following.new_topic, 1_000)
        served.wait_done(following.topic)
    load.check()

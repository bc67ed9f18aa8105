"""What people and programs are shown of a topic, and ``--wait``."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import time
from dataclasses import replace

import pytest
from rich.console import Console
from rich.live import Live

from modeaware.cli.aside import aside
from modeaware.cli.display import JSON_HELP, describe_json, describe_text
from modeaware.cli.waiting import LiveProgress, PlainProgress, wait_until_done
from modeaware.errors import ControllerFenced
from modeaware.lifecycle import reasons
from modeaware.modelog.deletion import DeleteTopicPartitions
from modeaware.modes import PartitionMode, PartitionState, ReplicaState
from modeaware.reports.describe import HandoverDescription, PartitionDescription, TopicDescription

DRAINED = DeleteTopicPartitions(4, 60_000, False, 1_700_000_000_000, 6)


def partition(number: int, **fields: object) -> PartitionDescription:
    plain = PartitionDescription(
        number,
        PartitionMode.READ_WRITE,
        PartitionState.ONLINE,
        ReplicaState.ONLINE,
        phase=None,
        seal_offset=None,
        log_start=0,
        log_end=1000 + number,
        lag=0,
        lagging_group=None,
        reason=None,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]  # mypy cannot see the fields' types


def draining(number: int, **fields: object) -> PartitionDescription:
    state = {
        "mode": PartitionMode.READ_ONLY,
        "replica_state": ReplicaState.DELETION_INELIGIBLE,
        "phase": "drain",
        "seal_offset": 1000 + number,
        "lag": 7,
        "lagging_group": "billing",
        "reason": "group-lag:billing",
    }
    return partition(number, **{**state, **fields})


def shrinking(*retired: PartitionDescription) -> TopicDescription:
    alive = tuple(partition(p) for p in range(4))
    return TopicDescription("orders", "id", 3, "drain", DRAINED, ("audit", "billing"), alive + retired)


def test_partitions_that_are_alike_share_a_line() -> None:
    lines = describe_text([shrinking(draining(4), draining(5))], expand=False).splitlines()
    assert lines[:4] == [
        "Topic: orders  Id: id  Epoch: 3  Partitions: 6 (4 writable)  Phase: drain",
        "  Shrink from 6 to 4, asked for 2023-11-14 22:13:20 UTC",
        "  Policy drained: records are deleted once every group has consumed them, not before 2023-11-14 22:14:20 UTC",
        "  Required groups: audit, billing",
    ]
    heading, alive, retired = ([cell.strip() for cell in re.split("  +", line.strip())] for line in lines[4:])
    expected = ["Partitions", "Mode", "State", "Replica", "Seal", "Log start", "Log end", "Lag", "Waits for"]
    assert heading == expected
    expected = ["0-3", "ReadWrite", "OnlinePartition", "OnlineReplica", "-", "0", "1 000..1 003", "0", "-"]
    assert alive == expected
    waits_for = reasons.text("group-lag:billing")
    state = ["4-5", "ReadOnly", "OnlinePartition", "ReplicaDeletionIneligible"]
    assert retired == [*state, "1 004..1 005", "0", "1 004..1 005", "14 (billing)", waits_for]


def test_what_is_left_to_be_handed_over() -> None:
    topic = replace(shrinking(draining(4)), handover=HandoverDescription(6, (0, 2, 4)))
    assert describe_text([topic], expand=False).splitlines()[3] == "  Keys that moved: handed over 3 of 6 partitions"
    topic = replace(topic, handover=HandoverDescription(6, (), ("audit", "billing")))
    line = "  Keys that moved: handed over 0 of 6 partitions; unread by audit, billing"
    assert describe_text([topic], expand=False).splitlines()[3] == line
    told = describe_json([topic, shrinking()])["topics"]
    assert told[0]["handover"] == {"previous_count": 6, "handed_over": [], "unread_by": ["audit", "billing"]}
    assert told[1]["handover"] is None


def test_json_has_the_documented_fields_and_no_others() -> None:
    topics = describe_json([shrinking(draining(4))])["topics"]
    assert json.loads(json.dumps(topics)) == topics
    assert [p["mode"] for p in topics[0]["partitions"]] == ["ReadWrite"] * 4 + ["ReadOnly"]
    assert topics[0]["deletion"] == {
        "delete_partitions": 4,
        "policy": "drained",
        "delay_ms": 60_000,
        "immediate_delete": False,
        "create_timestamp_ms": 1_700_000_000_000,
        "previous_count": 6,
        "accept_state_loss": [],
        "evacuate": False,
    }
    assert (topics[0]["groups_complete"], topics[0]["waived"], topics[0]["groups_doubt"]) == (True, {}, None)
    for documented in (topics[0], topics[0]["deletion"], topics[0]["partitions"][4]):
        for field in documented:
            assert f'"{field}"' in JSON_HELP, "tell it in --help"
    partition = topics[0]["partitions"][4]
    assert (partition["mode"], partition["replica_state"]) == ("ReadOnly", "ReplicaDeletionIneligible")
    assert (partition["seal_offset"], partition["lag"], partition["lagging_group"]) == (1004, 7, "billing")
    assert (partition["reason"], partition["waits_for"]) == ("group-lag:billing", reasons.text("group-lag:billing"))


# ``--wait``: when it ends, and that Ctrl-C ends it


DELETION = DeleteTopicPartitions(4, 0, False, 0, 6)
NONE = PartitionMode.NONE


def described(phase: str, *retired: object) -> TopicDescription:
    partitions = (*(partition(p) for p in range(4)), *retired)
    return TopicDescription("orders", "id", 3, phase, DELETION, (), partitions)  # type: ignore[arg-type]  # draining()'s type


DRAIN = described("drain", draining(4), draining(5, phase="seal", seal_offset=None, reason=None))
DONE = described("done", *(draining(p, mode=NONE, phase="done", reason=None, lag=0) for p in (4, 5)))


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
    with Live(console=Console(file=out, force_terminal=True, width=120), auto_refresh=False) as live:
        progress = LiveProgress(live)
        progress.show(DRAIN)
        progress.note("brokers [away]")
        progress.note("brokers [away]")
        progress.show(DONE)
        live.refresh()
    assert "2 of 2 partitions done" in out.getvalue()
    assert out.getvalue().count("brokers [away]") == 1


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


@pytest.mark.parametrize("stoppable", [False, True])
def test_ctrl_c_is_heard_and_only_work_that_can_be_stopped_has_ended(stoppable: bool) -> None:
    deaf = Deaf()
    with pytest.raises(KeyboardInterrupt):
        aside(deaf.work, *([deaf.told_to_stop.set] if stoppable else []))
    assert deaf.ended.is_set() is stoppable
    deaf.told_to_stop.set()

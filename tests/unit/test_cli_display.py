"""What people and programs are shown of a topic, ``--wait``, and the drain certificate."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.cli.progress import Progress, run_interruptibly, wait_until_done
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster.cluster import TopicShape
from modeaware.config import ControllerConfig
from modeaware.errors import ClusterError, ControllerFenced, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, required_of
from modeaware.lifecycle.facts import FenceFacts, GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.progress import GroupProgress
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.lifecycle.report import PartitionReport, groups_left, report_topic
from modeaware.lifecycle.state import current_record
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import DeleteTopicPartitions, Replacement, RetiredPartition, Straggler, TopicRecord
from modeaware.modes import PartitionMode, PartitionState, ReplicaState
from modeaware.reports.certificate import (
    Certificate,
    Evidence,
    ProofReport,
    certificate,
    check,
    deleted_before,
    take_certificate,
)
from modeaware.reports.describe import Description, TopicDescription, describe_text
from modeaware.reports.serialise import json_help, to_json
from modeaware.reports.session import ModeLog
from modeaware.topic_view import Moved
from tests.support.lifecycle import admitted, facts, group, log, shrink
from tests.support.modelog import fold

OLD_TOPIC = TopicRecord(
    "orders",
    "id",
    1,
    1,
    (PartitionMode.READ_ONLY,) * 2,
    retired={p: RetiredPartition(seal_offset=10, read_up_to=10) for p in (0, 1)},
    replacement=Replacement("orders-v2", 2, 0, new_topic_id="id-2", announced_ms=1, switched_ms=2),
)
RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
DRAINED = DeleteTopicPartitions(4, 60_000, False, 1_700_000_000_000, 6)


def partition(number: int, **fields: object) -> PartitionReport:
    plain = PartitionReport(
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


def draining(number: int, **fields: object) -> PartitionReport:
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


def shrinking(*retired: PartitionReport) -> TopicDescription:
    alive = tuple(partition(p) for p in range(4))
    return TopicDescription("orders", "id", 3, "drain", DRAINED, ("audit", "billing"), alive + retired, writable=4)


def test_partitions_that_are_alike_share_a_line() -> None:
    lines = describe_text([shrinking(draining(4), draining(5))], expand=False).splitlines()
    assert lines[:4] == [
        "Topic: orders  Id: id  Epoch: 3  Partitions: 6 (4 writable)  Phase: drain",
        "  Shrink from 6 to 4, requested 2023-11-14 22:13:20 UTC",
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


def test_what_else_is_said_of_a_change() -> None:
    deletion = DeleteTopicPartitions(4, 60_000, True, 0, 6, ("app",))
    stragglers = (Straggler(9, 17, 1, 1_700_000_000_000), Straggler(8, -1, -1, -1))
    using = TopicFacts(
        "orders", "id", 6, groups={"app": GroupFacts(stateful=True), "plain": GroupFacts(kind="consumer")}
    )
    retired = (draining(4 + n, stragglers=1 + n, straggler=one) for n, one in enumerate(stragglers))
    topic = replace(
        shrinking(*retired),
        deletion=deletion,
        evacuation_group="copies",
        groups_complete=False,
        groups=report_topic(current_record(None, "orders", "id", 6), using, Requirement(), ()).groups,
        groups_doubt="a broker is silent",
    )
    assert [line.strip() for line in describe_text([topic], expand=False).splitlines()[2:11]] == [
        "Policy immediate: records are deleted without waiting for consumers",
        "Evacuated first (modeaware.spark.evacuate); commits of group copies prove it",
        "Required groups: audit, billing",
        "(There may be more: not every group was visible when the change was admitted.)",
        "Groups of special kinds: app (classic, keeps state per partition)",
        "Loss of state accepted: app",
        "The list of groups may be incomplete: a broker is silent",
        "Straggler in partition 4: offset 9, 2023-11-14 22:13:20 UTC, from producer id 17 epoch 1",
        "Straggler in partition 5: offset 8, from an unknown producer; 2 seals broken so far",
    ]
    undone = replace(topic, deletion=DeleteTopicPartitions(6, 0, False, 0, 6))
    assert "Shrink from" not in describe_text([undone], expand=True)


def test_json_has_the_documented_fields_and_no_others() -> None:
    topics = to_json(Description((shrinking(draining(4)),)))["topics"]
    assert json.loads(json.dumps(topics)) == topics
    assert topics[0]["writable"] == 4
    assert [p["mode"] for p in topics[0]["partitions"]] == ["ReadWrite"] * 4 + ["ReadOnly"]
    assert topics[0]["deletion"] == {
        "delete_partitions": 4,
        "policy": "drained",
        "delay_ms": 60_000,
        "immediate_delete": False,
        "create_timestamp_ms": 1_700_000_000_000,
        "previous_count": 6,
        "accept_state_loss": [],
    }
    assert (topics[0]["groups_complete"], topics[0]["waived"], topics[0]["groups_doubt"]) == (True, {}, None)
    for documented in (topics[0], topics[0]["deletion"], topics[0]["partitions"][4]):
        for field in documented:
            assert re.search(rf"^ +{field}\b", json_help(Description), re.MULTILINE), "document it in --help"
    partition = topics[0]["partitions"][4]
    assert (partition["mode"], partition["replica_state"]) == ("ReadOnly", "ReplicaDeletionIneligible")
    assert (partition["seal_offset"], partition["lag"], partition["lagging_group"]) == (1004, 7, "billing")
    assert (partition["reason"], partition["waits_for"]) == ("group-lag:billing", reasons.text("group-lag:billing"))


# ``--wait``: when it ends, and that Ctrl-C ends it


DRAIN = shrinking(draining(4), draining(5, phase="seal", seal_offset=None, reason=None))
SETTLED = shrinking(*(draining(p, mode=NONE, phase="done", reason=None, lag=0) for p in (4, 5)))
DONE = replace(SETTLED, phase="done")


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
    wait_until_done(["orders"], lambda _: [script.look()], script.changed, Progress(out), lambda: failure, 10.0)
    return out.getvalue()


def test_it_waits_until_the_topic_is_done_and_tells_each_change_once() -> None:
    script = Script(DRAIN, DRAIN, ClusterError("no broker answers"), DONE)
    told = [line.split(" ", 1)[1] for line in _wait(script).splitlines()]
    assert told.pop(1) == "cannot read the progress now: no broker answers"
    assert told == [
        f"orders: drain 4 ({reasons.text('group-lag:billing')}); seal 5",
        "orders: done 4-5",
    ]


def test_what_is_left_to_read_is_shown_every_ten_seconds_and_a_change_at_once() -> None:
    out, now_s = io.StringIO(), [0.0]
    progress = Progress(out, monotonic_s=lambda: now_s[0])
    for left, after_s in ((7_000, 0), (6_000, 2), (5_000, 7.9), (4_000, 0.1), (4_000, 60)):
        now_s[0] += after_s
        billing = GroupProgress("billing", None, True, False, {4: left}, {}, None, False, False)
        progress.show(replace(shrinking(draining(4, lag=left)), groups=(billing,), checks_within_ms=10_000))
    progress.show(DONE)
    told = [line.split(": ", 1)[1] for line in out.getvalue().splitlines()]
    drain = f"drain 4 ({reasons.text('group-lag:billing')})"
    again = "the active controller checks these groups about every 10s"
    assert told == [
        f"{drain}; group billing: it has 7 000 unread records in partitions 4; {again}",
        f"{drain}; group billing: it has 4 000 unread records in partitions 4; {again}",
        "done 4-5",
    ]


def test_groups_with_a_closed_gate_are_named_with_what_they_wait_for() -> None:
    record = replace(OLD_TOPIC, required_groups=tuple("abcde"))
    behind = {name: group({0: 7, 1: 10}, members=True) for name in "abcde"}
    found = facts(2, {0: log(10), 1: log(10)}, behind, new_topic=facts(2))
    report = report_topic(record, found, required_of(tuple("abcde"), found, (), (), 0), (0, 1), Moved())
    assert report.checks_within_ms == 10_000
    topic = TopicDescription(**vars(report))
    waits = "it has 3 unread records in partitions 0; all records of partitions 1 are committed, but no client"
    lines = [line.strip() for line in describe_text([topic], expand=False).splitlines()]
    assert [line[:7] for line in lines if f": gate closed: {waits}" in line] == [f"Group {name}" for name in "abcde"]
    assert "The active controller checks these groups about every 10s" in lines
    out = io.StringIO()
    Progress(out).show(topic)
    assert f"; group c: gate closed: {waits}" in out.getvalue()
    assert "group d" not in out.getvalue()
    assert "; and 2 more groups; the active controller" in out.getvalue()


def test_groups_of_a_shrink_are_named_with_what_they_have_to_read() -> None:
    held_up = replace(
        admitted(shrink(1)), retired={1: RetiredPartition(seal_offset=10, reason=reasons.of_group("group-lag", "g"))}
    )
    found = facts(2, {0: log(10), 1: log(10)}, {"g": group({0: 0, 1: 4}, members=True)})
    report = report_topic(held_up, found, required_of(("g",), found, (), (), 0), (0, 1))
    text = describe_text([TopicDescription(**vars(report))], expand=False)
    assert "Group g: it has 6 unread records in partitions 1\n  The active controller checks these groups about" in text
    done = replace(held_up, retired={1: RetiredPartition(seal_offset=10)})
    waits_for_no_group = report_topic(done, found, required_of(("g",), found, (), (), 0), (0, 1))
    assert (waits_for_no_group.checks_within_ms, groups_left(waits_for_no_group)) == (None, [])


def test_it_ends_when_the_embedded_controller_has_stopped() -> None:
    with pytest.raises(ControllerFenced, match="another"):
        _wait(Script(DRAIN, DRAIN), ControllerFenced("another controller has taken over"))


def test_of_several_topics_each_ends_once_and_one_that_vanishes_does_not_end_the_others() -> None:
    gone = RequestRefused("topic 'audit' does not exist", topic="audit")
    asked: list[list[str]] = []
    ended: list[str] = []
    lost: list[RequestRefused] = []

    def describe(pending: Sequence[str]) -> list[TopicDescription]:
        changed.set()
        asked.append(list(pending))
        if "audit" in pending and len(asked) > 1:
            raise gone
        states = {"orders": DONE, "audit": DRAIN, "bills": DRAIN if len(asked) < 4 else DONE}
        return [replace(states[topic], topic=topic) for topic in pending]

    def has_ended(topic: TopicDescription) -> bool:
        ended.extend([topic.topic] if topic.phase == "done" else [])
        return topic.phase == "done"

    changed, progress, names = threading.Event(), Progress(io.StringIO()), ["orders", "audit", "bills"]
    wait_until_done(names, describe, changed, progress, lambda: None, 10.0, ended=has_ended, lost=lost.append)
    assert asked == [names, ["audit", "bills"], ["bills"], ["bills"]]
    assert (ended, lost) == (["orders", "bills"], [gone])
    del asked[:]
    with pytest.raises(RequestRefused, match="audit"):
        wait_until_done(["audit"], describe, changed, progress, lambda: None, 10.0)


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
        run_interruptibly(deaf.work, *([deaf.told_to_stop.set] if stoppable else []))
    assert deaf.ended.is_set() is stoppable
    deaf.told_to_stop.set()


@pytest.mark.parametrize("begun", [False, True])
def test_ctrl_c_while_the_work_starts_stops_it_or_keeps_it_from_beginning(
    monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    events: list[str] = []
    working, told = threading.Event(), threading.Event()
    start = threading.Thread.start
    threads: list[threading.Thread] = []

    def work() -> None:
        working.set()
        assert told.wait(5)
        events.append("ended")

    def stop() -> None:
        events.append("stop")
        told.set()

    def interrupted(thread: threading.Thread) -> None:
        threads.append(thread)
        if begun:
            start(thread)
            assert working.wait(5)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(work, stop)
    if not begun:  # the thread that comes late
        start(threads[0])
        threads[0].join(5)
    assert events == (["stop", "ended"] if begun else [])


# The drain certificate: the verdict on each partition


READ = PartitionFacts(3, 10, 10, 0, 0)
FREED = replace(READ, log_start=10)
SEALED = RetiredPartition(seal_offset=10, seal_leader_epoch=0)
GONE = RetiredPartition(replica_state=ReplicaState.DELETION_SUCCESSFUL, seal_offset=10, drained_by=1)
TO_ONE = DeleteTopicPartitions(1, 500, False, 1_000, 3, ("app",))
BILLING = GroupFacts({1: 10, 2: 10}, kind="consumer")


def evidence(
    retired: RetiredPartition = SEALED,
    log: PartitionFacts | None = READ,
    group: GroupFacts | None = BILLING,
    *,
    rules: tuple[GroupRule, ...] = (),
    doubt: GroupsDoubt | None = None,
    topic_id: str = "id",
) -> Evidence:
    """Partition 1 retired as given, partition 2 reclaimed."""
    record = TopicRecord(
        "orders",
        "id",
        4,
        2,
        (RW, NONE if retired.drained_by else RO, NONE),
        TO_ONE,
        {1: retired, 2: GONE},
        required_groups=("billing",),
        drained_groups=("billing",),
        waived={"old": "the team is gone"},
        changed_ms=2_000,
    )
    logs = {2: FREED} if log is None else {1: log, 2: FREED}
    groups = {} if group is None else {"billing": group}
    facts = TopicFacts("orders", topic_id, 3, partitions=logs, groups=groups, groups_doubt=doubt)
    requirement = required_of(record.required_groups, facts, rules, (), 3_000)
    return Evidence(record, facts, requirement, "cluster-1", "host:9092", 3_000, rules)


WAIVER = GroupRule("waive", "billing", "*", "moved", 0)
MARKED = replace(SEALED, drained_by=1, lowest_commit=8)
"""Sealed at 10, where its group has committed 8: behind that lie control records alone, and they stay."""
AT_MARKER = GroupFacts({1: 8}, caught_up=frozenset({1}))


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ({}, "drained", None),
        ({"log": FREED}, "reclaimed", None),
        ({"retired": MARKED, "log": replace(READ, log_start=8), "group": AT_MARKER}, "reclaimed", None),
        ({"retired": MARKED, "log": replace(READ, log_start=7), "group": AT_MARKER}, "drained", None),
        ({"group": GroupFacts({1: 9})}, "not drained", "group-lag:billing"),
        ({"group": GroupFacts({1: 9}, caught_up=frozenset({1}))}, "drained", None),
        ({"group": None}, "not drained", "group-gone:billing"),
        ({"group": None, "rules": (WAIVER,)}, "drained", None),
        ({"doubt": GroupsDoubt("a broker is silent")}, "not drained", "groups-unknown"),
        ({"log": None}, "not drained", "partition-unavailable"),
        ({"topic_id": "another"}, "not drained", "partition-unavailable"),
        ({"log": replace(READ, end_offset=12, last_stable_offset=12)}, "not drained", "straggler"),
        ({"log": replace(READ, leader_epoch=1, seal_epoch_end=8)}, "not drained", "truncated"),
        ({"log": replace(READ, leader_epoch=1, seal_epoch_end=10)}, "drained", None),
        ({"log": replace(READ, last_stable_offset=5)}, "not drained", "open-transaction"),
        ({"retired": RetiredPartition()}, "not drained", "not-sealed"),
    ],
)
def test_the_verdict_is_by_what_the_cluster_shows_now(
    changes: dict[str, Any], verdict: str, reason: str | None
) -> None:
    shown = evidence(**changes)
    assert check(1, shown) == (verdict, reason)
    found = certificate(shown, [1, 2])
    document = to_json(found)
    assert document["partitions"][0]["verdict"].startswith(verdict)
    beside = "reclaimed" if "topic_id" not in changes else "not drained: no leader available; waiting for one"
    assert document["partitions"][1]["verdict"] == beside
    assert found.all_drained is (verdict != "not drained")


def test_certificate_holds_what_the_log_says_and_what_the_cluster_shows_now() -> None:
    straggler = Straggler(9, 17, 1, 1_500)
    shown = evidence(replace(SEALED, drained_by=1, stragglers=1, straggler=straggler))
    document = to_json(certificate(shown, [1]))
    assert json.loads(json.dumps(document)) == document
    assert (document["cluster_id"], document["topic"], document["epoch"]) == ("cluster-1", "orders", 4)
    assert document["deletion"]["policy"] == "drained"
    assert document["deletion"]["accept_state_loss"] == ["app"]
    assert document["not_recorded"] == [
        "the offset of each group: a proof has only the number of groups and the lowest offset"
    ]
    assert (document["recorded_ms"], document["checked_ms"]) == (2_000, 3_000)
    (partition,) = document["partitions"]
    assert (partition["seal_offset"], partition["verdict"]) == (10, "drained")
    assert partition["proof"] == {"groups": 1, "lowest_offset": 10}
    assert (document["drained_groups"], document["waived"]) == (["billing"], {"old": "the team is gone"})
    told = {"offset": 9, "producer_id": 17, "producer_epoch": 1, "timestamp_ms": 1_500}
    assert partition["straggler"] == told
    assert partition["checked_now"] == {
        "last_stable_offset": 10,
        "leader_epoch": 0,
        "sealed_epoch_ends_at": None,
        "groups": {"billing": {"kind": "consumer", "committed": 10}},
    }
    assert (partition["log_start"], partition["log_end"]) == (3, 10)
    described = (document, document["deletion"], document["groups"][0], partition, partition["checked_now"])
    for fields in (*described, partition["check_with"][0]):
        for field in fields:
            assert re.search(rf"^ +{field}\b", json_help(Certificate), re.MULTILINE), "document it in --help"


def test_certificate_says_which_names_the_record_no_longer_has() -> None:
    shown = evidence(replace(SEALED, drained_by=3, lowest_commit=8))
    found = certificate(shown, [1, 2])
    assert found.not_recorded == (
        "the offset of each group: a proof has only the number of groups and the lowest offset",
    )
    assert found.partitions[0].proof == ProofReport(3, 8)
    without = replace(shown, record=replace(shown.record, drained_groups=None))
    found = certificate(without, [1, 2])
    assert (found.drained_groups, found.not_recorded[0]) == (None, "the names of the groups that proved the drains")
    assert certificate(evidence(), [1]).not_recorded == ()
    assert certificate(evidence(), [1]).partitions[0].proof is None


REPLACED = Replacement(
    "orders-v2", 4, 100, new_topic_id="id-2", switched_ms=200, own_configs={}, fenced_ms=300, released_ms=400
)


def of_replaced(now: Replacement = REPLACED, **changes: Any) -> Evidence:
    """Of a topic with one partition, read by its group, which has moved."""
    record = TopicRecord(
        "orders", "id", 4, 2, (RO,), retired={0: SEALED}, required_groups=("billing",), replacement=now
    )
    moved = changes.pop("moved", {"billing": GroupFacts(dict.fromkeys(range(4), 0))})
    facts = TopicFacts("orders", "id", 1, partitions={0: READ}, groups={"billing": GroupFacts({0: 10})})
    facts = replace(facts, new_topic=TopicFacts(now.new_topic, now.new_topic_id, 4, groups=moved))
    requirement = required_of(record.required_groups, facts, changes.pop("rules", ()), (), 3_000)
    shown = Evidence(record, facts, requirement, "cluster-1", "host:9092", 3_000)
    fence = FenceFacts(dict(FENCE_CONFIGS), {0: 0}, frozenset({0}))
    return replace(shown, **({"fence": fence} | changes))


LIFTED = FenceFacts({}, {}, frozenset({0}))
NOT_PROVED = "the fence is not proved on partitions 0: it was lifted, or their leaders do not answer"


@pytest.mark.parametrize(
    ("shown", "objection", "proved", "not_moved"),
    [
        (of_replaced(), None, (0,), ()),
        (of_replaced(moved={"billing": GroupFacts({0: 0})}), None, (0,), ("billing",)),
        (of_replaced(moved={}, rules=(WAIVER,)), None, (0,), ()),
        (of_replaced(fence=LIFTED), NOT_PROVED, (), ()),
        (of_replaced(fence=replace(LIFTED, proved={0: 7})), NOT_PROVED, (), ()),
        (of_replaced(fence=replace(LIFTED, failure=ClusterError("denied"))), None, None, ()),
        (of_replaced(replace(REPLACED, fence="none"), fence=None), None, None, ()),
        (
            of_replaced(replace(REPLACED, released_ms=None, reason="group-not-moved:billing"), moved={}),
            f"not released: {reasons.text('group-not-moved:billing')}",
            (0,),
            ("billing",),
        ),
    ],
)
def test_certificate_of_a_replaced_topic_says_why_it_may_go(
    shown: Evidence, objection: str | None, proved: tuple[int, ...] | None, not_moved: tuple[str, ...]
) -> None:
    found = certificate(shown, [0])
    assert found.replacement is not None
    assert (found.deletion, found.objection, found.partitions[0].verdict) == (None, objection, "drained")
    assert (found.fence_proved_now, found.replacement.not_moved) == (proved, not_moved)
    assert found.all_drained is (objection is None)
    failed = shown.fence is not None and shown.fence.failure is not None
    assert ("unknown" in (found.not_checked or "")) is failed
    document = to_json(found)
    for field in document["replacement"]:
        assert re.search(rf"^ +{field}\b", json_help(Certificate), re.MULTILINE), "document it in --help"
    commands = [each["command"] for each in document["check_with"]]
    assert any("kafka-configs.sh" in command for command in commands) is (shown.fence is not None)
    assert any("--group billing" in command for command in commands) is not bool(shown.requirement.waivers)


def test_the_fence_of_a_topic_that_is_gone_is_not_missed() -> None:
    unknown = replace(LIFTED, failure=ClusterError("unknown topic"))
    told = [
        certificate(of_replaced(replace(REPLACED, gone_ms=gone), fence=unknown), [0]).not_checked for gone in (None, 9)
    ]
    assert told[0] is not None
    assert "the right to WRITE" in told[0]
    assert told[1] is None


def test_an_unread_partition_of_a_replaced_topic_is_not_certified() -> None:
    shown = of_replaced()
    behind = replace(shown.facts, groups={"billing": GroupFacts({0: 9})})
    assert not certificate(replace(shown, facts=behind), [0]).all_drained


BACK = Replacement(
    "orders", 4, 500, new_topic_id="back", switched_ms=600, released_ms=700, deleting_ms=800, gone_ms=900
)
DELETED = of_replaced(replace(REPLACED, deleting_ms=450, gone_ms=480)).record
BETWEEN = replace(DELETED, topic="orders-v2", topic_id="id-2", replacement=BACK)


def session_with(log: ModeLog, topic_id: str, look: Callable[..., dict[str, TopicFacts]]) -> Any:
    """A session on a cluster where the name ``orders`` has the topic with this id, and ``look`` observes topics."""
    described = SimpleNamespace(result=lambda *_: SimpleNamespace(cluster_id="cluster-1"))
    cluster = SimpleNamespace(
        shape=lambda name: TopicShape(topic_id, internal=False, partition_count=4) if name == "orders" else None,
        admin=SimpleNamespace(describe_cluster=lambda **_: described),
    )
    return SimpleNamespace(
        read_log=lambda: log,
        cluster=cluster,
        observer=lambda: SimpleNamespace(observe_for_reports=look),
        clock=SYSTEM_CLOCK,
        controller=ControllerConfig(),
        bootstrap_server="host:9092",
    )


@pytest.mark.parametrize(
    ("records", "topic_id", "of"),
    [
        pytest.param([DELETED, BETWEEN], "back", "id", id="the topic between the two is not gone"),
        pytest.param([BETWEEN], "back", "id-2", id="renamed back, and all others are gone"),
        pytest.param([DELETED], "other", "id", id="another topic exists under the name"),
    ],
)
def test_certificate_of_a_name_that_is_taken_again_is_of_the_deleted_topic(
    records: list[TopicRecord], topic_id: str, of: str
) -> None:
    log = ModeLog("modes", fold([(record.topic_id, record.to_json()) for record in records]))
    using = {"audit": GroupFacts({0: 3})}
    looked: list[tuple[TopicShape, TopicRecord]] = []

    def look(topics: dict[str, tuple[TopicShape, TopicRecord]], _: object) -> dict[str, TopicFacts]:
        looked.extend(topics.values())
        return {
            name: TopicFacts(name, shape.topic_id, shape.partition_count, groups=using if name == "orders" else {})
            for name, (shape, _) in topics.items()
        }

    found = take_certificate(session_with(log, topic_id, look), "orders")
    assert (found.topic_id, [each.verdict for each in found.partitions]) == (of, ["deleted"])
    assert found.all_drained
    assert "audit" not in [group.group for group in found.groups], "that uses the topic that has the name now"
    assert [(shape.partition_count, record.topic_id) for shape, record in looked] == [(0, of)]


def test_certificate_of_a_topic_of_which_nothing_is_retired_is_refused() -> None:
    being_replaced = of_replaced().record
    log = ModeLog("modes", fold([(being_replaced.topic_id, being_replaced.to_json())]))
    assert deleted_before(log, "orders-v2", "id-2") is None, "it has replaced a topic that is not deleted"
    assert deleted_before(log, "payments", "id-of-payments") is None

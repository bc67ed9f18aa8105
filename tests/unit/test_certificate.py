"""The drain certificate: the verdict on each partition, and the commands that check it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from modeaware.cli.certificate import HELP
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts, TopicFacts
from modeaware.lifecycle.requirement import required_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import DeleteTopicPartitions, RetiredPartition, Straggler, TopicRecord
from modeaware.modes import PartitionMode, PartitionState, ReplicaState
from modeaware.reports.certificate import Evidence, all_drained, certificate, check, commands

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE
READ = PartitionFacts(3, 10, 10, 0, 0)
FREED = replace(READ, log_start=10)
SEALED = RetiredPartition(seal_offset=10, seal_leader_epoch=0)
GONE = RetiredPartition(
    PartitionState.NON_EXISTENT, ReplicaState.DELETION_SUCCESSFUL, seal_offset=10, drained={"billing": 10}
)
DELETION = DeleteTopicPartitions(1, 500, False, 1_000, 3, ("app",))
BILLING = GroupFacts({1: 10, 2: 10}, kind="consumer")


def evidence(
    retired: RetiredPartition = SEALED,
    log: PartitionFacts | None = READ,
    group: GroupFacts | None = BILLING,
    *,
    topic: str = "orders",
    rules: tuple[GroupRule, ...] = (),
    doubt: GroupsDoubt | None = None,
    topic_id: str = "id",
) -> Evidence:
    """Partition 1 retired as given, partition 2 reclaimed."""
    record = TopicRecord(
        topic,
        "id",
        4,
        2,
        (RW, NONE if retired.drained else RO, NONE),
        DELETION,
        {1: retired, 2: GONE},
        required_groups=("billing",),
        waived={"old": "the team is gone"},
        changed_ms=2_000,
    )
    logs = {2: FREED} if log is None else {1: log, 2: FREED}
    groups = {} if group is None else {"billing": group}
    facts = TopicFacts(topic, topic_id, 3, partitions=logs, groups=groups, groups_doubt=doubt)
    requirement = required_of(record.required_groups, facts, rules, (), 3_000)
    return Evidence(record, facts, requirement, "cluster-1", "host:9092", 3_000, rules)


WAIVER = GroupRule("waive", "billing", "*", "moved", 0)
MARKED = replace(SEALED, drained={"billing": 8})
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
        ({"group": GroupFacts({1: 11})}, "not drained", "group-beyond-end:billing"),
        (
            {
                "retired": replace(SEALED, truncated_to=9),
                "group": GroupFacts({1: 10}, epochless=frozenset({1})),
            },
            "not drained",
            "group-truncated:billing",
        ),
        ({"group": GroupFacts({2: 10})}, "not drained", "group-never-committed:billing"),
        ({"group": None}, "not drained", "group-gone:billing"),
        ({"group": None, "rules": (WAIVER,)}, "drained", None),
        ({"doubt": GroupsDoubt("a broker is silent")}, "not drained", "groups-unknown"),
        ({"log": None}, "not drained", "partition-unavailable"),
        ({"topic_id": "another"}, "not drained", "partition-unavailable"),
        ({"log": replace(READ, end_offset=12, last_stable_offset=12)}, "not drained", "straggler"),
        ({"log": replace(READ, end_offset=9, last_stable_offset=9)}, "not drained", "truncated"),
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
    document = certificate(shown, [1, 2])
    assert document["partitions"][0]["verdict"].startswith(verdict)
    assert document["partitions"][1]["verdict"] == (
        "reclaimed" if "topic_id" not in changes else "not drained: " + UNAV
    )
    assert all_drained(document) is (verdict != "not drained")


UNAV = "the partition has no leader that answers: waiting for it"


def test_certificate_holds_what_the_log_says_and_what_the_cluster_shows_now() -> None:
    straggler = Straggler(9, 17, 1, 1_500)
    document = certificate(evidence(replace(SEALED, drained={"billing": 10}, stragglers=1, straggler=straggler)), [1])
    assert json.loads(json.dumps(document)) == document
    assert (document["cluster_id"], document["topic"], document["mode_epoch"]) == ("cluster-1", "orders", 4)
    assert document["shrink"] == {
        "policy": "drained",
        "delay_ms": 500,
        "asked_for_ms": 1_000,
        "from": 3,
        "to": 1,
        "evacuation_group": None,
    }
    assert (document["waived"], document["accepted_state_loss"]) == ({"old": "the team is gone"}, ["app"])
    assert (document["recorded_ms"], document["checked_now"]["checked_ms"]) == (2_000, 3_000)
    (partition,) = document["partitions"]
    assert (partition["seal_offset"], partition["proof"], partition["verdict"]) == (10, {"billing": 10}, "drained")
    told = {"offset": 9, "producer_id": 17, "producer_epoch": 1, "timestamp_ms": 1_500}
    assert partition["straggler"] == told
    assert partition["checked_now"] == {
        "log_start": 3,
        "log_end": 10,
        "last_stable_offset": 10,
        "leader_epoch": 0,
        "sealed_epoch_ends_at": None,
        "groups": {"billing": {"kind": "consumer", "committed": 10}},
    }


def test_the_help_documents_every_field() -> None:
    document = certificate(evidence(), [1, 2])
    partition = document["partitions"][0]
    named = (document, document["shrink"], document["checked_now"], partition, partition["checked_now"])
    for fields in (*named, partition["check_with"][0]):
        for field in fields:
            assert f'"{field}"' in HELP, "tell it in --help"


def test_the_commands_are_kafkas_own() -> None:
    told, server = commands(1, evidence()), "--bootstrap-server host:9092"
    assert [(one["command"], one["expect"]) for one in told] == [
        (
            f"kafka-get-offsets.sh {server} --topic-partitions orders:1 --time latest",
            "orders:1:10",
        ),
        (
            f"kafka-get-offsets.sh {server} --topic-partitions orders:1 --time earliest",
            "orders:1: and an offset of 10 or less",
        ),
        (
            f"kafka-consumer-groups.sh {server} --describe --offsets --group billing",
            "for partition 1 of orders an offset of 10 or more",
        ),
        (
            f"kafka-console-consumer.sh {server} --topic orders --partition 1 --offset 10 --timeout-ms 5000",
            "Processed a total of 0 messages",
        ),
    ]
    assert commands(2, evidence())[1]["expect"] == "orders:2:10"
    marked = commands(1, evidence(MARKED, replace(READ, log_start=8), AT_MARKER))
    assert [one["expect"] for one in marked[1:3]] == [
        "orders:1: and an offset of 10 or less",
        "for partition 1 of orders an offset of 8 or more",
    ]


def test_names_that_a_shell_would_take_apart_are_quoted() -> None:
    shown = evidence(replace(SEALED, drained={"a b; rm -rf *": 10}))
    words = shlex.split(commands(1, shown)[2]["command"])
    assert words[-2:] == ["--group", "a b; rm -rf *"]

"""What people and programs are shown of a topic."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from modeaware.cli.display import JSON_HELP, describe_json, describe_text
from modeaware.lifecycle import reasons
from modeaware.lifecycle.facts import GroupFacts
from modeaware.modelog.records import DeleteTopicPartitions, Straggler
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


UNUSUAL = replace(
    shrinking(
        draining(4, stragglers=3, straggler=Straggler(1004, 17, 2, 1_700_000_000_000)),
        draining(5, stragglers=1, straggler=Straggler(1005)),
    ),
    deletion=replace(DRAINED, accept_state_loss=("app",)),
    groups_complete=False,
    waived={"old": "the team is gone"},
    groups={
        "app": GroupFacts(kind="classic", stateful=True, has_members=True),
        "queue": GroupFacts(kind="share"),
        "billing": GroupFacts(),
    },
    groups_doubt="a broker did not list its groups",
)


def test_what_is_out_of_the_ordinary_is_told() -> None:
    writer = "producer id 17 epoch 2, last wrote 2023-11-14 22:13:20 UTC"
    lines = describe_text([UNUSUAL], expand=False).splitlines()
    assert lines[4:11] == [
        "  (There may be more: not every group could be seen when the change was admitted.)",
        "  Of special kinds: app (classic, keeps state per partition), queue (share)",
        "  Loss of state accepted: app",
        "  Not waited for: old (waived: the team is gone)",
        "  Which groups use it is not certain: a broker did not list its groups",
        f"  Straggler in partition 4: offset 1 004, {writer}; the last of 3 times",
        "  Straggler in partition 5: offset 1 005, from a producer without an id (not idempotent)",
    ]

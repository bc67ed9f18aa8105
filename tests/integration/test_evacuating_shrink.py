"""A compacted topic is shrunk on a real Kafka: evacuated first, which a commit proves; then its records stay, or go."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from modeaware.config import ClientConfig, ControllerConfig
from modeaware.errors import ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import AlterGroupRulesCommand, CommandResult, DeletePartitionsCommand
from modeaware.lifecycle.drain import evacuation_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import TopicRecord
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.reports.certificate import ProofReport, take_certificate
from modeaware.reports.describe import describe_topics
from modeaware.reports.session import Session
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, left, produce

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


def session_of(served: Controlled) -> Session:
    config = ControllerConfig(mode_log_topic=served.log)
    return Session(served.conf, ClientConfig(mode_log_topic=served.log), config)


def compacted(served: Controlled, make_topic: MakeTopic) -> str:
    topic = make_topic(2, cleanup_policy="compact")
    produce(served, topic, 10, partition=0)
    produce(served, topic, 10, partition=1)
    return topic


def shrink(served: Controlled, topic: str, delay_ms: int = 0, *, evacuate: bool = True) -> CommandResult:
    return served.ask(DeletePartitionsCommand(topic, 1, delay_ms, evacuate=evacuate))


def prove(served: Controlled, record: TopicRecord) -> str:
    """Commit the seals, as the job does it at its end; the group's name."""
    group = evacuation_of(record)
    assert group is not None
    seals = {p: r.seal_offset for p, r in record.retired.items() if record.modes[p] is RO}
    commits = [TopicPartition(record.topic, p, seal, leader_epoch=0) for p, seal in seals.items() if seal is not None]
    consumer = Consumer({**served.conf, "group.id": group, "enable.auto.commit": "false"})
    try:
        consumer.commit(offsets=commits, asynchronous=False)
    finally:
        consumer.close()
    return group


def wait_not_evacuated(served: Controlled, topic: str) -> TopicRecord:
    return served.wait_for(topic, lambda record: served.reasons(topic) == {reasons.NOT_EVACUATED})


def test_it_waits_for_the_proof_and_leaves_the_records(served: Controlled, make_topic: MakeTopic) -> None:
    topic = compacted(served, make_topic)
    refused = shrink(served, topic, evacuate=False)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "--evacuate" in str(refused.message)
    assert shrink(served, topic).code is ErrorCode.NONE
    record = wait_not_evacuated(served, topic)
    assert (record.modes, record.retired[1].seal_offset) == ((RW, RO), 10)
    (description,) = describe_topics(session_of(served), [topic])
    assert "modeaware.spark.evacuate" in str(description.partitions[1].waits_for)
    waiver = GroupRule("waive", str(evacuation_of(record)), topic, "in a hurry", 0)
    assert served.ask(AlterGroupRulesCommand(add=(waiver,))).code is ErrorCode.INVALID_REQUEST

    group = prove(served, record)
    record = served.wait_done(topic)
    assert (record.modes[1], record.retired[1].drained_by, record.drained_groups) == (NONE, 1, (group,))
    assert (record.retired[1].replica_state, record.retired[1].reason) == (
        ReplicaState.DELETION_INELIGIBLE,
        reasons.COMPACTED,
    )
    assert left(served, topic) == {0: 10, 1: 10}
    assert served.record(topic).epoch == record.epoch, "it rests"
    (description,) = describe_topics(session_of(served), [topic])
    assert (description.phase, description.evacuation_group) == ("done", group)
    certificate = take_certificate(session_of(served), topic)
    assert certificate.all_drained
    assert certificate.partitions[0].proof == ProofReport(1, 10)

    served.grow(topic, 2)
    served.wait_for(topic, lambda record: record.modes == (RW, RW))


def test_a_proof_of_an_earlier_change_does_not_count(served: Controlled, make_topic: MakeTopic) -> None:
    topic = compacted(served, make_topic)
    assert shrink(served, topic, delay_ms=86_400_000).code is ErrorCode.NONE
    record = served.wait_for(topic, lambda record: served.reasons(topic) == {reasons.DELAY})
    earlier = prove(served, record)
    served.grow(topic, 2)
    assert shrink(served, topic).code is ErrorCode.NONE
    record = wait_not_evacuated(served, topic)
    assert earlier not in {*record.required_groups, evacuation_of(record)}
    prove(served, record)
    assert served.wait_done(topic).modes == (RW, NONE)

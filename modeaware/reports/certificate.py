"""The drain certificate: what lets the records of retired partitions go, in a form that others can check.

It holds what the mode log says (seal, leader epoch, proof, waivers), the same looked up live, a verdict for each
partition, and for each figure the command of Kafka's own tools that shows it. Pure, but for :func:`take_certificate`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.cluster.cluster import REQUEST_TIMEOUT_S, Cluster, wait
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.confluent.controller_calls import group_rules_of
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import check_drain, seal_broken_by
from modeaware.lifecycle.evacuation import evacuation_of, is_evacuation_group
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts
from modeaware.lifecycle.phases import partition_phase
from modeaware.lifecycle.requirement import Requirement, requirement_of
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import RetiredPartition, TopicRecord
from modeaware.reports.describe import READ_TIMEOUT_S, straggler_json, unusable_record
from modeaware.reports.groups import look_at_groups

SCHEMA_VERSION = 1
DRAINED, RECLAIMED, NOT_DRAINED = "drained", "reclaimed", "not drained"
NOT_SEALED = "not-sealed"
_GROUP_TOOLS = {"share": "kafka-share-groups.sh", "streams": "kafka-streams-groups.sh"}


@dataclass(frozen=True)
class Evidence:
    """What a certificate is made of: a topic's record, and what the cluster shows now.

    Attributes:
        record: its record in the mode log.
        facts: of its retired partitions, and its groups.
        requirement: whom a drain waits for now.
        cluster_id: Kafka's.
        bootstrap_server: as the commands are to name it.
        checked_ms: when the facts were looked up (wall clock, ms since the epoch).
        rules: the operator's rules about groups, of any topic.
    """

    record: TopicRecord
    facts: TopicFacts
    requirement: Requirement
    cluster_id: str
    bootstrap_server: str
    checked_ms: int
    rules: tuple[GroupRule, ...] = ()


def take_certificate(
    conf: Mapping[str, Any],
    config: ControllerConfig,
    topic: str,
    partitions: Iterable[int] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """The certificate of a topic's retired partitions, or of some of them.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        config: of the controller: where the mode log is, and which groups are ignored.

    Raises:
        RequestRefused: the topic does not exist, or a partition is not retired.
        RecordError: its record, or the rules about groups, cannot be used.
        ClusterError, ModeSourceError: the brokers did not answer, or refused.
    """
    cluster = Cluster(conf)
    replay = read_mode_log(conf, config.mode_log_topic, READ_TIMEOUT_S)
    rules = group_rules_of(replay, config.mode_log_topic)
    shape = cluster.describe([topic])[topic]
    if shape is None:
        raise RequestRefused(f"topic {topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic)
    if (unusable := unusable_record(replay, config.mode_log_topic, topic, shape.topic_id)) is not None:
        raise unusable
    record = replay.records.get(shape.topic_id)
    chosen = _retired(topic, record, partitions)
    assert record is not None
    facts = look_at_groups(Observer(cluster, conf, clock), topic, record, rules)
    now_ms = clock.now_ms()
    described = wait(cluster.admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), "describe the cluster")
    evidence = Evidence(
        record,
        facts,
        requirement_of(record, facts, rules, config.ignored_groups, now_ms),
        str(described.cluster_id),
        str(conf["bootstrap.servers"]),
        now_ms,
        rules,
    )
    return certificate(evidence, chosen)


def certificate(evidence: Evidence, partitions: Sequence[int]) -> dict[str, Any]:
    """The certificate as a JSON object; its fields are documented in ``modeaware certificate --help``."""
    record, facts, requirement = evidence.record, evidence.facts, evidence.requirement
    deletion = record.deletion
    return {
        "certificate": "modeaware drain",
        "schema_version": SCHEMA_VERSION,
        "cluster_id": evidence.cluster_id,
        "topic": record.topic,
        "topic_id": record.topic_id,
        "mode_epoch": record.epoch,
        "controller_epoch": record.controller_epoch,
        "recorded_ms": record.changed_ms,
        "shrink": None
        if deletion is None
        else {
            "policy": deletion.policy,
            "delay_ms": None if deletion.policy == "retention" else deletion.delay_ms,
            "asked_for_ms": deletion.create_timestamp_ms,
            "from": deletion.previous_count,
            "to": deletion.delete_partitions,
            "evacuation_group": evacuation_of(record),
        },
        "required_groups": list(record.required_groups),
        "groups_complete": record.groups_complete,
        "waived": dict(record.waived),
        "accepted_state_loss": list(deletion.accept_state_loss) if deletion is not None else [],
        "partitions": [_partition(partition, evidence) for partition in partitions],
        "checked_now": {
            "checked_ms": evidence.checked_ms,
            "topic_id": facts.topic_id,
            "required_groups": sorted(_required(requirement)),
            "groups_doubt": requirement.doubt.detail if requirement.doubt is not None else None,
            "rules_in_force": [
                rule.to_dict() for rule in evidence.rules if rule.applies(record.topic, evidence.checked_ms)
            ],
        },
    }


def all_drained(document: Mapping[str, Any]) -> bool:
    """Whether every partition of a certificate is drained or reclaimed."""
    return all(partition["verdict"] in (DRAINED, RECLAIMED) for partition in document["partitions"])


def check(partition: int, evidence: Evidence) -> tuple[str, str | None]:
    """The verdict on a retired partition by what the cluster shows now: ``(verdict, reason code)``.

    ``reclaimed``: no record below the seal is left that a group would be given, and none came after it. ``drained``:
    every group that is required has consumed all of it. Else ``not drained``, and the reason.
    """
    retired, log = evidence.record.retired[partition], evidence.facts.partitions.get(partition)
    if evidence.facts.topic_id != evidence.record.topic_id or log is None:
        return NOT_DRAINED, reasons.UNAVAILABLE
    seal = retired.seal_offset
    if seal is None:
        return NOT_DRAINED, retired.reason or NOT_SEALED
    if (broken_by := seal_broken_by(seal, log)) is not None:
        return NOT_DRAINED, broken_by
    if retired.reclaim_offset is not None and log.log_start >= retired.reclaim_offset:
        return RECLAIMED, None
    if not log.settled:
        return NOT_DRAINED, reasons.OPEN_TRANSACTION
    drain = check_drain(partition, seal, retired.truncated_to, log, evidence.facts, _requirement(retired, evidence))
    return (DRAINED, None) if drain.done else (NOT_DRAINED, drain.reason)


def commands(partition: int, evidence: Evidence) -> list[dict[str, str]]:
    """What to ask with Kafka's own tools, and what they answer if the certificate is right."""
    record, retired = evidence.record, evidence.record.retired[partition]
    seal, server = retired.seal_offset, evidence.bootstrap_server
    if seal is None:
        return []
    where = f"{record.topic}:{partition}"
    offsets = ("kafka-get-offsets.sh", "--bootstrap-server", server, "--topic-partitions", where)
    reclaimed = check(partition, evidence)[0] == RECLAIMED
    gone_to = retired.reclaim_offset
    start = f"{where}:{gone_to}" if reclaimed and gone_to == seal else f"{where}: and an offset of {seal} or less"
    told = [
        _command("the end of the log is the seal", [*offsets, "--time", "latest"], f"{where}:{seal}"),
        _command("the start of the log", [*offsets, "--time", "earliest"], start),
    ]
    for group, offset in _provers(partition, evidence).items():
        facts = evidence.facts.groups.get(group)
        tool = _GROUP_TOOLS.get(facts.kind if facts is not None else "", "kafka-consumer-groups.sh")
        told.append(
            _command(
                f"group {group} has consumed it",
                [tool, "--bootstrap-server", server, "--describe", "--offsets", "--group", group],
                f"for partition {partition} of {record.topic} an offset of {offset} or more",
            )
        )
    read = ["kafka-console-consumer.sh", "--bootstrap-server", server, "--topic", record.topic]
    read += ["--partition", str(partition), "--offset", str(seal), "--timeout-ms", "5000"]
    return [*told, _command("no record at or after the seal", read, "Processed a total of 0 messages")]


def _partition(partition: int, evidence: Evidence) -> dict[str, Any]:
    record, retired = evidence.record, evidence.record.retired[partition]
    mode = record.modes[partition]
    verdict, reason = check(partition, evidence)
    words = _words(reason)
    return {
        "partition": partition,
        "mode": mode.label,
        "phase": partition_phase(mode, retired),
        "replica_state": retired.replica_state.value,
        "seal_offset": retired.seal_offset,
        "seal_leader_epoch": retired.seal_leader_epoch,
        "proof": dict(sorted(retired.drained.items())),
        "recorded_reason": retired.reason,
        "evacuated": retired.evacuated,
        "stragglers": retired.stragglers,
        "straggler": straggler_json(retired.straggler),
        "checked_now": _live(partition, evidence),
        "verdict": verdict if words is None else f"{verdict}: {words}",
        "reason": reason,
        "check_with": commands(partition, evidence),
    }


def _live(partition: int, evidence: Evidence) -> dict[str, Any] | None:
    log = evidence.facts.partitions.get(partition)
    if log is None:
        return None
    groups = evidence.facts.groups
    required = _required(_requirement(evidence.record.retired[partition], evidence))
    shown = required | {name for name in groups if not is_evacuation_group(evidence.record.topic, name)}
    return {
        "log_start": log.log_start,
        "log_end": log.end_offset,
        "last_stable_offset": log.last_stable_offset,
        "leader_epoch": log.leader_epoch,
        "sealed_epoch_ends_at": log.seal_epoch_end,
        "groups": {name: _group(partition, log, groups.get(name)) for name in sorted(shown)},
    }


def _requirement(retired: RetiredPartition, evidence: Evidence) -> Requirement:
    """Whom the partition waits for: what was evacuated stays so."""
    return evidence.requirement.without_evacuation() if retired.evacuated else evidence.requirement


def _required(requirement: Requirement) -> set[str]:
    return {*requirement.groups, *([requirement.evacuation] if requirement.evacuation is not None else [])}


def _group(partition: int, log: PartitionFacts, group: GroupFacts | None) -> dict[str, Any]:
    """How a group stands with a partition; one that the brokers do not list has kind null."""
    if group is None:
        return {"kind": None, "committed": None}
    told = {"kind": group.kind, "committed": group.committed.get(partition)}
    return {**told, "only_control_records_left": True} if partition in group.caught_up else told


def _provers(partition: int, evidence: Evidence) -> dict[str, int]:
    """Whose offsets are to be checked, and what they must be at least: the proof, else what is required now."""
    retired = evidence.record.retired[partition]
    if retired.drained:
        return dict(sorted(retired.drained.items()))
    proof = _proof_now(partition, retired, evidence)
    required = sorted(_required(_requirement(retired, evidence)))
    return {name: proof.get(name, retired.seal_offset or 0) for name in required}


def _proof_now(partition: int, retired: RetiredPartition, evidence: Evidence) -> Mapping[str, int]:
    log = evidence.facts.partitions.get(partition)
    if log is None or retired.seal_offset is None:
        return {}
    seal, truncated_to = retired.seal_offset, retired.truncated_to
    return check_drain(partition, seal, truncated_to, log, evidence.facts, _requirement(retired, evidence)).proof


def _command(what: str, arguments: Sequence[str], expect: str) -> dict[str, str]:
    return {"what": what, "command": shlex.join(arguments), "expect": expect}


def _words(reason: str | None) -> str | None:
    if reason == NOT_SEALED:
        return "it is not sealed yet"
    return reasons.text(reason) if reason is not None else None


def _retired(topic: str, record: TopicRecord | None, partitions: Iterable[int] | None) -> list[int]:
    retired = {p for p, r in record.retired.items() if not r.opening} if record is not None else set()
    if not retired:
        raise RequestRefused(f"topic {topic!r}: no partition is retired, there is nothing to certify", topic=topic)
    wanted = retired if partitions is None else set(partitions)
    if strangers := sorted(wanted - retired):
        raise RequestRefused(
            f"topic {topic!r}: partition {strangers[0]} is not retired, there is nothing to certify",
            topic=topic,
            partition=strangers[0],
        )
    return sorted(wanted)

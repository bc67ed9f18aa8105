"""The drain certificate: evidence, which others can check, that retired partitions or an old topic were drained.

For each partition, the certificate has the mode log's facts (seal, leader epoch, proof), the brokers' current facts,
and a verdict. The *seal* of a partition is its final end offset. A *proof* consists of offsets that groups have
committed. Commands of Kafka's own tools show the current offsets, and the fence of an old topic. Pure, except
:func:`take_certificate`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from modeaware.cluster.cluster import REQUEST_TIMEOUT_S, TopicShape, wait
from modeaware.cluster.fence import fences
from modeaware.errors import RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.drain import Requirement, check_drain, is_evacuation_group, requirement_of
from modeaware.lifecycle.facts import FenceFacts, TopicFacts
from modeaware.lifecycle.progress import still_reading
from modeaware.lifecycle.replacement import FENCE_CONFIGS, is_followed
from modeaware.lifecycle.report import PartitionReport, TopicReport, report_topic
from modeaware.lifecycle.seal import seal_broken_by
from modeaware.lifecycle.state import moving
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import RetiredPartition, TopicRecord, replaced
from modeaware.modes import format_ranges
from modeaware.reports.session import ModeLog, Session, no_such_topic

SCHEMA_VERSION = 1
DRAINED, RECLAIMED, DELETED, NOT_DRAINED = "drained", "reclaimed", "deleted", "not drained"
NOT_SEALED = "not-sealed"
_GROUP_TOOLS = {"share": "kafka-share-groups.sh", "streams": "kafka-streams-groups.sh"}


@dataclass(frozen=True)
class KafkaCommand:
    """A command of Kafka's own tools (add --command-config if the cluster needs it), and the output to expect.

    Attributes:
        what: the fact that the command shows.
    """

    what: str
    command: str
    expect: str


@dataclass(frozen=True)
class LivePartition:
    """The brokers' current facts of a partition and its groups.

    Attributes:
        sealed_epoch_ends_at: if the seal has an earlier leader epoch, the end of that epoch in the leader's log.
        groups: group -> its kind and committed offset, both null if the brokers do not list the group.
    """

    last_stable_offset: int
    leader_epoch: int
    sealed_epoch_ends_at: int | None
    groups: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class ProofReport:
    """The proof that groups had read a partition to its seal. The topic's record keeps only these two numbers.

    Attributes:
        groups: the number of groups whose committed offsets are the proof.
        lowest_offset: the lowest of these committed offsets, or the seal if none is below the seal. A group whose
            offset is below the seal would receive no further record before the seal.
    """

    groups: int
    lowest_offset: int


@dataclass(frozen=True, kw_only=True)
class PartitionCertificate(PartitionReport):
    """One retired partition.

    Attributes:
        proof: the committed offsets of groups; null if the partition is not drained yet, or needed no commit.
        reason: the code of the reason why the partition waits, as recorded in the mode log.
        checked_now: the brokers' current facts; null if the leader does not answer. log_start and log_end are current
            facts as well.
        verdict: drained; reclaimed (the partition's records are deleted); deleted (with the old topic); or "not
            drained: " and the reason.
        verdict_reason: the code of the verdict's reason.
        check_with: commands of Kafka's own tools that show the current facts.
    """

    seal_leader_epoch: int | None
    proof: ProofReport | None
    evacuated: bool
    checked_now: LivePartition | None
    verdict: str
    verdict_reason: str | None
    check_with: tuple[KafkaCommand, ...]


@dataclass(frozen=True, kw_only=True)
class Certificate(TopicReport):
    """The certificate of a topic.

    Attributes:
        recorded_ms: when the record of the topic was written.
        required_groups: the groups that used the topic, or were registered for it, when the shrink was admitted or the
            replacement switched.
        drained_groups: the groups whose committed offsets proved that partitions were read to their seals; null if the
            record had no room for their names.
        not_recorded: the parts of the proofs that the record omits, because its size is limited.
        partitions: the retired partitions that are certified.
        checked_ms: when the groups, the logs and the fence were read.
        rules_in_force: the operators' rules about groups, with their reasons.
        fence_proved_now: partitions of an old topic on which the fence is proved. The leader refuses a probe, and all
            replicas in sync have the fence's configs. Null if no fence was checked, or the check failed (without WRITE
            on the topic, for example).
        check_with: commands of Kafka's own tools that show the fence, and which groups are on the new topic.
    """

    json_also: ClassVar = ("certificate", "schema_version")
    certificate: ClassVar = "modeaware drain"
    schema_version: ClassVar = SCHEMA_VERSION

    partitions: tuple[PartitionCertificate, ...]
    cluster_id: str
    controller_epoch: int
    recorded_ms: int
    drained_groups: tuple[str, ...] | None
    not_recorded: tuple[str, ...]
    checked_ms: int
    rules_in_force: tuple[Mapping[str, Any], ...]
    fence_proved_now: tuple[int, ...] | None
    check_with: tuple[KafkaCommand, ...]

    @property
    def all_drained(self) -> bool:
        """Return whether every partition is drained, reclaimed or deleted, and there is no :attr:`objection`."""
        return self.objection is None and all(
            partition.verdict in (DRAINED, RECLAIMED, DELETED) for partition in self.partitions
        )

    @property
    def objection(self) -> str | None:
        """Return why an old topic is not released, or on which partitions a checked fence is not proved; else None."""
        replacement = self.replacement
        if replacement is None:
            return None
        if replacement.released_ms is None:
            return (
                f"not released: {reasons.text(replacement.reason) if replacement.reason is not None else 'in progress'}"
            )
        proved = self.fence_proved_now
        open_now = [p.partition for p in self.partitions if proved is not None and p.partition not in proved]
        if not open_now:
            return None
        return (
            f"the fence is not proved on partitions {format_ranges(open_now)}: it was lifted, or their leaders "
            "do not answer"
        )

    @property
    def not_checked(self) -> str | None:
        """Return, in words, the check that could not be made, if any. Its absence changes no verdict."""
        replacement = self.replacing
        if replacement.fence == "none" or replacement.released_ms is None or replacement.gone_ms is not None:
            return None
        if self.fence_proved_now is not None:
            return None
        return "it is unknown whether the fence is in force now: the check needs the right to WRITE to the topic"


@dataclass(frozen=True)
class Evidence:
    """The input of a certificate: a topic's record, and the cluster's facts at ``checked_ms``.

    ``requirement``: the groups that a drain waits for now. ``rules``: the rules of all topics. ``bootstrap_server``:
    the address in the printed commands. ``fence``: None unless the topic is an old topic with a fence.
    """

    record: TopicRecord
    facts: TopicFacts
    requirement: Requirement
    cluster_id: str
    bootstrap_server: str
    checked_ms: int
    rules: tuple[GroupRule, ...] = ()
    fence: FenceFacts | None = None

    def requirement_for(self, retired: RetiredPartition) -> Requirement:
        """Return the groups that one partition waits for. Left out are the group of a complete evacuation and, after
        the release, groups that have moved."""
        return still_reading(self.requirement, self.record.replacing, self.facts).of(retired)


def take_certificate(session: Session, topic: str, partitions: Iterable[int] | None = None) -> Certificate:
    """Return the certificate of ``partitions``, or of all retired ones. Raise RequestRefused if any is not retired.

    If the topic has no retired partition, certify the deleted topic that :func:`deleted_before` returns.
    """
    log = session.read_log()
    rules = log.rules
    shape = session.cluster.shape(topic)
    record = log.deleted(topic) if shape is None else log.record(topic, shape.topic_id)
    if shape is None and record is None:
        raise no_such_topic(topic, session.cluster.topic_names(), log)
    if shape is not None and (record is None or not record.retired):
        record = deleted_before(log, topic, shape.topic_id) or record
    chosen = _retired(topic, record, partitions)
    assert record is not None
    shape = session.cluster.shape(record.topic) or TopicShape("", internal=False, partition_count=0)
    is_other = shape.topic_id not in ("", record.topic_id)
    shape = replace(shape, partition_count=0) if is_other else shape
    facts = session.observer().observe_for_reports({record.topic: (shape, record)}, rules)[record.topic]
    if is_other:  # these are groups of the present topic, not of the deleted one
        facts = replace(facts, groups={}, groups_doubt=None, unclear_groups={})
    now_ms = session.clock.now_ms()
    described = wait(session.cluster.admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S), "describe the cluster")
    requirement = requirement_of(record, facts, rules, session.controller.ignored_groups, now_ms)
    cluster_id = str(described.cluster_id)
    evidence = Evidence(record, facts, requirement, cluster_id, session.bootstrap_server, now_ms, rules)
    if is_followed(record) and record.replacing.has_fence and facts.topic_id == record.topic_id:
        evidence = replace(evidence, fence=fences(session.cluster.brokers, [record.topic]).get(record.topic))
    return replace(certificate(evidence, chosen), kept_name=log.kept_names.get(record.topic))


def deleted_before(log: ModeLog, topic: str, topic_id: str) -> TopicRecord | None:
    """Return the record of a deleted topic to certify in place of the live topic ``topic`` with the id ``topic_id``.

    This is the deleted topic of the same name. If the log has no record of one, it is the deleted topic that the live
    topic has replaced. After a rename back, the log has the record of the name's earlier topic only until the interim
    topic is deleted.
    """
    if (earlier := log.deleted(topic)) is not None:
        return earlier
    before = (each for each in replaced(log.replaced) if each.replacement.new_topic_id == topic_id)
    return next((record for record, now in before if record.is_alias and now.deleting_ms is not None), None)


def certificate(evidence: Evidence, partitions: Sequence[int]) -> Certificate:
    """Return the certificate of these partitions."""
    record, report = evidence.record, report_topic(evidence.record, evidence.facts, evidence.requirement, partitions)
    checked_ms = evidence.checked_ms
    about = {
        "partitions": tuple(_partition(partition_report, evidence) for partition_report in report.partitions),
        "cluster_id": evidence.cluster_id,
        "controller_epoch": record.controller_epoch,
        "recorded_ms": record.changed_ms,
        "drained_groups": record.drained_groups,
        "not_recorded": _not_recorded(record, partitions),
        "checked_ms": checked_ms,
        "rules_in_force": tuple(r.to_dict() for r in evidence.rules if r.applies(record.topic, checked_ms)),
        "fence_proved_now": _fence_proved(evidence),
        "check_with": _topic_commands(evidence),
    }
    return Certificate(**vars(report) | about)


def _not_recorded(record: TopicRecord, partitions: Sequence[int]) -> tuple[str, ...]:
    """Return the parts of these partitions' proofs that the record omits, because its size is limited."""
    if not any(record.retired[p].drained_by for p in partitions):
        return ()
    names = () if record.drained_groups is not None else ("the names of the groups that proved the drains",)
    return (*names, "the offset of each group: a proof has only the number of groups and the lowest offset")


def _fence_proved(evidence: Evidence) -> tuple[int, ...] | None:
    fence, logs = evidence.fence, evidence.facts.partitions
    if fence is None or fence.failure is not None:
        return None
    return tuple(p for p, epoch in sorted(fence.proved.items()) if p in logs and logs[p].leader_epoch == epoch)


def _topic_commands(evidence: Evidence) -> tuple[KafkaCommand, ...]:
    record, server, commands = evidence.record, ("--bootstrap-server", evidence.bootstrap_server), []
    if record.replacing.switched_ms is not None and record.replacing.has_fence and not _is_deleted(evidence):
        configs = ["kafka-configs.sh", *server, "--describe", "--entity-type", "topics", "--entity-name", record.topic]
        expect = " and ".join(f"{name}={value}" for name, value in FENCE_CONFIGS.items())
        commands.append(_command("brokers refuse data for the topic", configs, expect))
    if moving(record):
        replacement = record.replacing
        for name in evidence.requirement.waited_for(evidence.facts.groups):
            offsets = [_group_tool(name, evidence), *server, "--describe", "--offsets", "--group", name]
            expect = f"an offset for each of the {replacement.num_partitions} partitions of {replacement.new_topic}"
            commands.append(_command(f"group {name} has moved", offsets, expect))
    return tuple(commands)


def _group_tool(group: str, evidence: Evidence) -> str:
    facts = evidence.facts.groups.get(group)
    return _GROUP_TOOLS.get(facts.kind if facts is not None else "", "kafka-consumer-groups.sh")


def check(partition: int, evidence: Evidence) -> tuple[str, str | None]:
    """Return the verdict on a retired partition by the cluster's current facts: ``(verdict, reason code)``.

    ``deleted``: a controller deleted the partition with its topic. ``reclaimed``: no record came after the seal, and no
    record that a group would receive is left before the seal. ``drained``: every required group has consumed the whole
    partition. In all other cases ``not drained``, with the reason.
    """
    retired, log = evidence.record.retired[partition], evidence.facts.partitions.get(partition)
    if _is_deleted(evidence):
        return DELETED, None
    if evidence.facts.topic_id != evidence.record.topic_id or log is None:
        return NOT_DRAINED, reasons.UNAVAILABLE
    seal = retired.seal_offset
    if seal is None:
        return NOT_DRAINED, retired.reason or NOT_SEALED
    if (broken_by := seal_broken_by(seal, log)) is not None:
        return NOT_DRAINED, broken_by
    if retired.reclaim_offset is not None and log.log_start >= retired.reclaim_offset:
        return RECLAIMED, None
    if not log.is_stable:
        return NOT_DRAINED, reasons.OPEN_TRANSACTION
    requirement = evidence.requirement_for(retired)
    drain = check_drain(partition, seal, retired.truncated_to, log, evidence.facts, requirement)
    return (DRAINED, None) if drain.done else (NOT_DRAINED, drain.reason)


def _is_deleted(evidence: Evidence) -> bool:
    replacement = evidence.record.replacing
    return replacement.gone_ms is not None and replacement.deleting_ms is not None


def _commands(partition: int, evidence: Evidence, verdict: str) -> tuple[KafkaCommand, ...]:
    record, retired = evidence.record, evidence.record.retired[partition]
    seal, server = retired.seal_offset, ("--bootstrap-server", evidence.bootstrap_server)
    if seal is None or _is_deleted(evidence):
        return ()
    where = f"{record.topic}:{partition}"
    offsets = ("kafka-get-offsets.sh", *server, "--topic-partitions", where)
    at_seal = verdict == RECLAIMED and retired.reclaim_offset == seal
    start = f"{where}:{seal}" if at_seal else f"{where}: followed by an offset of {seal} or less"
    commands = [
        _command("the end of the log is the seal", [*offsets, "--time", "latest"], f"{where}:{seal}"),
        _command("the start of the log", [*offsets, "--time", "earliest"], start),
    ]
    provers = _provers(partition, seal, evidence)
    some = f"; {retired.drained_by} of these {len(provers)} groups had one" if retired.drained_by else ""
    for group, offset in provers.items():
        expect = f"an offset of {offset} or more for partition {partition} of {record.topic}"
        expect += some if retired.drained_by < len(provers) else ""
        arguments = [_group_tool(group, evidence), *server, "--describe", "--offsets", "--group", group]
        commands.append(_command(f"group {group} has consumed the partition", arguments, expect))
    read = ["kafka-console-consumer.sh", *server, "--topic", record.topic, "--partition", str(partition)]
    read += ["--offset", str(seal), "--timeout-ms", "5000"]
    return (*commands, _command("no record at or after the seal", read, "Processed a total of 0 messages"))


def _command(what: str, arguments: Sequence[str], expect: str) -> KafkaCommand:
    return KafkaCommand(what, shlex.join(arguments), expect)


def _partition(report: PartitionReport, evidence: Evidence) -> PartitionCertificate:
    partition, retired = report.partition, evidence.record.retired[report.partition]
    verdict, reason = check(partition, evidence)
    why = ""
    if reason is not None:
        why = f": {'it is not sealed yet' if reason == NOT_SEALED else reasons.text(reason)}"
    return PartitionCertificate(
        **vars(report),
        seal_leader_epoch=retired.seal_leader_epoch,
        proof=_proof(retired),
        evacuated=retired.evacuated_to_seal,
        checked_now=_live(partition, evidence),
        verdict=verdict + why,
        verdict_reason=reason,
        check_with=_commands(partition, evidence, verdict),
    )


def _proof(retired: RetiredPartition) -> ProofReport | None:
    if retired.reclaim_offset is None or not retired.drained_by:
        return None
    return ProofReport(retired.drained_by, retired.reclaim_offset)


def _live(partition: int, evidence: Evidence) -> LivePartition | None:
    log = evidence.facts.partitions.get(partition)
    if log is None:
        return None
    groups = evidence.facts.groups
    required = _required(evidence.requirement_for(evidence.record.retired[partition]))
    shown = required | {name for name in groups if not is_evacuation_group(evidence.record.topic, name)}
    shown_groups: dict[str, dict[str, Any]] = {}
    for name in sorted(shown):
        group = groups.get(name)
        shown_groups[name] = {"kind": group and group.kind, "committed": group and group.committed.get(partition)}
        if group is not None and partition in group.caught_up:
            shown_groups[name]["only_control_records_left"] = True
    return LivePartition(log.last_stable_offset, log.leader_epoch, log.seal_epoch_end, shown_groups)


def _required(requirement: Requirement) -> set[str]:
    return {*requirement.groups, *([requirement.evacuation] if requirement.evacuation is not None else [])}


def _provers(partition: int, seal: int, evidence: Evidence) -> dict[str, int]:
    """Return group -> the least committed offset that proves its drain, by the record's proof or by current facts."""
    retired, log = evidence.record.retired[partition], evidence.facts.partitions.get(partition)
    if (recorded := _proof(retired)) is not None:
        return dict.fromkeys(evidence.record.drained_groups or (), recorded.lowest_offset)
    requirement = evidence.requirement_for(retired)
    proof: Mapping[str, int] = {}
    if log is not None:
        proof = check_drain(partition, seal, retired.truncated_to, log, evidence.facts, requirement).proof
    return {name: proof.get(name, seal) for name in sorted(_required(requirement))}


def _retired(topic: str, record: TopicRecord | None, partitions: Iterable[int] | None) -> list[int]:
    retired = set(record.retired) if record is not None else set()
    if not retired:
        raise RequestRefused(f"topic {topic!r}: no partition is retired, so there is nothing to certify", topic=topic)
    wanted = retired if partitions is None else set(partitions)
    if strangers := sorted(wanted - retired):
        raise RequestRefused(
            f"topic {topic!r}: partition {strangers[0]} is not retired, so there is nothing to certify",
            topic=topic,
            partition=strangers[0],
        )
    return sorted(wanted)

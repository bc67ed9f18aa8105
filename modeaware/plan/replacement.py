"""The effects of a topic's replacement: counts, configs, rights, groups and the pause of readers. Pure.

This module decides nothing: :mod:`modeaware.lifecycle.objections` has the reasons to refuse a replacement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from modeaware.admin.acls import ADMIN_CONFIG, TopicAcls
from modeaware.admin.replacements import OF_PARTITIONS, PER_PARTITION, OldTopic, mirrors
from modeaware.durations import duration_text
from modeaware.lifecycle.alias import EPOCHS_FORGOTTEN_MS, FORGOTTEN_MS
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.drain import Requirement, required_of
from modeaware.lifecycle.facts import GroupFacts, MembersSeen, TopicFacts
from modeaware.modelog.records import DRAINED, RETENTION, Reclaims
from modeaware.reports.describe import end_text

FENCE_MS = 1_000
"""The approximate time from the switch until every leader refuses data, and the ends of the logs are read."""
_REGISTERED = "registered, so the drain waits for it: run it, or waive it (modeaware groups waive)"


@dataclass(frozen=True)
class PlannedConfig:
    """A config of the new topic. ``origin``: copied; scaled (a limit per partition, for the new number); or given."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True)
class PlannedGroup:
    """A group that uses the topic or is registered for it, and the steps for the group's owner.

    Attributes:
        kind: classic, consumer, share or streams; null for a group that does not use the topic.
        members: the members that read the topic.
        stateful: whether the group keeps state per partition.
    """

    group: str
    kind: str | None
    has_members: bool
    members: MembersSeen
    stateful: bool
    to_do: str


@dataclass(frozen=True)
class ReplacementPlan(Reclaims):
    """The effects of the replacement of one topic.

    Attributes:
        acls: the differences of the ACLs; null if the cluster has no authorizer.
        evacuate: whether the topic is compacted, so that a job copies the latest values of its keys.
        keep_name: whether the new topic is an interim topic, which a new topic of the old name then replaces.
        hints: other software that may contain the topic's name, or reset the topic's configs.
        not_copied: configs that are not copied to the new topic, because they name partitions of the old one.
        groups_doubt: why more groups may use the topic.
        pause_ms: about how long readers in key order wait for the new topic, if they keep up with the old one.
        delay_ms: the least time to the deletion of the topic; null if it is deleted once its retention has emptied it.
    """

    topic: str
    new_topic: str
    partition_count: int
    num_partitions: int
    replication_factor: int
    configs: tuple[PlannedConfig, ...]
    not_copied: tuple[str, ...]
    groups: tuple[PlannedGroup, ...]
    groups_doubt: str | None
    pause_ms: int
    fence: str
    delay_ms: int | None
    acls: TopicAcls | None
    hints: tuple[str, ...]
    evacuate: bool = False
    keep_name: bool = False


def hints_of(topic: str, names: Collection[str], groups: Collection[str]) -> tuple[str, ...]:
    """Return :attr:`ReplacementPlan.hints`, by the names of all topics and of the topic's groups."""
    hints = [
        f"Change by hand: dashboards, alerts and jobs that name {topic}, and every producer without modeaware.",
        (
            "Tools that keep topics as declared (Strimzi, Terraform, GitOps) must leave the fence's configs alone, and "
            f"need the new number of partitions. With Strimzi, annotate the KafkaTopic of {topic} with "
            "strimzi.io/managed=false before the switch."
        ),
    ]
    if mirrors(names):
        hints.append(
            "MirrorMaker 2 is in use, and copies configs. Exclude max.message.bytes and compression.type "
            "(config.properties.exclude), or the fence reaches the mirror. Add the new topic to its topics."
        )
    connectors = sorted(group.removeprefix("connect-") for group in groups if group.startswith("connect-"))
    if connectors:
        hints.append(
            f"Sink connectors of Kafka Connect: {', '.join(connectors)}. Change a connector's topics when its group "
            "moves."
        )
    return tuple(hints)


def plan_replacement(
    command: ReplaceTopicCommand,
    facts: TopicFacts,
    old_topic: OldTopic,
    given: Mapping[str, str],
    seal_quiet_ms: int,
    acls: TopicAcls | None = None,
    names: Collection[str] = (),
    requirement: Requirement | None = None,
) -> ReplacementPlan:
    """Return the plan of the first command of a replacement.

    Args:
        given: the configs that the operator named. ``command`` has these and the copied ones.
        names: the names of all topics of the cluster.
        requirement: the groups that a drain would wait for, including registered groups that brokers do not list; None
            if there are no rules about groups.
    """
    requirement = required_of((), facts, (), (), 0) if requirement is None else requirement
    required = requirement.waited_for(facts.groups)
    groups = {
        name: PlannedGroup(name, group.kind, group.has_members, group.members, group.stateful, _to_do(group, command))
        for name, group in facts.groups.items()
    }
    for name in required - groups.keys():
        groups[name] = PlannedGroup(
            name, None, has_members=False, members=MembersSeen(), stateful=False, to_do=_REGISTERED
        )

    def origin(name: str) -> str:
        if name in given:
            return "given"
        scaled = name in PER_PARTITION and command.configs[name] != old_topic.configs[name]
        return "scaled" if scaled else "copied"

    return ReplacementPlan(
        topic=command.topic,
        new_topic=command.new_topic,
        partition_count=facts.partition_count,
        num_partitions=command.num_partitions,
        replication_factor=command.replication_factor,
        configs=tuple(PlannedConfig(name, value, origin(name)) for name, value in sorted(command.configs.items())),
        not_copied=tuple(name for name in OF_PARTITIONS if name in old_topic.configs),
        groups=tuple(groups[name] for name in sorted(groups)),
        groups_doubt=requirement.doubt.detail if requirement.doubt is not None else None,
        pause_ms=seal_quiet_ms + (FENCE_MS if command.fence != "none" else 0),
        fence=command.fence,
        delay_ms=command.delay_ms,
        acls=acls,
        hints=hints_of(command.topic, names, facts.groups),
        evacuate=command.evacuate,
        keep_name=command.keep_name,
    )


def _to_do(group: GroupFacts, command: ReplaceTopicCommand) -> str:
    move = f"read {command.topic} to its end, stop, run modeaware groups prepare, start on {command.new_topic}"
    if command.keep_name:
        move += (
            f"; after the second switch read {command.new_topic} to its end, stop, prepare, start on {command.topic}"
        )
    if not group.has_members:
        return f"has no members now. Nothing to do if its clients run modeaware; otherwise: {move}"
    if group.members.aware and not group.members.unknown:
        return (
            f"members: {group.members.text} by their client id. Nothing to do; but with "
            f"modeaware.on.replace=named: {move}"
        )
    return f"members: {group.members.text}. Nothing to do if all run modeaware; otherwise: {move}"


def replacement_text(plan: ReplacementPlan) -> list[str]:
    """Return the plan in lines."""
    replicas = (
        "as many replicas as brokers choose" if plan.replication_factor == -1 else f"{plan.replication_factor} replicas"
    )
    old, new = plan.topic, plan.new_topic
    copied = "No record is copied."
    if plan.evacuate:
        copied = (
            f"Run the Spark job modeaware.spark.evacuate once {old} is sealed: it copies the latest values to {new}."
        )
    lines = [
        f"{old}: {plan.partition_count} -> {plan.num_partitions} partitions, by the new topic {new} ({replicas}).",
        f"From the switch on, producers with modeaware write to {new}. A group reads {new} once it has read {old}.",
        f"{copied} {end_text(plan.topic, plan.fence, plan)}.",
    ]
    lines += [f"Config {config.name}={config.value} ({config.origin})" for config in plan.configs]
    lines += [f"Config {name} is not copied, because it names partitions" for name in plan.not_copied]
    lines += [f"Group {group.group} ({group.kind or 'not on the topic yet'}): {group.to_do}" for group in plan.groups]
    if not plan.groups:
        lines.append(f"No group uses {old}.")
    if plan.groups_doubt is not None:
        lines.append(f"There may be more groups; the switch waits until all groups are known: {plan.groups_doubt}")
    lines.append(
        f"Groups that keep up pause for about {plan.pause_ms / 1000:g} s at the switch, and until their next commit. "
        "Groups that lag continue to read."
    )
    lines += acls_text(plan, plan.acls)
    lines += plan.hints
    if plan.keep_name:
        return lines + _kept_name_text(plan)
    if plan.fence == "none":
        lines.append(f"WARNING: without the fence, brokers accept what other producers still write to {plan.topic}.")
    else:
        lines.append(f"Producers without modeaware are refused (MSG_SIZE_TOO_LARGE) once {plan.topic} is fenced.")
    return lines


_DELETED = {
    RETENTION: "Retention has to empty {name}, then {interim}: the change takes twice the retention time. --delay "
    "avoids this wait.",
    DRAINED: "Each of the two topics is deleted no earlier than the delay after its replacement was requested.",
}
_STOPPED = {RETENTION: "for twice the retention time", DRAINED: "for {least} at least"}


def _kept_name_text(plan: ReplacementPlan) -> list[str]:
    """Return the additional lines for a change that keeps the name: mainly, its effect on clients without modeaware."""
    name, interim, before, after = plan.topic, plan.new_topic, plan.partition_count, plan.num_partitions
    lines = [
        f"Keeps its name: {name} ({before}) -> {interim} ({after}) -> {name} ({after}), carried out by the controller.",
        f"Readers pause twice. {interim} is deleted at the end.",
        _DELETED[plan.policy].format(name=name, interim=interim),
    ]
    if after > before:
        lines.append(f"{name} gets more partitions: the second half begins 10 minutes after the old {name} is deleted.")
    else:
        lines.append(
            f"The second half begins {EPOCHS_FORGOTTEN_MS // 1000} s after the deletion of {name}: until then "
            "clients may use its metadata."
        )
    return [
        *lines,
        "Clients without modeaware:",
        f"  1. Stop their producers before the first switch: brokers refuse their records once {name} is fenced.",
        f"  2. Let their groups read {name} to its end. Then: modeaware groups prepare GROUP --topic {interim}",
        f"  3. Run these groups on {interim}, by that name. After the second switch let them read it to its end.",
        f"  4. Stop them. Then: modeaware groups prepare GROUP --topic {name}",
        f"  5. Once {interim} is deleted, start producers and groups on {name}.",
        f"Their producers write nothing in between: {_stopped_text(plan)}.",
    ]


def _stopped_text(plan: ReplacementPlan) -> str:
    """Return how long the producers without modeaware are stopped."""
    between_ms = FORGOTTEN_MS if plan.num_partitions > plan.partition_count else EPOCHS_FORGOTTEN_MS
    least_ms = 2 * max(plan.pause_ms, plan.earliest_after(0)) + between_ms
    least = duration_text(-(-least_ms // 1000) * 1000)
    return f"{_STOPPED[plan.policy].format(least=least)}, and as long as their groups take to read"


def acls_text(what: ReplacementPlan | ReplaceTopicCommand, acls: TopicAcls | None) -> list[str]:
    """Return, in lines, the ACLs that only one of the old topic and the new topic has."""
    old, new = what.topic, what.new_topic
    if acls is None:
        return []
    if acls.unknown is not None:
        return [f"The ACLs of {old} and {new} are not compared: {acls.unknown}"]
    lines = []
    if acls.commands:
        lines.append(
            f"{new} lacks ACLs of {old}. Without --accept-access-loss the switch is refused until an administrator has "
            f"run, with settings in {ADMIN_CONFIG}:"
        )
        lines += [f"  {command}" for command in acls.commands]
    if acls.denied:
        lines.append(
            f"ACLs deny access to {new} that {old} does not deny. Without --accept-access-loss the switch is refused "
            f"until they are removed, or added for {old}:"
        )
        lines += [f"  {acl}" for acl in acls.denied]
    if acls.allowed:
        lines.append(
            f"ACLs allow access to {new} that {old} does not allow. From the switch on, this includes the new records:"
        )
        lines += [f"  {acl}" for acl in acls.allowed]
    return lines

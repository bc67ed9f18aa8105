"""The creation of a replacement's new topic, with the old topic's own configs and replication factor.

The client that requests a replacement reads the old topic's configs with this module, and its request contains all
configs of the new topic. So a plan can show the configs, and the user needs the rights to read them. The controller
creates the topic as requested.

A change that keeps a name has two halves. First an *interim topic* replaces the old topic, then a new topic of the old
name replaces the interim topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from modeaware.admin.acls import ClusterAcls, check_access, compare_acls, read_acls
from modeaware.admin.creation import create_topic
from modeaware.admin.new_topics import Accepted, TopicReplacement
from modeaware.admin.reassignments import request_failure
from modeaware.cluster.metadata import (
    SET_ON_TOPIC,
    TOPIC_RESOURCE,
    configs_request,
    metadata_request,
    registered_brokers,
    topic_names,
)
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.interim import interim_name, is_interim_of
from modeaware.librdkafka import KafkaError, NewTopic
from modeaware.lifecycle.commands import FENCE_CONFIGS, ReplaceTopicCommand, is_fence
from modeaware.topic_view import ReplacedBy, known_id
from modeaware.wire.brokers import Brokers
from modeaware.wire.retries import Retrying
from modeaware.wire.transport import Ask

if TYPE_CHECKING:
    from modeaware.wire.messages import TopicResult

OF_PARTITIONS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Configs that are not copied, because they name partitions of the old topic."""
PER_PARTITION = ("retention.bytes", "local.retention.bytes")
"""Limits of one partition, which are scaled by the numbers of partitions. Only a positive value is scaled."""
AUTO_CREATE = "auto.create.topics.enable"
BROKER_RESOURCE = 4
TOPICS_A_REQUEST = 500
"""The most topics in one request: all configs of one topic take some 3 KB in the answer."""


@dataclass(frozen=True)
class OldTopic:
    """A topic that is to be replaced, as the brokers describe it.

    Attributes:
        replication_factor: the lowest number of replicas of its partitions, because a partition that is being
            reassigned has more for a while.
        configs: the configs set on the topic itself.
    """

    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]
    topic_id: str = ""


def describe_old_topics(brokers: Brokers, topics: Sequence[str]) -> dict[str, OldTopic | ModeAwareError]:
    """Return topic -> the brokers' description, or an error.

    It is RequestRefused if there is no such topic, or if the user lacks DESCRIBE or DESCRIBE_CONFIGS on the topic. It
    is ClusterError if there is no usable answer.
    """
    answers: dict[str, OldTopic | ModeAwareError] = {}
    for some in (topics[start : start + TOPICS_A_REQUEST] for start in range(0, len(topics), TOPICS_A_REQUEST)):
        try:
            answers |= _describe(brokers, some)
        except ClusterError as error:
            answers |= dict.fromkeys(some, error)
    return answers


def _describe(brokers: Brokers, topics: Sequence[str]) -> dict[str, OldTopic | ModeAwareError]:
    shapes = {shape.name: shape for shape in brokers.ask(metadata_request(topics, 10)).topics}
    wanted = configs_request(TOPIC_RESOURCE, topics, min_version=1)
    configs = {result.resource_name: result for result in brokers.ask(wanted).results}

    def old_topic(topic: str) -> OldTopic | ModeAwareError:
        shape, own = shapes.get(topic), configs.get(topic)
        if shape is None or own is None:
            return ClusterError(f"cannot describe topic {topic!r}: the brokers' response lacks the topic", topic=topic)
        if shape.error_code not in (0, KafkaError.LEADER_NOT_AVAILABLE):
            return request_failure(f"describe topic {topic!r}", shape.error_code, None, topic)
        if own.error_code:
            what = f"read the configs of topic {topic!r}, which the new topic gets"
            return request_failure(what, own.error_code, own.error_message, topic)
        return OldTopic(
            len(shape.partitions),
            min((len(p.replica_nodes) for p in shape.partitions), default=-1),
            {c.name: str(c.value) for c in own.configs if c.config_source == SET_ON_TOPIC and c.value is not None},
            known_id(shape.topic_id) or "",
        )

    return {topic: old_topic(topic) for topic in topics}


def new_topic_configs(old_topic: OldTopic, wanted: TopicReplacement) -> dict[str, str]:
    """Return the configs of the new topic: copied configs, overridden by the requested ones. A fence is not copied,
    because with it the new topic would take no records. (A replacement whose mode log was lost may have left one.)"""
    left_out = {*OF_PARTITIONS, *(FENCE_CONFIGS if is_fence(old_topic.configs) else ())}
    copied = {name: value for name, value in old_topic.configs.items() if name not in left_out}
    for name in PER_PARTITION:
        if name in copied and int(copied[name]) > 0 and wanted.num_partitions > 0:
            copied[name] = str(-(-int(copied[name]) * old_topic.partition_count // wanted.num_partitions))
    return copied | _named_configs(wanted)


def _named_configs(wanted: TopicReplacement) -> dict[str, str]:
    return {name: str(value) for name, value in wanted.config.items()}


def replace_command(
    topic: str,
    wanted: TopicReplacement,
    old_topic: OldTopic | None,
    *,
    pause_before_switch: bool = False,
    undo: bool = False,
    validate_only: bool = False,
) -> ReplaceTopicCommand:
    """Return the command to replace ``topic``. Without ``old_topic`` (already under way), no config is copied."""
    factor = wanted.replication_factor
    if factor is None:
        factor = -1 if old_topic is None else old_topic.replication_factor
    return ReplaceTopicCommand(
        topic=topic,
        new_topic=wanted.new_topic,
        num_partitions=wanted.num_partitions,
        replication_factor=factor,
        configs=_named_configs(wanted) if old_topic is None else new_topic_configs(old_topic, wanted),
        delay_ms=wanted.delete_partitions_delay_ms,
        fence=wanted.fence,
        pause_before_switch=pause_before_switch,
        accept_state_loss=tuple(dict.fromkeys(wanted.accept_state_loss)),
        evacuate=wanted.evacuate,
        keep_name=wanted.keep_name,
        undo=undo,
        validate_only=validate_only,
    )


def replace_commands(
    brokers: Brokers,
    topics: Mapping[str, TopicReplacement],
    under_way: Mapping[str, ReplacedBy],
    servers: str,
    retrying: Callable[[], Retrying],
    **options: bool,
) -> tuple[list[ReplaceTopicCommand], dict[str, ModeAwareError]]:
    """Return the commands to replace ``topics``, and topic -> error for topics that cannot be described, or that
    :func:`check_consequences` refuses.

    Args:
        under_way: old topic -> new topic, for replacements under way. Their configs are not copied again.
        servers: the bootstrap servers, to be shown in commands of Kafka's tools.
        retrying: makes retries of the requests about topics, ACLs, names and brokers.
        options: as for :func:`replace_command`.
    """
    commands: list[ReplaceTopicCommand] = []
    failures: dict[str, ModeAwareError] = {}
    unknown = [] if options.get("undo") else [topic for topic in topics if topic not in under_way]
    answers = retrying().each(
        unknown, partial(describe_old_topics, brokers), repeatable=True, resolve=lambda _, last: last
    )
    acls = cache(lambda: retrying().call(partial(read_acls, brokers), repeatable=True))
    names = cache(lambda: retrying().call(partial(topic_names, brokers), repeatable=True))
    creates = cache(lambda: retrying().call(partial(creating_broker, brokers), repeatable=True))
    for topic, wanted in topics.items():
        try:
            if isinstance(old_topic := answers.get(topic), ModeAwareError):
                raise old_topic
            if wanted.keep_name:
                wanted = replace(wanted, new_topic=_interim_of(topic, old_topic, under_way.get(topic)))
            command = replace_command(topic, wanted, old_topic, **options)
            if topic in under_way and under_way[topic].gone and not command.undo:
                command = in_second_half(command)
            if topic not in under_way or not under_way[topic].switched:
                check_consequences(command, wanted.accepted, acls, names, creates, servers)
            commands.append(command)
        except ModeAwareError as error:
            failures[topic] = error
    return commands, failures


def in_second_half(command: ReplaceTopicCommand) -> ReplaceTopicCommand:
    """Return the command for the second half of a change that keeps a name. In that half the old topic no longer
    exists, so the command replaces the interim topic. Return any other command unchanged."""
    if not command.keep_name or not is_interim_of(command.new_topic, command.topic):
        return command
    return replace(command, topic=command.new_topic, new_topic=command.topic)


def by_topic_asked(
    commands: Sequence[ReplaceTopicCommand], answers: Mapping[str, TopicResult | ModeAwareError], topics: Container[str]
) -> dict[str, TopicResult | ModeAwareError]:
    """Return the answers by the topics that the caller has named. A command of :func:`in_second_half` names the interim
    topic instead, and so does its answer."""
    found: dict[str, TopicResult | ModeAwareError] = {}
    for command in commands:
        topic = command.topic if command.topic in topics else command.new_topic
        if (answer := answers.get(command.topic)) is not None:
            found[topic] = answer if isinstance(answer, ModeAwareError) else replace(answer, topic=topic)
    return found


def _interim_of(topic: str, old_topic: OldTopic | None, under_way: ReplacedBy | None) -> str:
    """Return the name of the interim topic of a replacement that keeps the name. ``under_way`` is the new topic of a
    replacement in progress. Without ``old_topic`` and ``under_way``, there is nothing to undo: any name will be
    refused."""
    if old_topic is not None:
        return interim_name(topic, old_topic.topic_id)
    return topic if under_way is None else under_way.topic


def mirrors(names: Collection[str]) -> list[str]:
    """Return the topics that MirrorMaker 2 itself creates, out of all topic names."""
    own = ("mm2-configs", "mm2-offset", "mm2-status")
    also = (".checkpoints.internal",) if "heartbeats" in names else ()
    return [name for name in names if name.startswith(own) or name.endswith(also)]


def creating_broker(brokers: Brokers) -> int | None:
    """Return the id of a live broker that creates topics automatically, or None if there is none.

    Raises:
        RequestRefused: the user lacks DESCRIBE_CONFIGS on the cluster.
        ClusterError: no answer.
    """
    nodes = sorted(node for node, broker in registered_brokers(brokers).brokers.items() if broker.live)
    asks = [Ask(node, configs_request(BROKER_RESOURCE, [str(node)], AUTO_CREATE, min_version=1)) for node in nodes]
    for node, answer in zip(nodes, brokers.ask_each(asks), strict=True):
        if isinstance(answer, ClusterError):
            raise answer
        (result,) = answer.results
        if result.error_code:
            what = f"read whether brokers create topics automatically ({AUTO_CREATE})"
            raise request_failure(what, result.error_code, result.error_message, None)
        if any(config.value == "true" for config in result.configs):
            return node
    return None


def automatic_creation(creates: Callable[[], int | None]) -> str | None:
    """Return why a change that keeps a name is risky in this cluster, or None. While no topic has the name, a broker
    with automatic creation may create a topic of that name for a client.

    Args:
        creates: returns the result of :func:`creating_broker`.
    """
    node = creates()
    if node is None:
        return None
    return (
        f"broker {node} creates topics automatically ({AUTO_CREATE}), and may create a topic under the kept name "
        "before the controller does: turn that setting off, or accept the risk (--accept-auto-create)"
    )


def check_consequences(
    command: ReplaceTopicCommand,
    accepted: Accepted,
    acls: Callable[[], ClusterAcls | None],
    names: Callable[[], Collection[str]],
    creates: Callable[[], int | None],
    servers: str,
) -> None:
    """Refuse a command that leads to the switch, if it has an effect that is not accepted.

    There are three effects. The change would affect access; it would affect mirrors; or it would keep a name although
    brokers create topics automatically (:func:`automatic_creation`).

    Args:
        acls, names, creates: return the result of :func:`read_acls`, the names of all topics, and the result of
            :func:`creating_broker`. Each of the three is called only if needed.

    Raises:
        RequestRefused: an effect is not accepted (POLICY_VIOLATION); or one of the three functions raises it.
        ClusterError: one of the three functions raises it.
    """
    if command.undo or command.pause_before_switch:
        return
    if not accepted.access_loss:
        check_access(command, compare_acls(acls(), command.topic, command.new_topic, servers))
    if command.keep_name and not accepted.auto_create and (why := automatic_creation(creates)) is not None:
        raise RequestRefused(f"topic {command.topic!r}: {why}", code=ErrorCode.POLICY_VIOLATION, topic=command.topic)
    if command.fence != "none" and not accepted.mirroring and (mirroring := mirrors(names())):
        raise RequestRefused(
            f"topic {command.topic!r}: MirrorMaker 2 is in use (topic {mirroring[0]!r}) and may copy the fence. "
            "Exclude compression.type and max.message.bytes (config.properties.exclude), then confirm that with "
            "--accept-mirroring",
            code=ErrorCode.POLICY_VIOLATION,
            topic=command.topic,
        )


def validate_new_topic(brokers: Brokers, command: ReplaceTopicCommand, timeout_s: float) -> None:
    """Make the cluster validate the creation of the new topic. For an existing topic, return: the controller checks it.

    Raises:
        RequestRefused: the brokers would not create the topic; ``code`` is the broker's.
        ClusterError: no answer.
    """
    new = NewTopic(
        command.new_topic,
        num_partitions=command.num_partitions,
        replication_factor=command.replication_factor,
        config=dict(command.configs),
    )
    try:
        create_topic(brokers, new, None, True, timeout_s)
    except RequestRefused as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise

"""``modeaware topics``: the tasks of Kafka's ``kafka-topics``, with its flags and its look, and KIP-694's additions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from modeaware.admin.topics_to_make import CreationResult, NewTopic
from modeaware.cli.change import add_change_options, add_shrink_options, run_change, shrink_command
from modeaware.cli.display import JSON_HELP, describe_json, describe_text, gone_lines
from modeaware.cli.embedded import our_settings, tell
from modeaware.cli.options import Connection, add_connection_options, connect, connection, kafka_errors, key_value
from modeaware.cli.plan import undo_plan
from modeaware.cli.progress import confirmed
from modeaware.cli.situation import READ_TIMEOUT_S, Situation
from modeaware.cluster.topic_deletion import delete_topics
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.lifecycle.commands import CreatePartitionsCommand, TopicCommand
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import TopicRecord
from modeaware.printable import printable, printable_lines
from modeaware.reports.describe import describe_topics, gone_ids, unusable_record
from modeaware.reports.topic_list import (
    ListedTopic,
    TopicList,
    is_topic_name,
    list_topics,
    matching,
    named,
    named_for_change,
)
from modeaware.reports.topic_state import PARTITIONS_PER_ANSWER, PartitionReplicas, TopicState, topic_states


class Topics:
    """``--create``, ``--list``, ``--describe``, ``--alter``, ``--delete`` or ``--undo``."""

    name = "topics"
    help = "create, list, describe, alter and delete topics, partition modes included"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = JSON_HELP
        add_topic_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_topic_options(self._parser, args)
        actions = {"create": create, "list": list_names, "describe": describe, "delete": delete, "alter": _alter}
        return actions.get(action_of(args), _undo)(args)


def _alter(args: argparse.Namespace) -> int:
    """Each of the topics in turn, up to the first that is not altered."""
    topics = _altered_topics(args)
    if not topics:
        return absent(args)
    for topic in topics:
        status = run_change(args, topic, lambda situation: _alter_command(args, situation))
        if status:
            return status
    return 0


def _altered_topics(args: argparse.Namespace) -> list[str]:
    if is_topic_name(args.topic) and not args.if_exists:  # no other is meant, and whether it exists is asked anyway
        return [args.topic]
    target = connection(args, defaults={"log_level": 0})
    cluster = connect(target)
    try:
        listed = list_topics(cluster.brokers).topics
        return [topic.name for topic in named_for_change(listed, args.topic, target.config.mode_log_topic)]
    finally:
        cluster.close()


def _undo(args: argparse.Namespace) -> int:
    return run_change(args, args.topic, undo_command, notes=undo_plan)


def undo_command(situation: Situation) -> TopicCommand | None:
    """Back to the number of writable partitions before the shrink in force; None where there is none."""
    record = situation.record
    if record is None or record.deletion is None or record.deletion.previous_count <= record.writable_count:
        return None
    return CreatePartitionsCommand(record.topic, record.deletion.previous_count)


def _alter_command(args: argparse.Namespace, situation: Situation) -> TopicCommand:
    """More partitions than are writable: growth. Anything else: a shrink, or refused as one.

    Raises:
        RequestRefused: replicas were said of a shrink.
    """
    if args.partitions > situation.writable_count:
        replicas = args.replica_assignment  # of all partitions; those of the new ones count, as in kafka-topics
        new = None if replicas is None else replicas[situation.count :] or None
        return CreatePartitionsCommand(situation.topic, args.partitions, new)
    if args.replica_assignment is not None or args.min_required_replication_factor is not None:
        raise RequestRefused(
            f"topic {situation.topic!r} has {situation.writable_count} writable partitions: replicas can be said of "
            f"new ones only, and {args.partitions} is no increase; nothing was changed",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=situation.topic,
        )
    return shrink_command(situation.topic, args.partitions, args)


EXPAND = -1
"""``--partitions`` without a number."""
_ACTIONS = {
    "create": "create a topic",
    "list": "list the topics",
    "describe": "show topics and partitions with their modes; of topics that were changed: states, seals, lag, what "
    "they wait for",
    "alter": "change the number of partitions",
    "delete": "delete topics; asks first",
    "undo": "take a shrink back, in any phase: writable partitions as before it",
}
FILTERS = {
    "under_replicated_partitions": "partitions with replicas that are not in sync",
    "under_min_isr_partitions": "partitions with fewer replicas in sync than the configured minimum",
    "at_min_isr_partitions": "partitions with as many replicas in sync as the configured minimum",
    "unavailable_partitions": "partitions without a leader",
}
_BELONGS_TO = {
    "config": ("create",),
    "replication_factor": ("create",),
    "if_not_exists": ("create",),
    "replica_assignment": ("create", "alter"),
    "min_required_replication_factor": ("create", "alter"),
    "if_exists": ("describe", "alter", "delete"),
    "exclude_internal": ("list", "describe"),
    "topic_id": ("describe",),
    "partition_size_limit_per_response": ("describe",),
    "topics_with_overrides": ("describe",),
    **dict.fromkeys(FILTERS, ("describe",)),
    "json": ("describe",),
    "delete_partitions_delay": ("alter",),
    "immediate_delete": ("alter",),
    "accept_state_loss": ("alter",),
    "evacuate": ("alter",),
    "dry_run": ("create", "alter", "delete", "undo"),
    "wait": ("alter", "undo"),
    "controller_config": ("alter", "undo"),
}


def add_topic_options(parser: argparse.ArgumentParser) -> None:
    """All of them."""
    add_connection_options(parser)
    actions = parser.add_mutually_exclusive_group(required=True)
    for name, text in _ACTIONS.items():
        actions.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        help="the topic; but for --create and --undo also a regular expression of topics (--list and --describe "
        "without it: all); for --alter and --delete what can be a topic's name is that topic alone, a.b never a-b, and "
        "no other expression means internal topics or the mode log",
    )
    parser.add_argument(
        "--partitions",
        nargs="?",
        type=int,
        const=EXPAND,
        metavar="N",
        help="--create: how many partitions (default: the cluster's); --alter: how many writable partitions there "
        "shall be; --describe: one line a partition in what follows on topics that were changed",
    )
    _add_create_options(parser)
    _add_describe_options(parser)
    parser.add_argument(
        "--if-exists",
        action="store_true",
        help="--alter, --delete, --describe: do nothing where there is no such topic",
    )
    add_shrink_options(parser)
    add_change_options(parser)


def _add_create_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replication-factor", type=int, metavar="N", help="--create: replicas of a partition (default: the cluster's)"
    )
    parser.add_argument(
        "--replica-assignment",
        type=replica_assignment,
        metavar="ID:ID,...",
        help="--create, --alter: the brokers of each partition, from partition 0 on, such as 1:2,2:3",
    )
    parser.add_argument(
        "--min-required-replication-factor",
        type=int,
        metavar="N",
        help="--create, --alter: create partitions although brokers are down, with no fewer than this many replicas "
        "that are alive (KIP-409)",
    )
    parser.add_argument(
        "--config", action="append", type=key_value, metavar="NAME=VALUE", help="--create: a config, may be repeated"
    )
    parser.add_argument(
        "--if-not-exists", action="store_true", help="--create: do nothing where there is such a topic already"
    )


def _add_describe_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic-id", metavar="ID", help="--describe: the topic with this id")
    for name, text in FILTERS.items():
        parser.add_argument(_flag(name), action="store_true", help=f"--describe: only {text}")
    parser.add_argument(
        "--topics-with-overrides", action="store_true", help="--describe: only topics with configs of their own"
    )
    parser.add_argument(
        "--exclude-internal", action="store_true", help="--list, --describe: without Kafka's own topics"
    )
    parser.add_argument(
        "--partition-size-limit-per-response",
        type=int,
        metavar="N",
        help=f"--describe: how many partitions a broker is asked for at once (default: {PARTITIONS_PER_ANSWER})",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="--describe: print JSON, see below; without --topic of topics that were changed",
    )


def action_of(args: argparse.Namespace) -> str:
    """Which of the actions was asked for."""
    return next(name for name in _ACTIONS if getattr(args, name))


def check_topic_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with argparse's usage error where options do not go together."""
    action = action_of(args)
    for name, owners in _BELONGS_TO.items():
        if getattr(args, name) not in (None, False, []) and action not in owners:
            hint = " (configs are altered with kafka-configs)" if name == "config" and action == "alter" else ""
            parser.error(f"{_flag(name)} belongs to {', '.join(f'--{owner}' for owner in owners)}{hint}")
    if args.topic is None and action not in ("list", "describe"):
        parser.error("--topic is needed")
    _check_partitions(parser, args, action)
    _check_minimum(parser, args)
    _check_create(parser, args)
    _check_describe(parser, args)


def _check_minimum(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    minimum, factor = args.min_required_replication_factor, args.replication_factor
    if minimum is not None and minimum < 1:
        parser.error("--min-required-replication-factor must be 1 or more")
    if minimum is not None and factor is not None and minimum > factor:
        parser.error(f"--min-required-replication-factor {minimum} is more than --replication-factor {factor}")


def _check_partitions(parser: argparse.ArgumentParser, args: argparse.Namespace, action: str) -> None:
    count = args.partitions
    if action == "alter" and count in (None, EXPAND):
        parser.error("--alter needs --partitions N")
    if action == "alter" and args.replica_assignment is not None and len(args.replica_assignment) != count:
        parser.error(f"--replica-assignment is for {len(args.replica_assignment)} partitions, not for {count}")
    if action == "create" and count == EXPAND:
        parser.error("--create takes --partitions with a number")
    if action == "describe" and count not in (None, EXPAND):
        parser.error("--describe takes --partitions without a number")
    if action == "undo" and count is not None:
        parser.error("--undo takes no --partitions: it goes back to the number there was")
    if action in ("list", "delete") and count is not None:
        parser.error(f"--{action} takes no --partitions")


def _check_create(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if not args.create:
        return
    if args.replica_assignment is not None and (args.partitions, args.replication_factor) != (None, None):
        parser.error("--replica-assignment says how many partitions and replicas there are: leave the numbers out")
    if args.partitions is not None and args.partitions < 1:
        parser.error("the partitions must be greater than 0")
    if args.replication_factor is not None and not 1 <= args.replication_factor <= 32767:
        parser.error("the replication factor must be between 1 and 32767 inclusive")


def _check_describe(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if not args.describe:
        return
    filters = [name for name in FILTERS if getattr(args, name)]
    if filters and args.topics_with_overrides:
        parser.error(f"{_flag(filters[0])} does not go with --topics-with-overrides")
    if args.json and (filters or args.topics_with_overrides):
        parser.error("--json shows whole topics: it takes no filter")
    if args.if_exists and args.topic is None and args.topic_id is None:
        parser.error("--topic or --topic-id is needed")
    if args.partition_size_limit_per_response is not None and args.partition_size_limit_per_response < 1:
        parser.error("--partition-size-limit-per-response must be greater than 0")


def replica_assignment(text: str) -> tuple[tuple[int, ...], ...]:
    """argparse type: ``1:2,2:3`` are the brokers of partition 0 and of partition 1."""
    try:
        partitions = tuple(tuple(int(broker) for broker in part.split(":")) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID:ID,ID:ID,...") from None
    for partition, brokers in enumerate(partitions):
        if len(set(brokers)) < len(brokers):
            raise argparse.ArgumentTypeError(f"partition {partition} has a broker twice: {brokers}")
        if len(brokers) != len(partitions[0]):
            raise argparse.ArgumentTypeError(f"partition {partition} has different replication factor: {brokers}")
    return partitions


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To "
    "avoid issues it is best to use either, but not both."
)
"""The words of ``kafka-topics``."""


def create(args: argparse.Namespace) -> int:
    """Create the topic, and say so in the words of ``kafka-topics``; with a minimum, which replicas are missing."""
    target = connection(args, defaults={"log_level": 0})
    with kafka_errors(f"create topic {args.topic!r}"):
        connect(target).close()
        if {".", "_"} & set(args.topic):
            print(COLLISION_WARNING)
        try:
            result = _created(target, new_topic(args), args.dry_run)
        except (KafkaException, ModeAwareError) as error:
            if args.if_not_exists and _exists_already(error):
                return 0
            raise
    if args.dry_run:
        print("Dry run: nothing was changed.")
    else:
        print(f"Created topic {args.topic}.")
    if result is not None and result.under_replicated:
        print(result.describe())
    return 0


def new_topic(args: argparse.Namespace) -> NewTopic:
    """The topic that the options ask for."""
    wanted: dict[str, Any] = {"config": dict(args.config or [])}
    if args.replica_assignment is not None:
        wanted["replica_assignment"] = [list(brokers) for brokers in args.replica_assignment]
        wanted["num_partitions"] = len(args.replica_assignment)  # librdkafka's way of saying that there is no number
    if args.partitions is not None:
        wanted["num_partitions"] = args.partitions
    if args.replication_factor is not None:
        wanted["replication_factor"] = args.replication_factor
    return NewTopic(args.topic, **wanted, min_required_replication_factor=args.min_required_replication_factor)


def _created(target: Connection, topic: NewTopic, validate_only: bool) -> CreationResult | None:
    """The result of one with a minimum; None of any other."""
    with AdminClient({**target.conf, **our_settings(target)}) as admin:
        result: CreationResult | None = admin.create_topics([topic], validate_only=validate_only)[topic.topic].result()
        return result


def _exists_already(error: KafkaException | ModeAwareError) -> bool:
    if isinstance(error, KafkaException):
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return error.code is ErrorCode.TOPIC_ALREADY_EXISTS


def delete(args: argparse.Namespace) -> int:
    """Say which topics go, ask, and have them deleted. Prints nothing then, as ``kafka-topics``.

    A topic's record in the mode log is the controller's business: it removes it when the topic is gone.
    """
    target = connection(args, defaults={"log_level": 0})
    with kafka_errors("delete topics"):
        cluster = connect(target)
        try:
            log = target.config.mode_log_topic
            found = named_for_change(list_topics(cluster.brokers).topics, args.topic, log)
            if not found:
                return absent(args)
            tell(*deletion_plan(found, log))
            if args.dry_run:
                print("Dry run: nothing was changed.")
                return 0
            if not confirmed(yes=args.yes):
                print("Nothing was changed.")
                return 1
            failures = delete_topics(cluster.brokers, {topic.name: topic.topic_id for topic in found})
        finally:
            cluster.close()
    refused = [failure for failure in failures.values() if failure is not None]
    for failure in refused[1:]:
        tell(f"error: {failure}")
    if refused:
        raise refused[0]
    return 0


def deletion_plan(found: list[ListedTopic], mode_log_topic: str) -> list[str]:
    """What is said before the question: the warnings first."""
    lines = [
        f"WARNING: {topic.name} is internal: Kafka keeps data of its own in it (committed offsets, transactions), and "
        "they go with it"
        for topic in found
        if topic.internal
    ]
    if any(topic.name == mode_log_topic for topic in found):
        lines.append(
            f"WARNING: {mode_log_topic} is the mode log: without it every partition of every topic is ReadWrite again, "
            "retired ones too"
        )
    return lines + [
        f"{topic.name}: is deleted, with all records of its {topic.partition_count} partitions." for topic in found
    ]


_Records = dict[str, TopicRecord | None]
"""Topic -> its record in the mode log; None: one that cannot be used here."""


def list_names(args: argparse.Namespace) -> int:
    """The names of the topics, nothing else: one a line."""
    cluster = connect(connection(args, defaults={"log_level": 0}))
    try:
        found = matching(list_topics(cluster.brokers).topics, args.topic, exclude_internal=args.exclude_internal)
    finally:
        cluster.close()
    print(printable_lines(topic.name for topic in found))
    return 0


def describe(args: argparse.Namespace) -> int:
    """What ``kafka-topics`` shows, and what the mode log has to say of topics that were changed."""
    target = connection(args, defaults={"log_level": 0})
    with kafka_errors("describe topics"):
        cluster = connect(target)
        try:
            listed = list_topics(cluster.brokers)
            chosen = _chosen(args, listed)
            if not chosen and (args.topic is not None or args.topic_id is not None):
                return absent(args)
            if args.json:
                return _print_json(args, target, chosen)
            records, gone = _records(args, target, chosen)
            limit = args.partition_size_limit_per_response or PARTITIONS_PER_ANSWER
            states = topic_states(cluster.brokers, [topic.name for topic in chosen], listed.live_brokers, limit)
        finally:
            cluster.close()
        changes = _changes(args, target, records)
    for line in _lines(args, states, records, {**gone, **changes}):
        print(line)
    return 0


def absent(args: argparse.Namespace) -> int:
    """No topic is what was asked for: an error, unless ``--if-exists`` was said.

    Raises:
        RequestRefused: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if args.if_exists:
        return 0
    if getattr(args, "topic_id", None) is not None:
        raise RequestRefused(f"no topic has the id {args.topic_id!r}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    raise RequestRefused(
        f"topic {args.topic!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=args.topic
    )


def _chosen(args: argparse.Namespace, listed: TopicList) -> list[ListedTopic]:
    shown = matching(listed.topics, None, exclude_internal=args.exclude_internal)
    if args.topic_id is not None:
        return [topic for topic in shown if topic.topic_id == args.topic_id]
    return shown if args.topic is None else named(shown, args.topic)


def _print_json(args: argparse.Namespace, target: Connection, chosen: Iterable[ListedTopic]) -> int:
    everything = args.topic is None and args.topic_id is None
    names = None if everything else [topic.name for topic in chosen]
    print(json.dumps(describe_json(describe_topics(target.conf, target.config.mode_log_topic, names)), indent=2))
    return 0


def _records(
    args: argparse.Namespace, target: Connection, chosen: Iterable[ListedTopic]
) -> tuple[_Records, dict[str, list[str]]]:
    """The records of the chosen topics; one that never was changed has none. And topic -> what is said of records that
    were written for deleted topics of its name.

    Raises:
        RecordError: of a topic that was named, and not by a pattern.
        ModeSourceError: the mode log cannot be read.
    """
    log = target.config.mode_log_topic
    replay = read_mode_log(target.conf, log, READ_TIMEOUT_S)
    found: _Records = {}
    gone: dict[str, list[str]] = {}
    for topic in chosen:
        unusable = unusable_record(replay, log, topic.name, topic.topic_id)
        if unusable is not None and topic.name == args.topic:
            raise unusable
        if unusable is not None:
            found[topic.name] = None
        elif topic.topic_id in replay.records:
            found[topic.name] = replay.records[topic.topic_id]
        if lines := gone_lines(gone_ids(replay, topic.name, topic.topic_id)):
            gone[topic.name] = [f"  {line}" for line in lines]
    return found, gone


def _changes(args: argparse.Namespace, target: Connection, records: _Records) -> dict[str, list[str]]:
    """Topic -> what is said of one that was changed: indented, so that no line begins as a topic's own."""
    changed = [topic for topic, record in records.items() if record is not None]
    if not changed or args.topics_with_overrides or any(getattr(args, name) for name in _FILTERS):
        return {}
    described = describe_topics(target.conf, target.config.mode_log_topic, changed)
    expand = args.partitions == EXPAND
    return {each.topic: indent(describe_text([each], expand=expand), "  ").splitlines() for each in described}


def _lines(
    args: argparse.Namespace, states: Iterable[TopicState], records: _Records, changes: Mapping[str, list[str]]
) -> Iterator[str]:
    filters = [lets_through for name, lets_through in _FILTERS.items() if getattr(args, name)]
    for state in states:
        if state.configs is None and any(getattr(args, name) for name in _NEED_CONFIGS):
            raise RequestRefused(
                f"topic {state.name!r}: this needs the right to see its configs (DESCRIBE_CONFIGS)",
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                topic=state.name,
            )
        modes = _modes(state, records)
        if filters:
            yield from filtered_lines(state, modes, filters)
        elif args.topics_with_overrides:
            yield from [topic_line(state)] if state.configs else []
        else:
            yield from topic_lines(state, modes)
            yield from changes.get(state.name, [])


def _modes(state: TopicState, records: _Records) -> list[str]:
    ids = [partition.partition for partition in state.partitions]
    if state.name not in records:
        return ["ReadWrite" for _ in ids]
    record = records[state.name]
    return [UNKNOWN for _ in ids] if record is None else [record.view().mode(p).label for p in ids]


UNKNOWN = "unknown"
"""In the place of a mode: the topic has a record that cannot be used here."""


def topic_line(topic: TopicState) -> str:
    """The line of the topic itself."""
    return (
        f"Topic: {topic.name}\tTopicId: {topic.topic_id}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.partitions[0].replication_factor}\tConfigs: {_configs(topic)}"
    )


def partition_line(topic: str, partition: PartitionReplicas, mode: str) -> str:
    """The line of one partition."""
    moves = ""
    if partition.adding is not None:
        moves = f"\tAdding Replicas: {_ids(partition.adding)}\tRemoving Replicas: {_ids(partition.removing)}"
    leader = "none" if partition.leader is None else partition.leader
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}{moves}"
        f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}\tMode: {mode}"
    )


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _configs(topic: TopicState) -> str:
    if topic.configs is None:  # the user lacks DESCRIBE_CONFIGS; kafka-topics gives up then
        return "N/A"
    return ",".join(
        f"{name}={'null' if value is None else printable(value)}" for name, value in sorted(topic.configs.items())
    )


PartitionFilter = Callable[[PartitionReplicas, int | None], bool]
"""Whether a partition is shown, given its topic's ``min.insync.replicas`` (None: not known, nothing is shown by it)."""


def is_under_replicated(partition: PartitionReplicas, _: int | None) -> bool:
    """``--under-replicated-partitions``"""
    return partition.replication_factor > len(partition.isr)


def is_unavailable(partition: PartitionReplicas, _: int | None) -> bool:
    """``--unavailable-partitions``"""
    return partition.leader is None


def is_under_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--under-min-isr-partitions``"""
    return partition.leader is None or (min_isr is not None and len(partition.isr) < min_isr)


def is_at_min_isr(partition: PartitionReplicas, min_isr: int | None) -> bool:
    """``--at-min-isr-partitions``"""
    return len(partition.isr) == min_isr


_FILTERS: dict[str, PartitionFilter] = {
    "under_replicated_partitions": is_under_replicated,
    "unavailable_partitions": is_unavailable,
    "under_min_isr_partitions": is_under_min_isr,
    "at_min_isr_partitions": is_at_min_isr,
}
_NEED_CONFIGS = ("topics_with_overrides", "under_min_isr_partitions", "at_min_isr_partitions")


def filtered_lines(topic: TopicState, modes: Sequence[str], filters: Sequence[PartitionFilter]) -> list[str]:
    """The lines of the partitions that a filter lets through."""
    return [
        partition_line(topic.name, partition, modes[partition.partition])
        for partition in topic.partitions
        if any(lets_through(partition, topic.min_isr) for lets_through in filters)
    ]


def topic_lines(topic: TopicState, modes: Sequence[str]) -> list[str]:
    """The line of the topic and those of all its partitions."""
    return [topic_line(topic), *(partition_line(topic.name, p, modes[p.partition]) for p in topic.partitions)]

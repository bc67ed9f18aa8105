"""``modeaware topics``: the tasks, flags and output of Kafka's ``kafka-topics``, with the additions of KIP-694."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from modeaware.admin.new_topics import NewTopic
from modeaware.cli import BadUsage, Command, key_value
from modeaware.cli.change import Situation
from modeaware.cli.embedded import admin_client
from modeaware.cli.progress import status_without_change, tell
from modeaware.cli.resize import DELAY_HELP, Resize, add_shrink_options, shrink_command, undo_note
from modeaware.cli.session import (
    add_actions,
    add_change_options,
    add_connection_options,
    add_flags,
    check_actions,
    flag,
    open_session,
    whole_number,
)
from modeaware.cluster.effects import delete_topics
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.lifecycle.commands import CreatePartitionsCommand, ResizeCommand
from modeaware.lifecycle.objections import is_topic_name
from modeaware.lifecycle.state import current_record
from modeaware.modelog.records import TopicRecord, replaced
from modeaware.printable import printable, printable_lines
from modeaware.reports.describe import Description, describe_text, describe_topics, gone_lines
from modeaware.reports.serialise import json_help, json_text
from modeaware.reports.session import ModeLog, Session, no_such_topic
from modeaware.reports.topics import (
    PARTITIONS_PER_ANSWER,
    ListedTopic,
    PartitionReplicas,
    TopicState,
    list_topics,
    matching,
    named,
    named_for_change,
    topic_states,
)

EXPAND = -1
"""``--partitions`` without a number."""
_ACTIONS = {
    "create": "create a topic",
    "list": "list the topics",
    "describe": "show topics and partitions with their modes; for topics that were changed also states, seals, lag, "
    "and what each partition waits for",
    "alter": "change the number of partitions",
    "delete": "delete topics, after confirmation",
    "undo": "undo a shrink, in any phase: restore the writable partitions",
}
_FILTERS = {
    "under_replicated_partitions": "partitions with replicas that are not in sync",
    "under_min_isr_partitions": "partitions with fewer replicas in sync than the configured minimum",
    "at_min_isr_partitions": "partitions with as many replicas in sync as the configured minimum",
    "unavailable_partitions": "partitions without a leader",
}
_ACTIONS_OF = {
    "replication_factor": ("create",),
    "if_not_exists": ("create",),
    "replica_assignment": ("create", "alter"),
    "min_required_replication_factor": ("create", "alter"),
    "if_exists": ("describe", "alter", "delete"),
    "exclude_internal": ("list", "describe"),
    "topic_id": ("describe",),
    "partition_size_limit_per_response": ("describe",),
    "topics_with_overrides": ("describe",),
    **dict.fromkeys(_FILTERS, ("describe",)),
    "json": ("describe",),
    "delete_partitions_delay": ("alter",),
    "immediate_delete": ("alter",),
    "accept_state_loss": ("alter",),
    "dry_run": ("create", "alter", "delete", "undo"),
    "wait": ("alter", "undo"),
    "controller_config": ("alter", "undo"),
}
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To "
    "avoid issues it is best to use either, but not both."
)
"""Quoted from ``kafka-topics``."""
UNKNOWN = "unknown"
"""Shown in place of a mode if the topic's record cannot be used."""


class Topics(Command):
    """``--create``, ``--list``, ``--describe``, ``--alter``, ``--delete`` or ``--undo``."""

    epilog = json_help(Description, "--describe --json prints one object:")

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_connection_options(parser)
        add_actions(parser, _ACTIONS)
        add = parser.add_argument
        add(
            "--topic",
            metavar="TOPIC",
            help="the topic. --list, --describe, --alter and --delete also take a regular expression; without --topic, "
            "--list and --describe show all topics. --alter and --delete take a valid topic name literally (a.b does "
            "not match a-b), and their expressions never match internal topics or the mode log",
        )
        add(
            "--partitions",
            nargs="?",
            type=int,
            const=EXPAND,
            metavar="N",
            help="--create: the number of partitions (default: the cluster's); --alter: the new number of writable "
            "partitions; --describe, without a number: also one line per partition of topics that were changed",
        )
        number: dict[str, Any] = {"type": int, "metavar": "N"}
        add("--replication-factor", **number, help="--create: replicas of a partition (default: the cluster's)")
        add(
            "--replica-assignment",
            type=replica_assignment,
            metavar="ID:ID,...",
            help="--create, --alter: the brokers of each partition, from partition 0 on, such as 1:2,2:3",
        )
        add(
            "--min-required-replication-factor",
            **number,
            help="--create, --alter: create partitions even if brokers are down, with at least this many live "
            "replicas (KIP-409)",
        )
        what = "--create: a config, may be repeated"
        add("--config", action="append", type=key_value, metavar="NAME=VALUE", help=what)
        add("--topic-id", metavar="ID", help="--describe: the topic with this id")
        add(
            "--partition-size-limit-per-response",
            **number,
            help=f"--describe: how many partitions to request from a broker at once (default: {PARTITIONS_PER_ANSWER})",
        )
        add_flags(
            parser,
            if_not_exists="--create: do nothing if the topic exists",
            if_exists="--alter, --delete, --describe: do nothing if there is no such topic",
            exclude_internal="--list, --describe: without Kafka's own topics",
            topics_with_overrides="--describe: only topics with configs of their own",
            **{name: f"--describe: only {text}" for name, text in _FILTERS.items()},
            json="--describe: print JSON, see below; without --topic, only topics that were changed",
        )
        add(
            "--delete-partitions-delay",
            type=whole_number(0),
            metavar="MS",
            help=f"--alter: {DELAY_HELP.format(delay='this many ms')}",
        )
        add_shrink_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_options(args)
        if args.action == "alter":
            return _alter(args)
        if args.action == "undo":
            return Resize(args, args.topic, undo_command, undo_note).run()
        actions = {"create": _create, "list": _list, "describe": _describe, "delete": _delete}
        with open_session(args, f"{args.action} topics") as session:
            return actions[args.action](args, session)


def check_options(args: argparse.Namespace) -> None:
    """Raise BadUsage if options exclude each other."""
    check_actions(args, _ACTIONS_OF)
    for bad, complaint in _complaints(args):
        if bad:
            raise BadUsage(complaint)


def _complaints(args: argparse.Namespace) -> Iterator[tuple[object, str]]:
    """Yield, for each rule about options, whether the options break the rule, and the message about it."""
    action, count = args.action, args.partitions
    yield action != "create" and args.config, "--config works only with --create: alter configs with kafka-configs"
    yield args.topic is None and action not in ("list", "describe"), "--topic is needed"
    yield action == "alter" and count in (None, EXPAND), "--alter needs --partitions N"
    yield action == "create" and count == EXPAND, "--create takes --partitions with a number"
    yield action == "describe" and count not in (None, EXPAND), "--describe takes --partitions without a number"
    yield (
        action == "undo" and count is not None,
        "--undo takes no --partitions: it restores the number from before the shrink",
    )
    yield action in ("list", "delete") and count is not None, f"--{action} takes no --partitions"
    minimum, factor, assignment = args.min_required_replication_factor, args.replication_factor, args.replica_assignment
    if action == "alter" and assignment is not None:
        yield len(assignment) != count, f"--replica-assignment is for {len(assignment)} partitions, not for {count}"
    yield minimum is not None and minimum < 1, "--min-required-replication-factor must be 1 or more"
    if minimum is not None and factor is not None:
        complaint = f"--min-required-replication-factor {minimum} is more than --replication-factor {factor}"
        yield minimum > factor, complaint
    if action == "create":
        both = assignment is not None and (count, factor) != (None, None)
        yield both, "--replica-assignment gives the numbers of partitions and replicas: leave the numbers out"
        yield count is not None and count < 1, "the partitions must be greater than 0"
        bad = factor is not None and not 1 <= factor <= 32767
        yield bad, "the replication factor must be between 1 and 32767 inclusive"
    filters = [name for name in _FILTERS if getattr(args, name)]
    overrides, limit = args.topics_with_overrides, args.partition_size_limit_per_response
    yield filters and overrides, f"{flag(''.join(filters[:1]))} and --topics-with-overrides exclude each other"
    yield args.json and (filters or overrides), "--json shows whole topics: it takes no filter"
    unnamed = args.topic is None and args.topic_id is None
    yield action == "describe" and args.if_exists and unnamed, "--topic or --topic-id is needed"
    yield limit is not None and limit < 1, "--partition-size-limit-per-response must be greater than 0"


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


def _alter(args: argparse.Namespace) -> int:
    """Alter the topics in turn, and stop after the first that is not altered."""
    topics = [args.topic]
    if args.if_exists or not is_topic_name(args.topic):  # Resize checks whether a single topic exists
        with open_session(args, "list topics") as session:
            log, listed = session.config.mode_log_topic, list_topics(session.cluster.brokers).topics
        topics = [topic.name for topic in named_for_change(listed, args.topic, log)]
        if not topics:
            return _absent(args, listed)
    for topic in topics:
        if status := Resize(args, topic, lambda situation: _alter_command(args, situation)).run():
            return status
    return 0


def _alter_command(args: argparse.Namespace, situation: Situation) -> ResizeCommand:
    """Return a growth if the requested number is above the number of writable partitions; otherwise a shrink."""
    if args.partitions > situation.writable_count:
        replicas = args.replica_assignment  # lists all partitions; only the new ones matter, as in kafka-topics
        new = None if replicas is None else replicas[situation.facts.partition_count :] or None
        return CreatePartitionsCommand(situation.topic, args.partitions, new)
    if args.replica_assignment is not None or args.min_required_replication_factor is not None:
        raise RequestRefused(
            f"topic {situation.topic!r} has {situation.writable_count} writable partitions: replica options apply to "
            f"new partitions only, and {args.partitions} is no increase; nothing was changed",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=situation.topic,
        )
    return shrink_command(situation.topic, args.partitions, args.delete_partitions_delay, args)


def undo_command(situation: Situation) -> ResizeCommand | None:
    """Return the growth to the number of writable partitions before the last shrink; None without a shrink to undo."""
    record = situation.current.known
    before = record.deletion.previous_count if record.deletion is not None else 0
    if not record.has_replacement and before <= record.writable_count:  # if replaced, the admission refuses
        return None
    return CreatePartitionsCommand(record.topic, before)


def _create(args: argparse.Namespace, session: Session) -> int:
    """Create a topic, with the output of ``kafka-topics``. With KIP-409's minimum, also print missing replicas."""
    if {".", "_"} & set(args.topic):
        print(COLLISION_WARNING)
    wanted: dict[str, Any] = {"config": dict(args.config or [])}
    if args.replica_assignment is not None:
        wanted["replica_assignment"] = [list(brokers) for brokers in args.replica_assignment]
        wanted["num_partitions"] = len(args.replica_assignment)  # the number that the assignment implies
    if args.partitions is not None:
        wanted["num_partitions"] = args.partitions
    if args.replication_factor is not None:
        wanted["replication_factor"] = args.replication_factor
    new = NewTopic(args.topic, **wanted, min_required_replication_factor=args.min_required_replication_factor)
    try:
        with admin_client(session) as admin:
            result = admin.create_topics([new], validate_only=args.dry_run)[new.topic].result()
    except (KafkaException, ModeAwareError) as error:
        code = error.args[0].code() if isinstance(error, KafkaException) else error.code
        if args.if_not_exists and code in (KafkaError.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_ALREADY_EXISTS):
            return 0
        raise
    print("Dry run: nothing was changed." if args.dry_run else f"Created topic {args.topic}.")
    if result is not None and result.under_replicated:
        print(result.describe())
    return 0


def _delete(args: argparse.Namespace, session: Session) -> int:
    """Delete topics; then print nothing, like ``kafka-topics``. The controller later removes the topics' records."""
    brokers, log = session.cluster.brokers, session.config.mode_log_topic
    listed = list_topics(brokers).topics
    named = named_for_change(listed, args.topic, log)
    if not named:
        return _absent(args, listed)
    tell(*deletion_lines(named, log))
    if (status := status_without_change(dry_run=args.dry_run, yes=args.yes)) is not None:
        return status
    failures = delete_topics(brokers, {topic.name: topic.topic_id for topic in named})
    refused = [failure for failure in failures.values() if failure is not None]
    for failure in refused[1:]:
        tell(f"error: {failure}")
    if refused:
        raise refused[0]
    return 0


def deletion_lines(topics: list[ListedTopic], mode_log_topic: str) -> list[str]:
    """Return the lines to show before the question, warnings first."""
    lines = [
        f"WARNING: {topic.name} is internal: Kafka's own data in this topic (committed offsets, transactions) will be "
        "deleted, too"
        for topic in topics
        if topic.internal
    ]
    if any(topic.name == mode_log_topic for topic in topics):
        lines.append(
            f"WARNING: {mode_log_topic} is the mode log: without it every partition of every topic is ReadWrite again, "
            "retired ones too"
        )
    return lines + [
        f"{topic.name}: will be deleted, with all records in {topic.partition_count} partitions." for topic in topics
    ]


def _list(args: argparse.Namespace, session: Session) -> int:
    topics = list_topics(session.cluster.brokers).topics
    chosen = matching(topics, args.topic, exclude_internal=args.exclude_internal)
    print(printable_lines(topic.name for topic in chosen))
    return 0


def _absent(args: argparse.Namespace, listed: Iterable[ListedTopic], log: ModeLog | None = None) -> int:
    if args.if_exists:
        return 0
    if args.topic_id is not None:
        raise RequestRefused(f"no topic has the id {args.topic_id!r}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    raise no_such_topic(args.topic, (topic.name for topic in listed), log)


_Records = dict[str, TopicRecord | None]
"""Topic -> its record in the mode log: an empty record if the log has none, None if the record cannot be used."""


def _describe(args: argparse.Namespace, session: Session) -> int:
    """Print the output of ``kafka-topics``; for topics that were changed, also their state from the mode log."""
    listed = list_topics(session.cluster.brokers)
    chosen = matching(listed.topics, None, exclude_internal=args.exclude_internal)
    if args.topic_id is not None:
        chosen = [topic for topic in chosen if topic.topic_id == args.topic_id]
    elif args.topic is not None:
        chosen = named(chosen, args.topic)
    everything = args.topic is None and args.topic_id is None
    if not chosen and not everything:
        log = session.read_log()
        if args.topic is None or log.deleted(args.topic) is None:
            return _absent(args, listed.topics, log)
        topics = describe_topics(session, [args.topic], log)
        print(json_text(Description(tuple(topics))) if args.json else indent(describe_text(topics, expand=False), "  "))
        return 0
    names = [topic.name for topic in chosen]
    if args.json:
        itself = args.topic_id is not None or args.topic in names
        topics = describe_topics(session, None if everything else names, named=itself)
        print(json_text(Description(tuple(topics))))
        return 0
    log = session.read_log()
    records, details = _records(args, log, chosen)
    new_topics = [replacement.new_topic for _, replacement in replaced(log.replaced)]
    limit = args.partition_size_limit_per_response or PARTITIONS_PER_ANSWER
    states = topic_states(session.cluster.brokers, names, listed.live_brokers, limit)
    changed = [topic for topic, record in records.items() if record is not None and record.epoch >= 0]
    changed += [topic for topic in new_topics if topic in records and topic not in changed]
    if changed and not args.topics_with_overrides and not any(getattr(args, name) for name in _FILTERS):
        for description in describe_topics(session, changed, log):
            text = describe_text([description], expand=args.partitions == EXPAND)
            details[description.topic] = indent(text, "  ").splitlines()  # so that no line looks like kafka-topics' own
    for line in _lines(args, states, records, details):
        print(line)
    return 0


def _records(
    args: argparse.Namespace, log: ModeLog, chosen: Iterable[ListedTopic]
) -> tuple[_Records, dict[str, list[str]]]:
    """Return the chosen topics' records, and for each topic lines about the records of deleted topics with its name.

    An unusable record is an error only if the options name the topic itself, not a pattern.
    """
    records: _Records = {}
    gone: dict[str, list[str]] = {}
    for topic in chosen:
        if topic.name == args.topic or log.unusable(topic.name, topic.topic_id) is None:
            record = log.record(topic.name, topic.topic_id)
            records[topic.name] = current_record(record, topic.name, topic.topic_id, topic.partition_count)
        else:
            records[topic.name] = None
        ids, points_to = log.gone_ids(topic.name, topic.topic_id), log.points_to(topic.name, topic.topic_id)
        if lines := gone_lines(ids, points_to):
            gone[topic.name] = [f"  {line}" for line in lines]
    return records, gone


def _lines(
    args: argparse.Namespace, states: Iterable[TopicState], records: _Records, details: Mapping[str, list[str]]
) -> Iterator[str]:
    filters = [name for name in _FILTERS if getattr(args, name)]
    needs_configs = args.topics_with_overrides or args.under_min_isr_partitions or args.at_min_isr_partitions
    for state in states:
        if state.configs is None and needs_configs:
            raise RequestRefused(
                f"topic {state.name!r}: its configs are hidden from this user; grant DESCRIBE_CONFIGS on the topic",
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                topic=state.name,
            )
        record = records[state.name]
        view = record.view() if record is not None else None
        if args.topics_with_overrides:
            yield from [topic_line(state)] if state.configs else []
            continue
        if not filters:
            yield topic_line(state)
        for partition in state.partitions:
            if not filters or any(_passes(name, partition, state.min_isr) for name in filters):
                mode = UNKNOWN if view is None else view.mode(partition.partition).label
                yield partition_line(state.name, partition, mode)
        if not filters:
            yield from details.get(state.name, [])


def _passes(name: str, partition: PartitionReplicas, min_isr: int | None) -> bool:
    """Return whether the filter ``name`` shows the partition; ``min_isr``: the topic's minimum in sync, if known."""
    if name == "under_replicated_partitions":
        return partition.replication_factor > len(partition.isr)
    if name == "unavailable_partitions":
        return partition.leader is None
    if name == "at_min_isr_partitions":
        return len(partition.isr) == min_isr
    return partition.leader is None or (min_isr is not None and len(partition.isr) < min_isr)


def topic_line(topic: TopicState) -> str:
    """Return the line of the topic itself."""
    configs = "N/A"  # the user lacks DESCRIBE_CONFIGS; kafka-topics would fail here
    if topic.configs is not None:
        values = {name: "null" if value is None else printable(value) for name, value in topic.configs.items()}
        configs = ",".join(f"{name}={value}" for name, value in sorted(values.items()))
    topic_id = f"\tTopicId: {topic.topic_id}" if topic.topic_id else ""  # kafka-topics omits it, too
    return (
        f"Topic: {topic.name}{topic_id}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {topic.partitions[0].replication_factor}\tConfigs: {configs}"
    )


def partition_line(topic: str, partition: PartitionReplicas, mode: str) -> str:
    """Return the line of one partition."""
    moves = ""
    if partition.adding is not None:
        moves = f"\tAdding Replicas: {_ids(partition.adding)}\tRemoving Replicas: {_ids(partition.removing)}"
    leader = "none" if partition.leader is None else partition.leader
    return (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}{moves}"
        f"\tElr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}\tMode: {mode}"
    )


def _ids(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))

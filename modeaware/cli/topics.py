"""``modeaware topics``: the tasks of Kafka's ``kafka-topics``, with its flags and its look, and KIP-694's additions."""

from __future__ import annotations

import argparse

from modeaware.cli.change import run_change, shrink_command
from modeaware.cli.display import JSON_HELP
from modeaware.cli.options import connect, connection
from modeaware.cli.plan import undo_plan
from modeaware.cli.situation import Situation
from modeaware.cli.topic_create import create
from modeaware.cli.topic_delete import delete
from modeaware.cli.topic_describe import absent, describe, list_names
from modeaware.cli.topic_options import action_of, add_topic_options, check_topic_options
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.commands import CreatePartitionsCommand, TopicCommand
from modeaware.reports.topic_list import is_topic_name, list_topics, named_for_change


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

"""The options of ``modeaware topics``: those of ``kafka-topics``, those of a change, and which go together."""

from __future__ import annotations

import argparse

from modeaware.cli.change import add_change_options, add_shrink_options
from modeaware.cli.options import add_connection_options, key_value
from modeaware.reports.topic_state import PARTITIONS_PER_ANSWER

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

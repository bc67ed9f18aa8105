"""``modeaware topics --create``."""

from __future__ import annotations

import argparse
from typing import Any

from modeaware.admin.topics_to_make import CreationResult, NewTopic
from modeaware.cli.embedded import our_settings
from modeaware.cli.options import Connection, connect, connection, kafka_errors
from modeaware.confluent.admin import AdminClient
from modeaware.errors import ErrorCode, ModeAwareError
from modeaware.librdkafka import KafkaError, KafkaException

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

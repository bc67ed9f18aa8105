"""``modeaware topics --delete``."""

from __future__ import annotations

import argparse

from modeaware.cli.confirm import confirmed
from modeaware.cli.embedded import tell
from modeaware.cli.options import connect, connection, kafka_errors
from modeaware.cli.topic_describe import absent
from modeaware.cluster.topic_deletion import delete_topics
from modeaware.reports.topic_list import ListedTopic, list_topics, named_for_change


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

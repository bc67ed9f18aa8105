"""``modeaware topics``: what Kafka's ``kafka-topics`` does about partition counts, with KIP-694's additions."""

from __future__ import annotations

import argparse
import json

from modeaware.cli.change import add_change_options, add_shrink_options, run_change, shrink_command
from modeaware.cli.display import JSON_HELP, describe_json, describe_text
from modeaware.cli.options import add_connection_options, connect, connection, kafka_errors
from modeaware.cli.plan import undo_plan
from modeaware.cli.situation import Situation
from modeaware.lifecycle.commands import CreatePartitionsCommand, TopicCommand
from modeaware.reports.describe import describe_topics

_EXPAND = -1


class Topics:
    """``--describe``, ``--alter`` or ``--undo``."""

    name = "topics"
    help = "describe a topic's partition modes, change its number of partitions"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = JSON_HELP
        add_connection_options(parser)
        actions = parser.add_mutually_exclusive_group(required=True)
        actions.add_argument(
            "--describe", action="store_true", help="show modes, states, seals, lag, what it waits for"
        )
        actions.add_argument("--alter", action="store_true", help="change the number of partitions")
        actions.add_argument(
            "--undo", action="store_true", help="take a shrink back, in any phase: writable partitions as before it"
        )
        parser.add_argument("--topic", metavar="TOPIC", help="the topic (--describe without it: all that were changed)")
        parser.add_argument(
            "--partitions",
            nargs="?",
            type=int,
            const=_EXPAND,
            metavar="N",
            help="--alter: how many writable partitions there shall be; --describe: one line a partition",
        )
        parser.add_argument("--json", action="store_true", help="--describe: print JSON, see below")
        add_shrink_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        self._check(args)
        if args.describe:
            return _describe(args)
        if args.undo:
            return run_change(args, args.topic, undo_command, notes=undo_plan)
        return run_change(args, args.topic, lambda situation: _alter_command(args, situation))

    def _check(self, args: argparse.Namespace) -> None:
        if not args.describe and args.topic is None:
            self._parser.error("--topic is needed")
        if args.alter and args.partitions in (None, _EXPAND):
            self._parser.error("--alter needs --partitions N")
        if args.describe and args.partitions not in (None, _EXPAND):
            self._parser.error("--describe takes --partitions without a number")
        if args.undo and args.partitions is not None:
            self._parser.error("--undo takes no --partitions: it goes back to the number there was")
        if not args.alter and (args.delete_partitions_delay is not None or args.immediate_delete):
            self._parser.error("--delete-partitions-delay and --immediate-delete belong to --alter")
        if not args.alter and args.accept_state_loss:
            self._parser.error("--accept-state-loss belongs to --alter")
        if not args.alter and args.evacuate:
            self._parser.error("--evacuate belongs to --alter")
        if args.json and not args.describe:
            self._parser.error("--json belongs to --describe")


def undo_command(situation: Situation) -> TopicCommand | None:
    """Back to the number of writable partitions before the shrink in force; None where there is none."""
    record = situation.record
    if record is None or record.deletion is None or record.deletion.previous_count <= record.writable_count:
        return None
    return CreatePartitionsCommand(record.topic, record.deletion.previous_count)


def _alter_command(args: argparse.Namespace, situation: Situation) -> TopicCommand:
    """More partitions than are writable: growth. Anything else: a shrink, or refused as one."""
    if args.partitions > situation.writable_count:
        return CreatePartitionsCommand(args.topic, args.partitions)
    return shrink_command(args.topic, args.partitions, args)


def _describe(args: argparse.Namespace) -> int:
    target = connection(args, defaults={"log_level": 0})
    with kafka_errors("describe topics"):
        connect(target)
        names = None if args.topic is None else [args.topic]
        descriptions = describe_topics(target.conf, target.config.mode_log_topic, names)
    if args.json:
        print(json.dumps(describe_json(descriptions), indent=2))
    else:
        print(describe_text(descriptions, expand=args.partitions == _EXPAND))
    return 0

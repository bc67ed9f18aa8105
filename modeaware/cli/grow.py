"""``modeaware grow TOPIC --to N``: the short form of ``topics --alter`` with more partitions."""

from __future__ import annotations

import argparse

from modeaware.cli.change import add_change_options, run_change
from modeaware.cli.options import add_connection_options
from modeaware.lifecycle.commands import CreatePartitionsCommand


class Grow:
    """Revives retired partitions first, then creates new ones; fewer than there are is refused."""

    name = "grow"
    help = "revive retired partitions, then create new ones"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--to", type=int, required=True, metavar="N", help="how many partitions take writes then")
        add_connection_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        command = CreatePartitionsCommand(args.topic, args.to)
        return run_change(args, args.topic, lambda _: command)

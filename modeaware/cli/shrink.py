"""``modeaware shrink TOPIC --to N``: the short form of ``topics --alter`` with fewer partitions."""

from __future__ import annotations

import argparse

from modeaware.cli.change import add_change_options, add_shrink_options, run_change, shrink_command
from modeaware.cli.options import add_connection_options


class Shrink:
    """Retires a topic's last partitions; more than there are is refused."""

    name = "shrink"
    help = "retire a topic's last partitions"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        parser.add_argument("--to", type=int, required=True, metavar="N", help="how many partitions stay writable")
        add_connection_options(parser)
        add_shrink_options(parser)
        add_change_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        command = shrink_command(args.topic, args.to, args)
        return run_change(args, args.topic, lambda _: command)

"""``modeaware plan``: what a change of the partition count would do, before anything is adopted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from modeaware.cli import Command
from modeaware.cli.progress import tell
from modeaware.cli.session import (
    add_connection_options,
    add_controller_config_option,
    add_flags,
    open_session,
    whole_number,
)
from modeaware.clock import SYSTEM_CLOCK
from modeaware.plan.html import write_page
from modeaware.plan.report import ResizePlan, make_plan
from modeaware.plan.sample import look, read_sample
from modeaware.plan.text import encodable, plan_text
from modeaware.reports.serialise import json_help, json_text

DEFAULT_SAMPLE = 10_000
MOST_SAMPLED = 1_000_000
MOST_PARTITIONS = 100_000
"""Of a topic: more than brokers hold. A mistyped number should not cost the machine's memory."""


class Plan(Command):
    """Reads a sample, prints what follows from it; changes nothing."""

    epilog = f"""\
{json_help(ResizePlan)}
It reads no more records than --sample says, joins no group and commits nothing. It needs neither a controller nor a
mode log; where there is a mode log, the plan says what is in progress.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC")
        add_connection_options(parser)
        parser.add_argument(
            "--partitions",
            required=True,
            type=whole_number(1, MOST_PARTITIONS),
            metavar="N",
            help="the number of partitions to plan for",
        )
        parser.add_argument(
            "--sample",
            type=whole_number(1, MOST_SAMPLED),
            default=DEFAULT_SAMPLE,
            metavar="RECORDS",
            help=f"how many records to read at most (default: {DEFAULT_SAMPLE}, at most {MOST_SAMPLED})",
        )
        add_controller_config_option(parser, "--controller-config")
        add_flags(parser, json="print JSON, see below")
        parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots as well")

    def run(self, args: argparse.Namespace) -> int:
        with open_session(args, "plan") as session:
            found = look(session, args.topic)
            sample = read_sample(session.conf, args.topic, found.facts.partition_count, found.logs, args.sample)
        plan = make_plan(found, sample, args.partitions, SYSTEM_CLOCK.now_ms())
        if args.json:
            print(json_text(plan))
        else:
            print(encodable(plan_text(plan), sys.stdout.encoding or "utf-8"))
        if args.html is not None:
            write_page(plan, args.html)
            tell(f"Written: {args.html}")
        return 0

"""``modeaware plan``: what a change of the partition count would do, before anything is adopted."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from modeaware.cli.embedded import tell
from modeaware.cli.options import add_connection_options, connect, connection, kafka_errors
from modeaware.clock import SYSTEM_CLOCK
from modeaware.errors import ModeAwareError
from modeaware.plan.html import plan_html
from modeaware.plan.read import look, read_sample
from modeaware.plan.report import make_plan, plan_json
from modeaware.plan.text import JSON_HELP, encodable, plan_text

DEFAULT_SAMPLE = 10_000
READS_HELP = """
It reads no more records than --sample says, joins no group and commits nothing; it needs no controller and no mode log.
"""
MOST_SAMPLED = 1_000_000
MOST_PARTITIONS = 100_000
"""Of a topic: more than brokers hold. A slip of the finger should not cost the machine's memory."""


class Plan:
    """Reads a sample, prints what follows from it; changes nothing."""

    name = "plan"
    help = "tell what another number of partitions would do to a topic's keys and load"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = JSON_HELP + READS_HELP
        add_connection_options(parser)
        parser.add_argument("--topic", required=True, metavar="TOPIC")
        parser.add_argument(
            "--partitions",
            required=True,
            type=_up_to(MOST_PARTITIONS),
            metavar="N",
            help="the number of partitions to plan for",
        )
        parser.add_argument(
            "--sample",
            type=_up_to(MOST_SAMPLED),
            default=DEFAULT_SAMPLE,
            metavar="RECORDS",
            help=f"how many records to read at most (default: {DEFAULT_SAMPLE}, at most {MOST_SAMPLED})",
        )
        parser.add_argument("--json", action="store_true", help="print JSON, see below")
        parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots as well")

    def run(self, args: argparse.Namespace) -> int:
        target = connection(args, defaults={"log_level": 0})
        with kafka_errors("plan"):
            cluster = connect(target)
            try:
                found = look(cluster, args.topic)
            finally:
                cluster.close()
            count = found.facts.partition_count
            sample = read_sample(target.conf, args.topic, count, found.logs, args.sample)
        plan = make_plan(found, sample, args.partitions, SYSTEM_CLOCK.now_ms())
        if args.json:
            print(json.dumps(plan_json(plan), indent=2))
        else:
            print(encodable(plan_text(plan), sys.stdout.encoding or "utf-8"))
        if args.html is not None:
            _write(args.html, plan_html(plan))
            tell(f"Written: {args.html}")
        return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ModeAwareError(f"cannot write {path}: {error.strerror}") from error


def _up_to(most: int) -> Callable[[str], int]:
    """argparse type: 1 to ``most``."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not 1 <= number <= most:
            raise argparse.ArgumentTypeError(f"{number} is {'below 1' if number < 1 else f'more than {most}'}")
        return number

    return parse

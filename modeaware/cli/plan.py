"""``modeaware plan``: the effects of a change of the partition count, or topics that need one."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from modeaware.cli import BadUsage, Command
from modeaware.cli.progress import tell
from modeaware.cli.session import (
    add_connection_options,
    add_controller_config_option,
    add_flags,
    flag,
    open_session,
    whole_number,
)
from modeaware.clock import SYSTEM_CLOCK
from modeaware.durations import duration_above_zero_ms
from modeaware.plan.file import DesiredTopic, topics_text
from modeaware.plan.fleet import Fleet, FleetPlan, Sizing, batches, make_fleet_plan
from modeaware.plan.fleet_text import SHOWN, fleet_text
from modeaware.plan.html import fleet_html, plan_html, write_file
from modeaware.plan.rates import DAY_MS
from modeaware.plan.report import ResizePlan, make_plan
from modeaware.plan.sample import read_sample, take_snapshot
from modeaware.plan.scan import scan
from modeaware.plan.text import encodable, plan_text
from modeaware.reports.serialise import json_help, json_text

DEFAULT_SAMPLE = 10_000
MOST_SAMPLED = 1_000_000
MOST_PARTITIONS = 100_000
"""The most partitions in one topic's plan. Brokers hold fewer; a mistyped number must not exhaust memory."""
MOST_DAYS = 31
_FLEET_OPTIONS = (
    *("exclude", "window_ms", "limit", "partition_bytes_per_second", "max_partitions_per_broker"),
    *("price_per_partition_hour", "write"),
)


def _price(text: str) -> float:
    """Parse a price for argparse: a finite number that is not below 0."""
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no price: a number from 0 on, such as 0.0015")
    return price


class Plan(Command):
    """Reads a sample of one topic, or scans all topics, and prints the plan; changes nothing."""

    epilog = f"""\
With --all or --topics, the command lists topics that have more partitions than they need. For each, it prints the
advised change, and what the change frees.

{json_help(ResizePlan)}
{json_help(FleetPlan, "With --all or --topics:")}
The command joins no group and commits nothing. With TOPIC, it reads no more records than --sample allows. It needs
neither a controller nor a mode log; if there is a mode log, the plan includes the changes in progress.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC", nargs="?")
        add_connection_options(parser)
        parser.add_argument(
            "--partitions",
            type=whole_number(1, MOST_PARTITIONS),
            metavar="N",
            help="plan for this number of partitions of TOPIC",
        )
        parser.add_argument(
            "--sample",
            nargs="?",
            const=0,
            type=whole_number(1, MOST_SAMPLED),
            metavar="RECORDS",
            help=f"with TOPIC: read at most this many records (default: {DEFAULT_SAMPLE}, at most {MOST_SAMPLED}). "
            "With --all or --topics, and without a number: measure the bytes of the topics that free the most, from "
            "batches of their busiest hour. Without --sample, these bytes are an estimate",
        )
        add_controller_config_option(parser, "--controller-config")
        add_flags(parser, json="print JSON, see below")
        parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots as well")
        _add_fleet_options(parser.add_argument_group("which topics of a cluster have too many partitions"))

    def run(self, args: argparse.Namespace) -> int:
        return self._fleet(args) if args.all or args.topics else self._topic(args)

    def _topic(self, args: argparse.Namespace) -> int:
        if args.topic is None or args.partitions is None:
            raise BadUsage("pass TOPIC and --partitions, or --all, or --topics")
        if given := [name for name in _FLEET_OPTIONS if getattr(args, name) is not None]:
            raise BadUsage(f"{flag(given[0]).replace('-ms', '')} works only with --all or --topics")
        with open_session(args, "plan") as session:
            seen = take_snapshot(session, args.topic)
            asked = args.sample or DEFAULT_SAMPLE
            sample = read_sample(session.conf, args.topic, seen.facts.partition_count, seen.logs, asked)
        plan = make_plan(seen, sample, args.partitions, SYSTEM_CLOCK.now_ms())
        _show(args, json_text(plan) if args.json else plan_text(plan))
        if args.html is not None:
            write_file(plan_html(plan), args.html)
            tell(f"Written: {args.html}")
        return 0

    def _fleet(self, args: argparse.Namespace) -> int:
        if args.topic is not None or args.partitions is not None or args.sample:
            raise BadUsage("--all and --topics take no TOPIC, no --partitions and no number for --sample")
        sizing = Sizing(most_on_broker=args.max_partitions_per_broker, price=args.price_per_partition_hour)
        if args.partition_bytes_per_second is not None:
            sizing = replace(sizing, bytes_per_s=args.partition_bytes_per_second)
        wanted, unwanted = args.topics or ["*"], args.exclude or []

        def chosen(name: str) -> bool:
            return _matches(name, wanted) and not _matches(name, unwanted)

        days = (args.window_ms or 7 * DAY_MS) // DAY_MS
        with open_session(args, "plan") as session:
            scanned = scan(session, chosen, days, sizing, sample=args.sample is not None)
        plan = make_fleet_plan(scanned, sizing)
        _show(args, json_text(plan) if args.json else fleet_text(plan, args.limit or SHOWN))
        if args.html is not None:
            write_file(fleet_html(plan), args.html)
            tell(f"Written: {args.html}")
        if args.write is not None:
            write_file(topics_file(plan, scanned, args.limit), args.write)
            tell(f"Written: {args.write}. To see the changes: modeaware apply {args.write} --dry-run")
        return 0


def _add_fleet_options(fleet: argparse._ArgumentGroup) -> None:
    fleet.add_argument("--all", action="store_true", help="plan for all topics")
    for name, text in (("--topics", "plan for these, such as 'orders.*'"), ("--exclude", "leave these out")):
        fleet.add_argument(name, metavar="GLOB", action="append", help=f"{text}; may be repeated")
    fleet.add_argument(
        "--window",
        dest="window_ms",
        type=_days,
        metavar="DURATION",
        help=f"plan by the rates of the last whole days (default: 7d, at most {MOST_DAYS}d)",
    )
    fleet.add_argument(
        "--limit",
        type=whole_number(1),
        metavar="N",
        help=f"print and write N topics, those that free the most (default: print {SHOWN}, write all)",
    )
    fleet.add_argument(
        "--partition-bytes-per-second",
        type=whole_number(1),
        metavar="BYTES",
        help=f"the capacity of a partition (default: {Sizing().bytes_per_s}); the busiest hour may use half of it",
    )
    fleet.add_argument(
        "--max-partitions-per-broker",
        type=whole_number(1),
        metavar="N",
        help="mark brokers with more replicas than this",
    )
    fleet.add_argument(
        "--price-per-partition-hour", type=_price, metavar="PRICE", help="print the savings in a month of 730 hours"
    )
    fleet.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write a file for modeaware apply, with the topics in batches, the safest first. Replaced topics keep "
        "their names (keep_name: true) if they can; if not, the new topic is NAME-v2, or the next version that is free",
    )


def topics_file(plan: FleetPlan, fleet: Fleet, limit: int | None) -> str:
    """Return a file for ``modeaware apply``, by which replaced topics keep their names if they can."""
    some = batches(plan, limit)
    rows = [row for rows in some.values() for row in rows]
    head, renamed = None, {row.topic: row.why_renamed for row in rows if row.why_renamed is not None}
    if renamed and fleet.why_all_renamed is not None:
        head, renamed = f"No topic keeps its name (keep_name: true): {fleet.why_all_renamed}", {}
    declared = {
        title: [DesiredTopic(row.topic, row.to, replace=row.new_topic, keep_name=row.keep_name) for row in rows]
        for title, rows in some.items()
    }
    return topics_text(declared, head=head, why_renamed=renamed)


def _show(args: argparse.Namespace, text: str) -> None:
    print(text if args.json else encodable(text, sys.stdout.encoding or "utf-8"))


def _days(text: str) -> int:
    window_ms = duration_above_zero_ms(text)
    if window_ms % DAY_MS or window_ms > MOST_DAYS * DAY_MS:
        raise argparse.ArgumentTypeError(f"{text}: whole days are needed, from 1d to {MOST_DAYS}d")
    return window_ms


def _matches(name: str, globs: list[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)

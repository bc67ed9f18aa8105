"""The programs ``python -m modeaware.spark.evacuate`` and ``python -m modeaware.spark.plan``, also for spark-submit.

The modules of these names only call the functions here and are never imported: an imported module
``modeaware.spark.plan`` would hide the function.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from modeaware.adoption.installing import command_settings
from modeaware.durations import duration_ms
from modeaware.errors import ModeAwareError
from modeaware.plan.html import plan_html, write_file
from modeaware.plan.report import ResizePlan
from modeaware.plan.text import encodable, plan_text
from modeaware.reports.serialise import json_help, json_text
from modeaware.spark.connector import packages
from modeaware.spark.evacuation.job import DEFAULT_WAIT_S, EvacuationReport, evacuate
from modeaware.spark.planning import DEFAULT_SAMPLE, plan
from partitioners import DEFAULT_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, whose JVM is already running, with the packages given there."""


def evacuate_main(arguments: Sequence[str] | None = None) -> int:
    """Run an evacuation and print its report; 1, with a line on standard error, if it was refused or failed."""
    parser = _parser(
        "evacuate",
        "Copy the latest values of a compacted old topic to the new topic, and commit the proof. A replacement "
        "with --evacuate then continues.",
        json_help(EvacuationReport),
    )
    option = parser.add_argument
    option("--partitioner", metavar="NAME", help=f"the partitioner of the topic's producers (default: {DEFAULT_NAME})")
    option(
        "--wait",
        dest="wait_ms",
        type=duration_ms,
        default=round(DEFAULT_WAIT_S * 1000),
        metavar="DURATION",
        help=f"how long to wait for seals (default: {DEFAULT_WAIT_S:g}s)",
    )
    option(
        "--no-partitioner-check", action="store_true", help="copy even if keys are not where --partitioner places them"
    )
    args = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def run(spark: SparkSession, conf: dict[str, Any]) -> None:
        if args.partitioner is not None:
            conf["partitioner"] = args.partitioner
        check = not args.no_partitioner_check
        wait_s = args.wait_ms / 1000
        report = evacuate(spark, args.topic, conf, wait_s=wait_s, check_partitioner=check)
        print(json_text(report) if args.json else report)

    return _run(args, f"evacuate {args.topic}", run)


def plan_main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan of a resize; 1, with a line on standard error, if there is none."""
    parser = _parser(
        "plan",
        "Show the effects of another number of partitions on a topic, by all of its records. Nothing is changed.",
        json_help(ResizePlan),
    )
    option = parser.add_argument
    option("--partitions", required=True, type=int, metavar="N", help="the number to plan for")
    option("--html", type=Path, metavar="FILE", help="write a page with plots as well")
    sample_help = "how many records to read to recognise the hashes (default: %(default)s)"
    option("--sample", type=_positive, default=DEFAULT_SAMPLE, metavar="RECORDS", help=sample_help)
    args = parser.parse_args(arguments)

    def run(spark: SparkSession, conf: dict[str, Any]) -> None:
        resize_plan = plan(spark, args.topic, conf, args.partitions, sample=args.sample)
        text = json_text(resize_plan) if args.json else plan_text(resize_plan)
        print(encodable(text, sys.stdout.encoding or "utf-8"))
        if args.html is not None:
            write_file(plan_html(resize_plan), args.html)
            if not args.json:  # spark-submit merges both outputs of a program
                print(f"Written: {args.html}", file=sys.stderr)

    return _run(args, "modeaware plan", run)


def _parser(name: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m modeaware.spark.{name}",
        description=fill(description),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("topic", metavar="TOPIC")
    servers_help = "the brokers (default: bootstrap.servers of --command-config, else MODEAWARE_BOOTSTRAP_SERVERS)"
    option("--bootstrap-server", metavar="HOST:PORT[,...]", help=servers_help)
    settings_help = "client settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...) and modeaware's"
    option("--command-config", type=Path, metavar="FILE", help=settings_help)
    option("--json", action="store_true", help="print JSON, see below")
    return parser


def _run(args: argparse.Namespace, name: str, work: Callable[[SparkSession, dict[str, Any]], None]) -> int:
    """Run ``work`` in the active session, that of spark-submit, or a new one with the connector."""
    try:
        connector = packages()
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModeAwareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    active = spark = SparkSession.getActiveSession()
    try:
        conf = command_settings(args.bootstrap_server, args.command_config, os.environ)
        builder: SparkSession.Builder = SparkSession.builder
        if active is None and _SUBMITTED not in os.environ:
            builder = builder.appName(name).config("spark.jars.packages", connector)
        spark = builder.getOrCreate()
        work(spark, conf)
    except (ModeAwareError, PySparkException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if active is None and spark is not None:
            spark.stop()
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)

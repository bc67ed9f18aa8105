"""The program ``python -m modeaware.spark.evacuate``, also for spark-submit.

The module ``modeaware.spark.evacuate`` only calls the function here. Never import that module: it would hide the
function ``modeaware.spark.evacuate``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from modeaware.adoption.installing import command_settings
from modeaware.durations import duration_ms
from modeaware.errors import ModeAwareError
from modeaware.reports.serialise import json_help, json_text
from modeaware.spark.connector import packages
from modeaware.spark.evacuation.job import DEFAULT_WAIT_S, EvacuationReport, evacuate
from partitioners import DEFAULT_NAME

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""A variable that spark-submit sets. Its JVM is already running, with the packages given to spark-submit."""


def evacuate_main(arguments: Sequence[str] | None = None) -> int:
    """Run an evacuation and print its report. Return 1 if it failed or was refused; the reason is on standard error.

    The job runs in the active session, or in spark-submit's, or in a new session with the Kafka connector.
    """
    args = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
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
        if args.partitioner is not None:
            conf["partitioner"] = args.partitioner
        builder: SparkSession.Builder = SparkSession.builder
        if active is None and _SUBMITTED not in os.environ:
            builder = builder.appName(f"evacuate {args.topic}").config("spark.jars.packages", connector)
        spark = builder.getOrCreate()
        check = not args.no_partitioner_check
        report = evacuate(spark, args.topic, conf, wait_s=args.wait_ms / 1000, check_partitioner=check)
        print(json_text(report) if args.json else report)
    except (ModeAwareError, PySparkException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if active is None and spark is not None:
            spark.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    description = (
        "Copy the latest values of a compacted old topic to the new topic, and commit the proof. A replacement with "
        "--evacuate then continues."
    )
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.spark.evacuate",
        description=fill(description),
        epilog=json_help(EvacuationReport),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("topic", metavar="TOPIC")
    servers_help = "the brokers (default: bootstrap.servers of --command-config, else MODEAWARE_BOOTSTRAP_SERVERS)"
    option("--bootstrap-server", metavar="HOST:PORT[,...]", help=servers_help)
    settings_help = "client settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...) and modeaware's"
    option("--command-config", type=Path, metavar="FILE", help=settings_help)
    option("--json", action="store_true", help="print JSON, see below")
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
    return parser

"""``spark-submit`` of an evacuation: ``python -m modeaware.spark.evacuate --bootstrap-server ... --topic ...``.

As an application, name the program (``spark-submit --packages ... path/to/modeaware/spark/evacuate.py``), or one of two
lines that calls :func:`main`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from modeaware.adoption.installing import from_environment
from modeaware.errors import ModeAwareError
from modeaware.properties import read_properties
from modeaware.spark.evacuation.job import DEFAULT_PASSES, DEFAULT_WAIT_S, evacuate
from modeaware.spark.submitted import add_spark_conf, session


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it in the Spark session that there is, or a new one; its exit status: 0, or 1 where it was refused or failed.

    Prints the report, as JSON with ``--json``.
    """
    args = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        from pyspark.errors import PySparkException
    except ModuleNotFoundError as missing:
        print(f"evacuate: {missing}: install modeaware[spark]", file=sys.stderr)
        return 1
    try:
        conf: dict[str, Any] = dict(from_environment(os.environ))
        if args.command_config is not None:
            conf |= read_properties(args.command_config)
        conf["bootstrap.servers"] = args.bootstrap_server
        if args.partitioner is not None:
            conf["partitioner"] = args.partitioner
        spark = session(f"evacuate {args.topic}", dict(args.spark_conf))
        report = evacuate(
            spark,
            args.topic,
            conf,
            wait_s=args.wait,
            passes=args.passes,
            check_partitioner=not args.no_partitioner_check,
        )
    except (ModeAwareError, PySparkException) as error:
        print(f"evacuate: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(report), indent=2) if args.json else report)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.spark.evacuate",
        description="Copy the latest values of a compacted topic's retired partitions to those that stay, and record "
        "that, so that a shrink with --evacuate goes on.",
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]", help="the brokers")
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...) and modeaware's",
    )
    parser.add_argument(
        "--partitioner",
        metavar="NAME",
        help="what the topic's producers use (murmur2_random for Java's; default: consistent_random, as librdkafka's)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=DEFAULT_WAIT_S,
        metavar="SECONDS",
        help=f"how long to wait for the retired partitions to be sealed (default: {DEFAULT_WAIT_S:g})",
    )
    parser.add_argument(
        "--passes",
        type=int,
        default=DEFAULT_PASSES,
        metavar="N",
        help=f"how often to try again what producers' writes undo (default: {DEFAULT_PASSES})",
    )
    parser.add_argument(
        "--no-partitioner-check",
        action="store_true",
        help="copy although the keys do not lie where the partitioner puts them",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_spark_conf(parser)
    return parser

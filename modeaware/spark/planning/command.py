"""``python -m modeaware.spark.plan``, also for spark-submit: the plan of a resize by every record of the topic."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modeaware.adoption.installing import from_environment
from modeaware.errors import ModeAwareError
from modeaware.plan.html import plan_html
from modeaware.plan.report import plan_json
from modeaware.plan.text import JSON_HELP, encodable, plan_text
from modeaware.properties import read_properties
from modeaware.spark.planning.job import DEFAULT_SAMPLE, plan
from modeaware.spark.submitted import add_spark_conf, key_value, session


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the plan; 0, or 1 with a line on standard error where there is none."""
    args = _parser().parse_args(arguments)
    try:
        conf: dict[str, Any] = dict(from_environment(os.environ))
        if args.command_config is not None:
            conf |= read_properties(args.command_config)
        conf["bootstrap.servers"] = args.bootstrap_server
        spark = session("modeaware plan", dict(args.spark_conf))
        try:
            found = plan(spark, args.topic, conf, args.partitions, sample=args.sample, **dict(args.source_option))
        finally:
            spark.stop()
        if args.json:
            print(json.dumps(plan_json(found), indent=2))
        else:
            print(encodable(plan_text(found), sys.stdout.encoding or "utf-8"))
        if args.html is not None:
            _write(args.html, plan_html(found))
            if not args.json:  # spark-submit puts both outputs of a program into one
                print(f"Written: {args.html}", file=sys.stderr)
    except ModeAwareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.spark.plan",
        description="Tell what another number of partitions would do to a topic, by all of its records. "
        "Changes and commits nothing.",
        epilog=JSON_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,...]")
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="client settings, one KEY=VALUE a line: librdkafka's (security.protocol, ...); Spark gets them as Java's",
    )
    parser.add_argument("--topic", required=True, metavar="TOPIC")
    parser.add_argument("--partitions", required=True, type=int, metavar="N", help="the number to plan for")
    parser.add_argument(
        "--sample",
        type=_positive,
        default=DEFAULT_SAMPLE,
        metavar="RECORDS",
        help=f"by how many records to see which hashes placed the keys (default: {DEFAULT_SAMPLE})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, see below")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots as well")
    parser.add_argument(
        "--source-option",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="of Spark's Kafka source, such as minPartitions=64; may be repeated",
    )
    add_spark_conf(parser)
    return parser


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ModeAwareError(f"cannot write {path}: {error.strerror}") from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)

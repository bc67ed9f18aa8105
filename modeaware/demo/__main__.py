"""The command ``python -m modeaware.demo``."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from modeaware.demo.audit import report_lines
from modeaware.demo.story import Story
from modeaware.durations import duration_ms
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaException
from modeaware.local import start_kafka


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.demo",
        description="Shrink a live topic from 12 to 4 partitions, then replace it by a new one of 4, with producers "
        "and consumers that never stop, and count every record afterwards. Uses the Kafka that "
        "KAFKA_BOOTSTRAP_SERVERS names, else starts one.",
    )
    parser.add_argument("--records", type=_positive, metavar="N", help="send the first N flights (default: all)")
    parser.add_argument(
        "--lead",
        dest="lead_ms",
        type=duration_ms,
        default=14_000,
        metavar="DURATION",
        help="how long to work before and after the changes (default: 14s)",
    )
    parser.add_argument("--report", type=Path, default=Path("demo-report.json"), metavar="FILE", help="the report")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    log = Path(tempfile.mkstemp(prefix="modeaware-demo-", suffix=".log")[1])
    logging.basicConfig(filename=log, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    try:
        with start_kafka() as kafka:
            print(f"Kafka at {kafka.bootstrap_servers} ({kafka.kind})", flush=True)
            report = Story(kafka.bootstrap_servers, args.records, args.lead_ms / 1000).tell()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        log.unlink()
        return 130
    except (ModeAwareError, KafkaException, TimeoutError) as error:
        print(f"error: {error}\nThe log of the demo is {log}", file=sys.stderr)
        return 1
    args.report.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print("\n".join(["", *report_lines(report), f"The report is in {args.report}"]))
    if report["faults"]:
        print(f"The log of the demo is {log}", file=sys.stderr)
        return 1
    log.unlink()
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())

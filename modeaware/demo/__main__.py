"""``python -m modeaware.demo``: exit status 0 when all is well, 1 when something failed, 130 after Ctrl-C."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from modeaware.demo.report import Report
from modeaware.demo.screen import open_screen
from modeaware.demo.setting import Setting
from modeaware.demo.story import Story
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaException
from modeaware.local import Kafka, start_kafka

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; the exit status."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="modeaware-demo-"))
    try:
        with start_kafka() as kafka:
            report = _run(args, kafka, folder)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        shutil.rmtree(folder)
        return INTERRUPTED
    except (ModeAwareError, KafkaException) as error:
        print(f"error: {error}\nThe logs of the demo's processes are in {folder}", file=sys.stderr)
        return 1
    report.write(args.report)
    print("\n".join(["", *report.lines(), f"The report is in {args.report}"]))
    if report.faults():
        print(f"The logs and journals of the demo's processes are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _run(args: argparse.Namespace, kafka: Kafka, folder: Path) -> Report:
    name = uuid.uuid4().hex[:6]
    setting = Setting(
        bootstrap_servers=kafka.bootstrap_servers,
        topic=f"flights-{name}",
        group=f"flights-{name}-readers",
        folder=folder,
        records=args.records,
        lead_s=args.lead_s,
    )
    with open_screen(plain=args.plain) as screen:
        screen.event(f"Kafka at {kafka.bootstrap_servers} ({kafka.kind})")
        return Story(setting, screen).tell()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m modeaware.demo",
        description="Shrink a live topic from 12 to 4 partitions and grow it to 6, with producers and consumers that "
        "never stop, and count every record afterwards. Uses the Kafka that KAFKA_BOOTSTRAP_SERVERS names, else "
        "starts one.",
    )
    parser.add_argument(
        "--records", type=_positive, metavar="N", help="send the first N flights (default: all 336,776)"
    )
    parser.add_argument(
        "--lead-s",
        type=float,
        default=14.0,
        metavar="S",
        help="seconds of work before the shrink and after the growth (default: %(default)s)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("demo-report.json"),
        metavar="FILE",
        help="where to write the report (default: %(default)s)",
    )
    parser.add_argument("--plain", action="store_true", help="lines instead of a table, as when output is no terminal")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

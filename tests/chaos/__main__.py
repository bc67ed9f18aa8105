"""``python -m tests.chaos --minutes M``: exit status 0 only when nothing was lost or left unread, nothing was violated,
and as much happened as has to in so many minutes (:mod:`tests.chaos.report`; from 2 minutes on); 1 when something was,
or too little happened; 2 when the run could not be brought to its end. ``--judge FOLDER`` judges a run again,
also one that ended before its time."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from confluent_kafka import KafkaException

from modeaware.errors import ModeAwareError
from modeaware.local import LocalKafka
from tests.chaos.chronicle import Chronicle, Event, read_events
from tests.chaos.fleet import Fleet
from tests.chaos.loading import judge_run
from tests.chaos.report import Report
from tests.chaos.setting import BROKER_CONFIGS, Setting
from tests.chaos.story import Story

HEAP_MB = 400
WELL, NOT_WELL, FAILED = 0, 1, 2
QUIET_EVENTS = ("started", "log-start", "view")


def main() -> int:
    """Run, judge, report; the exit status."""
    args = _parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.judge is not None:
        return _judge(args.judge, args.json)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="modeaware-chaos-"))
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    print(f"seed {seed}, folder {folder}", flush=True)
    try:
        _run(args, folder, seed)
    except KeyboardInterrupt:
        print(f"stopped; to judge what there is: python -m tests.chaos --judge {folder}", file=sys.stderr)
        return FAILED
    except (ModeAwareError, KafkaException, TimeoutError) as error:
        print(f"error: {error}\nThe journals and logs are in {folder}", file=sys.stderr)
        return FAILED
    status = _judge(folder, args.json)
    if status == WELL and args.folder is None:
        shutil.rmtree(folder)
    else:
        print(f"The journals and logs are in {folder}")
    return status


def _run(args: argparse.Namespace, folder: Path, seed: int) -> None:
    origin_ns = time.monotonic_ns()
    with LocalKafka(nodes=3, heap_mb=HEAP_MB, configs=BROKER_CONFIGS, folder=folder / "kafka") as kafka:
        setting = Setting(kafka.bootstrap_servers, f"chaos-{seed}", folder, origin_ns, seed, args.rate, args.minutes)
        setting.save()
        with closing(Chronicle(setting.events_path, setting.now_ms, _tell)) as chronicle:
            fleet = Fleet(setting, args.controllers, chronicle)
            Story(setting, kafka, fleet, (args.gap / 3, args.gap)).tell()


def _judge(folder: Path, json_path: Path | None) -> int:
    began_s = time.process_time()
    verdict = judge_run(folder)
    setting = Setting.load(folder)
    events = list(read_events(setting.events_path))
    report = Report(setting.seed, events, verdict, time.process_time() - began_s, setting.minutes)
    print("\n".join(report.lines()), flush=True)
    if json_path is not None:
        json_path.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    return WELL if report.ok else NOT_WELL


def _tell(event: Event) -> None:
    if event["event"] not in QUIET_EVENTS:
        what = {key: value for key, value in event.items() if key not in ("at_ms", "event")}
        print(f"{event['at_ms'] / 1000:8.1f} s  {event['event']} {what}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Shrink, undo and grow a topic on three brokers for some minutes, while brokers, controllers, "
        "writers and readers are killed and paused; then judge what was acknowledged and what was read.",
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, metavar="M", help="how long harm is done, at least (%(default)s)"
    )
    parser.add_argument("--seed", type=int, metavar="S", help="of everything left to chance (default: a new one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge the run in this folder again, run nothing")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="keep everything here (default: a temporary one)")
    parser.add_argument("--rate", type=float, default=3_000, metavar="R", help="records a second (%(default)s)")
    parser.add_argument("--controllers", type=int, default=2, metavar="N", help="controller processes (%(default)s)")
    parser.add_argument(
        "--gap", type=float, default=15.0, metavar="S", help="longest rest between faults, in seconds (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

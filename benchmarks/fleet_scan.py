"""CPU and memory of ``modeaware plan --all`` on answers that are made up, encoded as brokers encode them.

The answers are prepared in a process of their own, so that the figures are of encoding requests, decoding responses and
all that follows. Rates of topics differ by a factor of 30 million, and one in ten has its peak in an hour.

``python -m benchmarks.fleet_scan`` measures it without a Kafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import Result, peak_mb
from benchmarks.setting import Setting
from modeaware.clock import SYSTEM_CLOCK
from modeaware.plan.fleet import Sizing, make_fleet_plan
from modeaware.plan.scan import scan
from tests.support.encoded_fleet import Answers, prepare
from tests.support.fleet_brokers import FleetSession

SIZE = "size.json"


def scan_answers(folder: Path) -> dict[str, Any]:
    """Scan, and return the figures."""
    topics, partitions, brokers, groups = json.loads((folder / SIZE).read_text())
    before_mb = peak_mb()
    answers = Answers(folder, topics, partitions, brokers, groups, SYSTEM_CLOCK.now_ms())
    began_s, wall_s = time.process_time(), time.monotonic()
    plan = make_fleet_plan(scan(FleetSession(answers, SYSTEM_CLOCK), lambda name: True, 7, Sizing()), Sizing())
    cpu_s = time.process_time() - began_s - answers.spent_s
    return {
        "topics": topics,
        "partitions": plan.partitions,
        "cpu_s": round(cpu_s, 2),
        "wall_s": round(time.monotonic() - wall_s, 2),
        "peak_mb": round(peak_mb()),
        "before_mb": round(before_mb),
        "requests": dict(Counter(name for _, name in answers.asked)),
        "to_replace": len(plan.advised("replace")),
        "frees": plan.frees,
    }


def measure(setting: Setting | None = None) -> Iterator[Result]:
    """Measure 10 000 topics of 20 partitions; they need no Kafka."""
    topics = 1_000 if setting is not None and setting.quick else 10_000
    with TemporaryDirectory() as folder:
        (Path(folder) / SIZE).write_text(json.dumps([topics, 20, 6, 1_000]))
        command = [sys.executable, "-m", "benchmarks.fleet_scan", folder]
        subprocess.run([*command, "prepare"], check=True)
        found = json.loads(subprocess.run([*command, "scan"], check=True, capture_output=True, text=True).stdout)
    name = f"plan --all, {topics:,} topics of 20 partitions"
    yield Result(f"{name}: CPU", found["cpu_s"], "s", below=40, details=found)
    yield Result(f"{name}: memory", found["peak_mb"], "MB", below=300)


def main() -> None:
    """Without arguments: measure. With a folder and a step: do that step."""
    if len(sys.argv) == 1:
        for result in measure():
            print(f"{result.name}: {result.figure:g} {result.unit}, limit {result.limit} {dict(result.details) or ''}")
        return
    folder, step = Path(sys.argv[1]), sys.argv[2]
    if step == "prepare":
        prepare(folder, *json.loads((folder / SIZE).read_text())[:3])
    else:
        print(json.dumps(scan_answers(folder)))


if __name__ == "__main__":
    main()

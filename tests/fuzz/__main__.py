"""``python -m tests.fuzz --minutes 10``: fuzz the endpoint's sessions, and write ``fuzz-report.json``.

Status 1 when anything was found, or too few frames were read past their header.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.fuzz import large
from tests.fuzz.play import Player
from tests.fuzz.tally import Tally, total, watched

LEAST_PAST_HEADER = 0.5
PATIENCE_S = 150.0
"""A process that has not ended so long after its time hangs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the first process (default: %(default)s)")
    parser.add_argument("--at-least", type=int, default=0, metavar="FRAMES", help="fail with fewer frames")
    parser.add_argument("--corpus", type=Path, help="a folder that keeps what was learnt for the next time")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), metavar="FOLDER")
    parser.add_argument("--json", type=Path, default=Path("fuzz-report.json"), metavar="FILE")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play one finding, without atheris")
    args = parser.parse_args()
    with watched() as depth:
        if args.replay is not None:
            Player(depth).play(args.replay.read_bytes())
            print("nothing was found in it")
            return 0
        if importlib.util.find_spec("atheris") is None:
            parser.error("atheris is not installed: pip install --editable '.[fuzz]'")
        large.play(Player(depth))
    args.findings.mkdir(exist_ok=True)
    tally, findings = _fuzz(args)
    if not any(args.findings.iterdir()):
        args.findings.rmdir()
    if tally.past_header < LEAST_PAST_HEADER * tally.frames:
        findings.append(f"only {tally.past_header:,} of {tally.frames:,} frames were read past their header")
    if tally.frames < max(args.at_least, 1):
        findings.append(f"{tally.frames:,} frames; {args.at_least:,} were wanted")
    report = {**asdict(tally), "processes": args.processes, "seed": args.seed, "findings": findings}
    args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print("\n".join(f"{name:20} {figure:>16,}" for name, figure in asdict(tally).items()))
    print("\n".join([*findings, f"{len(findings)} findings - {args.json}"]))
    return 1 if findings else 0


def _fuzz(args: argparse.Namespace) -> tuple[Tally, list[str]]:
    """What the processes saw, and what they found."""
    with tempfile.TemporaryDirectory() as folder:
        corpus: Path = args.corpus if args.corpus is not None else Path(folder) / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        running = []
        for number in range(args.processes):
            report, log = Path(folder) / f"report-{number}.json", Path(folder) / f"log-{number}.txt"
            words = [corpus, report, args.findings, args.minutes * 60, args.seed + number]
            command = [sys.executable, "-m", "tests.fuzz.worker", *map(str, words)]
            with log.open("wb") as output:
                running.append((subprocess.Popen(command, stdout=output, stderr=output), report, log))
        deadline_s = time.monotonic() + args.minutes * 60 + PATIENCE_S
        tallies, findings = [], []
        for process, report, log in running:
            try:
                status = process.wait(max(deadline_s - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            told = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"finding": None, "tally": {}}
            tallies.append(Tally(**told["tally"]))
            if status or told["finding"]:
                end = log.read_text(encoding="utf-8", errors="replace")[-4_000:]
                findings.append(told["finding"] or f"a process ended with status {status} (-9: it hung):\n{end}")
        return total(tallies), findings


if __name__ == "__main__":
    sys.exit(main())

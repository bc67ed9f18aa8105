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
    if args.replay is not None:
        with watched() as depth:
            Player(depth).play(args.replay.read_bytes())
        print("nothing was found in it")
        return 0
    if importlib.util.find_spec("atheris") is None:
        parser.error("atheris is not installed: pip install --editable '.[fuzz]'")
    with watched() as depth:
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
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus: Path = args.corpus if args.corpus is not None else folder / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        running = [_start(args, folder, corpus, number) for number in range(args.processes)]
        deadline_s = time.monotonic() + args.minutes * 60 + PATIENCE_S
        tallies, findings = [], []
        for number, process in enumerate(running):
            try:
                status = process.wait(max(deadline_s - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
                findings.append(f"process {number} hung")
            path = _report_path(folder, number)
            report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"finding": None, "tally": {}}
            tallies.append(Tally(**report["tally"]))
            if status or report["finding"]:
                end = _log_path(folder, number).read_text(encoding="utf-8", errors="replace")[-4_000:]
                findings.append(report["finding"] or f"process {number} ended with status {status}:\n{end}")
        return total(tallies), findings


def _start(args: argparse.Namespace, folder: Path, corpus: Path, number: int) -> subprocess.Popen[bytes]:
    options: dict[str, object] = {
        "--corpus": corpus,
        "--report": _report_path(folder, number),
        "--findings": args.findings,
        "--seconds": args.minutes * 60,
        "--seed": args.seed + number,
    }
    command = [sys.executable, "-m", "tests.fuzz.worker", *(str(word) for pair in options.items() for word in pair)]
    with _log_path(folder, number).open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _report_path(folder: Path, number: int) -> Path:
    return folder / f"report-{number}.json"


def _log_path(folder: Path, number: int) -> Path:
    return folder / f"log-{number}.txt"


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.fuzz --minutes 10``: a table, and ``fuzz-report.json``. Status 1 when anything was found, or too
few frames were read past their header."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz import large
from tests.fuzz.play import Player
from tests.fuzz.tally import (
    MOST_CPU_S,
    MOST_GROWTH_BLOCKS,
    MOST_GROWTH_MB,
    MOST_PEAK_BYTES,
    Tally,
    total,
    watched,
)

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
        largest = Player(depth)
        large.play(largest)
    args.findings.mkdir(exist_ok=True)
    reports, findings = _fuzz(args)
    if not any(args.findings.iterdir()):
        args.findings.rmdir()
    tally = total(Tally(**report["tally"]) for report in reports)
    findings += _shortcomings(tally, args.at_least)
    print(table(tally, largest.tally, args.processes))
    guidance = [report["guidance"] for report in reports]
    print("libFuzzer's last words    ", "; ".join(guidance))
    for finding in findings:
        print(finding)
    report = {**_report(tally, largest.tally, args, findings), "libfuzzer": guidance}
    args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"{len(findings)} findings - {args.json}")
    return 1 if findings else 0


def _fuzz(args: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """The reports of the processes, and what they have found."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        corpus: Path = args.corpus if args.corpus is not None else folder / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        running = [_start(args, folder, corpus, number) for number in range(args.processes)]
        deadline_s = time.monotonic() + args.minutes * 60 + PATIENCE_S
        reports, findings = [], []
        for number, process in enumerate(running):
            try:
                status = process.wait(max(deadline_s - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
                findings.append(f"process {number} hung")
            path = _report_path(folder, number)
            report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"finding": None, "tally": {}}
            report["guidance"] = _guidance(_log_path(folder, number))
            reports.append(report)
            if status or report["finding"]:
                end = _log_path(folder, number).read_text(encoding="utf-8", errors="replace")[-4_000:]
                findings.append(report["finding"] or f"process {number} ended with status {status}:\n{end}")
        return reports, findings


def _start(args: argparse.Namespace, folder: Path, corpus: Path, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.fuzz.worker"]
    command += ["--corpus", str(corpus), "--report", str(_report_path(folder, number))]
    command += [
        "--findings",
        str(args.findings),
        "--seconds",
        str(args.minutes * 60),
        "--seed",
        str(args.seed + number),
    ]
    with _log_path(folder, number).open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def _report_path(folder: Path, number: int) -> Path:
    return folder / f"report-{number}.json"


def _log_path(folder: Path, number: int) -> Path:
    return folder / f"log-{number}.txt"


def _guidance(log: Path) -> str:
    """What libFuzzer last said of the branches it has seen."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if " cov: " in line), "")
    return last[last.find("cov: ") :].partition(" exec/s")[0] if last else "nothing said"


def _shortcomings(tally: Tally, least_frames: int) -> list[str]:
    found = []
    if tally.past_header < LEAST_PAST_HEADER * tally.frames:
        found.append(f"only {tally.past_header:,} of {tally.frames:,} frames were read past their header")
    if tally.frames < max(least_frames, 1):
        found.append(f"{tally.frames:,} frames; {least_frames:,} were wanted")
    return found


def table(tally: Tally, largest: Tally, processes: int) -> str:
    """For people."""
    frames = max(tally.frames, 1)
    rows = [
        ("frames", f"{tally.frames:,}", f"{tally.frames / max(tally.duration_s, 0.001):,.0f}/s, {processes} processes"),
        ("  of clients / brokers", f"{tally.client:,} / {tally.broker:,}", "to a session"),
        ("  to a decoder alone", f"{tally.decoder:,}", "written and read again where it could be read"),
        ("read past the header", f"{tally.past_header:,}", f"{tally.past_header / frames:.1%}"),
        ("read to the last byte", f"{tally.whole:,}", f"{tally.whole / frames:.1%}"),
        ("conversations", f"{tally.conversations:,}", f"{tally.closed:,} sessions ended with a reason"),
        ("streams refused", f"{tally.refused_bytes:,}", "by the frame reader"),
        ("answers to clients", f"{tally.told:,}", ""),
        ("slowest frame", f"{tally.most_cpu_s * 1000:.1f} ms", f"of CPU time; limit {MOST_CPU_S * 1000:.0f} ms"),
        ("  of the largest ones", f"{largest.most_cpu_s * 1000:.1f} ms", "requests just within the endpoint's limits"),
        ("most for a conversation", f"{tally.most_peak_bytes / 1024:,.0f} KiB", _limit(tally)),
        ("largest process", f"{tally.most_rss_mb:,.0f} MB", "the fuzzer's corpus in it"),
        ("  grown by", f"{tally.most_growth_mb:,.0f} MB", f"since it was warm; limit {MOST_GROWTH_MB} MB"),
        ("  objects more", f"{tally.most_growth_blocks:,}", f"limit {MOST_GROWTH_BLOCKS:,}"),
    ]
    return "\n".join(f"{name:26}{figure:>22}   {note}" for name, figure, note in rows)


def _limit(tally: Tally) -> str:
    return f"limit {MOST_PEAK_BYTES // 1024:,} KiB; {tally.measured:,} were measured"


def _report(tally: Tally, largest: Tally, args: argparse.Namespace, findings: list[str]) -> dict[str, object]:
    return {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "platform": platform.machine()},
        "processes": args.processes,
        "seed": args.seed,
        **asdict(tally),
        "frames_per_s": round(tally.frames / max(tally.duration_s, 0.001)),
        "largest_requests_most_cpu_s": largest.most_cpu_s,
        "findings": findings,
    }


if __name__ == "__main__":
    sys.exit(main())

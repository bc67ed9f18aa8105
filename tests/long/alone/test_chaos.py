"""Chaos in short: the whole run of ``make chaos``, for less than a minute of harm. It has figures of its own to reach,
far below those of a real run (:mod:`tests.chaos.report`): enough to know that each part of it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT
from tests.support.waiting import eventually

ARGUMENTS = ("--minutes", "0.6", "--seed", "4", "--gap", "3")


@pytest.mark.timeout(600)
def test_nothing_is_lost_whoever_dies(tmp_path: Path) -> None:
    report_path, folder = tmp_path / "report.json", tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *ARGUMENTS, "--json", str(report_path), "--folder", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output, _ = process.communicate(timeout=570)
    assert process.returncode == 0, "\n".join(output.splitlines()[-45:])
    report = json.loads(report_path.read_text())
    assert (report["lost"], report["unread"], report["violations"]) == (0, 0, {})
    assert all(goal["met"] for goal in report["goals"])
    assert report["acknowledged"] > 20_000
    assert all(read >= report["acknowledged"] for read in report["read"].values())
    assert report["faults_total"] >= 6
    assert len(report["faults"]) >= 4
    assert report["shrinks"]["completed"] >= 1
    assert report["replacements"]["topics_deleted"] >= 1
    assert report["chained"] > 1_000
    assert report["switches_slept_through"] >= 1
    assert report["routing"]["homes"] > report["routing"]["aware"] / 2
    assert report["routing"]["writable"] > 5_000
    assert report["deleted"] > 0
    eventually(lambda: _left(folder) == [], message="processes are left")


def _left(folder: Path) -> list[str]:
    """Command lines of processes that work in the run's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if str(folder) in words and str(os.getpid()) != path.parent.name:
            found.append(words)
    return found

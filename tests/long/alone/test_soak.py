"""The soak in short: the whole run of ``make soak``, for less than a minute of writing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT

ARGUMENTS = ("--hours", "0.012", "--every", "15", "--rate", "1400", "--seed", "4")


@pytest.mark.timeout(400)
def test_a_topic_is_replaced_and_deleted_under_load(tmp_path: Path) -> None:
    report_path = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.soak", *ARGUMENTS, "--json", str(report_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=370, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    report = json.loads(report_path.read_text())
    assert (report["ok"], report["problems"]) == (True, [])
    assert report["replacements"] == report["deletions"] >= 1
    assert report["verdict"]["acknowledged"] == report["written"] > 20_000
    assert report["verdict"]["violations"] == {}
    assert min(report["read"].values()) >= report["written"]
    assert len(report["minutes"]) >= 2

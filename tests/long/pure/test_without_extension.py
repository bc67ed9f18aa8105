"""The clients where the package was installed without a compiler."""

from __future__ import annotations

import subprocess
import sys

from tests.support.program import ROOT

CLIENTS = ("bound_methods", "dropped_clients", "producer*", "consumer*", "retarget", "routing", "traced_clients")


def test_their_unit_tests_pass() -> None:
    files = sorted(str(file) for name in CLIENTS for file in ROOT.glob(f"tests/unit/test_{name}.py"))
    assert len(files) >= len(CLIENTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.without_extension", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]

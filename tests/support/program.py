"""Programs of their own process: what is done once for a process cannot be tried twice in that of the tests."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python, indented as a whole or not, to its end (60 s at the most); its output is text."""
    command = [sys.executable, "-c", textwrap.dedent(text)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

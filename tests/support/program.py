"""Programs and projects in processes of their own, as what is done once for a process needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_program(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python, indented as a whole or not, to its end (60 s at the most); its output is text."""
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def documented(heading: str) -> str:
    """The Python under a heading of docs/testing.md."""
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(block)


def run_pytest(
    folder: Path, test: str, *arguments: str, conftest: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``test`` as the only test file of ``folder``, with warnings as errors, to its end (200 s at the most)."""
    (folder / "test_application.py").write_text(test, encoding="utf-8")
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-W", "error", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )

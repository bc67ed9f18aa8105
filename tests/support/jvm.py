"""The producer plug-ins for the JVM in tests: compiled with the programs in ``tests/support/java``, where a JDK is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from modeaware.local.jars import find_java, kafka_jars

ROOT = Path(__file__).parents[2]
SOURCES = ("java/modeaware", "tests/support/java/modeaware")
HINT = "no javac: install a JDK of version 11 or newer (Debian: apt-get install default-jdk-headless), or set JAVA_HOME"
TIMEOUT_S = 240
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel="


def find_javac() -> str | None:
    """The compiler beside the Java of the tests, or the one on PATH."""
    beside = Path(os.path.realpath(find_java())).with_name("javac")
    return str(beside) if beside.exists() else shutil.which("javac")


@cache
def class_path() -> str:
    """Of the plug-ins, the tests' programs and Kafka. Skips the test, and says why, on a machine without a JDK."""
    javac = find_javac()
    if javac is None:
        pytest.skip(HINT)
    classes = tempfile.mkdtemp(prefix="modeaware-classes-")
    sources = [str(path) for folder in SOURCES for path in sorted((ROOT / folder).glob("*.java"))]
    command = [javac, "-Xlint:all", "-Werror", "--release", "11", "-cp", f"{kafka_jars()}/*", "-d", classes, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"{classes}:{kafka_jars()}/*"


def java_command(program: str, *arguments: str, log_level: str = "warn") -> list[str]:
    """The command that runs a program of the tests; skips as :func:`class_path`."""
    return [
        find_java(),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        _LOG_LEVEL + log_level,
        "-cp",
        class_path(),
        f"modeaware.{program}",
        *arguments,
    ]


def answers(lines: Sequence[str], *arguments: str) -> list[str]:
    """What ``Answers`` prints for ``lines``, a line each."""
    command = java_command("Answers", *arguments, log_level="off")
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = done.stdout.splitlines()
    assert len(found) == len(lines)
    return found

"""The producer plug-ins for the JVM in tests: the jar as ``java/build.py`` makes it, and the programs in
``tests/support/java``."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from modeaware.local.jars import KAFKA_VERSION, find_java, kafka_jars

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "java" / "build.py"
PROGRAMS = ROOT / "tests" / "support" / "java" / "modeaware"
TIMEOUT_S = 240
CLIENTS = os.environ.get("MODEAWARE_TEST_KAFKA_CLIENTS", KAFKA_VERSION)
"""The version of Kafka with whose clients the tests' programs run. The jar is always compiled with the same one."""
_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel="


def build_jar(jar: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``java/build.py``, with further environment variables. Warnings are errors here, not for users' compilers."""
    return subprocess.run(
        [sys.executable, str(BUILD), str(jar)],
        env={**os.environ, "JDK_JAVAC_OPTIONS": "-Werror", **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@cache
def plug_ins_jar() -> Path:
    """The jar. Fails the test, and says why, on a machine without a JDK."""
    jar = Path(tempfile.mkdtemp(prefix="modeaware-jar-")) / "modeaware.jar"
    done = build_jar(jar, MODEAWARE_KAFKA_JARS=str(kafka_jars()))
    assert done.returncode == 0, done.stderr
    return jar


@cache
def class_path() -> str:
    """Of the plug-ins, the tests' programs and Kafka."""
    jar = plug_ins_jar()
    found = f"{jar}:{jar.parent}:{kafka_jars(CLIENTS)}/*"
    build = runpy.run_path(str(BUILD))
    build["compile_classes"](build["find_compiler"](), found, sorted(PROGRAMS.glob("*.java")), jar.parent)
    return found


def java_command(program: str, *arguments: str, log_level: str = "warn") -> list[str]:
    """The command that runs a program of the tests."""
    java = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", _LOG_LEVEL + log_level]
    return [*java, "-cp", class_path(), f"modeaware.{program}", *arguments]


def run_java(
    program: str, *arguments: str, stdin: str = "", log_level: str = "info"
) -> subprocess.CompletedProcess[str]:
    """Run a program of the tests to its end, which must be a success."""
    command = java_command(program, *arguments, log_level=log_level)
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done


def answers(lines: Sequence[str], *arguments: str) -> list[str]:
    """What ``Answers`` prints for ``lines``, a line each."""
    done = run_java("Answers", *arguments, stdin="\n".join(lines) + "\n", log_level="off")
    found = done.stdout.splitlines()
    assert len(found) == len(lines)
    return found

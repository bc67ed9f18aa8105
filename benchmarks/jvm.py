"""``jvm``: Java's producer with the plug-ins beside the same one without, until acknowledged; where all partitions are
writable, and on a shrunk topic beside a topic of as many partitions as are writable there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from itertools import product

from benchmarks.harness import Result, Timing, compare
from benchmarks.setting import WRITABLE, Setting
from modeaware.local.jars import find_java
from tests.support.jvm import class_path

ROUND_RECORDS = {100: 50_000, 1000: 15_000}
"""Bytes of a record -> records in a round."""
ROUNDS = 30
LIMIT = 0.95
TIMEOUT_S = 600


def measure(setting: Setting) -> Iterator[Result]:
    log, whole, shrunk, few = (
        setting.make_log(),
        setting.make_topic(),
        setting.make_topic(),
        setting.make_topic(WRITABLE),
    )
    setting.shrink(log, shrunk)
    states = {"nothing shrunk": (whole, whole), "shrunk": (few, shrunk)}
    for (state, topics), size, kind in product(states.items(), ROUND_RECORDS, ("keyed", "keyless")):
        plain, own = _rounds(setting, log.topic, size, kind, topics)
        name = f"jvm, {state}, {size} B, {kind}"
        result = compare(name, {"plain": plain, "modeaware": own}, ROUND_RECORDS[size], at_least=LIMIT)
        yield result
        yield Result(f"{name}, CPU", result.details["cpu"], "x", at_least=LIMIT)
    log.close()


def _rounds(
    setting: Setting, log: str, size: int, kind: str, topics: tuple[str, str]
) -> tuple[list[Timing], list[Timing]]:
    """The rounds of the plain producer, and of the one with the plug-ins, each with the process's CPU time."""
    counts = [str(setting.rounds(ROUNDS)), str(ROUND_RECORDS[size]), str(size)]
    settings = [f"bootstrap.servers={setting.bootstrap_servers}", f"modeaware.mode.log.topic={log}"]
    java = [find_java(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", class_path()]
    command = [*java, "modeaware.Producing", *counts, kind, *topics, *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    seconds = [[int(number) / 1e9 for number in line.split()] for line in done.stdout.splitlines()]
    return [Timing(*each[:2]) for each in seconds], [Timing(*each[2:]) for each in seconds]

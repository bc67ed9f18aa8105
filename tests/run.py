"""``python -m tests.run``: what ``make test`` and ``make test-all`` run.

A stage's steps run side by side, since most of them wait most of the time; each runs, whether others fail or not.
The Kafka that most tests share is started once, here.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from modeaware.local import BOOTSTRAP_VARIABLE, WAY_VARIABLE, start_kafka
from tests.conftest import STARTS_VARIABLE, STEADY

ROOT = Path(__file__).parents[1]
RUFF = str(Path(sys.executable).with_name("ruff"))
LINT_IMPORTS = str(Path(sys.executable).with_name("lint-imports"))
SOURCES = ("modeaware", "partitioners", "tests", "benchmarks", "examples", "release", "hatch_build.py", "java")
PYTEST = (sys.executable, "-m", "pytest", "-q")
WHY_LINES = 12
"""Said again, at most, of a step that failed, at the very end: a CI keeps the end of a long log."""


class Step(NamedTuple):
    """A command; ``kafka``: it finds the Kafka of the run in its environment."""

    name: str
    command: tuple[str, ...]
    kafka: bool = False


class Done(NamedTuple):
    name: str
    status: int
    seconds: float
    output: Sequence[str] = ()

    def why(self) -> list[str]:
        """What pytest's summary names, with the first line of each error; of other commands the end of the output."""
        named = [line for line in self.output if line.startswith(("FAILED ", "ERROR ", "E   ", "+++"))]
        return [f"{self.name:<13} | {line}" for line in (named or self.output)[-WHY_LINES:]]


CHECKS = (
    Step("ruff", (RUFF, "check", "-q", *SOURCES)),
    Step("format", (RUFF, "format", "-q", "--check", *SOURCES)),
    Step("types", (sys.executable, "-m", "mypy", "--strict", "modeaware", "partitioners")),
    Step("imports", (LINT_IMPORTS, "--no-cache", "--no-logo")),
)
SHARED = ("-m", "not own_cluster")
OWN = ("-m", "own_cluster")


def shares(folder: str, count: int) -> list[tuple[str, ...]]:
    """The test files of a folder in ``count`` shares of about the same size."""
    files = sorted(ROOT.glob(f"{folder}/test_*.py"), key=lambda file: file.stat().st_size, reverse=True)
    return [tuple(str(file.relative_to(ROOT)) for file in files[first::count]) for first in range(count)]


def pure_steps(count: int) -> list[Step]:
    of_units = shares("tests/unit", count)
    of_units[-1] += ("tests/property", "tests/contract", "tests/simulation")
    return [Step(f"pure {at}", (*PYTEST, *files)) for at, files in enumerate(of_units, 1)]


def kafka_steps(name: str, folder: str, count: int) -> list[Step]:
    return [
        Step(f"{name} {at}", (*PYTEST, *files, *SHARED), kafka=True)
        for at, files in enumerate(shares(folder, count), 1)
    ]


CLUSTERS = Step("clusters", (*PYTEST, "tests/integration", *OWN), kafka=True)
SPARK = Step("spark", (*PYTEST, "tests/spark"), kafka=True)
LONG_PURE = Step("long pure", (*PYTEST, "tests/long/pure"))
LONG_CLUSTERS = Step("long clusters", (*PYTEST, "tests/long/integration", *OWN), kafka=True)
LONG_SPARK = Step("long spark", (*PYTEST, "tests/long/spark"), kafka=True)
CHAOS = Step("chaos", (*PYTEST, "tests/long/alone"))


class Stage(NamedTuple):
    """What may run side by side, ``at_once`` at a time; the longest first, so that none is left alone at the end."""

    at_once: int
    steps: Sequence[Step]


SHORT = (Stage(4, (*CHECKS, *pure_steps(2), CLUSTERS, *kafka_steps("kafka", "tests/integration", 4), SPARK)),)
LONG = (
    Stage(1, (LONG_PURE,)),  # two processes that compute
    Stage(2, (LONG_SPARK, LONG_CLUSTERS, *kafka_steps("long kafka", "tests/long/integration", 2))),
    Stage(1, (CHAOS,)),
)
ALL = (*SHORT, *LONG)


def run(step: Step, kafka: dict[str, str]) -> Done:
    """Run one step, and print each line of its output after the step's name."""
    began = time.monotonic()
    environment = dict(os.environ)
    if step.kafka:
        environment.pop(WAY_VARIABLE, None)  # it would contradict the address
        environment |= kafka
    process = subprocess.Popen(
        step.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    output = []
    for line in process.stdout:
        print(f"{step.name:<13} | {line}", end="", flush=True)
        output.append(line.rstrip())
    return Done(step.name, process.wait(), time.monotonic() - began, output)


def run_stages(stages: Sequence[Stage], kafka: dict[str, str]) -> list[Done]:
    done: list[Done] = []
    for stage in stages:
        with ThreadPoolExecutor(stage.at_once) as pool:
            done += pool.map(lambda step: run(step, kafka), stage.steps)
    return done


def run_with_kafka(stages: Sequence[Stage]) -> tuple[list[Done], Counter[str]]:
    """What the steps came to, and the starts of Kafka by their kind."""
    with tempfile.TemporaryDirectory() as folder, start_kafka(configs=STEADY) as kafka:
        starts = Path(folder, "starts")
        starts.write_text("" if kafka.kind == "external" else "shared\n", encoding="utf-8")
        done = run_stages(stages, {BOOTSTRAP_VARIABLE: kafka.bootstrap_servers, STARTS_VARIABLE: str(starts)})
        if any(each.status for each in done):
            kafka.stop(keep_logs=True)
            print("".join(f"The shared Kafka's log is kept: {broker.log_path}\n" for broker in kafka.brokers))
        return done, Counter(starts.read_text(encoding="utf-8").splitlines())


def summary(done: Sequence[Done], seconds: float, starts: Counter[str]) -> str:
    lines = [f"{each.name:<13} {'failed' if each.status else 'passed':<8}{each.seconds:6.0f} s" for each in done]
    cpu_s = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    kinds = ", ".join(f"{kind} {count}" for kind, count in starts.items())
    why = [line for each in done if each.status for line in each.why()]
    last = f"{seconds:.0f} s, {cpu_s:.0f} s of CPU, Kafka starts: {starts.total()} ({kinds})"
    return "\n".join(["", *lines, *why, last])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the long tier, too")
    args, began = parser.parse_args(), time.monotonic()
    done, starts = run_with_kafka(ALL if args.all else SHORT)
    print(summary(done, time.monotonic() - began, starts))
    return 1 if any(each.status for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())

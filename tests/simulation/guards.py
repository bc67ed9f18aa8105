"""Take guards away, each in a process of its own that has not imported the code it changes, and run the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path

from tests.simulation.guard_texts import GUARDS, Change, Guard

ROOT = Path(__file__).resolve().parents[2]
FIRST_SEED, MOST_SEEDS = 0, 3_000
"""Where each search begins, and how far it goes; the unchanged code is run over these seeds by the tests."""


@dataclass(frozen=True)
class Found:
    """What came of removing a guard: the first seed that breaks its invariant, and how; None: nothing noticed it."""

    guard: Guard
    seed: int | None
    what: str


def _remove(changes: Sequence[Change]) -> None:
    """From now on, modules are imported with the changes; none of those they stand in may have been imported yet."""
    assert not [change.module for change in changes if change.module in sys.modules]
    unchanged = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, module: str) -> object:
        own = [change for change in changes if change.module == module]
        if not own:
            return unchanged(loader, module)
        text = loader.get_source(module) or ""
        for change in own:
            if text.count(change.old) != 1:
                raise ValueError(f"{module}: occurs {text.count(change.old)} times: {change.old!r}")
            text = text.replace(change.old, change.new)
        return compile(text, loader.path, "exec")  # never from a .pyc of the unchanged text

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign] - a process that does only this


def try_all(processes: int = 2) -> list[Found]:
    """Remove each guard in turn."""
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(try_one, GUARDS))


def try_one(guard: Guard) -> Found:
    """Remove one guard."""
    command = [sys.executable, "-m", "tests.simulation.guards", guard.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Found(guard, None, done.stderr.strip()[-500:])
    return Found(guard, **json.loads(done.stdout))


def table(found: Sequence[Found]) -> str:
    """For people."""
    lines = [f"{'guard':<58}{'invariant':<11}{'seed':>10}  how it shows"]
    for one in found:
        what = one.what.splitlines()[-1] if one.what else ""
        lines.append(f"{one.guard.name:<58}{one.guard.invariant:<11}{one.seed!s:>10}  {what}")
    caught = sum(one.seed is not None for one in found)
    return "\n".join([*lines, f"{caught} of {len(found)} guards are missed when they are gone"])


def _search(guard: Guard) -> dict[str, object]:
    """The first seed that shows that the guard is gone; first of all the one that did before."""
    _remove(guard.changes)
    from tests.simulation.controller import seams
    from tests.simulation.report import CHAIN_FROM, DELETE_FROM, NAMES_FROM, REPLACE_FROM, Report, run_one

    others: set[str] = set()
    with seams():
        starts = (FIRST_SEED, REPLACE_FROM, DELETE_FROM, CHAIN_FROM, NAMES_FROM)
        first = max(each for each in starts if guard.seed >= each)
        for seed in (guard.seed, *range(first, first + MOST_SEEDS)):
            report = Report()
            run_one(seed, report)
            for kind, what in report.failures.values():
                if kind == guard.invariant:
                    return {"seed": seed, "what": what}
                others.add(what)
    return {"seed": None, "what": f"{len(others)} other findings, such as {min(others)}" if others else "no finding"}


if __name__ == "__main__":
    (wanted,) = (guard for guard in GUARDS if guard.name == sys.argv[1])
    print(json.dumps(_search(wanted)))

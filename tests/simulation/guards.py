"""The guards that keep the invariants, each as a change of source text that takes it away; and what the simulator says.

``python -m tests.simulation --guards`` removes one after the other, each in a process of its own. Imports nothing of
the code it changes. A text has to occur exactly once: a guard that was rewritten must be rewritten here as well.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.simulation.guard_form import Change, Guard
from tests.simulation.guard_texts import GUARDS

ROOT = Path(__file__).resolve().parents[2]
FIRST_SEED, MOST_SEEDS = 0, 3_000
"""Where each search begins, and how far it goes; the unchanged code is run over these seeds by the tests."""


@dataclass(frozen=True)
class Found:
    """What came of removing a guard: the first seed that breaks its invariant, and how; None: nothing noticed it."""

    guard: Guard
    seed: int | None
    what: str

    @property
    def caught(self) -> bool:
        return self.seed is not None


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changes: Sequence[Change]) -> None:
        self._changes = changes

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        changes = [change for change in self._changes if change.module == name]
        if not changes:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_loader(name, _Loader(name, spec.origin, changes), origin=spec.origin)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def get_code(self, fullname: str) -> object:  # type: ignore[override] - never from a .pyc of the unchanged text
        return compile(changed(self.get_source(fullname) or "", self._changes), self.path, "exec")


def changed(text: str, changes: Sequence[Change]) -> str:
    """The source text with the guard taken out.

    Raises:
        ValueError: the text to be replaced does not occur exactly once.
    """
    for change in changes:
        if text.count(change.old) != 1:
            raise ValueError(f"{change.module}: occurs {text.count(change.old)} times: {change.old!r}")
        text = text.replace(change.old, change.new)
    return text


def named(name: str) -> Guard:
    """The guard of that name; raises KeyError."""
    return {guard.name: guard for guard in GUARDS}[name]


def remove(name: str) -> None:
    """From now on, modules are imported without the guard; none of those it stands in may have been imported yet."""
    changes = named(name).changes
    for change in changes:
        assert change.module not in sys.modules, f"{change.module} is imported already"
    sys.meta_path.insert(0, _Finder(changes))


def source_of(change: Change) -> str:
    """The text of the module that a change is about."""
    path = ROOT.joinpath(*change.module.split(".")).with_suffix(".py")
    return path.read_text(encoding="utf-8")


def try_one(guard: Guard) -> Found:
    """Remove one guard, in a new process, and search for a seed that shows it: first the one that did before."""
    command = [sys.executable, "-m", "tests.simulation.guards", guard.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Found(guard, None, done.stderr.strip()[-500:])
    answer = json.loads(done.stdout)
    return Found(guard, answer["seed"], answer["what"])


def try_all(processes: int = 2) -> list[Found]:
    """Remove each guard in turn."""
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(try_one, GUARDS))


def table(found: Sequence[Found]) -> str:
    """For people."""
    lines = [f"{'guard':<44}{'invariant':<11}{'seed':>6}  how it shows"]
    for one in found:
        seed = "none" if one.seed is None else one.seed
        lines.append(
            f"{one.guard.name:<44}{one.guard.invariant:<11}{seed:>6}  {one.what.splitlines()[-1] if one.what else ''}"
        )
    caught = sum(one.caught for one in found)
    return "\n".join([*lines, f"{caught} of {len(found)} guards are missed when they are gone"])


def _search(guard: Guard) -> dict[str, object]:
    remove(guard.name)
    from tests.simulation.report import Report, run_one
    from tests.simulation.seams import seams

    seeds = [guard.seed, *range(FIRST_SEED, FIRST_SEED + MOST_SEEDS)]
    others: set[str] = set()
    with seams():
        for seed in seeds:
            report = Report()
            run_one(seed, report)
            for kind, what in report.failures.values():
                if kind == guard.invariant:
                    return {"seed": seed, "what": what}
                others.add(what)
    return {"seed": None, "what": f"{len(others)} other findings, such as {min(others)}" if others else "no finding"}


if __name__ == "__main__":
    print(json.dumps(_search(named(sys.argv[1]))))

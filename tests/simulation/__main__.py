"""``python -m tests.simulation``: run schedules, tell the story of one, or take guards away."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import guards
from tests.simulation.report import run_many, tell_story


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--story", action="store_true", help="tell the schedule of --seed in words")
    parser.add_argument("--guards", action="store_true", help="remove each guard in turn; show the seed that tells")
    args = parser.parse_args()
    if args.guards:
        found = guards.try_all(args.processes)
        print(guards.table(found))
        return 1 if any(one.seed is None for one in found) else 0
    if args.story:
        story, error = tell_story(args.seed)
        print("\n".join(story))
        if error is not None:
            print(f"\n{type(error).__name__}: {error}")
        return 0 if error is None else 1
    report = run_many(args.seed, args.schedules, args.processes, show_progress=sys.stderr.isatty())
    problems = report.problems(at_least=report.schedules // 10_000)
    print("\n".join([report.text(), *problems]))
    return 1 if report.failures or problems else 0


if __name__ == "__main__":
    sys.exit(main())

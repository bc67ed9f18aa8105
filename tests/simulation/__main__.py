"""``python -m tests.simulation``: run schedules, tell the story of one, or take guards away."""

from __future__ import annotations

import argparse
import sys

from tests.simulation import guards


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--at-least", type=int, default=None, help="how often each pair of phase and fault must occur")
    parser.add_argument("--story", action="store_true", help="tell the schedule of --seed in words")
    parser.add_argument("--guards", action="store_true", help="remove each guard in turn; show the seed that tells")
    parser.add_argument("--without", metavar="GUARD", help="remove this guard first")
    args = parser.parse_args()
    if args.guards:
        found = guards.try_all(args.processes)
        print(guards.table(found))
        return 0 if all(one.caught for one in found) else 1
    if args.without:
        guards.remove(args.without)
    return _story(args.seed) if args.story else _run(args)


def _story(seed: int) -> int:
    from tests.simulation.report import tell_story

    story, error = tell_story(seed)
    print("\n".join(story))
    if error is not None:
        print(f"\n{type(error).__name__}: {error}")
    return 0 if error is None else 1


def _run(args: argparse.Namespace) -> int:
    from tests.simulation.report import run_many, run_range

    if args.without:
        report = run_range(args.seed, args.schedules, stop_at_failure=True)
    else:
        report = run_many(args.seed, args.schedules, args.processes, show_progress=sys.stderr.isatty())
    print(report.text())
    at_least = report.schedules // 10_000 if args.at_least is None else args.at_least
    problems = report.problems(at_least)
    for problem in problems:
        print(problem)
    return 1 if report.failures or problems else 0


if __name__ == "__main__":
    sys.exit(main())

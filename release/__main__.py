"""``python -m release``: check all that a release is made of, as far as this machine can.

Each check prints a line: passed, failed, or not run and what it lacks. The exit status is 1 where one failed, and with
``--all`` also where one was not run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping

from release import deployment, distributions, image, manual, use, workflows
from release.outcome import Failed, NotRun

CHECKS: Mapping[str, Callable[[], str]] = {
    "build": distributions.reproducible,
    "metadata": distributions.metadata,
    "install": distributions.installs,
    "use": use.check,
    "cibuildwheel": distributions.cibuildwheel,
    "workflows": workflows.lint,
    "schemas": workflows.schemas,
    "kubernetes": deployment.kubernetes,
    "compose": deployment.compose,
    "systemd": deployment.systemd,
    "image": image.steps,
    "manual": manual.check,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)} (default: all)")
    parser.add_argument("--all", action="store_true", help="a check that cannot run here counts as failed")
    args = parser.parse_args()
    if unknown := set(args.names) - set(CHECKS):
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    states = [outcome(name, check) for name, check in CHECKS.items() if not args.names or name in args.names]
    bad = {"failed", "not run"} if args.all else {"failed"}
    return 1 if bad & set(states) else 0


def outcome(name: str, check: Callable[[], str]) -> str:
    """Run a check, print how it ended, and return that."""
    began = time.monotonic()
    try:
        state, detail = "passed", check()
    except Failed as error:
        state, detail = "failed", str(error)
    except NotRun as error:
        state, detail = "not run", str(error)
    print(f"{name:<13} {state:<8} {time.monotonic() - began:5.0f} s  {detail}", flush=True)
    return state


if __name__ == "__main__":
    raise SystemExit(main())

"""What ``modeaware run`` becomes: ``python -m modeaware.adoption app.py [args...]``, or ``-m module [args...]``."""

from __future__ import annotations

import sys

from modeaware.adoption.installing import install
from modeaware.adoption.program import ProgramMissing, find_beside, run_module, run_script

CANNOT_RUN = 2  # as Python for a file that is not there


def main() -> None:
    """Install, then run what the arguments name. Only our own errors are printed without a traceback."""
    first, *rest = sys.argv[1:]
    if first != "-m":
        find_beside(first)
    install()
    try:
        if first == "-m":
            run_module(rest[0], rest[1:])
        else:
            run_script(first, rest)
    except ProgramMissing as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()

"""``python -m modeaware.spark.plan``, a program; see :mod:`modeaware.spark.command`."""

from __future__ import annotations

import sys

from modeaware.spark.command import plan_main

if __name__ == "__main__":
    sys.exit(plan_main())

"""``python -m modeaware.spark.evacuate``, a program; see :mod:`modeaware.spark.command`."""

from __future__ import annotations

import sys

from modeaware.spark.command import evacuate_main

if __name__ == "__main__":
    sys.exit(evacuate_main())

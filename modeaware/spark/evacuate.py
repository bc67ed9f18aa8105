"""``python -m modeaware.spark.evacuate``, a program.

Never imported: it would hide the function ``modeaware.spark.evacuate``.
"""

from __future__ import annotations

import sys

from modeaware.spark.evacuation.command import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m modeaware.spark.plan``, a program.

Never imported: it would hide the function ``modeaware.spark.plan``.
"""

from __future__ import annotations

import sys

from modeaware.spark.planning.command import main

if __name__ == "__main__":
    sys.exit(main())

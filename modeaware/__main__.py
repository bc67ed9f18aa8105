"""``python -m modeaware``."""

from __future__ import annotations

import sys

from modeaware.cli import main

if __name__ == "__main__":
    sys.exit(main())

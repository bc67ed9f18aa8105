"""``python -m modeaware.spark.packages`` prints the coordinates of Spark's Kafka connector, for ``spark-submit``.

Never import this module: it would hide the function ``modeaware.spark.packages``.
"""

from __future__ import annotations

import sys

from modeaware.errors import ModeAwareError
from modeaware.spark.connector import packages

if __name__ == "__main__":
    try:
        print(packages())
    except ModeAwareError as error:
        sys.exit(f"error: {error}")

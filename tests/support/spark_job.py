"""A Spark job in a process of its own, whose tasks are tried again, and one of whose workers is killed in mid-task.

``python -m tests.support.spark_job HOW TOPIC CONF RECORDS MARKER``: CONF is JSON; MARKER names a file that must not
exist yet, and that the worker makes right before it dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row

from modeaware.spark import foreach_partition_writer, write_arrow, write_to_kafka
from tests.support.spark_session import spark_builder

ATTEMPTS = 3
TASKS = 4


def main() -> int:
    how, topic, text, records, marker = sys.argv[1:]
    conf: dict[str, Any] = json.loads(text)
    spark = spark_builder().config("spark.master", f"local[2,{ATTEMPTS}]").getOrCreate()
    columns = ("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame = spark.range(int(records), numPartitions=TASKS).selectExpr(*columns)
    half = int(records) // TASKS // 2

    def dying(rows: Iterator[Any], begin: int) -> Iterator[Any]:
        """The first worker that has passed on this many is killed."""
        for number, row in enumerate(rows):
            if number == begin and not os.path.exists(marker):
                with open(marker, "x", encoding="ascii"):
                    os.kill(os.getpid(), signal.SIGKILL)
            yield row

    def dying_batches(batches: Iterator[Any]) -> Iterator[Any]:
        slices = (batch.slice(first, 100) for batch in batches for first in range(0, batch.num_rows, 100))
        return dying(slices, half // 100)

    if how == "rows":
        writer = foreach_partition_writer(topic, conf)

        def write(rows: Iterator[Row]) -> None:
            writer(dying(rows, half))

        frame.foreachPartition(write)
    else:
        fragile = frame.mapInArrow(dying_batches, frame.schema)
        if how == "arrow":
            write_arrow(fragile, topic, conf)
        else:
            write_to_kafka(fragile, topic, conf)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())

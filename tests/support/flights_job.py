"""A streaming job from topic to topic, in a process of its own that is to be killed.

``python -m tests.support.flights_job NAME SOURCE TARGET CONF CHECKPOINT THROUGH``: CONF is JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from modeaware.spark import ProgressListener, foreach_batch_writer, progress_group, register
from modeaware.spark.sink import Through
from tests.support.spark_session import spark_builder
from tests.support.streaming import listening, started

RUNS = "the job runs"


def start_flights(
    spark: SparkSession,
    name: str,
    topics: tuple[str, str],
    conf: Mapping[str, Any],
    checkpoint: Path,
    through: Through,
) -> StreamingQuery:
    """Start the query from where its checkpoint is.

    Args:
        topics: source and target.
    """
    options = {"topic": topics[0], "startingOffsets": "earliest", **conf}
    # Java's producer retries a batch that the fence refuses for as long as this.
    writer = foreach_batch_writer(topics[1], {**conf, "message.timeout.ms": 20_000}, through=through)
    stream = spark.readStream.format("modeaware").options(**options).load().select("key", "value").writeStream
    return stream.foreachBatch(writer).queryName(name).option("checkpointLocation", str(checkpoint)).start()


def main() -> int:
    name, source, target, text, checkpoint, through = sys.argv[1:]
    conf: dict[str, Any] = json.loads(text)
    spark = spark_builder().getOrCreate()
    register(spark)
    listener = ProgressListener(conf)
    with listening(spark, listener):
        listener.require(progress_group(name), [source])
        query = started(lambda: start_flights(spark, name, (source, target), conf, Path(checkpoint), through))  # type: ignore[arg-type]  # of the command line
        print(RUNS, flush=True)
        query.awaitTermination()
    return 1


if __name__ == "__main__":
    sys.exit(main())

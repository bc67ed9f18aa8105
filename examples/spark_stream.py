"""Copy one topic to another with Structured Streaming, while both may be shrunk and grown.

Each batch is written by the modes in force, and drains of the source topic wait for the query. A second run continues
from the checkpoint. Needs a running controller: modeaware controller --bootstrap-server localhost:9092

    pip install 'modeaware[spark,controller]'
    python examples/spark_stream.py --topic orders --to orders-copy --checkpoint /tmp/orders-copy
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from modeaware.spark import ProgressListener, foreach_batch_writer, packages, read_stream_from_kafka


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--to", default="orders-copy")
    parser.add_argument("--checkpoint", required=True, help="folder for the query's progress")
    parser.add_argument("--follow", action="store_true", help="run until stopped; else end after the present records")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("copy").config("spark.jars.packages", packages()).getOrCreate()
    conf = {"bootstrap.servers": args.bootstrap_server, "partitioner": "murmur2_random"}

    # The listener commits the progress as the group modeaware-spark-<name of the query>: modeaware groups list ...
    listener = ProgressListener(conf)
    spark.streams.addListener(listener)
    query = (
        read_stream_from_kafka(spark, args.topic, conf, startingOffsets="earliest")
        .select("key", "value")
        .writeStream.queryName(f"copy-of-{args.topic}")
        .foreachBatch(foreach_batch_writer(args.to, conf))
        .option("checkpointLocation", args.checkpoint)
        .trigger(**({"processingTime": "1 second"} if args.follow else {"availableNow": True}))
        .start()
    )
    query.awaitTermination()
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    print(f"{sum(progress.numInputRows for progress in batches)} records")
    spark.stop()
    listener.close()  # publishes the remaining progress first


if __name__ == "__main__":
    main()

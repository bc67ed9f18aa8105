"""Write a frame to a topic that may be shrunk, and read it back, with Spark's own Kafka sink and source.

pip install 'modeaware[spark]'
python examples/spark_write.py --bootstrap-server localhost:9092 --topic orders --records 1000
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from modeaware.spark import packages, read_from_kafka, write_to_kafka


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--records", type=int, default=1000)
    args = parser.parse_args()

    # With spark-submit: --packages "$(python -m modeaware.spark.packages)"
    spark = SparkSession.builder.appName("orders").config("spark.jars.packages", packages()).getOrCreate()
    # The settings are those of modeaware.Producer. Use the partitioner of the topic's other producers, so that each key
    # has one partition.
    conf = {"bootstrap.servers": args.bootstrap_server, "acks": "all", "partitioner": "murmur2_random"}

    orders = spark.range(args.records).selectExpr(
        "concat('customer-', id % 100) AS key", "concat('order ', id) AS value"
    )
    write_to_kafka(orders, args.topic, conf)

    # Partitions in mode None are left out.
    found = read_from_kafka(spark, args.topic, conf).groupBy("partition").count().orderBy("partition")
    for row in found.collect():
        print(f"partition {row.partition}: {row['count']} records")
    spark.stop()


if __name__ == "__main__":
    main()

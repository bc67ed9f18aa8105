"""The session and the connector that all of these tests stand on."""

from __future__ import annotations

from pyspark.sql import SparkSession

from modeaware.local import Kafka
from modeaware.spark.driver import partition_ids, topic_view
from modeaware.spark.java_conf import spark_options
from tests.conftest import MakeTopic


def test_what_the_sink_writes_the_source_reads(spark: SparkSession, kafka: Kafka, make_topic: MakeTopic) -> None:
    topic, conf = make_topic(3), {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5}
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("kafka").options(**spark_options(conf, "producer")).option("topic", topic).save()
    found = spark.read.format("kafka").options(**spark_options(conf, "consumer")).option("subscribe", topic).load()
    assert found.selectExpr("CAST(CAST(value AS STRING) AS INT) AS v").agg({"v": "sum"}).first()[0] == sum(range(100))
    assert partition_ids(conf, topic) == [0, 1, 2]
    assert topic_view(conf, topic).all_writable

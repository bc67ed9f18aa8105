"""A Spark job on a shrunk topic that was deleted and created again, with the old record on the mode log (I8)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from modeaware.spark import foreach_partition_writer, read_from_kafka, register, write_to_kafka
from tests.support.plain import drain_topic
from tests.support.recreating import COUNT, Recreating


def test_a_job_planned_after_a_topic_was_recreated_uses_all_partitions(
    spark: SparkSession, recreating: Recreating
) -> None:
    register(spark)
    recreating.recreate()
    sent = recreating.send(each=5)
    conf, topic = recreating.conf(), recreating.topic
    ours = spark.read.format("modeaware").options(topic=topic, **conf).load()
    for frame in (ours, read_from_kafka(spark, topic, conf)):
        read = {(topic, row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect()}
        assert read == sent
    keyed = spark.createDataFrame([(b"key-%d" % n, b"written") for n in range(200)], "key binary, value binary")
    write_to_kafka(keyed, topic, conf)
    keyed.foreachPartition(foreach_partition_writer(topic, conf))
    written = [each for each in drain_topic(recreating.servers, topic) if each.value() == b"written"]
    assert {message.partition() for message in written} == {*range(COUNT)}
    assert len(written) == 400

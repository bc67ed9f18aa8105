"""Spark jobs on a shrunk topic that was deleted and created again, with the old record on the mode log (I8)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from modeaware.local import Kafka
from modeaware.spark import foreach_partition_writer, read_from_kafka, register, write_to_kafka
from tests.conftest import MakeTopic
from tests.support.modelog import NONE, RealLog, topic_record
from tests.support.plain import create_topic, drain_topic, produce_keyed

COUNT, WRITABLE = 12, 4


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    made.create()
    yield made
    made.close()


def test_jobs_planned_after_a_topic_was_made_anew_use_all_of_it(
    spark: SparkSession, kafka: Kafka, log: RealLog, make_topic: MakeTopic
) -> None:
    register(spark)
    topic = make_topic(COUNT)
    conf = {**log.conf, "modeaware.mode.log.topic": log.topic}
    log.append(topic_record(topic, 3, writable=WRITABLE, count=COUNT, rest=NONE))
    keyed = spark.createDataFrame([(b"key-%d" % n, b"v") for n in range(200)], "key binary, value binary")
    write_to_kafka(keyed, topic, conf)
    assert {message.partition() for message in drain_topic(kafka.bootstrap_servers, topic)} == {*range(WRITABLE)}
    log.admin.delete_topics([topic])[topic].result(30)
    create_topic(kafka.bootstrap_servers, topic, COUNT, configs={})
    for partition in range(COUNT):
        produce_keyed(kafka.bootstrap_servers, topic, [(None, b"new")] * 5, partition=partition)
    ours = spark.read.format("modeaware").options(topic=topic, **conf).load()
    for frame in (read_from_kafka(spark, topic, conf), ours):
        counts = {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}
        assert counts == dict.fromkeys(range(COUNT), 5)
    write_to_kafka(keyed, topic, conf)
    keyed.foreachPartition(foreach_partition_writer(topic, conf))
    written = [m for m in drain_topic(kafka.bootstrap_servers, topic) if m.value() == b"v"]
    assert len(written) == 400
    assert {message.partition() for message in written} == {*range(COUNT)}

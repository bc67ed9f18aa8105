"""The progress of queries that end right after their first batch, as programs with ``availableNow`` do."""

from __future__ import annotations

import uuid
from pathlib import Path

from pyspark.sql import SparkSession

from modeaware.spark import ProgressListener, progress_group, read_stream_from_kafka
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.plain import committed, ends
from tests.support.streaming import Reading, listening


def test_close_after_the_termination_of_a_query_publishes_its_last_batch(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, names = make_topic(6), [f"q-{uuid.uuid4().hex[:8]}" for _ in range(6)]
    conf = {**served.conf, "modeaware.mode.log.topic": served.log}
    produce(served, topic, 300)
    for name in names:
        listener = ProgressListener(conf)
        listener.require(progress_group(name), [topic])
        query = Reading(
            name, lambda: read_stream_from_kafka(spark, topic, conf, startingOffsets="earliest"), tmp_path / name
        )
        with listening(spark, listener), query:
            query.start(once=True)
            listener.close()
    written = ends(served.servers, topic)
    assert [committed(served.servers, progress_group(name), topic) for name in names] == [written] * 6

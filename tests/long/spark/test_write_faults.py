"""Faults in the middle of a job: it goes on or fails clearly, and no record is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from modeaware.local import Kafka
from modeaware.spark import foreach_partition_writer, write_arrow, write_to_kafka
from tests.conftest import MakeKafka, MakeTopic, topic_maker
from tests.support.plain import watermarks
from tests.support.source_tree import ROOT
from tests.support.spark_writing import WritingSite, writing_site
from tests.support.waiting import eventually

RECORDS = 40_000


@pytest.mark.parametrize("how", ["rows", "arrow", "sink"])
def test_a_worker_is_killed(site: WritingSite, make_topic: MakeTopic, tmp_path: Path, how: str) -> None:
    topic, marker = make_topic(12), tmp_path / "killed"
    site.shrink(topic, 5)
    arguments = [how, topic, json.dumps(site.conf), str(RECORDS), str(marker)]
    command = [sys.executable, "-m", "tests.support.spark_job", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert marker.exists()
    assert "Lost task" in done.stderr  # a worker did die, and its task was tried again
    found = [message.key() for message in site.records(topic)]
    assert set(found) == {b"%d" % number for number in range(RECORDS)}
    assert set(site.counts(topic)) == {0, 1, 2, 3, 4}


def by_rows(frame: DataFrame, topic: str, conf: Mapping[str, Any]) -> None:
    frame.foreachPartition(foreach_partition_writer(topic, conf))


@pytest.mark.parametrize("write", [by_rows, write_arrow, write_to_kafka])
def test_the_broker_is_restarted(
    spark: SparkSession, make_kafka: MakeKafka, write: Callable[[DataFrame, str, Mapping[str, Any]], object]
) -> None:
    kafka = make_kafka()
    topic = topic_maker(kafka)(6)
    frame = spark.range(RECORDS * 10, numPartitions=20).selectExpr(
        "CAST(id AS STRING) AS key", "RPAD(CAST(id AS STRING), 200, 'x') AS value"
    )
    failures: list[BaseException] = []
    with writing_site(kafka) as site:
        site.shrink(topic, 3, 6)

        def job() -> None:
            try:
                write(frame, topic, site.conf)
            except Exception as error:  # noqa: BLE001 - told by the assertion below
                failures.append(error)

        running = threading.Thread(target=job)
        running.start()
        eventually(lambda: _records(kafka, topic) > 0, message="the job writes")
        [broker] = kafka.brokers
        broker.kill()
        broker.start()
        running.join(240)
        assert not running.is_alive()
        assert failures == []
        found = {message.key() for message in site.records(topic)}
        assert len(found) == RECORDS * 10
        assert set(site.counts(topic)) == {0, 1, 2}


def _records(kafka: Kafka, topic: str) -> int:
    return sum(high for _, high in watermarks(kafka.bootstrap_servers, topic).values())

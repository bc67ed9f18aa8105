"""Evacuations among producers that go on writing the same keys, and ones that are killed."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from modeaware import Producer
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.local.java import find_java
from modeaware.local.paths import cache_folder
from modeaware.modes import PartitionMode
from modeaware.spark.evacuation import evacuate
from partitioners import named
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import drain_topic, produce_keyed, watermarks
from tests.support.process import LoggedProcess
from tests.support.spark_session import CONNECTOR
from tests.support.waiting import eventually

HEADER = "modeaware.evacuated"


def evacuation_process(folder: Path, *words: str, java_home: Path, ivy: Path) -> LoggedProcess:
    """``python -m modeaware.spark.evacuate`` with a Spark of its own, to be killed with its JVM and Python workers."""
    settings = Path(__file__).parents[2] / "support" / "ivysettings.xml"
    submit = (
        f"--master local[2] --packages {CONNECTOR} --conf spark.jars.ivy={ivy} "
        f"--conf spark.jars.ivySettings={settings} --conf spark.ui.enabled=false "
        "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=4 pyspark-shell"
    )
    more = {"PYSPARK_SUBMIT_ARGS": submit, "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "modeaware.spark.evacuate", *words]
    env = {**os.environ, **more, "PYSPARK_PYTHON": sys.executable}
    return LoggedProcess(command, folder / "evacuate.log", env=env, own_group=True)


PARTITIONS, KEPT = 12, 4


def conf(served: Controlled, **more: Any) -> dict[str, Any]:
    return {**served.conf, "modeaware.mode.log.topic": served.log, "modeaware.on.resize": "ignore", **more}


def filled(served: Controlled, make_topic: MakeTopic, keys: int) -> tuple[str, dict[bytes, bytes]]:
    """A compacted topic with a value of each of so many keys, and these."""
    topic = make_topic(PARTITIONS, cleanup_policy="compact")
    values = {b"key-%d" % n: b"old-%d" % n for n in range(keys)}
    produce_keyed(served.servers, topic, values.items())
    return topic, values


def shrink(served: Controlled, topic: str) -> None:
    result = served.ask(DeletePartitionsCommand(topic, KEPT, evacuate=True))
    assert result.code is ErrorCode.NONE, result.message
    served.wait_for(topic, lambda record: all(r.seal_offset is not None for r in record.retired.values()))


def last(served: Controlled, topic: str, **more: str) -> dict[bytes, bytes]:
    """Key -> its last value in the partition of the survivors that it belongs to."""
    place = named().for_topic(topic).partition
    settings = {name.replace("_", "."): value for name, value in more.items()}
    found = drain_topic(served.servers, topic, range(KEPT), **settings)
    return {m.key(): m.value() for m in found if m.partition() == place(m.key(), KEPT)}


def copies(served: Controlled, topic: str) -> bool:
    """Whether copies were written to partition 0, committed or not."""
    found = drain_topic(served.servers, topic, [0], **{"isolation.level": "read_uncommitted"})
    return any(name == HEADER for message in found for name, _ in message.headers() or ())


@contextmanager
def writing(served: Controlled, topic: str, keys: list[bytes], values: dict[bytes, bytes]) -> Iterator[None]:
    """A producer that writes keys at random all the while; ``values`` gets what it has written."""
    stop, failed = threading.Event(), []

    def write() -> None:
        randomness = random.Random(5)
        with Producer(conf(served, **{"linger.ms": 0, "acks": "all"})) as producer:
            number = 0
            while not stop.is_set():
                for _ in range(5):
                    number += 1
                    key, value = randomness.choice(keys), b"new-%d" % number
                    producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(error))
                    values[key] = value
                producer.poll(0)
                stop.wait(0.001)
            producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert failed
    assert {error for error in failed if error is not None} == set()


@pytest.mark.parametrize(("keys", "written"), [(30_000, 30_000), (3_000, 20)], ids=["many keys", "few of them"])
def test_producers_write_the_same_keys_meanwhile(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, keys: int, written: int
) -> None:
    topic, values = filled(served, make_topic, keys)
    shrink(served, topic)
    with writing(served, topic, list(values)[:written], values):
        report = evacuate(spark, topic, conf(served))
    assert report.keys == report.copied + report.newer
    assert report.newer > 0
    assert last(served, topic) == {key: values[key] for key in last(served, topic)}
    assert last(served, topic, isolation_level="read_uncommitted") == last(served, topic)
    place = named().for_topic(topic).partition
    moved = {key for key in values if place(key, PARTITIONS) >= KEPT}
    assert moved <= last(served, topic).keys()
    served.wait_done(topic)


def test_a_job_that_is_killed_is_run_again(
    spark: SparkSession, served: Controlled, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, values = filled(served, make_topic, 120_000)
    shrink(served, topic)
    before = watermarks(served.servers, topic)
    settings = tmp_path / "client.properties"
    settings.write_text(f"modeaware.mode.log.topic={served.log}\nlinger.ms=200\n", encoding="utf-8")
    job = evacuation_process(
        tmp_path, "--bootstrap-server", served.servers, "--topic", topic, "--command-config", str(settings),
        java_home=Path(find_java()).parent.parent, ivy=cache_folder() / "spark-ivy",
    )  # fmt: skip

    def begun() -> bool:
        """Whether some copies are committed."""
        assert job.running, job.said
        return any(watermarks(served.servers, topic)[p][1] > before[p][1] for p in range(KEPT))

    try:
        eventually(begun, 240, interval_s=0.01)
    finally:
        job.kill()
    assert served.reasons(topic) == {"not-evacuated"}
    assert PartitionMode.NONE not in served.modes(topic)
    report = evacuate(spark, topic, conf(served))
    assert report.copied > 0
    assert report.placed > 0
    assert report.copied + report.placed == report.keys
    served.wait_done(topic)
    found = last(served, topic)
    assert found == {key: values[key] for key in found}
    place = named().for_topic(topic).partition
    assert {key for key in values if place(key, PARTITIONS) >= KEPT} <= found.keys()
    uncommitted = drain_topic(served.servers, topic, range(KEPT), **{"isolation.level": "read_uncommitted"})
    assert {m.key(): m.value() for m in uncommitted} == {
        m.key(): m.value() for m in drain_topic(served.servers, topic, range(KEPT))
    }

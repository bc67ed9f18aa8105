"""What a compacted topic holds, as a plain consumer reads it, and an evacuation as a process, to be killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from tests.support.plain import TIMEOUT_S, drain_topic
from tests.support.process import LoggedProcess
from tests.support.spark_session import CONNECTOR

HEADER = "modeaware.evacuated"


class Value(NamedTuple):
    """What a key has: its value (None: deleted), headers without the evacuation's, and timestamp."""

    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def value_of(message: Message) -> Value:
    headers = tuple((name, value) for name, value in message.headers() or () if name != HEADER)
    return Value(message.value(), headers, message.timestamp()[1])


def last_values(bootstrap_servers: str, topic: str, partitions: Iterable[int] | None = None) -> dict[bytes, Value]:
    """Key -> what the last record of it says. Of a key in several partitions the record with the latest timestamp
    counts, so a test that lets that happen gives its records rising ones."""
    found: dict[bytes, tuple[int, Message]] = {}
    ends: dict[tuple[bytes, int], Message] = {}
    for message in drain_topic(bootstrap_servers, topic, partitions):
        ends[message.key(), message.partition()] = message
    for (key, _), message in ends.items():
        stamp = message.timestamp()[1]
        if key not in found or stamp > found[key][0]:
            found[key] = (stamp, message)
    return {key: value_of(message) for key, (_, message) in found.items()}


def produce_values(
    conf: dict[str, Any],
    topic: str,
    records: Iterable[tuple[bytes, bytes | None, int]],
    *,
    partition: int | None = None,
    kind: type[Producer] = Producer,
) -> None:
    """``(key, value, timestamp_ms)`` with a header of each; ``kind`` may be ours."""
    producer = kind({"acks": "all", **conf})
    failed: list[object] = []
    where = {} if partition is None else {"partition": partition}
    for key, value, timestamp_ms in records:
        while True:
            try:
                producer.produce(
                    topic, value, key, timestamp=timestamp_ms, headers=[("of", key), ("none", None)],
                    on_delivery=lambda error, _: failed.append(error) if error else None, **where,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    assert not producer.flush(TIMEOUT_S)
    assert not failed, failed[:3]


def evacuation_process(folder: Path, *words: str, java_home: Path, ivy: Path) -> LoggedProcess:
    """``python -m modeaware.spark.evacuate`` with a Spark of its own, to be killed with its JVM and Python workers."""
    settings = Path(__file__).parent / "ivysettings.xml"
    submit = (
        f"--master local[2] --packages {CONNECTOR} --conf spark.jars.ivy={ivy} "
        f"--conf spark.jars.ivySettings={settings} --conf spark.ui.enabled=false "
        "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=4 pyspark-shell"
    )
    more = {"PYSPARK_SUBMIT_ARGS": submit, "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "modeaware.spark.evacuate", *words]
    env = {**os.environ, **more, "PYSPARK_PYTHON": sys.executable}
    return LoggedProcess(command, folder / "evacuate.log", env=env, own_group=True)

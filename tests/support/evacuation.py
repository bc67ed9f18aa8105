"""What a compacted topic holds, as a plain consumer reads it, and an evacuation as a process, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from tests.support.plain import TIMEOUT_S, drain_topic

HEADER = "modeaware.evacuated"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


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


class EvacuationProcess:
    """``python -m modeaware.spark.evacuate`` in a process group of its own, with a Spark of its own."""

    def __init__(self, folder: Path, *words: str, java_home: Path, ivy: Path) -> None:
        settings = Path(__file__).parent / "ivysettings.xml"
        submit = (
            f"--master local[2] --packages {CONNECTOR} --conf spark.jars.ivy={ivy} "
            f"--conf spark.jars.ivySettings={settings} --conf spark.ui.enabled=false "
            "--conf spark.driver.host=127.0.0.1 --conf spark.sql.shuffle.partitions=4 pyspark-shell"
        )
        more = {"PYSPARK_SUBMIT_ARGS": submit, "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
        self._said = folder / "evacuate.log"
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "modeaware.spark.evacuate", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **more, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL for all of it: the driver, its JVM, and the Python workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def wait(self, deadline_s: float) -> int:
        return self._process.wait(deadline_s)

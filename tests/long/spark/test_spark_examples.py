"""The examples for Spark, run as a reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient as PlainAdminClient

from modeaware import AdminClient, DeletePartitions
from modeaware.local import Kafka
from modeaware.testing import run_controller
from tests.conftest import MakeTopic
from tests.support.plain import drain_topic, produce_keyed

EXAMPLES = Path(__file__).parents[3] / "examples"
TIMEOUT_S = 240
RECORDS = 600


def run(conf_dir: Path, command: list[str]) -> str:
    """What a program prints; it must succeed."""
    env = {**os.environ, "SPARK_CONF_DIR": str(conf_dir), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_example(kafka: Kafka, conf_dir: Path, name: str, *arguments: str) -> list[str]:
    """The lines that the example prints, without Ivy's."""
    command = [sys.executable, str(EXAMPLES / name), "--bootstrap-server", kafka.bootstrap_servers, *arguments]
    printed = run(conf_dir, command).splitlines()
    return [line for line in printed if "records" in line and not line.startswith(("\t", ":"))]


@pytest.mark.timeout(900)
def test_a_batch_before_and_after_a_shrink(kafka: Kafka, spark_conf_dir: Path, make_topic: MakeTopic) -> None:
    topic = make_topic(6)
    told = run_example(kafka, spark_conf_dir, "spark_write.py", "--topic", topic, "--records", str(RECORDS))
    assert sum(int(line.split()[2]) for line in told) == RECORDS
    with run_controller(kafka.bootstrap_servers):
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.delete_partitions({topic: DeletePartitions(total_count=2)})[topic].result()
        before = Counter(message.partition() for message in drain_topic(kafka.bootstrap_servers, topic))
        run_example(kafka, spark_conf_dir, "spark_write.py", "--topic", topic, "--records", str(RECORDS))
    after = Counter(message.partition() for message in drain_topic(kafka.bootstrap_servers, topic))
    assert {p for p in after if after[p] > before[p]} == {0, 1}
    assert sum(after.values()) == 2 * RECORDS


@pytest.mark.timeout(900)
def test_a_stream_from_topic_to_topic(
    kafka: Kafka, spark_conf_dir: Path, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, copy = make_topic(4), make_topic(4)
    sent = {(b"customer-%d" % (n % 50), b"order %d" % n) for n in range(RECORDS)}
    produce_keyed(kafka.bootstrap_servers, topic, sorted(sent))
    asked = ("--topic", topic, "--to", copy, "--checkpoint", str(tmp_path / "checkpoint"))
    with run_controller(kafka.bootstrap_servers):
        assert run_example(kafka, spark_conf_dir, "spark_stream.py", *asked) == [f"{RECORDS} records"]
        produce_keyed(kafka.bootstrap_servers, topic, [(b"late", b"order")])
        assert run_example(kafka, spark_conf_dir, "spark_stream.py", *asked) == ["1 records"], "from its checkpoint"
        rules = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).describe_group_rules().result()
    assert {(m.key(), m.value()) for m in drain_topic(kafka.bootstrap_servers, copy)} == {*sent, (b"late", b"order")}
    group = f"modeaware-spark-copy-of-{topic}"
    assert [rule.topic for rule in rules if rule.group == group] == [topic], "drains wait for it"
    asking = PlainAdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    offsets = asking.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    assert sum(found.offset for found in offsets.topic_partitions or []) == RECORDS + 1


def test_every_example_for_spark_is_run_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.name}"' in source for path in EXAMPLES.glob("spark_*.py"))

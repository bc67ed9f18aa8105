"""A plan by Spark over a whole topic, beside what a plain program counts."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Message, Producer, murmur2
from pyspark.sql import SparkSession

import modeaware.spark
from modeaware.local import Kafka
from modeaware.plan.html import plan_html
from modeaware.plan.report import ResizePlan, plan_json
from modeaware.plan.text import plan_text
from tests.conftest import MakeTopic
from tests.support.plain import drain_topic, produce_keyed

PARTITIONS, RECORDS, KEYS = 12, 30_000, 7_000
STEP_MS = 20
"""Between two records."""
TIMEOUT_S = 30.0


def sent() -> list[tuple[bytes | None, bytes | None]]:
    """Some keys often, many seldom, some records without a key, some with an empty one; values of all sizes."""
    numbers = random.Random(3)
    found: list[tuple[bytes | None, bytes | None]] = []
    for _ in range(RECORDS):
        drawn = numbers.random()
        key = None if drawn < 0.05 else b"" if drawn < 0.07 else b"key-%d" % int(KEYS * numbers.random() ** 3)
        found.append((key, bytes(numbers.randrange(300))))
    return [*found[1:], (b"key-1", None)]


@dataclass
class Plain:
    """What a plain program counts with one dictionary, murmur2 placing all keys, and those of records without one."""

    keys: set[bytes] = field(default_factory=set)
    bytes: Counter[bytes] = field(default_factory=Counter)
    null: int = 0
    empty: int = 0
    total: int = 0

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Plain:
        plain = cls()
        for message in messages:
            key, size = message.key(), len(message.key() or b"") + len(message.value() or b"")
            size += sum(len(name) + len(value or b"") for name, value in message.headers() or [])
            plain.total += size
            plain.bytes[key or b""] += size
            plain.null += key is None
            plain.empty += key == b""
            if key:
                plain.keys.add(key)
        return plain

    def moved(self, target: int) -> tuple[float, float]:
        """The shares of keys and of their bytes that move."""
        moved = [key for key in self.keys if murmur2(key, PARTITIONS) != murmur2(key, target)]
        return len(moved) / len(self.keys), sum(self.bytes[k] for k in moved) / sum(self.bytes[k] for k in self.keys)

    def survivors(self, target: int) -> float:
        """Of the keys in partitions that stay, the share that moves all the same."""
        stay = [key for key in self.keys if murmur2(key, PARTITIONS) < target]
        return sum(murmur2(key, PARTITIONS) != murmur2(key, target) for key in stay) / len(stay)

    def load(self, target: int) -> list[int]:
        load: defaultdict[int, int] = defaultdict(int)
        for key, size in self.bytes.items():
            load[murmur2(key, target)] += size
        return [load[p] for p in range(target)]


def planned(spark: SparkSession, kafka: Kafka, topic: str, partitions: int, **options: object) -> ResizePlan:
    return modeaware.spark.plan(spark, topic, {"bootstrap.servers": kafka.bootstrap_servers}, partitions, **options)


@pytest.mark.parametrize("sample", [500, 10_000])
def test_a_plain_program_counts_the_same(spark: SparkSession, kafka: Kafka, make_topic: MakeTopic, sample: int) -> None:
    topic = make_topic(PARTITIONS)
    first_ms = int(time.time() * 1000) - RECORDS * STEP_MS
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"}
    )  # nulls like empty keys
    for number, (key, value) in enumerate(sent()):
        producer.produce(topic, value, key=key, timestamp=first_ms + number * STEP_MS)
    assert producer.flush(TIMEOUT_S) == 0
    plain = Plain.of(drain_topic(kafka.bootstrap_servers, topic))
    plan = planned(spark, kafka, topic, 5, sample=sample, minPartitions=24)
    told = plan_json(plan)
    assert told["counted"]["records"] == RECORDS
    assert told["counted"]["bytes"] == plain.total
    assert told["counted"]["span_ms"] == (RECORDS - 1) * STEP_MS
    assert told["sample"]["records"] == sample
    found = told["hash"]
    assert (found["name"], found["partitions"], found["verdict"]) == ("murmur2", PARTITIONS, "recognised")
    assert (found["keys"], found["null_keys"], found["empty_keys"]) == (len(plain.keys), plain.null, plain.empty)
    assert found["keyed"] == RECORDS - plain.null - plain.empty
    (placement,) = found["placements"]
    assert (placement["matched"], placement["of"]) == (len(plain.keys), len(plain.keys))
    targets = {each["target"]: each for each in told["targets"]}
    assert set(targets) == {4, 5, 6}
    for target, effect in targets.items():
        assert (effect["keys_moved"]["share"], effect["bytes_moved"]["share"]) == pytest.approx(plain.moved(target))
        assert effect["survivors_keys_moved"] == pytest.approx(plain.survivors(target))
        assert effect["keys_moved"]["margin"] == 0
        load = plain.load(target)
        if found["null_keys_hashed_share"]:
            assert effect["load_bytes"] == load
            assert effect["skew"] == pytest.approx(max(load) / (plain.total / target))
    assert plan.recognition.nulls_hashed or sample == 500, "records without a key lie where an empty one would"
    assert plan_text(plan).startswith(f"Topic {topic}: 12 -> 5 partitions\n")
    assert plan_html(plan).startswith("<!DOCTYPE html>")


def test_where_no_hash_placed_the_keys_what_lies_where_is_told(
    spark: SparkSession, kafka: Kafka, make_topic: MakeTopic
) -> None:
    topic = make_topic(6)
    for partition in range(6):
        records = ((b"k%d" % n, bytes(100 * partition)) for n in range(200))
        produce_keyed(kafka.bootstrap_servers, topic, records, partition=partition)
    plan = planned(spark, kafka, topic, 3)
    assert plan.recognition.verdict == "none"
    assert plan.recognition.together == 0
    assert plan.now.load == tuple(float(sum(len(b"k%d" % n) + 100 * p for n in range(200))) for p in range(6))
    assert (plan.chosen.keys, plan.chosen.load) == (None, ())
    assert "keys are not kept together now" in plan_text(plan)

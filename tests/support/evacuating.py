"""Evacuates a compacted topic on a Kafka of its own, and compares what a plain consumer reads before and after.

``python -m tests.support.evacuating --records 1000000``
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.phases import topic_phase
from modeaware.local import start_kafka
from modeaware.modelog.reader import read_mode_log
from modeaware.spark.evacuation import evacuate
from tests.support.plain import TIMEOUT_S, create_topic, watermarks
from tests.support.spark_session import spark_builder
from tests.support.waiting import eventually

PARTITIONS, KEPT = 12, 4
TOPIC, LOG = "evacuating", "__evacuating_modes"
HEADER = "modeaware.evacuated"
START_MS = 1_700_000_000_000

State = dict[bytes, tuple[int | None, int]]
"""Key -> the hash of value and headers (None: deleted), and the timestamp."""


def fill(servers: str, records: int, seed: int) -> None:
    """``records`` records of 100 bytes with keys of half as many, every twentieth one a tombstone."""
    randomness = random.Random(seed)
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 20})
    filling = b"x" * 92
    for n in range(records):
        key = b"key-%d" % randomness.randrange(max(records // 2, 1))
        value = None if n % 20 == 0 else b"%08d" % n + filling
        while True:
            try:
                producer.produce(TOPIC, value, key, timestamp=START_MS + n, headers=[("n", b"%d" % n)])
                break
            except BufferError:
                producer.poll(0.1)
    assert not producer.flush(TIMEOUT_S)


def final_state(servers: str, partitions: Iterable[int]) -> State:
    """What a plain consumer has for each key once it has read these partitions to their ends."""
    state: State = {}
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "evacuating", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "enable.partition.eof": True,
        }
    )  # fmt: skip
    left = set(partitions)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in left])
    while left:
        for message in consumer.consume(10_000, timeout=0.2):
            error, key = message.error(), message.key()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                left.discard(message.partition())
            elif key is not None:
                headers = tuple(each for each in message.headers() or () if each[0] != HEADER)
                value = message.value()
                state[key] = None if value is None else hash((value, headers)), message.timestamp()[1]
    consumer.close()
    return state


@contextmanager
def told(what: str) -> Iterator[None]:
    begun_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - begun_s:.1f} s", flush=True)


def run(servers: str, records: int, seed: int) -> bool:
    create_topic(servers, TOPIC, PARTITIONS, configs={"cleanup.policy": "compact"})
    with told(f"{records} records written"):
        fill(servers, records, seed)
    conf = {"bootstrap.servers": servers}
    controller = Controller(conf, ControllerConfig(seal_quiet_ms=1000, check_interval_ms=1000, mode_log_topic=LOG))
    controller.start()
    try:
        (result,) = controller.submit([DeletePartitionsCommand(TOPIC, KEPT, evacuate=True)]).result(30)
        assert result.code is ErrorCode.NONE, result.message
        with told("read by a plain consumer before"):
            before = final_state(servers, range(PARTITIONS))
        spark = spark_builder().getOrCreate()
        with told("evacuated"):
            report = evacuate(spark, TOPIC, {**conf, "modeaware.mode.log.topic": LOG})
        print(report, flush=True)
        spark.stop()

        def done() -> bool:
            record = read_mode_log(conf, LOG, TIMEOUT_S).record(TOPIC)
            return record is not None and topic_phase(record) == "done"

        with told("retired for good"):
            eventually(done, 60)
        after = final_state(servers, range(KEPT))
    finally:
        controller.stop()
    kept = {p: end - start for p, (start, end) in watermarks(servers, TOPIC).items()}
    print(f"offsets held: {kept}; keys before {len(before)}, after {len(after)}")
    different = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
    deleted = sum(value is None for value, _ in before.values())
    print(f"{len(before) - deleted} live keys and {deleted} deleted ones: {len(different)} differ {different[:3]}")
    return not different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with start_kafka() as kafka:
        same = run(kafka.bootstrap_servers, args.records, args.seed)
    print("the final state of every key is the same" if same else "NOT THE SAME")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())

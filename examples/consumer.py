"""Consume a topic that may be shrunk meanwhile. Only the import differs from plain confluent_kafka.

Retired partitions are read to their end like all others. Once the group has read them, they leave the assignment. The
program ends after --idle-s without a record; without that option, it runs until it is stopped.

    python examples/consumer.py --bootstrap-server localhost:9092 --topic orders --group billing --idle-s 5
"""

from __future__ import annotations

import argparse
import math
import time

from confluent_kafka import KafkaException

from modeaware import Consumer  # instead of: from confluent_kafka import Consumer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    parser.add_argument("--idle-s", type=float, default=math.inf, help="end after this time without a record")
    args = parser.parse_args()

    consumer = Consumer(
        {
            "bootstrap.servers": args.bootstrap_server,
            "group.id": args.group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([args.topic])
    consumed, last_s = 0, time.monotonic()
    try:
        while time.monotonic() - last_s < args.idle_s:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            consumed, last_s = consumed + 1, time.monotonic()
        print(f"{consumed} records; partitions now: {sorted(tp.partition for tp in consumer.assignment())}")
    finally:
        consumer.close()  # commits what was consumed


if __name__ == "__main__":
    main()

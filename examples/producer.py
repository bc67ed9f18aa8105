"""Produce keyed records to a topic that may be shrunk meanwhile. Only the import differs from plain confluent_kafka.

python examples/producer.py --bootstrap-server localhost:9092 --topic orders --records 1000
"""

from __future__ import annotations

import argparse
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Message

from modeaware import Producer  # instead of: from confluent_kafka import Producer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--records", type=int, default=1000)
    args = parser.parse_args()

    landed: Counter[int | None] = Counter()

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        landed[message.partition()] += 1

    producer = Producer({"bootstrap.servers": args.bootstrap_server, "acks": "all"})
    for number in range(args.records):
        key, value = f"customer-{number % 100}", f"order {number}"
        while True:
            try:
                producer.produce(args.topic, key=key, value=value, on_delivery=on_delivery)
                break
            except BufferError:  # the queue is full, or the first view of the modes has not arrived
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()

    for partition, count in sorted(landed.items(), key=lambda item: item[0] or 0):
        print(f"partition {partition}: {count} records")


if __name__ == "__main__":
    main()

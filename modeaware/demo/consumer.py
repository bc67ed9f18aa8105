"""A demo consumer: a process with a ``modeaware.Consumer`` in the group, noting every record it is given."""

from __future__ import annotations

import time
from typing import TextIO

import modeaware
from modeaware.demo.journal import Delivery, position_of, record_id_of
from modeaware.demo.setting import Setting
from modeaware.demo.worker import Link
from modeaware.librdkafka import KafkaException

REPORT_INTERVAL_S = 0.25
BATCH = 500
CONSUME_TIMEOUT_S = 0.1


def run(link: Link, setting: Setting, number: int) -> None:
    """Consume until told to stop.

    Raises:
        KafkaException: the consumer reported an error.
    """
    consumer = modeaware.Consumer(
        {
            "bootstrap.servers": setting.bootstrap_servers,
            "group.id": setting.group,
            "client.id": f"demo-consumer-{number}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
    )
    try:
        consumer.subscribe([setting.topic])
        with setting.deliveries_path(number).open("w", encoding="ascii") as journal:
            _consume(link, consumer, journal)
    finally:
        consumer.close()


def _consume(link: Link, consumer: modeaware.Consumer, journal: TextIO) -> None:
    delivered, reported_s = 0, 0.0
    while not link.stopping.is_set():
        for message in consumer.consume(BATCH, CONSUME_TIMEOUT_S):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            journal.write(Delivery(record_id_of(message), *position_of(message)).line())
            delivered += 1
        now_s = time.monotonic()
        if now_s - reported_s >= REPORT_INTERVAL_S:
            reported_s = now_s
            assigned = sorted(partition.partition for partition in consumer.assignment())
            link.report(delivered=delivered, assigned=assigned)
    link.report(delivered=delivered)

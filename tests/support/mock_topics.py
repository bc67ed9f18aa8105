"""Two topics with records on librdkafka's mock broker: an old one, and one that is to replace it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from modeaware import librdkafka
from modeaware.testing import MockKafka

OLD, NEW, COUNT, RECORDS = "orders", "orders-4", MockKafka.PARTITIONS, 3
"""The topics' names, how many partitions each has, and how many records each partition."""


@contextmanager
def mock_with_records() -> Iterator[MockKafka]:
    with MockKafka() as mock, closing(librdkafka.Producer({"bootstrap.servers": mock.bootstrap_servers})) as producer:
        for topic in (OLD, NEW):
            mock.make_topic(topic)
            for partition in range(COUNT):
                for _ in range(RECORDS):
                    producer.produce(topic, b"v", partition=partition)
        yield mock

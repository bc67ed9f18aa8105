"""A topic that was shrunk, deleted and created again under its name: no client applies the old topic's modes (I8).

The controller is stopped before the topic goes, so the old record stays on the mode log for good. confluent_kafka's
clients: ``test_recreated_confluent.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import murmur2

from modeaware.aiokafka import AIOKafkaProducer
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.plain import create_topic, drain_topic, produce_keyed
from tests.support.waiting import eventually

PARTITIONS, KEPT, EACH = 12, 4, 20
KEYS = [b"key-%d" % number for number in range(100)]


class Remade:
    """A topic of 12 partitions that was shrunk to 4, reclaimed, and has no controller any more."""

    def __init__(self, setting: Controlled, topic: str) -> None:
        self.servers, self.log, self.topic = setting.servers, setting.log, topic
        self._admin = setting.admin
        controller = setting.start()
        self.fill(PARTITIONS, "old")
        setting.shrink(topic, KEPT)
        record = setting.wait_done(topic)
        assert record.modes[KEPT:] == (PartitionMode.NONE,) * (PARTITIONS - KEPT)
        assert record.view().reclaimed == frozenset(range(KEPT, PARTITIONS))
        controller.stop()

    def fill(self, partitions: int, prefix: str) -> set[bytes]:
        """The same number of records for each partition; their values."""
        values = set()
        for partition in range(partitions):
            each = [f"{prefix}-{partition}-{number}".encode() for number in range(EACH)]
            produce_keyed(self.servers, self.topic, [(None, value) for value in each], partition=partition)
            values.update(each)
        return values

    def remake(self, partitions: int) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(30)
        create_topic(self.servers, self.topic, partitions, configs={})

    def landed(self) -> dict[bytes | None, int | None]:
        """Key -> partition of what lies in the topic."""
        return {message.key(): message.partition() for message in drain_topic(self.servers, self.topic)}


@pytest.fixture
def shrunk(setting: Controlled, make_topic: MakeTopic) -> Remade:
    return Remade(setting, make_topic(PARTITIONS))


# -- consumers -------------------------------------------------------------------------------------------------------

Poll = Callable[[], list[bytes | None]]
Assigned = Callable[[], int]


@contextmanager
def of_kafka_python(of: Remade, group: str, reset: str) -> Iterator[tuple[Poll, Assigned]]:
    consumer = KafkaConsumer(
        of.topic,
        bootstrap_servers=of.servers,
        group_id=group,
        auto_offset_reset=reset,
        modeaware_mode_log_topic=of.log,
    )

    def poll() -> list[bytes | None]:
        return [record.value for records in consumer.poll(200).values() for record in records]

    with closing(consumer):
        yield poll, lambda: len(consumer.assignment()) if not consumer._subscription.missing_fetch_positions() else 0


Reading = Callable[[Remade, str, str], AbstractContextManager[tuple[Poll, Assigned]]]
CONSUMERS = pytest.mark.parametrize("reading", [pytest.param(of_kafka_python, id="kafka_python")])


def read_until(poll: Poll, seen: set[bytes | None], condition: Callable[[], bool]) -> None:
    def looked() -> bool:
        seen.update(poll())
        return condition()

    eventually(looked)


@CONSUMERS
@pytest.mark.parametrize("partitions", [PARTITIONS, 2])
def test_an_earliest_group_reads_every_record_of_the_new_topic(
    shrunk: Remade, make_group: Callable[[], str], reading: Reading, partitions: int
) -> None:
    shrunk.remake(partitions)
    new = shrunk.fill(partitions, "new")
    seen: set[bytes | None] = set()
    with reading(shrunk, make_group(), "earliest") as (poll, _):
        read_until(poll, seen, lambda: seen >= new)
    assert seen == new


@CONSUMERS
@pytest.mark.parametrize("partitions", [PARTITIONS, 2])
def test_a_latest_group_reads_all_that_comes_once_it_has_its_partitions(
    shrunk: Remade, make_group: Callable[[], str], reading: Reading, partitions: int
) -> None:
    shrunk.remake(partitions)
    shrunk.fill(partitions, "before")
    seen: set[bytes | None] = set()
    with reading(shrunk, make_group(), "latest") as (poll, assigned):
        read_until(poll, seen, lambda: assigned() == partitions)
        new = shrunk.fill(partitions, "new")
        read_until(poll, seen, lambda: seen >= new)
    assert seen == new


@CONSUMERS
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_consumer_that_lives_on_takes_up_what_it_had_left_out_from_the_first_record(
    shrunk: Remade, make_group: Callable[[], str], reading: Reading, reset: str
) -> None:
    """Of the partitions that it held, positions are the application's, as with stock clients."""
    seen: set[bytes | None] = set()
    with reading(shrunk, make_group(), reset) as (poll, assigned):
        read_until(poll, seen, lambda: assigned() == KEPT)
        shrunk.remake(PARTITIONS)
        new = {value for value in shrunk.fill(PARTITIONS, "new") if int(value.split(b"-")[1]) >= KEPT}
        read_until(poll, seen, lambda: seen >= new)


# -- producers -------------------------------------------------------------------------------------------------------

Send = Callable[[list[bytes]], None]


@contextmanager
def by_kafka_python(of: Remade) -> Iterator[Send]:
    producer = KafkaProducer(bootstrap_servers=of.servers, modeaware_mode_log_topic=of.log)

    def send(keys: list[bytes]) -> None:
        for future in [producer.send(of.topic, b"x", key=key) for key in keys]:
            future.get(30)

    with closing(producer):
        yield send


@contextmanager
def by_aiokafka(of: Remade) -> Iterator[Send]:
    with asyncio.Runner() as runner:

        async def made() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(bootstrap_servers=of.servers, modeaware_mode_log_topic=of.log)
            await producer.start()
            return producer

        producer: Any = runner.run(made())

        async def sent(keys: list[bytes]) -> None:
            await asyncio.wait_for(asyncio.gather(*[producer.send_and_wait(of.topic, b"x", key) for key in keys]), 30)

        yield lambda keys: runner.run(sent(keys))
        runner.run(producer.stop())


Sending = Callable[[Remade], AbstractContextManager[Send]]
PRODUCERS = pytest.mark.parametrize(
    "sending",
    [
        pytest.param(by_kafka_python, id="kafka_python"),
        pytest.param(by_aiokafka, id="aiokafka"),
    ],
)


@PRODUCERS
@pytest.mark.parametrize("partitions", [PARTITIONS, 2])
def test_a_new_producer_writes_to_all_partitions_of_the_new_topic(
    shrunk: Remade, sending: Sending, partitions: int
) -> None:
    shrunk.remake(partitions)
    with sending(shrunk) as send:
        send(KEYS)
    assert shrunk.landed() == {key: murmur2(key, partitions) for key in KEYS}


@PRODUCERS
def test_a_producer_made_before_writes_to_all_partitions_once_it_uses_the_topic(
    shrunk: Remade, sending: Sending
) -> None:
    with sending(shrunk) as send:
        shrunk.remake(2)
        send(KEYS)
    assert shrunk.landed() == {key: murmur2(key, 2) for key in KEYS}

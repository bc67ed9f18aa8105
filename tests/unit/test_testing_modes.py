"""Modes by script: what clients see of them, and what no controller would do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.errors import RetiredPartitionChosen
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeSourceError
from modeaware.modes import PartitionMode
from modeaware.testing import MockKafka, ScriptedModes
from modeaware.views import registry
from tests.support.offline import CONF, finish

RW, RO, NONE = PartitionMode.READ_WRITE, PartitionMode.READ_ONLY, PartitionMode.NONE


@pytest.fixture
def modes() -> Iterator[ScriptedModes]:
    with ScriptedModes() as modes:
        yield modes


def test_a_shrink_to_its_end_and_back(modes: ScriptedModes) -> None:
    assert modes.view("t").modes == ()
    shrunk = modes.shrink("t", 4, to=2)
    assert (shrunk.modes, shrunk.previous_count) == ((RW, RW, RO, RO), 4)
    drained = modes.none("t", [3], resume_offsets={3: 17})
    assert (drained.modes, drained.resume_offsets) == ((RW, RW, RO, NONE), {3: 17})
    assert modes.none("t").modes == (RW, RW, NONE, NONE)
    undone = modes.undo("t")
    assert undone.modes == (RW,) * 4
    assert [view.epoch for view in (shrunk, drained, undone)] == [1, 2, 4]
    assert modes.view("t") == undone


def test_clients_keep_the_last_modes_while_they_cannot_be_read(modes: ScriptedModes) -> None:
    producer = Producer(CONF)
    modes.shrink("t", 4, to=2)
    why = ModeSourceError("no right to read")
    modes.unreadable(why)
    modes.undo("t")
    second = Producer(CONF)  # it shares what the first one knows
    handle = registry.acquire({}, None)  # type: ignore[arg-type]  # the config is for real sources
    assert handle.error() is why
    assert handle.view("t").writable == (0, 1)
    for each in (producer, second):
        with pytest.raises(RetiredPartitionChosen):
            each.produce("t", b"", partition=3)
    modes.readable()
    assert handle.error() is None
    for each in (producer, second):
        each.produce("t", b"", partition=3)
        finish(each)


def test_records_go_through_the_mock_and_end_with_it() -> None:
    with ScriptedModes(), MockKafka() as kafka:
        conf = {"bootstrap.servers": kafka.bootstrap_servers}
        producer = Producer(conf)
        sent = [b"%d" % n for n in range(10)]
        for value in sent:
            producer.produce("orders", value, value)
        assert producer.flush(30) == 0
        consumer = Consumer({**conf, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        got = [message.value() for _ in sent for message in consumer.consume(1, 30)]
        assert sorted(got) == sent
        assert {held.partition for held in consumer.assignment()} == set(range(kafka.PARTITIONS))
        consumer.close()
        producer.close()
    assert kafka.bootstrap_servers == ""
    kafka.stop()

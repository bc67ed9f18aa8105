"""``modeaware.Producer`` and ``Consumer`` that know nothing but a controller's endpoint: they honour a shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message

from modeaware.confluent.producer import Producer
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled
from tests.support.group import FAST, Group, Member, Record, Unending, place_of
from tests.support.plain import drain_topic
from tests.support.waiting import eventually

RW, NONE = PartitionMode.READ_WRITE, PartitionMode.NONE
PARTITIONS, KEPT = 6, 2


class Load(Unending[Producer]):
    """A producer of ours: keys all over, and no partition named.

    Attributes:
        sent: the records that were acknowledged, and the number of the batch each belongs to.
        batch: the number of the batch under way.
    """

    def __init__(self, conf: dict[str, Any], topic: str) -> None:
        super().__init__(Producer({**conf, "linger.ms": 5}))
        self._topic = topic
        self.sent: dict[Record, int] = {}
        self.batch = 0

    def write(self) -> None:
        batch = self.batch = self.batch + 1
        for number in range(10):
            self._send(b"%d-%d" % (batch, number), batch)
        self.producer.poll(0)

    def _send(self, key: bytes, batch: int) -> None:
        def acknowledged(message: Message) -> None:
            self.sent[place_of(message)] = batch

        self.producer.produce(self._topic, b"x", key, on_delivery=self.to(acknowledged))

    def finish(self) -> dict[Record, int]:
        self.stop()
        return self.sent

    def after(self, condition: Callable[[], object]) -> int:
        """The first batch that begins after ``condition`` holds, once it was sent."""
        eventually(condition)
        first = self.batch + 1
        eventually(lambda: self.batch > first + 20)
        return first


@pytest.mark.parametrize("source", ["auto", "wire"])
def test_a_shrink_under_load_is_honoured(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], source: str
) -> None:
    """With ``wire`` the mode log is not even named: clients look for one that is not there."""
    controller, topic = setting.start(), make_topic(PARTITIONS)
    conf: dict[str, Any] = {
        "bootstrap.servers": controller.address,
        "modeaware.mode.source": source,
        "topic.metadata.refresh.interval.ms": 200,
    }
    if source == "auto":
        conf["modeaware.mode.log.topic"] = setting.log
    reading = {**conf, **FAST, "group.id": make_group(), "auto.offset.reset": "earliest"}
    with Load(conf, topic) as load, Group(Member([topic], reading) for _ in range(2)) as group:
        group.await_held(topic, range(PARTITIONS), [3, 3])
        eventually(lambda: {place[1] for place in list(load.sent)} == set(range(PARTITIONS)))
        eventually(lambda: load.producer.modeaware_stats()["views"]["source"] == "wire")
        setting.shrink(topic, KEPT)
        switched = load.after(lambda: load.producer.modeaware_stats()["routed_topics"] == 1)
        assert setting.wait_done(topic).modes == (RW,) * KEPT + (NONE,) * (PARTITIONS - KEPT)
        group.await_held(topic, range(KEPT), [1, 1])
        last = load.batch - 1
        setting.grow(topic, PARTITIONS)
        group.await_held(topic, range(PARTITIONS), [3, 3])
        revived = load.after(lambda: load.producer.modeaware_stats()["routed_topics"] == 0)
        sent = load.finish()
        group.check(set(sent))

    def written(first: int, end: int) -> set[int]:
        return {place[1] for place, batch in sent.items() if first <= batch <= end}

    assert written(switched, last) == set(range(KEPT)), "retired partitions get nothing once the switch was seen"
    assert written(revived, load.batch) == set(range(PARTITIONS)), "and something again once it was undone"
    present = {place_of(message) for message in drain_topic(setting.servers, topic)}
    assert {place for place in sent if place[1] < KEPT} <= present

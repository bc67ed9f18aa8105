"""A shrunk topic that is deleted and created again under its name, while the old record stays on the mode log (I8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from confluent_kafka.admin import AdminClient

from modeaware import Producer
from modeaware.local import Kafka
from modeaware.modelog.records import RetiredPartition
from modeaware.modes import ReplicaState
from tests.support.group import Group, Member, settings_of
from tests.support.modelog import NONE, RealLog, topic_record
from tests.support.plain import create_topic, produce_all, produce_keyed
from tests.support.waiting import eventually

COUNT, WRITABLE, RECLAIMED_TO, EACH = 12, 4, 20, 40
KEYS = [b"key-%d" % number for number in range(200)]


class Recreating:
    """A mode log that keeps the record of a topic that was deleted and created again."""

    def __init__(self, kafka: Kafka, make_topic: Callable[[int], str]) -> None:
        self.servers = kafka.bootstrap_servers
        self.log = RealLog(self.servers)
        self.log.create()
        self.topic = make_topic(COUNT)
        self.old_id = self.shrink()

    def shrink(self) -> str:
        """Write the record of a shrink that is through and reclaimed, as a controller does."""
        gone = RetiredPartition(seal_offset=RECLAIMED_TO, replica_state=ReplicaState.DELETION_SUCCESSFUL)
        retired = dict.fromkeys(range(WRITABLE, COUNT), gone)
        record = topic_record(self.topic, 3, writable=WRITABLE, count=COUNT, rest=NONE)
        self.log.append(replace(record, retired=retired))
        return self.log.live_id(self.topic)

    def conf(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "modeaware.mode.log.topic": self.log.topic,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def recreate(self, partitions: int = COUNT) -> None:
        recreate(self.log.admin, self.servers, self.topic, partitions)
        eventually(lambda: self.log.live_id(self.topic) != self.old_id)

    def send(self, each: int = EACH, partitions: int = COUNT) -> set[tuple[str, int, int]]:
        """Write ``each`` records to every partition with a stock producer."""
        sent = [
            message
            for partition in range(partitions)
            for message in produce_keyed(self.servers, self.topic, [(None, b"v")] * each, partition=partition)
        ]
        return {(self.topic, message.partition(), message.offset()) for message in sent}

    def group(self, name: str, protocol: str, reset: str, members: int = 1, **settings: Any) -> Group:
        conf = {**self.conf(group_id=name, auto_offset_reset=reset), **settings_of(protocol), **settings}
        return Group([Member([self.topic], conf) for _ in range(members)])


def recreate(admin: AdminClient, servers: str, topic: str, partitions: int) -> None:
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=30).topics)
    create_topic(servers, topic, partitions, configs={})


def send_all(producer: Producer, topic: str) -> set[int | None]:
    """The partitions of a record of each of KEYS."""
    records = [{"key": key, "value": b"v"} for key in KEYS]
    return {message.partition() for message in produce_all(producer, topic, records)}

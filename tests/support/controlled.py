"""Controllers on a real Kafka, with a mode log of their own, for tests with plain clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from modeaware import AdminClient as OurAdminClient
from modeaware import DeletePartitions
from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import Command, CommandResult, CreatePartitionsCommand, ReplaceTopicCommand
from modeaware.lifecycle.state import topic_phase
from modeaware.local import Kafka
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.records import ClaimRecord, TopicRecord
from modeaware.modes import PartitionMode
from tests.support.plain import produce_keyed, watermarks
from tests.support.waiting import eventually

QUIET_MS = 200
INTERVAL_MS = 250
LONGEST_S = 90
"""A switch waits for a rebalance of any group on the shared Kafka, also of another test's."""


class Controlled:
    """One mode log of its own on the shared cluster, the controllers of it, and what is on it."""

    def __init__(self, kafka: Kafka) -> None:
        self.servers = kafka.bootstrap_servers
        self.conf = {"bootstrap.servers": kafka.bootstrap_servers}
        self.admin = AdminClient(self.conf)
        self.log = f"__modes-{uuid.uuid4().hex[:12]}"
        self.started: list[Controller] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for controller in self.started:
            controller.stop()

    def make(self, **config: object) -> Controller:
        settings = {"check_interval_ms": INTERVAL_MS, "seal_quiet_ms": QUIET_MS, "mode_log_topic": self.log, **config}
        self.started.append(Controller(self.conf, ControllerConfig(**settings)))
        return self.started[-1]

    def start(self, **config: object) -> Controller:
        controller = self.make(**config)
        controller.start()
        return controller

    def ask(self, command: Command) -> CommandResult:
        (result,) = self.started[-1].submit([command]).result(30)
        return result

    def shrink(self, topic: str, to: int, delay_ms: int | None = 0) -> None:
        """As applications do it: the topic may be new, and a controller may be taking over."""
        with OurAdminClient({**self.conf, "modeaware.mode.log.topic": self.log}) as admin:
            admin.delete_partitions({topic: DeletePartitions(to)}, delay_ms)[topic].result()

    def grow(self, topic: str, to: int) -> None:
        result = self.ask(CreatePartitionsCommand(topic, to))
        assert result.code is ErrorCode.NONE, result.message

    def claim(self) -> ClaimRecord | None:
        return read_mode_log(self.conf, self.log, 20).claim

    def record(self, topic: str) -> TopicRecord:
        record = read_mode_log(self.conf, self.log, 20).record(topic)
        assert record is not None
        return record

    def seals(self, *topics: str) -> dict[str, dict[int, int]]:
        """Topic -> partition -> its seal, where it has one."""
        records = read_mode_log(self.conf, self.log, 20)
        return {
            topic: {p: each.seal_offset for p, each in record.retired.items() if each.seal_offset is not None}
            for topic in topics
            if (record := records.record(topic)) is not None
        }

    def modes(self, topic: str) -> tuple[PartitionMode, ...]:
        return self.record(topic).modes

    def reasons(self, topic: str) -> set[str | None]:
        return {retired.reason for retired in self.record(topic).retired.values()}

    def rename_back(self, command: ReplaceTopicCommand) -> None:
        """Request a replacement by a topic of an earlier name, until that name has been free for long enough."""
        eventually(lambda: self.ask(command).code is ErrorCode.NONE, 60, interval_s=1.0)

    def wait_for(
        self, topic: str, condition: Callable[[TopicRecord], object], deadline_s: float = LONGEST_S
    ) -> TopicRecord:
        last = []

        def holds() -> bool:
            last[:] = [self.record(topic)]
            return bool(condition(last[0]))

        try:
            eventually(holds, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the record is {last}") from error
        # A condition may itself have read the log, later than the record it was given: the record must show it, too.
        return self.record(topic)

    def wait_done(self, topic: str, deadline_s: float = LONGEST_S) -> TopicRecord:
        """Wait for the end of a change; of a replacement without a delay, until the topic is released."""
        return self.wait_for(topic, lambda record: topic_phase(record) == "done" or is_released(record), deadline_s)


def is_released(record: TopicRecord) -> bool:
    """Whether a topic that is replaced is released, and is deleted no sooner than its own retention has emptied it."""
    now = record.replacement
    return now is not None and now.released_ms is not None and now.delay_ms is None


def commit_zero(served: Controlled, group: str, topic: str, count: int) -> None:
    """What the owner of a stopped group does on the new topic."""
    commit(served, group, topic, dict.fromkeys(range(count), 0))


def commit(served: Controlled, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """``offsets``: of each partition; the group has no members."""
    consumer = Consumer({**served.conf, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, p, offset) for p, offset in offsets.items()], asynchronous=False)
    consumer.close()


def values(count: int, prefix: str = "v") -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (n % 97), f"{prefix}-{n}".encode()) for n in range(count)]


def produce(setting: Controlled, topic: str, count: int, prefix: str = "v", partition: int | None = None) -> set[bytes]:
    """Records for any partition, or one, by a producer that knows no modes; their values."""
    records = values(count, prefix)
    produce_keyed(setting.servers, topic, records, partition=partition)
    return {value for _, value in records}


def left(setting: Controlled, topic: str) -> dict[int, int]:
    """How many offsets each partition still holds."""
    return {partition: end - start for partition, (start, end) in watermarks(setting.servers, topic).items()}

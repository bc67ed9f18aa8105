"""Plain confluent_kafka consumer groups that run while a test does something else."""

from __future__ import annotations

from typing import Self

from confluent_kafka import Consumer, KafkaException

from tests.support.background import Background
from tests.support.waiting import eventually


class RunningGroup(Background):
    """One plain consumer in a thread of its own: reads from the earliest record, commits often, keeps every value.

    Args:
        conf: further librdkafka settings with ``_`` for ``.``.
    """

    def __init__(self, bootstrap_servers: str, topic: str, group: str, **conf: object) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 50,
                "topic.metadata.refresh.interval.ms": 500,
                **{name.replace("_", "."): value for name, value in conf.items()},
            }
        )
        self._topic = topic
        self.assigned: frozenset[int] = frozenset()
        self.values: list[bytes | None] = []

    def __enter__(self) -> Self:
        super().__enter__()
        eventually(lambda: self.fine() and self.assigned, message="the group was assigned nothing")
        return self

    def wait_for(self, values: set[bytes], deadline_s: float = 30) -> None:
        message = f"{len(values)} records are awaited"
        eventually(lambda: self.fine() and values <= set(self.values), deadline_s, message=message)

    def work(self) -> None:
        try:
            self._consumer.subscribe([self._topic])
            while not self.done.is_set():
                message = self._consumer.poll(0.1)
                self.assigned = frozenset(tp.partition for tp in self._consumer.assignment())
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.values.append(message.value())
        finally:
            self._consumer.close()

"""Plain confluent_kafka consumer groups that run while a test does something else."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException

from tests.support.waiting import eventually


class RunningGroup:
    """One plain consumer in a thread of its own: reads from the earliest record, commits often, keeps every value.

    Args:
        bootstrap_servers: where.
        topic: what it subscribes to.
        group: its group id.
        conf: further librdkafka settings with ``_`` for ``.``.
    """

    def __init__(self, bootstrap_servers: str, topic: str, group: str, **conf: object) -> None:
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
        self._stop = threading.Event()
        self._failure: KafkaException | None = None
        self._thread = threading.Thread(target=self._run, name=f"group-{group}", daemon=True)
        self.assigned: frozenset[int] = frozenset()
        self.values: list[bytes | None] = []

    def __enter__(self) -> Self:
        self._consumer.subscribe([self._topic])
        self._thread.start()
        eventually(lambda: self.assigned or self._failure, message="the group was assigned nothing")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for(self, values: set[bytes], deadline_s: float = 30) -> None:
        """Wait until all of ``values`` have come."""

        def came() -> bool:
            if self._failure is not None:
                raise self._failure
            return values <= set(self.values)

        eventually(came, deadline_s, message=f"{len(values)} records are awaited")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(0.1)
                self.assigned = frozenset(tp.partition for tp in self._consumer.assignment())
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.values.append(message.value())
        except KafkaException as error:
            self._failure = error
        finally:
            self._consumer.close()

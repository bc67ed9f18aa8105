"""Writers and readers with kafka-python's clients."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.workload.journal import Kind
from tests.workload.reader import WAIT_S, Reader
from tests.workload.record import Identity, key_bytes, number_of, value_bytes
from tests.workload.writer import FLUSH_S, TURN_S, Writer


class KafkaPythonWriter(Writer):
    """Writes by a producer of kafka-python's kind."""

    def has_room(self) -> bool:
        return True  # ``send`` waits for it

    def send(self, key: int, partition: int | None = None) -> None:
        number = Identity(self.incarnation, key, self.sequence).number
        future = self.producer.send(self.topic, value_bytes(number), key_bytes(key), partition=partition)
        future.add_callback(partial(self._stored, number))
        future.add_errback(partial(self._failed, number))
        self.sequence += 1

    def write(self, keys: Any) -> None:
        for key in keys:
            self.send(key)

    def wait(self) -> None:
        self.done.wait(TURN_S)

    def finish(self) -> None:
        self.producer.flush(FLUSH_S)
        self.producer.close()
        self.sink.note(Kind.ENDED)

    def _stored(self, number: int, stored: Any) -> None:
        self.acknowledged(number, str(stored.topic), stored.partition, stored.offset)

    def _failed(self, number: int, error: Any) -> None:
        self.refused(number, getattr(error, "errno", 0), type(error).__name__)


class KafkaPythonReader(Reader):
    """Reads by a consumer of kafka-python's kind; a topic that begins with ``^`` is a pattern."""

    def subscribe(self) -> None:
        if self.topics[0].startswith("^"):
            self.consumer.subscribe(pattern=self.topics[0])
        else:
            self.consumer.subscribe(self.topics)

    def turn(self) -> None:
        records = [record for each in self.consumer.poll(WAIT_S * 500).values() for record in each]
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        for record in records:
            self.given(number_of(record.value, record.key), record.topic, record.partition, record.offset)

    def close(self, consumer: Any) -> None:
        consumer.close()

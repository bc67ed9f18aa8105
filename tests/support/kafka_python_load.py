"""Writers and members of :mod:`tests.support.replaced_load` of kafka-python."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tests.support.replaced_load import KEYS, Member, Writer


class KafkaPythonWriter(Writer):
    def work(self) -> None:
        producer, number = self._make(), 0
        while not self.done.wait(self._pause_s):
            key, count = f"{self._name}-{number % KEYS}".encode(), number // KEYS
            future = producer.send(self._topic, b"%d" % count, key)
            future.add_callback(partial(self._stored, (key, count)))
            future.add_errback(partial(self._failed, (key, count)))
            number += 1
        producer.flush(30)
        producer.close()

    def _stored(self, record: tuple[bytes, int], stored: Any) -> None:
        self.acknowledged[record] = (str(stored.topic), stored.partition)
        self.gaps.event()

    def _failed(self, record: tuple[bytes, int], error: Any) -> None:
        self.refused.append((*record, error))


class KafkaPythonMember(Member):
    def work(self) -> None:
        consumer = self._consumer = self._make()
        if self._topics[0].startswith("^"):
            consumer.subscribe(pattern=self._topics[0])
        else:
            consumer.subscribe(self._topics)
        try:
            while not self.done.is_set():
                for records in consumer.poll(50).values():
                    for record in records:
                        self._delivered.add(bytes(record.key), int(record.value), record.topic)
                        self.gaps.event()
                        time.sleep(self._work_s)  # the work on a record
        finally:
            consumer.close()

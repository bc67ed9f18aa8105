"""Ends a reader whose client has lost every broker for good; the run starts another one.

While brokers restart, one may answer a request for metadata with topics and no brokers. librdkafka then removes every
broker from its list, and may never connect to ``bootstrap.servers`` again (librdkafka#5301, up to 2.16): a poll returns
nothing, and a synchronous commit does not return. Stock consumers behave the same, no code above librdkafka can help
them, and docs/runbook.md says what to do: restart the process.

The evidence is asked of librdkafka alone: this client gets no metadata, several times in a row, while a new one does.
What else may keep a client from reading is outside this excuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.background import Background

BROKERS_LOST = "every broker is lost (librdkafka#5301)"
QUIET_S = 60.0
LOOKS, LOOK_S = 3, 5.0
ANSWER_S = 5.0


class Lifeline(Background):
    """Watches one consumer; its owner's thread may be within a call that does not return. Not to outlast the consumer.

    Args:
        conf: what a new client connects with.
        end: called once every broker is lost; it does not return.
    """

    def __init__(
        self, consumer: Consumer, conf: Mapping[str, str | int | float | bool], end: Callable[[], None]
    ) -> None:
        super().__init__()
        self._consumer = consumer
        self._conf = conf
        self._end = end
        self._read_s = time.monotonic()

    def read(self) -> None:
        """Say that something was read. The consumer is asked nothing until :data:`QUIET_S` later."""
        self._read_s = time.monotonic()

    def work(self) -> None:
        looks = 0
        while not self.done.wait(LOOK_S):
            quiet = time.monotonic() - self._read_s >= QUIET_S
            looks = looks + 1 if quiet and brokers_lost(self._consumer, self._conf, ANSWER_S) else 0
            if looks == LOOKS:
                self._end()


def brokers_lost(consumer: Consumer, conf: Mapping[str, str | int | float | bool], answer_s: float) -> bool:
    """Whether ``consumer`` gets no metadata, while a new client does."""
    try:
        Consumer.list_topics(consumer, timeout=answer_s)  # librdkafka's own, whatever the consumer's class
        return False
    except KafkaException:
        pass
    try:
        return bool(AdminClient(dict(conf)).list_topics(timeout=answer_s).brokers)
    except KafkaException:
        return False

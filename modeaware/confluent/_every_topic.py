"""Routes for partitioners that librdkafka does not have: every topic has one, retired partitions or not."""

from __future__ import annotations

import logging
import math
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

from modeaware import librdkafka
from modeaware.confluent._routed import Unverified
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modes import PartitionMode
from modeaware.routing import Route, route_over
from modeaware.topic_view import TopicView
from partitioners import Partitioner

logger = logging.getLogger(__name__)

PartitionCount = Callable[[str], int]
Load = Callable[[str, tuple[int, ...]], Sequence[int]]
_PASSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
_PAUSE_S = 0.1


class EveryTopic(dict[str, Route | Unverified | None]):
    """The routes in force; where none is, one over all partitions that the brokers tell of.

    How many these are is asked when a topic is first sent to, and again when that is older than ``max_age_s`` or the
    topic's view has changed, in the sender's thread. Brokers that do not answer then change nothing: the number of
    before stays. Any thread may look a route up; while one asks again, the others go by the number of before.

    Args:
        partitioner: who picks.
        count: asks the brokers; raises what the sender is to see.
        max_age_s: ``topic.metadata.refresh.interval.ms``.
        load: see :class:`~modeaware.routing.Route`.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        partitioner: Partitioner,
        count: PartitionCount,
        max_age_s: float,
        load: Load | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._partitioner = partitioner
        self._count = count
        self._max_age_s = max_age_s
        self._load = load
        self._clock = clock
        self._whole: dict[str, tuple[Route, float]] = {}  # and when it grows old

    def __setitem__(self, topic: str, route: Route | Unverified | None) -> None:
        super().__setitem__(topic, route)
        if topic in self._whole:
            self._whole[topic] = self._whole[topic][0], -math.inf

    def get(  # type: ignore[override] # one use of it
        self, topic: str, default: Route | Unverified | None = None
    ) -> Route | Unverified | None:
        route = super().get(topic)
        if route is not None:
            return route
        whole, old_s = self._whole.get(topic, (None, 0.0))
        if whole is None or self._clock() > old_s:
            whole = self._renewed(topic, whole)
        return whole

    def _renewed(self, topic: str, before: Route | None) -> Route:
        try:
            if before is not None:
                self._whole[topic] = before, self._clock() + self._max_age_s
            count = self._count(topic)
        except KafkaException as error:
            if before is None:
                raise
            logger.warning("%s: goes on with %d partitions: %s", topic, len(before.writable), error)
            return before
        if before is None or len(before.writable) != count:
            whole = TopicView(topic, modes=(PartitionMode.READ_WRITE,) * count)
            before = replace(route_over(whole, self._partitioner), load=self._load)
        self._whole[topic] = before, self._clock() + self._max_age_s
        return before


def partition_count(producer: librdkafka.Producer, timeout_s: float) -> PartitionCount:
    """Asks the brokers through ``producer``, which it does not keep alive. A topic that is being made is waited for.

    What it returns raises KafkaException: no answer, or none but errors, within ``timeout_s``.
    """
    held = weakref.ref(producer)

    def count(topic: str) -> int:
        asked = held()
        assert asked is not None, "it is the producer that sends"
        deadline_s = time.monotonic() + timeout_s
        while True:
            left_s = max(deadline_s - time.monotonic(), 0.1)
            described = librdkafka.Producer.list_topics(asked, topic, timeout=left_s).topics[topic]
            if described.error is None and described.partitions:
                return len(described.partitions)
            error = described.error or KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"{topic}: no partitions yet")
            if error.code() not in _PASSING or time.monotonic() + _PAUSE_S > deadline_s:
                raise KafkaException(error)
            time.sleep(_PAUSE_S)  # nothing tells when the brokers have made it

    return count

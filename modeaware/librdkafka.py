"""confluent_kafka's clients and admin client. Other modules import them from here; only ``modeaware.aio`` imports
``confluent_kafka.aio`` itself.

``Producer``, ``Consumer``, ``SerializingProducer`` and ``DeserializingConsumer`` are the classes that
``confluent_kafka`` exports when this module is first imported. So if a tracer or a mock has replaced such a class
before, our clients use the replacement. ``confluent_kafka`` is the module itself, with its current exports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import confluent_kafka as confluent_kafka
from confluent_kafka import OFFSET_BEGINNING as OFFSET_BEGINNING
from confluent_kafka import OFFSET_END as OFFSET_END
from confluent_kafka import OFFSET_INVALID as OFFSET_INVALID
from confluent_kafka import OFFSET_STORED as OFFSET_STORED
from confluent_kafka import Consumer as Consumer
from confluent_kafka import DeserializingConsumer as DeserializingConsumer
from confluent_kafka import IsolationLevel as IsolationLevel
from confluent_kafka import KafkaError as KafkaError
from confluent_kafka import KafkaException as KafkaException
from confluent_kafka import Message as Message
from confluent_kafka import Producer as Producer
from confluent_kafka import SerializingProducer as SerializingProducer
from confluent_kafka import TopicCollection as TopicCollection
from confluent_kafka import TopicPartition as TopicPartition
from confluent_kafka import consistent as consistent
from confluent_kafka import fnv1a as fnv1a
from confluent_kafka import murmur2 as murmur2
from confluent_kafka.admin import AdminClient as AdminClient
from confluent_kafka.admin import ClusterMetadata as ClusterMetadata
from confluent_kafka.admin import ConfigResource as ConfigResource
from confluent_kafka.admin import NewPartitions as NewPartitions
from confluent_kafka.admin import NewTopic as NewTopic
from confluent_kafka.admin import OffsetSpec as OffsetSpec
from confluent_kafka.admin import ResourceType as ResourceType

from modeaware import os_threads
from partitioners import Hash, HashFunction

NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
"""librdkafka's codes for a request that no broker answered. _DESTROY_BROKER means that the connection to a bootstrap
server has ended during the request."""
COORDINATOR_MOVES = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""Brokers' codes for a request about a group whose coordinator is moving, or has moved, to another broker."""
C_HASHES: Mapping[Hash, HashFunction] = {Hash.CRC32: consistent, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}
"""librdkafka's functions for the hashes of :mod:`partitioners`: they are faster than functions in Python."""
RENEW_S = 10.0
"""A client that gets no answer for this long is replaced. The reason: if a broker that has just started returns an
empty list of brokers, librdkafka drops all its brokers, and never connects again (librdkafka#5301)."""
REFUSED_S = 60.0
"""If no new client can be made, the next attempt to make one comes this much plus :data:`RENEW_S` later."""
TO_THE_END: Mapping[str, object] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 5,
}
"""Settings of a consumer that reads a log to its end. Only an empty response shows the end, so fetches wait briefly. If
they waited 500 ms, the default, a producer that aborts again and again could always write another marker meanwhile."""
_C = TypeVar("_C")
_A = TypeVar("_A")


def with_credentials(conf: Mapping[str, Any], username: str, password: str) -> dict[str, Any]:
    """Return ``conf`` with the SASL credentials that the application has set on its client."""
    return {**conf, "sasl.username": username, "sasl.password": password}


class Renewed(Generic[_C]):
    """A client for requests, for one thread. It is made when first needed, and replaced after :data:`RENEW_S` without
    an answer.

    Args:
        make: makes a client.
        conf: the settings for ``make``.
        close: closes a client.
    """

    def __init__(
        self,
        make: Callable[[dict[str, Any]], _C],
        conf: dict[str, Any],
        close: Callable[[_C], object] = lambda _: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make, self._close, self._monotonic_s = make, close, monotonic_s
        self._conf = self._made_with = conf
        self._client: _C | None = None
        self._silent_since_s: float | None = None

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use other credentials from the next request on. Any thread may call."""
        self._conf = with_credentials(self._conf, username, password)

    def ask(self, request: Callable[[_C], _A]) -> _A:
        """Return the result of ``request`` for the client. Exceptions of ``request`` and of ``make`` propagate."""
        now_s = self._monotonic_s()
        if self._made_with is not self._conf:
            self.close()
        if self._client is None:
            self._client = self._new()
        try:
            answer = os_threads.call(request, self._client)
        except KafkaException as error:
            if error.args[0].code() in NO_ANSWER:
                self._renew_if_silent(now_s)
            raise
        self._silent_since_s = None
        return answer

    def _renew_if_silent(self, now_s: float) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s >= RENEW_S:
            try:
                new = self._new()
            except KafkaException:  # no OAuth token within 10 s, for example: keep the old client
                self._silent_since_s = self._monotonic_s() + REFUSED_S
                return
            self.close()
            self._client, self._silent_since_s = new, self._monotonic_s()

    def _new(self) -> _C:
        conf = self._conf
        made = os_threads.call(self._make, conf)
        self._made_with = conf
        return made

    def close(self) -> None:
        client, self._client, self._silent_since_s = self._client, None, None
        if client is not None:
            os_threads.call(self._close, client)

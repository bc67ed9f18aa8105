"""confluent_kafka's serializing clients over ours."""

from __future__ import annotations

from typing import Generic, TypeVar

from modeaware import librdkafka
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer

K = TypeVar("K")
V = TypeVar("V")


class SerializingProducer(librdkafka.SerializingProducer[K, V], Producer, Generic[K, V]):
    """confluent_kafka's ``SerializingProducer`` with the same settings; it sends through :class:`modeaware.Producer`.

    Keys are hashed as they were serialized.
    """


class DeserializingConsumer(  # type: ignore[misc] # ours take any arguments, and hand them on
    librdkafka.DeserializingConsumer[K, V], Consumer, Generic[K, V]
):
    """confluent_kafka's ``DeserializingConsumer`` with the same settings; it polls through ``modeaware.Consumer``."""

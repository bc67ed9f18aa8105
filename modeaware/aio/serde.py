"""confluent_kafka's serializing asyncio clients over ours."""

from __future__ import annotations

from typing import Generic, TypeVar

from modeaware import librdkafka_aio
from modeaware.aio.consumer import AIOConsumer
from modeaware.aio.producer import AIOProducer, with_names

K = TypeVar("K")
V = TypeVar("V")


class AsyncSerializingProducer(librdkafka_aio.AsyncSerializingProducer[K, V], AIOProducer, Generic[K, V]):
    """``confluent_kafka.aio.AsyncSerializingProducer`` (experimental there) with the same settings, over
    :class:`~modeaware.aio.producer.AIOProducer`. Keys are hashed as they were serialized."""

    __init__ = with_names(librdkafka_aio.AsyncSerializingProducer.__init__, AIOProducer=AIOProducer)


class AsyncDeserializingConsumer(librdkafka_aio.AsyncDeserializingConsumer[K, V], AIOConsumer, Generic[K, V]):
    """``confluent_kafka.aio.AsyncDeserializingConsumer`` (experimental there) with the same settings, over
    :class:`~modeaware.aio.consumer.AIOConsumer`."""

    __init__ = with_names(librdkafka_aio.AsyncDeserializingConsumer.__init__, AIOConsumer=AIOConsumer)

"""confluent_kafka's asyncio clients (``confluent_kafka.aio``) on top of our clients: same constructors and methods.

Only this module imports ``confluent_kafka.aio``, so that applications without asyncio need not load it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, Generic, TypeVar

from confluent_kafka import aio as stock

from modeaware.config import with_oauth_callback
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from modeaware.confluent.router import as_kafka_error
from modeaware.librdkafka import KafkaError, Message

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]

K = TypeVar("K")
V = TypeVar("V")


def with_names(init: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """Return a copy of ``init``, a constructor of ``confluent_kafka.aio``, in which ``others`` replace globals.

    Such a constructor calls ``confluent_kafka.Producer(conf)``, and has no parameter for another class. If the stock
    client were made first and replaced later, it would have connected already. So the copy runs the constructor's code
    with another object under the name ``confluent_kafka``.
    """
    assert isinstance(init, FunctionType)
    if not others.keys() <= set(init.__code__.co_names) or init.__closure__:
        raise TypeError(f"{init.__qualname__} makes its client in another way than confluent-kafka 2.16's does")
    made = FunctionType(init.__code__, {**init.__globals__, **others}, init.__name__, init.__defaults__)
    made.__kwdefaults__ = init.__kwdefaults__
    return made


class _BatchProducer(Producer):
    """Produces a refused batch again, one message at a time, and marks each message that fails.

    ``AIOProducer`` treats an exception from ``produce_batch`` as a transient error: it fails the batch's futures, but
    keeps the messages and sends them again, for ever.
    """

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        try:
            return super().produce_batch(topic, messages, *args, **kwargs)
        except Exception as refusal:  # noqa: BLE001 - nothing is queued yet, and a partitioner may raise anything
            if len(messages) == 1:
                messages[0]["_error"] = as_kafka_error(refusal)
                return 0
        # The first view may arrive between two messages. After a retriable refusal, later records of the same key would
        # then overtake the refused record. So they are refused as well.
        queued = 0
        refused: dict[bytes, KafkaError] = {}
        for message in messages:
            key = message.get("key")
            if isinstance(key, str):  # text and its UTF-8 bytes are one key; lone surrogates are refused later
                key = key.encode(errors="surrogatepass")
            if isinstance(key, bytes) and key in refused:
                message["_error"] = refused[key]
                continue
            message.pop("_error", None)
            queued += self.produce_batch(topic, [message], *args, **kwargs)
            error = message.get("_error")
            if error is not None and error.code() == KafkaError._QUEUE_FULL and isinstance(key, bytes):
                refused[key] = error
        return queued


_init_producer = with_names(stock.AIOProducer.__init__, confluent_kafka=SimpleNamespace(Producer=_BatchProducer))


class AIOProducer(stock.AIOProducer):
    """``confluent_kafka.aio.AIOProducer`` with the same arguments and methods, over ``modeaware.Producer``.

    The ``modeaware.`` settings apply. A message gets its partition when its batch goes to librdkafka. A message that
    names a retired partition fails with a ``KafkaException`` of code ``_UNKNOWN_PARTITION``. Without a first view of
    the modes (``modeaware.on.unknown=block``) a message fails with ``_QUEUE_FULL``, and may be retried. ``close()``
    closes the inner client as well, and releases its share of the views.

    Make an instance inside a running event loop, and close it.

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException: as confluent_kafka raises it.
    """

    _producer: Producer

    def __init__(self, producer_conf: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        _init_producer(self, with_oauth_callback(producer_conf), *args, **kwargs)

    async def close(self) -> None:
        """Close the producer, then the inner client. If the producer's close fails or is cancelled, messages may be
        left. Then the inner client is left to garbage collection, because closing it would wait for these messages."""
        await super().close()
        await asyncio.get_running_loop().run_in_executor(None, self._producer.close)

    async def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Producer.writable_partitions`."""
        partitions: tuple[int, ...] = await self._call(self._producer.writable_partitions, topic)
        return partitions

    def modeaware_stats(self) -> dict[str, Any]:
        """See :meth:`modeaware.Producer.modeaware_stats`; does not wait for anything."""
        return self._producer.modeaware_stats()


_init_consumer = with_names(stock.AIOConsumer.__init__, confluent_kafka=SimpleNamespace(Consumer=Consumer))


class AIOConsumer(stock.AIOConsumer):
    """``confluent_kafka.aio.AIOConsumer`` with the same arguments, methods and callbacks, over ``modeaware.Consumer``.

    The ``modeaware.`` settings apply. Changes of modes are applied within ``poll`` and ``consume``; callbacks are
    awaited like confluent_kafka's. Make an instance inside a running event loop, and close it.

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException, ValueError: as confluent_kafka raises them.
    """

    _consumer: Consumer

    def __init__(self, consumer_conf: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        _init_consumer(self, with_oauth_callback(consumer_conf), *args, **kwargs)

    async def writable_partitions(self, topic: str) -> tuple[int, ...]:
        """See :meth:`modeaware.Consumer.writable_partitions`."""
        partitions: tuple[int, ...] = await self._call(self._consumer.writable_partitions, topic)
        return partitions

    def logical_topic(self, message: Message) -> str | None:
        """See :meth:`modeaware.Consumer.logical_topic`; does not wait for anything."""
        return self._consumer.logical_topic(message)

    def physical_topic(self, message: Message) -> str | None:
        """See :meth:`modeaware.Consumer.physical_topic`; does not wait for anything."""
        return self._consumer.physical_topic(message)

    def modeaware_stats(self) -> dict[str, Any]:
        """See :meth:`modeaware.Consumer.modeaware_stats`; does not wait for anything."""
        return self._consumer.modeaware_stats()


class AsyncSerializingProducer(stock.AsyncSerializingProducer[K, V], AIOProducer, Generic[K, V]):
    """``confluent_kafka.aio.AsyncSerializingProducer`` (experimental) with the same settings, over
    :class:`AIOProducer`. The partition depends on the serialized bytes of the key."""

    __init__ = with_names(stock.AsyncSerializingProducer.__init__, AIOProducer=AIOProducer)


class AsyncDeserializingConsumer(stock.AsyncDeserializingConsumer[K, V], AIOConsumer, Generic[K, V]):
    """``confluent_kafka.aio.AsyncDeserializingConsumer`` (experimental) with the same settings, over
    :class:`AIOConsumer`."""

    __init__ = with_names(stock.AsyncDeserializingConsumer.__init__, AIOConsumer=AIOConsumer)

"""confluent_kafka's AIOProducer, choosing among writable partitions only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

from modeaware import librdkafka_aio
from modeaware.config import with_oauth_callback
from modeaware.confluent._routed import key_bytes
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaError, KafkaException


def with_names(init: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """``init`` (a constructor of ``confluent_kafka.aio``) with ``others`` for the globals of those names.

    Those constructors make their client by ``confluent_kafka.Producer(conf)``, which nothing lets one replace: made
    first and thrown away, it would have connected already. So the same code runs with another ``confluent_kafka``.
    """
    assert isinstance(init, FunctionType)
    if not others.keys() <= set(init.__code__.co_names) or init.__closure__:
        raise TypeError(f"{init.__qualname__} makes its client in another way than confluent-kafka 2.16's does")
    made = FunctionType(init.__code__, {**init.__globals__, **others}, init.__name__, init.__defaults__)
    made.__kwdefaults__ = init.__kwdefaults__
    return made


class _BatchProducer(Producer):
    """A batch that we refuse fails message by message.

    ``AIOProducer`` takes what ``produce_batch`` raises for a passing trouble of the batch: it fails the batch's
    futures, keeps the messages nevertheless, and sends them again, for ever.
    """

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> int:
        try:
            return super().produce_batch(topic, messages, *args, **kwargs)
        except ModeAwareError as refusal:  # before anything is queued
            if len(messages) == 1:
                messages[0]["_error"] = _as_kafka_error(refusal)
                return 0
        # One may be refused for its key, and the others not. A first view may also arrive between two messages: after
        # a refusal that may be tried again, later records of that key are refused, too, or they would overtake it.
        queued = 0
        refused: dict[bytes, KafkaError] = {}
        for message in messages:
            key = key_bytes(message)
            if key in refused:
                message["_error"] = refused[key]
                continue
            message.pop("_error", None)
            queued += self.produce_batch(topic, [message], *args, **kwargs)
            error = message.get("_error")
            if error is not None and error.code() == KafkaError._QUEUE_FULL and key is not None:
                refused[key] = error
        return queued


def _as_kafka_error(refusal: ModeAwareError) -> KafkaError:
    if isinstance(refusal, KafkaException):
        error: KafkaError = refusal.args[0]
        return error
    return KafkaError(KafkaError._QUEUE_FULL, str(refusal))  # a BufferError: try again


_init = with_names(librdkafka_aio.AIOProducer.__init__, confluent_kafka=SimpleNamespace(Producer=_BatchProducer))


class AIOProducer(librdkafka_aio.AIOProducer):
    """``confluent_kafka.aio.AIOProducer`` with the same arguments and methods, over ``modeaware.Producer``.

    ``modeaware.`` settings are ours. Messages are placed when their batch goes to librdkafka. One that names a retired
    partition fails with a ``KafkaException`` of code ``_UNKNOWN_PARTITION``; without a first view of the modes
    (``modeaware.on.unknown=block``) with ``_QUEUE_FULL``, and may be tried again. ``close()`` closes the client inside
    as well, and gives its share of the views back.

    To be made inside a running event loop, and closed.

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException: as confluent_kafka.
    """

    _producer: Producer

    def __init__(self, producer_conf: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        _init(self, with_oauth_callback(producer_conf), *args, **kwargs)

    async def close(self) -> None:
        """As ``confluent_kafka.aio.AIOProducer.close``. Where that fails or is cancelled, messages may be outstanding,
        and the client inside, whose own close waits for them, goes when it is dropped."""
        await super().close()
        await asyncio.get_running_loop().run_in_executor(None, self._producer.close)

    def modeaware_stats(self) -> dict[str, Any]:
        """See :meth:`modeaware.Producer.modeaware_stats`; does not wait for anything."""
        return self._producer.modeaware_stats()

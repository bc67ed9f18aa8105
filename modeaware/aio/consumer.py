"""confluent_kafka's AIOConsumer, reading the partitions that are not in mode None."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from modeaware import librdkafka_aio
from modeaware.aio.producer import with_names
from modeaware.config import with_oauth_callback
from modeaware.confluent.consumer import Consumer

_init = with_names(librdkafka_aio.AIOConsumer.__init__, confluent_kafka=SimpleNamespace(Consumer=Consumer))


class AIOConsumer(librdkafka_aio.AIOConsumer):
    """``confluent_kafka.aio.AIOConsumer`` with the same arguments, methods and callbacks, over ``modeaware.Consumer``.

    ``modeaware.`` settings are ours. Changes of modes are applied within ``poll`` and ``consume``; callbacks are
    awaited as confluent_kafka's are. To be made inside a running event loop, and closed.

    Raises:
        ConfigError: an unknown or bad ``modeaware.`` setting.
        KafkaException, ValueError: as confluent_kafka.
    """

    _consumer: Consumer

    def __init__(self, consumer_conf: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        _init(self, with_oauth_callback(consumer_conf), *args, **kwargs)

    def modeaware_stats(self) -> dict[str, Any]:
        """See :meth:`modeaware.Consumer.modeaware_stats`; does not wait for anything."""
        return self._consumer.modeaware_stats()

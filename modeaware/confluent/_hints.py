"""Errors that show that metadata may be old, passed on to the source of the views.

Only ``error_cb`` is listened to, and only where the application has one: it is called when something is wrong and never
per record. Delivery reports and messages go past: a look at each of them would be on the way of every record, and one
``error_cb`` of ours where there was none would silence what librdkafka logs instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modeaware.librdkafka import KafkaError
from modeaware.views.source import Views

STALE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
    }
)
"""The codes after which a client of Kafka asks for metadata again."""


class Hints:
    """Wraps a client's ``error_cb``.

    Attributes:
        views: who is told; None until the client has its share.
    """

    def __init__(self) -> None:
        self.views: Views | None = None

    def listening(self, conf: Any) -> Any:
        """``conf`` with its ``error_cb`` listened to, where it has one."""
        callback = conf.get("error_cb") if isinstance(conf, dict) else None
        return {**conf, "error_cb": self._over(callback)} if callable(callback) else conf

    def _over(self, callback: Callable[[KafkaError], Any]) -> Callable[[KafkaError], Any]:
        def error_cb(error: KafkaError) -> Any:
            if self.views is not None and error.code() in STALE:
                self.views.refresh_soon()
            return callback(error)

        return error_cb

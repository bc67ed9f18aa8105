"""kafka-python's clients, aware of partition modes: same constructors, methods and callbacks, same views as
:mod:`modeaware`'s other clients.

``KafkaProducer`` and ``KafkaConsumer`` take kafka-python's keyword arguments, and ours
(:class:`modeaware.config.ClientConfig`) with underscores: ``modeaware_view_timeout_ms``.
"""

from __future__ import annotations

from modeaware.kafka_python.assignors import (
    ReadableCooperativeStickyAssignor,
    ReadableRangeAssignor,
    ReadableRoundRobinAssignor,
    ReadableStickyAssignor,
)
from modeaware.kafka_python.consumer import KafkaConsumer
from modeaware.kafka_python.errors import (
    FirstViewPending,
    FirstViewTimeout,
    HeldKeyError,
    MovedKeyError,
    RetiredPartitionError,
)
from modeaware.kafka_python.producer import KafkaProducer

__all__ = [
    "FirstViewPending",
    "FirstViewTimeout",
    "HeldKeyError",
    "KafkaConsumer",
    "KafkaProducer",
    "MovedKeyError",
    "ReadableCooperativeStickyAssignor",
    "ReadableRangeAssignor",
    "ReadableRoundRobinAssignor",
    "ReadableStickyAssignor",
    "RetiredPartitionError",
]

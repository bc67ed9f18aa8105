"""kafka-python's clients, aware of partition modes, with the same constructors, methods and callbacks. They share their
views with :mod:`modeaware`'s other clients in the process.

``KafkaProducer`` and ``KafkaConsumer`` take kafka-python's keyword arguments, and ours
(:class:`modeaware.config.ClientConfig`) with underscores: ``modeaware_view_timeout_ms``.
"""

from __future__ import annotations

try:
    from modeaware.kafka_python import _gateway as _gateway
except ModuleNotFoundError as missing:
    if missing.name != "kafka":
        raise  # kafka-python has another release, or another package has this name
    raise ModuleNotFoundError(
        "modeaware.kafka_python needs kafka-python: install modeaware[kafka-python]", name=missing.name
    ) from missing

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
    ReplacedTopicError,
    RetiredPartitionError,
)
from modeaware.kafka_python.producer import KafkaProducer

__all__ = [
    "FirstViewPending",
    "FirstViewTimeout",
    "KafkaConsumer",
    "KafkaProducer",
    "ReadableCooperativeStickyAssignor",
    "ReadableRangeAssignor",
    "ReadableRoundRobinAssignor",
    "ReadableStickyAssignor",
    "ReplacedTopicError",
    "RetiredPartitionError",
]

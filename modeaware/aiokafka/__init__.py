"""aiokafka's producer, aware of partition modes: same constructor and methods, same views as :mod:`modeaware`'s other
clients.

``AIOKafkaProducer`` takes aiokafka's keyword arguments, and ours (:class:`modeaware.config.ClientConfig`) with
underscores: ``modeaware_view_timeout_ms``. aiokafka's consumer needs none of ours (``docs/adoption.md``).
"""

from __future__ import annotations

try:
    from modeaware.aiokafka import producer as producer
except ModuleNotFoundError as missing:
    if missing.name != "aiokafka":
        raise  # it is installed in another release, or another package has this name
    raise ModuleNotFoundError(
        "modeaware.aiokafka needs aiokafka: install modeaware[aiokafka]", name=missing.name
    ) from missing

from modeaware.aiokafka.producer import (
    AIOKafkaProducer,
    FirstViewPending,
    FirstViewTimeout,
    MovedKeyError,
    ReplacedTopicError,
    RetiredPartitionError,
)

__all__ = [
    "AIOKafkaProducer",
    "FirstViewPending",
    "FirstViewTimeout",
    "MovedKeyError",
    "ReplacedTopicError",
    "RetiredPartitionError",
]

"""aiokafka's producer, aware of partition modes: same constructor and methods, same views as :mod:`modeaware`'s other
clients.

``AIOKafkaProducer`` takes aiokafka's keyword arguments, and ours (:class:`modeaware.config.ClientConfig`) with
underscores: ``modeaware_view_timeout_ms``. aiokafka's consumer needs none of ours (``docs/adoption.md``).
"""

from __future__ import annotations

try:
    from modeaware.aiokafka import _gateway as _gateway
except ModuleNotFoundError as missing:
    if missing.name != "aiokafka":
        raise  # it is there, in another release, or another package of this name
    raise ModuleNotFoundError(
        "modeaware.aiokafka needs aiokafka: install modeaware[aiokafka]", name=missing.name
    ) from missing

from modeaware.aiokafka.errors import FirstViewPending, FirstViewTimeout, MovedKeyError, RetiredPartitionError
from modeaware.aiokafka.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer", "FirstViewPending", "FirstViewTimeout", "MovedKeyError", "RetiredPartitionError"]

"""What this client raises: errors that are ours and aiokafka's at once, so that code written for either catches
them."""

from __future__ import annotations

from modeaware.aiokafka._gateway import KafkaError, KafkaTimeoutError
from modeaware.errors import KeyMoved, ModeSourceError, PartitionRetired, ViewTimeout


class RetiredPartitionError(PartitionRetired, KafkaError, ValueError):  # type: ignore[misc,unused-ignore]  # untyped
    """A record was addressed to a partition that takes no writes; it was not queued. A ValueError as well, as with
    kafka-python. ``code`` is ``POLICY_VIOLATION``."""


class FirstViewTimeout(ViewTimeout, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``error``."""


class FirstViewPending(ModeSourceError, KafkaTimeoutError, BufferError):  # type: ignore[misc,unused-ignore]  # untyped
    """No first view within ``modeaware_view_timeout_ms``, and ``modeaware_on_unknown`` is ``block``: try again. A
    ``KafkaTimeoutError``, and a BufferError as with confluent_kafka."""


class MovedKeyError(KeyMoved, KafkaError):  # type: ignore[misc,unused-ignore]  # untyped
    """A key has moved, and ``modeaware_on_resize`` is ``error``; nothing was queued."""

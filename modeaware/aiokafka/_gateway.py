"""The one place of this package that imports aiokafka; the rest of it takes its names from here.

``AIOKafkaProducer`` is whatever ``aiokafka`` exports when this module is first imported, so a tracer or mock that
replaced it there earlier stays in effect underneath ours.
"""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, KafkaTimeoutError

__all__ = ["AIOKafkaProducer", "KafkaError", "KafkaTimeoutError"]

"""confluent_kafka's asyncio clients (``confluent_kafka.aio``) over ours: same constructors and methods."""

from __future__ import annotations

from modeaware.aio.consumer import AIOConsumer
from modeaware.aio.producer import AIOProducer
from modeaware.aio.serde import AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]

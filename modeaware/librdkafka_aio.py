"""The one place that imports confluent_kafka's asyncio clients, apart from the others so that they need not load it."""

from __future__ import annotations

from confluent_kafka.aio import AIOConsumer, AIOProducer, AsyncDeserializingConsumer, AsyncSerializingProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer"]

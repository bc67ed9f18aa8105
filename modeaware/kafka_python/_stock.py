"""Offsets asked of kafka-python's consumer."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from modeaware.kafka_python._gateway import KafkaTimeoutError
from modeaware.kafka_python._starts import Offsets, Partition

log = logging.getLogger(__name__)


class Stock:
    """What :class:`Starts` asks of kafka-python."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def fetch_committed(self, partitions: set[Partition], timeout_ms: float | None) -> Any:
        return self._consumer._coordinator.fetch_committed_offsets(partitions, timeout_ms=timeout_ms)

    def beginning_offsets(self, partitions: set[Partition], timeout_ms: float | None) -> Any:
        return self._by_leader(self._consumer.beginning_offsets, partitions, timeout_ms)

    def end_offsets(self, partitions: set[Partition], timeout_ms: float | None) -> Any:
        return self._by_leader(self._consumer.end_offsets, partitions, timeout_ms)

    def _by_leader(
        self, ask: Callable[..., Offsets], partitions: set[Partition], timeout_ms: float | None
    ) -> dict[Partition, int]:
        """Ask for each broker's partitions apart: one that is away must not keep the others' from being read."""
        leaders: dict[Any, list[Partition]] = defaultdict(list)
        for partition in partitions:
            leaders[self._consumer._cluster.leader_for_partition(partition)].append(partition)
        found: Offsets = {}
        for leader, led in leaders.items():
            if leader in (None, -1):
                continue
            try:
                found.update(ask(led, timeout_ms=timeout_ms))
            except KafkaTimeoutError as error:
                log.debug("start offsets of %s: %s", led, error)
        return found

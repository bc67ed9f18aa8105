"""Commits of partitions that delivered nothing, where the group has no commit for them."""

from __future__ import annotations

import logging
from typing import Any

from modeaware.kafka_python._gateway import KafkaError
from modeaware.kafka_python._holding import Holding
from modeaware.kafka_python._starts import Starts

log = logging.getLogger(__name__)

TIMEOUT_MS = 5000


class IdleCommits:
    """Commits where idle partitions started, from the polling thread.

    Those in mode ReadOnly, which the controller waits for. Under a cooperative protocol, which tells of a revocation
    when the positions are gone, also those that a change of modes may take away: under ``latest`` the next owner would
    skip what has come since. (For eager ones :class:`~modeaware.kafka_python._listener.HeldListener` does it.)

    Args:
        coordinator: kafka-python's ConsumerCoordinator.
        changed: topics whose modes changed since the last assignment.
        before_moves: the protocol is cooperative, and the application commits by itself.
    """

    def __init__(
        self, coordinator: Any, holding: Holding, starts: Starts, changed: set[str], *, before_moves: bool
    ) -> None:
        self._coordinator = coordinator
        self._holding = holding
        self._starts = starts
        self._changed = changed
        self._before_moves = before_moves

    def commit(self) -> bool:
        """Whether all of them are committed now; else try again."""
        positions = self._holding.positions()
        idle = self._starts.idle(positions, read_only=True)
        if self._before_moves and self._changed:
            every = self._starts.idle(positions, read_only=False)
            idle |= {partition: offset for partition, offset in every.items() if partition.topic in self._changed}
        if not idle:
            return True
        try:
            # Asked now: a member before us, or the application by other means, may have committed since.
            known = self._coordinator.fetch_committed_offsets(set(idle), timeout_ms=TIMEOUT_MS)
            self._starts.has_commit.update(known)
            without = {partition: offset for partition, offset in idle.items() if partition not in known}
            self._coordinator.commit_offsets_sync(without, timeout_ms=TIMEOUT_MS)
            self._starts.has_commit.update(without)
        except KafkaError as error:
            log.warning("start offsets of %d idle partitions not committed: %s", len(idle), error)
            return False
        return True

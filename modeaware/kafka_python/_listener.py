"""The application's rebalance listener, shown what is really held."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

from modeaware.kafka_python._gateway import AsyncConsumerRebalanceListener, KafkaError
from modeaware.kafka_python._holding import Holding
from modeaware.kafka_python._starts import Partition, Starts

log = logging.getLogger(__name__)


class HeldListener(AsyncConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]  # untyped
    """Stands between kafka-python's coordinator and the application's listener, if it has one.

    kafka-python calls it in its own thread, within a rebalance; mid-life changes are told by :meth:`tell`.

    Args:
        inner: the application's listener, of either kind, or None.
        coordinator: kafka-python's ConsumerCoordinator, for commits in its thread.
        incremental: the protocol is cooperative.
        auto_commit: ``enable_auto_commit``: kafka-python commits all positions before a rebalance.
        changed: topics whose modes changed since the last assignment; cleared here.
    """

    def __init__(
        self,
        inner: Any,
        holding: Holding,
        starts: Starts,
        coordinator: Callable[[], Any],
        *,
        incremental: bool,
        auto_commit: bool,
        changed: set[str],
    ) -> None:
        self.inner = inner
        self.incremental = incremental
        self._holding = holding
        self._starts = starts
        self._coordinator = coordinator
        self._auto_commit = auto_commit
        self._changed = changed

    async def on_partitions_assigned(self, assigned: Iterable[Partition]) -> None:
        new = set(assigned)
        self._holding.settle()
        self._changed.clear()
        shown = new - self._holding.hidden
        if shown or not (new and self.incremental):
            await self.tell("on_partitions_assigned", shown)

    async def on_partitions_revoked(self, revoked: Iterable[Partition]) -> None:
        given = set(revoked)
        held = given - self._holding.hidden
        try:
            # A revocation of hidden partitions only is none to the application.
            if held or not (given and self.incremental):
                await self.tell("on_partitions_revoked", held)
        finally:
            await self._commit_idle(given)

    async def on_partitions_lost(self, lost: Iterable[Partition]) -> None:
        await self.tell("on_partitions_lost", set(lost) - self._holding.hidden)

    async def tell(self, method: str, partitions: set[Partition]) -> None:
        """Call the application's listener, synchronous or not."""
        if self.inner is None:
            return
        answer = getattr(self.inner, method)(partitions)
        if inspect.isawaitable(answer):
            await answer

    async def _commit_idle(self, revoked: set[Partition]) -> None:
        """Under ``latest``, whoever gets an idle partition next would skip what has come since.

        With ``enable_auto_commit`` kafka-python has just committed every position.
        """
        if self._auto_commit:
            return
        idle = self._starts.idle(self._holding.positions(), read_only=False)
        idle = {p: offset for p, offset in idle.items() if p in revoked and p.topic in self._changed}
        if not idle:
            return
        coordinator = self._coordinator()
        try:
            committed = await coordinator.fetch_committed_offsets_async(set(idle), timeout_ms=5000)
            wanted = {p: offset for p, offset in idle.items() if p not in committed}
            await coordinator._commit_offsets_sync_async(wanted, timeout_ms=5000)
        except KafkaError as error:
            log.warning("start offsets of %d idle partitions not committed: %s", len(idle), error)

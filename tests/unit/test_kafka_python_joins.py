"""Joins of kafka-python's that end between two polls."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.kafka_python.joins import keep_joins

SESSION_TIMEOUT_MS = 10_000


class Coordinator:
    """kafka-python's, as far as a join needs it: each join is a generation of its own."""

    def __init__(self) -> None:
        self.config = {"session_timeout_ms": SESSION_TIMEOUT_MS}
        self.joins = 0
        self._generation: Any = None
        self._joined_subscription = {"orders"}
        self._subscription = SimpleNamespace(subscription={"orders"})
        self.is_rebalancing = False

    def rebalance_in_progress(self) -> bool:
        return self.is_rebalancing

    async def _do_join_and_sync_async(self) -> bytes:
        self.joins += 1
        self.is_rebalancing, self._generation = True, object()
        return b"%d" % self.joins

    def poll_joins(self) -> bytes:
        """A poll that finds no join under way begins one, and does not wait for it."""
        return asyncio.run(self._do_join_and_sync_async())


def taken(coordinator: Coordinator) -> None:
    coordinator.is_rebalancing = False


def dropped(coordinator: Coordinator) -> None:
    coordinator._generation = object()


def subscribed_to_more(coordinator: Coordinator) -> None:
    coordinator._subscription.subscription = {"orders", "orders-v2"}


@pytest.mark.parametrize(
    ("happens", "wait_s", "joins"),
    [
        (None, 4.9, b"1"),
        (None, 5.0, b"2"),
        (taken, 0.0, b"2"),
        (dropped, 0.0, b"2"),
        (subscribed_to_more, 0.0, b"2"),
    ],
    ids=["kept", "too old", "taken by a poll", "dropped by the group", "of another subscription"],
)
def test_join_that_ends_between_two_polls_is_kept(happens: Any, wait_s: float, joins: bytes) -> None:
    coordinator, now_s = Coordinator(), [0.0]
    keep_joins(coordinator, lambda: now_s[0])
    assert coordinator.poll_joins() == b"1"
    if happens is not None:
        happens(coordinator)
    now_s[0] += wait_s
    assert coordinator.poll_joins() == joins


def test_join_is_kept_for_one_poll() -> None:
    coordinator = Coordinator()
    keep_joins(coordinator, lambda: 0.0)
    assert [coordinator.poll_joins() for _ in range(4)] == [b"1", b"1", b"2", b"2"]


def test_start_of_each_join_is_reported_and_a_kept_join_does_not_start_again() -> None:
    coordinator = Coordinator()
    joins_before: list[int] = []
    keep_joins(coordinator, lambda: 0.0, begins=lambda: joins_before.append(coordinator.joins))
    for _ in range(3):
        coordinator.poll_joins()
    assert joins_before == [0, 1]


def test_join_that_fails_is_not_kept() -> None:
    async def fails(_: Coordinator) -> bytes:
        raise ConnectionError

    coordinator = type("Failing", (Coordinator,), {"_do_join_and_sync_async": fails})()
    keep_joins(coordinator, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            coordinator.poll_joins()

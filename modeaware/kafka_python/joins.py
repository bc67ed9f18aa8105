"""Joins of a kafka-python consumer that end between two polls.

kafka-python (3.0.12) joins its group in a task, for which a poll waits up to the poll's timeout. If the task has ended
before a later poll, this poll ignores the result and joins again. Brokers answer the requests of one connection in
order. So a request to the coordinator between two polls (for commits, say) returns only after the join has ended. Then
the next poll joins again: an application that sends such requests between short polls would never get an assignment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple


class _Ended(NamedTuple):
    """A join that has ended: the generation, the assignment, and the time of the end."""

    generation: Any
    assignment: bytes
    at_s: float


def keep_joins(
    coordinator: Any, now_s: Callable[[], float] = time.monotonic, *, begins: Callable[[], object] = lambda: None
) -> None:
    """Make the next poll use the result of a join that ended between two polls, instead of joining again.

    A member sends no heartbeats while it joins, and brokers remove it after the session timeout. So the result is kept
    for half of this timeout.

    Args:
        begins: called in kafka-python's thread before a join is sent.
    """
    join_and_sync = type(coordinator)._do_join_and_sync_async
    keep_s = coordinator.config["session_timeout_ms"] / 2000
    ended: _Ended | None = None

    def is_of_use(last: _Ended) -> bool:
        is_open = coordinator.rebalance_in_progress() and last.generation is coordinator._generation
        is_current = coordinator._joined_subscription == coordinator._subscription.subscription
        return is_open and is_current and now_s() < last.at_s + keep_s

    async def join() -> Any:
        nonlocal ended
        last, ended = ended, None
        if last is not None and is_of_use(last):
            return last.assignment
        begins()
        assignment = await join_and_sync(coordinator)
        ended = _Ended(coordinator._generation, assignment, now_s())
        return assignment

    coordinator._do_join_and_sync_async = join

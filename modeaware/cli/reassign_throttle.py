"""The throttle of ``--execute``, and what becomes of it where that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType

from modeaware.admin.reassignments import PartitionKey, list_reassignments
from modeaware.admin.throttle import (
    FOLLOWER_RATE,
    LEADER_RATE,
    LOG_DIRS_RATE,
    Move,
    clear_throttles,
    set_broker_configs,
    set_throttle,
)
from modeaware.cli import reassign_text as text
from modeaware.errors import ModeAwareError
from modeaware.wire.brokers.client import Brokers


class Throttle:
    """Throttles that are set for what is started within ``with``; left by an error, it says that they stay.

    Args:
        moving: what will move.
        command: the command that was given, without its action: for ``--verify``.
    """

    def __init__(self, brokers: Brokers, moving: Mapping[PartitionKey, Move], command: str) -> None:
        self._brokers, self._moving, self._command = brokers, moving, command
        self._rates: dict[str, set[int]] = {}

    def between_brokers(self, rate: int) -> None:
        """Bytes per second between brokers.

        Raises:
            ClusterError: not all of it was set.
        """
        nodes = {broker for move in self._moving.values() for broker in move.sources | move.destinations}
        self._rates |= {LEADER_RATE: nodes, FOLLOWER_RATE: nodes}
        if dead := set_throttle(self._brokers, self._moving, rate):
            nodes.difference_update(dead)
            print(text.not_throttled(dead), file=sys.stderr)
        print(f"The inter-broker throttle limit was set to {rate} B/s")

    def between_folders(self, rate: int, nodes: Iterable[int]) -> None:
        """Bytes per second between directories of these brokers.

        Raises:
            ClusterError: not all of it was set.
        """
        self._rates[LOG_DIRS_RATE] = {*nodes}
        set_broker_configs(self._brokers, self._rates[LOG_DIRS_RATE], {LOG_DIRS_RATE: str(rate)})
        print(f"The replica-alter-dir throttle limit was set to {rate} B/s")

    def not_needed(self) -> None:
        """Nothing was started: removed again, unless something else is in progress, or that fails."""
        with suppress(ModeAwareError):  # that it stays is told then; the refusal matters more
            if not self._rates or list_reassignments(self._brokers):
                return
            topics = sorted({topic for topic, _ in self._moving}) if LEADER_RATE in self._rates else []
            nodes = set[int]().union(*self._rates.values())
            clear_throttles(self._brokers, nodes, topics, self._rates)
            self._rates = {}
            print("Nothing was started; the throttle is removed again", file=sys.stderr)

    def __enter__(self) -> Throttle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._rates:
            print(text.throttle_stays(self._command), file=sys.stderr)

"""How far planned reassignments have come: the facts of ``--verify``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from modeaware.admin.reassignments import (
    PartitionKey,
    PartitionReassignment,
    Replicas,
    assigned_replicas,
    list_reassignments,
)
from modeaware.wire.brokers.client import Brokers

HEARD_PAUSES_S = (0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 1.0)
"""How long a broker's metadata may lag behind the controller that ends a reassignment: about 3 s."""


@dataclass(frozen=True)
class MoveState:
    """One planned partition.

    Attributes:
        current: its replicas; empty where there is no such partition.
        target: the planned ones.
        active: whether a reassignment of it, this or another, is in progress.
    """

    current: Replicas
    target: Replicas
    active: bool

    @property
    def completed(self) -> bool:
        """It is where it was to go."""
        return not self.active and self.current == self.target


def look(
    brokers: Brokers, plan: Mapping[PartitionKey, Replicas], pauses_s: Iterable[float] = ()
) -> tuple[dict[PartitionKey, MoveState], dict[PartitionKey, PartitionReassignment]]:
    """The state of each planned partition, and everything that is in progress in the cluster.

    Args:
        pauses_s: while a partition is neither moving nor where it was to go, look again after each of these: the
            broker that answers may not have heard yet.

    Raises:
        RequestRefused: not authorized, say.
        ClusterError: no answer.
    """
    found, in_progress = _look(brokers, plan)
    for pause_s in pauses_s:
        if all(state.active or state.completed for state in found.values()):
            break
        time.sleep(pause_s)  # nothing tells when a broker has heard
        found, in_progress = _look(brokers, plan)
    return found, in_progress


def _look(
    brokers: Brokers, plan: Mapping[PartitionKey, Replicas]
) -> tuple[dict[PartitionKey, MoveState], dict[PartitionKey, PartitionReassignment]]:
    in_progress = list_reassignments(brokers)
    current = assigned_replicas(brokers, (topic for topic, _ in plan))
    return states(plan, current, in_progress), in_progress


def states(
    plan: Mapping[PartitionKey, Replicas],
    current: Mapping[PartitionKey, Replicas],
    in_progress: Mapping[PartitionKey, PartitionReassignment],
) -> dict[PartitionKey, MoveState]:
    """The same from what was asked."""
    return {
        key: MoveState(
            in_progress[key].replicas if key in in_progress else current.get(key, ()), target, key in in_progress
        )
        for key, target in plan.items()
    }

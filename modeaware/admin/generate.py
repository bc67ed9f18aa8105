"""A proposal for ``--generate``: the partitions of topics spread evenly over some brokers, and their racks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

from modeaware.admin.reassignments import PartitionKey, PartitionReassignment, Replicas
from modeaware.errors import ErrorCode, RequestRefused


def settled(
    current: Mapping[PartitionKey, Replicas], in_progress: Mapping[PartitionKey, PartitionReassignment]
) -> dict[PartitionKey, Replicas]:
    """The replicas as they were before what is in progress, which is what a rollback goes back to.

    Metadata names all replicas of a partition that is moving, old and new; taken for its assignment, they would raise
    its replication factor (KIP-860).
    """
    return {key: in_progress[key].original if key in in_progress else ids for key, ids in current.items()}


def doubtful(
    current: Mapping[PartitionKey, Replicas], in_progress: Mapping[PartitionKey, PartitionReassignment]
) -> list[PartitionKey]:
    """Those of which :func:`settled` may name others than were there before anything moved, sorted.

    A reassignment that is sent to other brokers while it goes on counts all that were there by then as the replicas
    before. It shows by their number, but so does a wanted change of the replication factor.
    """
    moving = {key: in_progress[key] for key in current if key in in_progress}
    return sorted(key for key, each in moving.items() if len(each.original) != len(each.target))


def propose(
    current: Mapping[PartitionKey, Replicas],
    racks: Mapping[int, str | None],
    in_progress: Mapping[PartitionKey, PartitionReassignment],
    start: Callable[[int], int],
) -> dict[PartitionKey, Replicas]:
    """New replicas for all these partitions, each with as many as it has.

    Leaders go round the brokers, followers begin at another distance in each round, and a partition's replicas are on
    as many racks as there are, as far as it has replicas.

    Args:
        racks: the brokers to use, and the rack of each; None: no racks are told apart.
        in_progress: a partition in it counts with the replicas it will have.
        start: a number below its argument, by chance: where a topic begins, so that many small topics spread too.

    Raises:
        RequestRefused: fewer brokers than replicas.
    """
    ring = _ring(racks)
    proposed: dict[PartitionKey, Replicas] = {}
    for topic in sorted({topic for topic, _ in current}):
        first, distance = start(len(ring)), start(len(ring))
        for place, partition in enumerate(sorted(p for name, p in current if name == topic)):
            key = (topic, partition)
            count = len(in_progress[key].target if key in in_progress else current[key])
            if count > len(ring):
                raise RequestRefused(
                    f"{topic}-{partition} has replication factor {count}: larger than the number of "
                    f"brokers to use, {len(ring)}",
                    code=ErrorCode.INVALID_REPLICATION_FACTOR,
                    topic=topic,
                    partition=partition,
                )
            proposed[key] = _replicas(ring, racks, first + place, distance + place // len(ring), count)
    return proposed


def _ring(racks: Mapping[int, str | None]) -> list[int]:
    """The brokers so that neighbours are on different racks as far as that goes: one of each rack in turns."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    ordered = [by_rack[rack] for rack in sorted(by_rack, key=str)]
    return [broker for turn in zip_longest(*ordered) for broker in turn if broker is not None]


def _replicas(ring: list[int], racks: Mapping[int, str | None], lead: int, distance: int, count: int) -> Replicas:
    leader = ring[lead % len(ring)]
    others = [ring[(lead + 1 + (distance + step) % max(len(ring) - 1, 1)) % len(ring)] for step in range(len(ring) - 1)]
    chosen = [leader]
    while len(chosen) < count:
        used = [racks[broker] for broker in chosen]
        left = [broker for broker in others if broker not in chosen]
        chosen.append(
            min(left, key=lambda broker: used.count(racks[broker]))
        )  # the first of those on the least used rack
    return tuple(chosen)

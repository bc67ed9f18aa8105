"""How much of a reassignment's records has been copied, by the sizes of the replicas' logs."""

from __future__ import annotations

from collections.abc import Mapping

from modeaware.admin.log_dirs import Replica, placed
from modeaware.admin.reassignments import PartitionKey, PartitionReassignment
from modeaware.wire.brokers.client import Brokers


def replica_sizes(brokers: Brokers, in_progress: Mapping[PartitionKey, PartitionReassignment]) -> dict[Replica, int]:
    """The bytes of each replica of these partitions; of a broker that does not say, there are none.

    Raises:
        ClusterError: no broker answered.
    """
    replicas = [(topic, p, broker) for (topic, p), each in in_progress.items() for broker in each.replicas]
    return {each.replica: each.size for each in placed(brokers, replicas) if not each.is_future}


def copied(key: PartitionKey, reassignment: PartitionReassignment, sizes: Mapping[Replica, int]) -> tuple[int, int]:
    """Bytes that the added replicas have, and that they are to have: as many as the largest of the old ones."""
    topic, partition = key
    whole = max((sizes.get((topic, partition, node), 0) for node in reassignment.original), default=0)
    have = [sizes.get((topic, partition, node), 0) for node in reassignment.adding_replicas]
    return sum(min(size, whole) for size in have), whole * len(have)

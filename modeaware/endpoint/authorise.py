"""What a broker says its user may do, from the authorised operations in its Metadata answers (KIP-430)."""

from __future__ import annotations

from enum import IntEnum

NOT_SAID = -(2**31)
"""The bit field of an answer that was not asked for operations, or of a broker that does not tell them."""


class AclOperation(IntEnum):
    """Kafka's operations; the number is the operation's bit."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


DELETE_PARTITIONS_NEEDS = frozenset({AclOperation.ALTER, AclOperation.DELETE})
"""What DeletePartitions needs on its topic."""
CREATE_PARTITIONS_NEEDS = frozenset({AclOperation.ALTER})
"""What CreatePartitions needs on its topic, as with Kafka's own brokers."""
GROUP_RULES_NEED = frozenset({AclOperation.ALTER})
"""What AlterGroupRules needs on the topic a rule names, or on the cluster."""


def granted(bitfield: int | None) -> frozenset[AclOperation]:
    """The operations in an ``authorized_operations`` field. Doubt means none: :data:`NOT_SAID`, None, or negative."""
    if bitfield is None or bitfield < 0:
        return frozenset()
    return frozenset(operation for operation in AclOperation if bitfield >> operation & 1)

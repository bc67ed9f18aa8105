"""What is to be created and what came of it: confluent_kafka's classes with KIP-195's form and KIP-409's minimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from modeaware import librdkafka_admin
from modeaware.errors import CreatedUnderReplicated


class NewTopic(librdkafka_admin.NewTopic):
    """confluent_kafka's NewTopic, and how many replicas of each partition have to be alive (KIP-409).

    Args:
        args, kwargs: as the stock class takes them: ``topic``, ``num_partitions``, ``replication_factor``,
            ``replica_assignment``, ``config``.
        min_required_replication_factor: the topic may be created while some of its brokers are down, as long as each
            partition has this many replicas on live ones, and the controller's ``modeaware.under.replicated.creation``
            allows it. None: the stock class, which asks for nothing.

    Raises:
        TypeError, ValueError: the minimum is not an int, or below 1.
    """

    def __init__(self, *args: Any, min_required_replication_factor: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.min_required_replication_factor = _checked_minimum(min_required_replication_factor)


class NewPartitions(librdkafka_admin.NewPartitions):
    """confluent_kafka's NewPartitions, and how many replicas of each new partition have to be alive (KIP-409).

    Args:
        args, kwargs: as the stock class takes them: ``topic``, ``new_total_count``, ``replica_assignment``.
        min_required_replication_factor: as of :class:`NewTopic`.

    Raises:
        TypeError, ValueError: the minimum is not an int, or below 1.
    """

    def __init__(self, *args: Any, min_required_replication_factor: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.min_required_replication_factor = _checked_minimum(min_required_replication_factor)

    @classmethod
    def increase_to(
        cls,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        min_required_replication_factor: int | None = None,
    ) -> NewPartitions:
        """KIP-195's ``NewPartitions.increaseTo``; which topic is said by the mapping that it stands in.

        Args:
            count: how many partitions there are to be in all; of a topic with retired partitions: writable ones.
            assignments: for each really new partition its brokers, the preferred leader first; as many lists as there
                are new partitions, each as long as the topic's replication factor. None: the cluster decides.
            min_required_replication_factor: as of :class:`NewTopic`.
        """
        chosen = {} if assignments is None else {"replica_assignment": [list(brokers) for brokers in assignments]}
        return cls("", count, min_required_replication_factor=min_required_replication_factor, **chosen)


@dataclass(frozen=True)
class CreationResult:
    """What was created, and which of it is not fully replicated (yet): read from the cluster's metadata afterwards.

    Attributes:
        topic: the topic's name.
        partitions: the new partitions; () where retired ones were revived and that was enough.
        under_replicated: new partition -> its brokers that are not in sync, those that are down; they follow when they
            are back. Empty: all replicas are there.
        validate_only: nothing was created: ``partitions`` and ``under_replicated`` are what would have come of it.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    under_replicated: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    validate_only: bool = False

    def raise_for_under_replication(self) -> None:
        """Raise an error where replicas are missing.

        Raises:
            CreatedUnderReplicated: it was created, and some replicas are missing (KIP-409's CREATED_UNDER_REPLICATED).
        """
        if self.under_replicated and not self.validate_only:
            raise CreatedUnderReplicated(f"{self.describe()}; they follow when the brokers are back", topic=self.topic)

    def describe(self) -> str:
        """One line for people."""
        done = "can be created" if self.validate_only else "created"
        if not self.under_replicated:
            return f"topic {self.topic!r}: {done}"
        missing = ", ".join(f"{p} (brokers {_listed(ids)})" for p, ids in sorted(self.under_replicated.items())[:5])
        more = f" and {len(self.under_replicated) - 5} more" if len(self.under_replicated) > 5 else ""
        return f"topic {self.topic!r}: {done} under-replicated; replicas are missing of partitions {missing}{more}"


def minimum_of(new: librdkafka_admin.NewTopic | librdkafka_admin.NewPartitions) -> int | None:
    """The minimum asked for; None for the stock classes, which have none."""
    minimum: int | None = getattr(new, "min_required_replication_factor", None)
    return minimum


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(str(node_id) for node_id in ids)


def _checked_minimum(minimum: int | None) -> int | None:
    if minimum is None:
        return None
    if isinstance(minimum, bool) or not isinstance(minimum, int):
        raise TypeError(f"the minimum replication factor must be an int, not {minimum!r}")
    if minimum < 1:
        raise ValueError(f"the minimum replication factor must be 1 or more, not {minimum}")
    return minimum

"""The seam between whoever knows the candidates and whoever picks one (after franz-go's ``Partitioner``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable


class TopicPartitioner(Protocol):
    """Picks among the candidates for one topic. May hold state (sticking), and is safe to use from several threads."""

    def requires_consistency(self, key: bytes | None) -> bool:
        """Whether equal keys must be given the same candidates: a leader that comes or goes must not change them.

        Where it is False the caller may offer fewer candidates, such as those that have a leader.
        """
        ...

    def partition(self, key: bytes | None, count: int) -> int:
        """The index of the pick, ``0 <= index < count``.

        Args:
            key: the record's key as it is sent; None for a record without one.
            count: how many candidates there are, > 0.

        Raises:
            ValueError: ``count`` is not positive.
        """
        ...


@runtime_checkable
class BatchAware(Protocol):
    """What a :class:`TopicPartitioner` has besides when it wants to know that batches end (KIP-480)."""

    def on_new_batch(self, index: int) -> None:
        """The next record for candidate ``index`` would begin a new batch: stick to another candidate from now on.

        Nothing happens where it has moved on from ``index`` already, so several threads may say the same.
        """
        ...


@runtime_checkable
class LoadAware(Protocol):
    """What a :class:`TopicPartitioner` has besides when it follows the sizes of records and queues (KIP-794)."""

    def partition_by_load(self, key: bytes | None, count: int, size: int, load: Sequence[int] = ()) -> int:
        """The index of the pick, ``0 <= index < count``.

        Args:
            key: the record's key as it is sent; None for a record without one.
            count: how many candidates there are, > 0.
            size: the record's size in bytes.
            load: what is queued for each candidate, in bytes, batches or records (>= 0); empty where it is not known.

        Raises:
            ValueError: ``count`` is not positive, or ``load`` has another length.
        """
        ...


class Partitioner(Protocol):
    """Makes a partitioner for each topic."""

    def for_topic(self, topic: str) -> TopicPartitioner:
        """A new one for ``topic``, with a state of its own."""
        ...

"""The seam between whoever knows the candidates and whoever picks one (after franz-go's ``Partitioner``)."""

from __future__ import annotations

from typing import Protocol


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


class Partitioner(Protocol):
    """Makes a partitioner for each topic."""

    def for_topic(self, topic: str) -> TopicPartitioner:
        """A new one for ``topic``, with a state of its own."""
        ...

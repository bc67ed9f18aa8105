"""No picks at all: the application names the partition of every record."""

from __future__ import annotations

from partitioners.base import HashPartitioner, TopicHashPartitioner
from partitioners.rules import Rule


class ManualPartitionRequired(ValueError):
    """A record named no partition, and the partitioner is ``manual``."""


class Manual(HashPartitioner):
    """Refuses every record that names no partition: franz-go's ``ManualPartitioner``, made loud."""

    RULE = Rule("manual", None, null_hashed=False, empty_hashed=False)

    def __init__(self) -> None:
        super().__init__(self.RULE, None)

    def for_topic(self, topic: str) -> _TopicManual:
        return _TopicManual(self.rule, topic)


class _TopicManual(TopicHashPartitioner):
    def __init__(self, rule: Rule, topic: str) -> None:
        super().__init__(rule, None)
        self._topic = topic

    def _spread(self, key: bytes | None, count: int) -> int:
        raise ManualPartitionRequired(
            f"a record for {self._topic} names no partition, and the partitioner is 'manual': name one of the {count}"
        )

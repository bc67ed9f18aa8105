"""The application chooses the partition of every record."""

from __future__ import annotations

from partitioners.seam import HashPartitioner, Rule, TopicHashPartitioner


class ManualPartitionRequired(ValueError):
    """A record has no partition, and the partitioner is ``manual``."""


class _TopicManual(TopicHashPartitioner):
    def _spread(self, key: bytes | None, count: int) -> int:
        raise ManualPartitionRequired(
            f"{self._topic}: a record has no partition, and the partitioner is 'manual'; choose one of {count}"
        )


class Manual(HashPartitioner):
    """Refuses every record without an explicit partition: franz-go's ``ManualPartitioner``, with an error."""

    RULE = Rule("manual", None, null_hashed=False, empty_hashed=False, spreads=False)
    _TOPIC = _TopicManual

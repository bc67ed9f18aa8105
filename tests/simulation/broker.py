"""The brokers' side: logs with leader epochs and transactions, a topic that may be replaced by one of its name."""

from __future__ import annotations

MARKER = -1
"""What lies at the offset of a control record; other entries are the numbers of records."""


class Log:
    """One partition's log. ``records[offset]`` is a record's number or :data:`MARKER`.

    Attributes:
        log_start: what lies below can not be read any more.
        retained_from: how far the topic's own retention (or an unclean election) moved the log start.
        open: transaction -> its first offset, for those that are not ended.
        epochs: ``(leader epoch, its first offset)``, ascending.
        available: whether its leader answers.
        truncated_at: the step at which an unclean election last changed it.
        written_at, written_ms: when something was last appended.
    """

    __slots__ = (
        "available", "epochs", "log_start", "open", "records", "retained_from", "truncated_at", "was_end",
        "written_at", "written_ms",
    )  # fmt: skip

    def __init__(self) -> None:
        self.records: list[int] = []
        self.log_start = 0
        self.retained_from = 0
        self.open: dict[int, int] = {}
        self.epochs = [(0, 0)]
        self.available = True
        self.truncated_at = -1
        self.written_at = -1
        self.written_ms = 0
        self.was_end = 0

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        """The last stable offset: the first one of an open transaction, else the end."""
        return min(self.open.values()) if self.open else len(self.records)

    @property
    def epoch(self) -> int:
        return self.epochs[-1][0]

    def epoch_end(self, epoch: int) -> int:
        """OffsetForLeaderEpoch: where the log of that leader epoch ended, as the leader knows it."""
        for other, start in self.epochs:
            if other > epoch:
                return start
        return len(self.records)

    def append(self, entry: int, step: int, now_ms: int) -> None:
        """One record, or a marker."""
        self.records.append(entry)
        self.written_at = step
        self.written_ms = now_ms

    def elect(self) -> None:
        """A clean election: the next leader epoch begins at the end."""
        self._begin_epoch(self.epoch + 1)

    def truncate(self, to: int, log_start: int, step: int) -> None:
        """An unclean election: a replica that has the records below ``to`` alone leads, with a log start of its own."""
        self.was_end = len(self.records)
        epoch = self.epoch + 1
        del self.records[to:]
        self.epochs = [(e, start) for e, start in self.epochs if start < to] or [(0, 0)]
        self._begin_epoch(epoch)
        self.log_start = min(log_start, to)
        self.retained_from = min(self.retained_from, to)
        self.open = {transaction: first for transaction, first in self.open.items() if first < to}
        self.truncated_at = step

    def _begin_epoch(self, epoch: int) -> None:
        end = len(self.records)
        self.epochs = [(e, start) for e, start in self.epochs if start < end]
        self.epochs.append((epoch, end))

    def delete_below(self, offset: int) -> None:
        """DeleteRecords."""
        self.log_start = max(self.log_start, offset)

    def expire(self, count: int) -> None:
        """The topic's own retention; it never goes beyond the last stable offset."""
        self.log_start = max(self.log_start, min(self.log_start + count, self.stable))
        self.retained_from = self.log_start


class Topic:
    """One topic; another one under the same name is another object, with another id."""

    __slots__ = ("cleanup_policy", "logs", "policy_changed_at", "topic_id")

    def __init__(self, topic_id: str, partitions: int) -> None:
        self.topic_id = topic_id
        self.logs = [Log() for _ in range(partitions)]
        self.cleanup_policy = "delete"
        self.policy_changed_at = -1

    def grow(self, total_count: int) -> None:
        """CreatePartitions; fewer than there are changes nothing."""
        self.logs += [Log() for _ in range(total_count - len(self.logs))]

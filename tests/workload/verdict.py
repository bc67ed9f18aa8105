"""What was found of a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 5

# Each is a broken promise, of ours or of Kafka's.
VIOLATIONS = {
    "lost": "acknowledged, not read by every group, and not readable any more",
    "unread": "acknowledged and readable, but never read by a group after everything had settled",
    "vanished": "acknowledged or read, not in the topic any more, although nothing was deleted that far",
    "deleted-unread": "out of the readers' reach (deleted, or None) before a group had read it",
    "read-deleted": "a group was given a record long after it was deleted, or from a partition that was None",
    "not-deleted": "a shrink was called complete while records below a seal were still in Kafka",
    "overwritten": "two records at one offset: the log was truncated after one of them was acknowledged or read",
    "doubled": "one record at two places, from an idempotent producer",
    "order": "records of one producer and key in another order than they were sent in: in a log, or for a group that "
    "keeps the order of keys through replacements",
    "misplaced": "a record in another partition than its key has among those that were writable",
    "after-seal": "a record at or behind the seal of a replaced topic",
    "aborted-read": "a record of an aborted transaction was read",
    "stranger": "a record that no writer of this run can have written",
    "read-backwards": "a reader was given an offset again, or out of order, while it held the partition",
    "unexplained-duplicate": "a group read a record twice although nothing had been done to it",
    "unsettled": "more transactions of unknown outcome than writers of them that were killed or failed",
    "back": "a topic that was replaced and deleted exists again",
    "unjudged": "the run ended before the topic's contents were read: what is missing cannot be known",
}


@dataclass
class Verdict:
    """Figures, and violations with a few examples each.

    Attributes:
        acknowledged: records whose acknowledgement was seen, without those of aborted or unknown transactions.
        unsettled: acknowledged records of transactions whose end is not known and of which nothing was seen: if one of
            these was committed, its loss is not seen either.
        unsettled_transactions: in how many transactions these are.
        most_unsettled: how many such transactions there can be: one per incarnation of a transactional writer that was
            killed or failed.
        transactions: by outcome.
        read: group -> distinct records read.
        duplicates: group -> readings beyond a record's first.
        routing: of the acknowledged records of aware writers: all (``aware``), those of which the one view is known
            that they were routed by (``homes``), and those of them whose view's writable partitions are (``writable``).
        shrinks: shrinks that were called complete, by what Kafka said to it: ``confirmed``, ``unconfirmed`` (no answer
            in time) or ``denied``.
        deleted: acknowledged records below their log's start.
    """

    acknowledged: int = 0
    unsettled: int = 0
    unsettled_transactions: int = 0
    most_unsettled: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    read: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    routing: Counter[str] = field(default_factory=lambda: Counter(aware=0, homes=0, writable=0))
    shrinks: Counter[str] = field(default_factory=Counter)
    deleted: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.violations

    def broken(self, kind: str, example: str, count: int = 1) -> None:
        """Count a violation.

        Raises:
            KeyError: no such kind.
        """
        assert VIOLATIONS[kind]
        self.violations[kind] += count
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    def add(self, other: Verdict) -> None:
        """Add a verdict on other records of the same run."""
        self.acknowledged += other.acknowledged
        self.deleted += other.deleted
        self.transactions += other.transactions
        for group, count in other.duplicates.items():
            self.duplicates[group] = self.duplicates.get(group, 0) + count
        self.adopt(other.violations, other.examples, "judged")

    def adopt(self, violations: Mapping[str, int], examples: Mapping[str, list[str]], where: str) -> None:
        """Count the violations of another verdict."""
        for kind, count in violations.items():
            self.broken(kind, f"{where}: {'; '.join(examples[kind])}", count)

    def as_json(self) -> dict[str, Any]:
        fields = {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}
        return {"ok": self.ok, "lost": self.violations["lost"], "unread": self.violations["unread"], **fields}

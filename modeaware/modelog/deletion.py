"""KIP-694's DeleteTopicPartitionsRecord, as it stands in a topic's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.modelog.json_fields import optional_int, text

RETENTION_DELAY_MS = -1


@dataclass(frozen=True)
class DeleteTopicPartitions:
    """KIP-694's DeleteTopicPartitionsRecord: the shrink in force for a topic.

    Attributes:
        delete_partitions: the partition count to keep; all partitions from this id on are retired.
        delay_ms: -1 for the ``retention`` reclaim policy (records go when the topic's own retention takes them), else
            ``drained``: records go once drained, and no earlier than this many milliseconds after
            ``create_timestamp_ms``.
        immediate_delete: delete without waiting for the drain.
        create_timestamp_ms: when the request was admitted (wall clock, ms since the epoch).
        previous_count: how many partitions were writable before, which is what an undo goes back to.
        accept_state_loss: groups that keep state per partition (Kafka Streams) and were named in the request all the
            same: what they keep for the keys that move stays behind.
        handed_over: all partitions below ``previous_count`` are handed over: every group that is waited for has read
            what was written to them before the switch (see :mod:`modeaware.lifecycle.handover`). True as well where a
            controller wrote the record that knows no handover: it would never report one.
        earlier_counts: ``previous_count`` of the earlier shrinks that were not handed over when this one was admitted,
            ascending: a key may still be in the partition it was in before one of them, so no partition is handed over
            before all are.
        revived_ms: when a part of the shrink was last undone (wall clock); None: never.
        evacuate: the topic may be compacted: no retired partition becomes None before its latest values are copied to
            survivors (see :mod:`modeaware.lifecycle.evacuation`).
        evacuation_epoch: the topic's epoch since which the count has been this one: that of the admission, or of the
            last part that was undone. It names the evacuation; -1 where nothing is evacuated.
    """

    delete_partitions: int
    delay_ms: int
    immediate_delete: bool
    create_timestamp_ms: int
    previous_count: int
    accept_state_loss: tuple[str, ...] = ()
    handed_over: bool = False
    earlier_counts: tuple[int, ...] = ()
    revived_ms: int | None = None
    evacuate: bool = False
    evacuation_epoch: int = -1

    @property
    def policy(self) -> str:
        """The reclaim policy: ``retention``, ``drained`` or ``immediate``."""
        if self.immediate_delete:
            return "immediate"
        return "retention" if self.delay_ms == RETENTION_DELAY_MS else "drained"

    @property
    def earliest_ms(self) -> int:
        """The wall-clock time before which nothing is deleted (meaningless for ``retention``)."""
        return self.create_timestamp_ms + max(self.delay_ms, 0)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what may be missing is left out at its default."""
        fields: dict[str, Any] = {
            "delete_partitions": self.delete_partitions,
            "delete_partitions_delay_ms": self.delay_ms,
            "immediate_delete": self.immediate_delete,
            "create_timestamp_ms": self.create_timestamp_ms,
            "previous_count": self.previous_count,
        }
        more = {
            "accept_state_loss": list(self.accept_state_loss) or None,
            "handed_over": None if self.handed_over else False,  # earlier versions do not say, and never will
            "earlier_counts": list(self.earlier_counts) or None,
            "revived_ms": self.revived_ms,
            "evacuate": True if self.evacuate else None,
            "evacuation_epoch": self.evacuation_epoch if self.evacuate else None,
        }
        return fields | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> DeleteTopicPartitions | None:
        if fields is None:
            return None
        return cls(
            delete_partitions=int(fields["delete_partitions"]),
            delay_ms=int(fields["delete_partitions_delay_ms"]),
            immediate_delete=bool(fields["immediate_delete"]),
            create_timestamp_ms=int(fields["create_timestamp_ms"]),
            previous_count=int(fields["previous_count"]),
            accept_state_loss=tuple(text(group) for group in fields.get("accept_state_loss", ())),
            handed_over=bool(fields.get("handed_over", True)),
            earlier_counts=tuple(int(count) for count in fields.get("earlier_counts", ())),
            revived_ms=optional_int(fields.get("revived_ms")),
            evacuate=bool(fields.get("evacuate", False)),
            evacuation_epoch=int(fields.get("evacuation_epoch", -1)),
        )

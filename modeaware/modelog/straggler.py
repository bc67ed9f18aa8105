"""What is known of a record that arrived in a retired partition after its seal, as a topic's record keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Straggler:
    """The last record that was seen to arrive at or after a seal, and what the leader knew of its producer.

    ``producer_id`` is -1, and the others too, where the leader knew none (a producer without idempotence).
    """

    offset: int
    producer_id: int = -1
    producer_epoch: int = -1
    timestamp_ms: int = -1

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value != -1}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any] | None) -> Straggler | None:
        if fields is None:
            return None
        known = {
            name: int(fields[name]) for name in ("producer_id", "producer_epoch", "timestamp_ms") if name in fields
        }
        return cls(offset=int(fields["offset"]), **known)

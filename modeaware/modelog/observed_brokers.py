"""The brokers that were ever seen, as the mode log keeps them (KIP-409's ``/brokers/observed_ids``), and the policy.

One record holds all of them, and the controller's ``modeaware.under.replicated.creation``. The active controller writes
it; our AdminClient reads it when a creation asks for a minimum of live replicas. Other clients pass it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from modeaware.config import DISABLED, UNDER_REPLICATED_CREATION
from modeaware.errors import RecordError
from modeaware.modelog.json_fields import WRITER_VERSION, dump, load, text

OBSERVED_BROKERS_KEY = "observed-brokers"
MAX_BROKERS = 10_000
"""No record lists more: rubbish must not fill the memory."""


@dataclass(frozen=True)
class ObservedBrokersRecord:
    """Which brokers make up the cluster, those included that are down, and what creations may do about these.

    Attributes:
        policy: ``disabled``, ``enabled`` or ``enabled_prefer_observed``.
        brokers: broker id -> its rack, or None.
    """

    policy: str = DISABLED
    brokers: Mapping[int, str | None] = field(default_factory=lambda: MappingProxyType({}))
    controller_epoch: int = 0
    epoch: int = -1

    @property
    def version(self) -> tuple[int, int]:
        return (self.controller_epoch, self.epoch)

    def to_json(self) -> bytes:
        return dump(
            {
                "version": WRITER_VERSION,
                "min_reader": 1,
                "controller_epoch": self.controller_epoch,
                "epoch": self.epoch,
                "policy": self.policy,
                "brokers": [{"id": node_id, "rack": rack} for node_id, rack in sorted(self.brokers.items())],
            }
        )

    @classmethod
    def from_json(cls, value: bytes) -> ObservedBrokersRecord:
        """Parse a value of the mode log.

        Raises:
            RecordError: it is not a record of observed brokers, or needs a newer reader.
        """
        fields = load(value)
        try:
            listed = fields["brokers"]
            if len(listed) > MAX_BROKERS:
                raise ValueError(f"{len(listed)} brokers")
            if fields["policy"] not in UNDER_REPLICATED_CREATION:
                raise ValueError(f"no such policy: {fields['policy']!r}")
            return cls(
                policy=fields["policy"],
                brokers=MappingProxyType({int(each["id"]): _rack(each.get("rack")) for each in listed}),
                controller_epoch=int(fields["controller_epoch"]),
                epoch=int(fields["epoch"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise RecordError(
                f"mode log: not a record of observed brokers ({type(error).__name__}: {error})"
            ) from error


def _rack(value: Any) -> str | None:
    return None if value is None else text(value)

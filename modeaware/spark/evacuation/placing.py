"""Where keys belong: by the partitioner that producers use, which has to be the one that has placed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modeaware.config import with_topic_config
from modeaware.confluent._partitioner_conf import partitioner_of
from modeaware.errors import ConfigError
from modeaware.plan.recognise import recognise
from modeaware.plan.sample import Sample, SampledRecord, Stretch
from partitioners import DEFAULT_NAME, NAMES, Partitioner, is_plug_in
from partitioners.columns import partition_column
from partitioners.rules import RULES
from partitioners.table import OUR_RULES

LEAST_SHARE = 0.99
"""Of the keys in the retired partitions, what has to lie where the partitioner has put it."""


@dataclass(frozen=True)
class Placing:
    """A partitioner of a topic, for whole columns of keys. Picklable where it is one by name.

    Attributes:
        partitioner: a name of :data:`partitioners.NAMES`, or a partitioner.
    """

    topic: str
    partitioner: str | Partitioner

    @classmethod
    def of(cls, conf: Mapping[str, Any], topic: str) -> Placing:
        """What ``partitioner`` in ``conf`` says; librdkafka's consistent_random where it says nothing.

        Raises:
            ConfigError: there is no such partitioner, or it places no keys.
        """
        chosen = with_topic_config(conf).get("partitioner") or DEFAULT_NAME
        if not isinstance(chosen, str) or is_plug_in(chosen):
            return cls(topic, partitioner_of({"partitioner": chosen}))
        if chosen not in NAMES:
            raise ConfigError(f"partitioner: none is called {chosen!r}; there are {', '.join(NAMES)}")
        if (RULES.get(chosen) or OUR_RULES[chosen]).hash is None:
            raise ConfigError(f"partitioner: {chosen!r} places no keys: name the one that producers of {topic!r} use")
        return cls(topic, chosen)

    def indices(self, keys: Sequence[bytes], count: int) -> NDArray[np.int32]:
        """The index of each key among ``count`` partitions. One that is not placed by its bytes (an empty key, with
        consistent_random) has the index 0."""
        if isinstance(self.partitioner, str):
            return partition_column(keys, count, self.partitioner, null_partitions=0)
        picks = self.partitioner.for_topic(self.topic)
        return np.fromiter(
            (picks.partition(key, count) if picks.requires_consistency(key) else 0 for key in keys), np.int32, len(keys)
        )

    @property
    def empty_placed(self) -> bool:
        """Whether an empty key is placed by its bytes, like any other."""
        if isinstance(self.partitioner, str):
            return (RULES.get(self.partitioner) or OUR_RULES[self.partitioner]).empty_hashed
        return self.partitioner.for_topic(self.topic).requires_consistency(b"")


def recognised(topic: str, count: int, found: Sequence[tuple[bytes, int]]) -> dict[str, float]:
    """Which hashes have placed keys, over whatever number of partitions: placer -> its share of the keys, for messages.

    Args:
        count: how many partitions the topic had.
        found: keys, and where they lie.
    """
    records = tuple(SampledRecord(p, n, key, len(key)) for n, (key, p) in enumerate(found) if p < count)
    sample = Sample(topic, count, len(records), {p: Stretch(0, len(records)) for p in range(count)}, records)
    known = recognise(sample)
    shares: dict[str, float] = {}
    for placement in known.placements:
        shares[placement.name] = shares.get(placement.name, 0.0) + placement.matched / max(known.keys, 1)
    return shares


PLACER_OF = {
    "consistent": "crc32",
    "consistent_random": "crc32",
    "murmur2": "murmur2",
    "murmur2_random": "murmur2",
    "sticky": "murmur2",
    "uniform_sticky": "murmur2",
    "fnv1a": "fnv1a",
    "fnv1a_random": "fnv1a",
    "minimal_movement": "minimal_movement",
}
"""The placer (:data:`modeaware.plan.recognise.PLACERS`) that each named partitioner is."""

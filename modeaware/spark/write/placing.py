"""Which partitions the records of a frame may go to, and by which rule: decided on the driver, pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modeaware.config import split_client_config, with_topic_config
from modeaware.confluent._partitioner_conf import partitioner_of
from modeaware.errors import ConfigError, PartitionRetired
from modeaware.topic_view import TopicView
from partitioners import LIBRDKAFKA_NAMES, RULES, Partitioner, Rule
from partitioners.table import OUR_RULES

JAVA_NAME = "murmur2_random"
"""What Java's producer, which is in Spark's sink, does by itself: keys by murmur2, empty ones too, null ones spread."""
_JAVA_NAMES = frozenset({JAVA_NAME, "sticky", "uniform_sticky"})
"""They differ in how records without a key are spread, and Java's has its own way (KIP-794)."""


@dataclass(frozen=True)
class Placing:
    """How records get their partitions.

    Attributes:
        topic: where they go.
        partitions: the candidates, ascending; a rule's index counts in them.
        name: one of :data:`partitioners.NAMES`; None where ``partitioner`` picks.
        partitioner: the application's own; else None.
        retired: the text of the refusal of other partitions; empty where all are writable.
    """

    topic: str
    partitions: tuple[int, ...]
    name: str | None
    partitioner: Partitioner | None = None
    retired: str = ""

    @property
    def dense(self) -> bool:
        """Whether an index is the partition itself."""
        return self.partitions == tuple(range(len(self.partitions)))

    @property
    def rule(self) -> Rule | None:
        """What the named partitioner does with keys."""
        return None if self.name is None else RULES.get(self.name) or OUR_RULES[self.name]


def partitioner_named(conf: Mapping[str, Any]) -> str | Partitioner:
    """The partitioner that ``conf`` names, :data:`JAVA_NAME` where it names none, or the object it holds.

    Raises:
        ConfigError: there is none of that name, or it cannot be loaded.
    """
    _, rest = split_client_config(conf)
    chosen = with_topic_config(rest).get("partitioner")
    if chosen is None:
        return JAVA_NAME
    if isinstance(chosen, str) and chosen in (LIBRDKAFKA_NAMES | OUR_RULES.keys()):
        return chosen
    try:
        return partitioner_of(rest)
    except ValueError as error:
        raise ConfigError(f"partitioner: {error}") from error


def placing(view: TopicView, conf: Mapping[str, Any], partitions: Sequence[int] | None) -> Placing | None:
    """How the records of a job go to the topic of ``view``; None where the sink's own producer does just that.

    Args:
        view: the modes in force.
        conf: as for :class:`modeaware.Producer`.
        partitions: all that the topic has; needed where every one is writable and :func:`asks_for_partitions`.

    Raises:
        ConfigError: see :func:`partitioner_named`.
        PartitionRetired: no partition is writable.
    """
    chosen = partitioner_named(conf)
    name, own = (chosen, None) if isinstance(chosen, str) else (None, chosen)
    if view.all_writable:
        if name in _JAVA_NAMES:
            return None
        assert partitions is not None
        return Placing(view.topic, tuple(partitions), name, own)
    if not view.writable:
        raise PartitionRetired(
            f"no partition of {view.topic} takes records now ({view.describe()}): grow the topic", topic=view.topic
        )
    refusal = f" of {view.topic} takes no records ({view.describe()}): leave it null, or name a ReadWrite one"
    return Placing(view.topic, view.writable, name, own, refusal)


def asks_for_partitions(view: TopicView, conf: Mapping[str, Any]) -> bool:
    """Whether :func:`placing` has to know all partitions of the topic."""
    return view.all_writable and partitioner_named(conf) not in _JAVA_NAMES

"""How far a streaming query has come, as its progress tells it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

Positions = dict[str, dict[int, int]]
"""Topic -> partition -> the offset at which the query goes on."""

OUR_MARK = "modeaware:offsets"
"""In the offsets of our own DataSource: they have this, which can be no topic's name, beside the topic."""
_KAFKA = "Kafka"
"""How Spark's Kafka sources describe themselves: ``KafkaV2[Subscribe[flights]]``."""


def positions_of(sources: Iterable[tuple[str, str | None]]) -> Positions:
    """What a query has read to its end: the offsets that its checkpoint holds.

    Where several of its sources read one topic, the one that is furthest behind counts, and a partition that one of
    them has not reached yet is left out.

    Args:
        sources: of each source its description and its end offset, as ``SourceProgress`` has them. Those that are not
            Kafka's are passed over.
    """
    found: Positions = {}
    for description, end_offset in sources:
        for topic, offsets in _offsets(description, end_offset).items():
            other = found.get(topic)
            both = offsets if other is None else {p: min(o, other[p]) for p, o in offsets.items() if p in other}
            found[topic] = both
    return {topic: offsets for topic, offsets in found.items() if offsets}


def _offsets(description: str, end_offset: str | None) -> Positions:
    try:
        told = json.loads(end_offset or "null")
    except ValueError:
        return {}
    if not isinstance(told, dict):
        return {}
    if not description.startswith(_KAFKA) and OUR_MARK not in told:
        return {}
    return {topic: _partitions(offsets) for topic, offsets in told.items() if isinstance(offsets, Mapping)}


def _partitions(offsets: Mapping[str, object]) -> dict[int, int]:
    return {int(p): o for p, o in offsets.items() if p.isdecimal() and type(o) is int and o >= 0}

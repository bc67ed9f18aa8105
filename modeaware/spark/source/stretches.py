"""Which part of which partition is read: fixed on the driver, before anything is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from modeaware.errors import ConfigError
from modeaware.spark.source.errors import RecordsLost
from modeaware.spark.source.options import EARLIEST, LATEST, Offsets
from modeaware.topic_view import TopicView


@dataclass(frozen=True)
class Stretch(InputPartition):
    """The records of one partition from offset ``start`` up to, and without, ``end``."""

    topic: str
    partition: int
    start: int
    end: int


def resolve(
    name: str, wanted: Offsets, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Offsets for all partitions of ``starts``.

    Args:
        name: of the option, for the message.
        wanted: what it said. Partitions that are not read may be in it.

    Raises:
        ConfigError: it leaves a partition out.
    """
    if isinstance(wanted, int):
        wanted = dict.fromkeys(starts, wanted)
    if missing := sorted(starts.keys() - wanted.keys()):
        raise ConfigError(f"{name}: partitions {missing} of {topic} are missing: say -2 for earliest, -1 for latest")
    meanings = {EARLIEST: starts, LATEST: ends}
    return {p: meanings[wanted[p]][p] if wanted[p] in meanings else wanted[p] for p in starts}


def readable_to(view: TopicView, ends: Mapping[int, int], last: Mapping[int, int]) -> dict[int, int]:
    """How far a stream may read: to the end of readable partitions, and of those in mode None to their seal.

    A stream that has read a retired partition to its seal gets nothing more of it; one that has not, reads on to there.
    So its offsets always name every partition, and when one comes back it goes on where it was.

    Args:
        last: how far it might read the last time; offsets never go back by a mode.
    """
    allowed = {}
    for partition, end in ends.items():
        seal = None if view.is_readable(partition) else view.resume_offsets.get(partition)
        allowed[partition] = end if seal is None else min(end, max(seal, last.get(partition, 0)))
    return allowed


def stretches_between(
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    *,
    strict: bool,
    log_ends: Mapping[int, int] | None = None,
) -> list[Stretch]:
    """What a micro-batch reads. A partition that is only in ``end`` is new, and read from its first record.

    Args:
        strict: whether an offset that went back, and a partition that is gone, are errors (``failOnDataLoss``).
        log_ends: where the logs ended when ``end`` was looked at, where that is known: a seal may lie before what was
            read while the partition had no seal.

    Raises:
        RecordsLost: there is one.
    """
    if strict:
        _check(topic, start, {p: max(offset, (log_ends or {}).get(p, 0)) for p, offset in end.items()})
    return list(_between(topic, start, end))


def _between(topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> Iterable[Stretch]:
    for partition in sorted(end):
        first = start.get(partition, 0)
        if first < end[partition]:
            yield Stretch(topic, partition, first, end[partition])


def _check(topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> None:
    for partition, offset in sorted(start.items()):
        now = end.get(partition)
        if now is None or now < offset:
            what = "is gone" if now is None else f"ends at {now}"
            raise RecordsLost(
                f"partition {partition} of {topic} {what}, and the query has read it to {offset}: was the topic made "
                "anew, or its log truncated? Start with another checkpoint, or set failOnDataLoss to false",
                topic=topic,
                partition=partition,
            )

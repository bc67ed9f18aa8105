"""How far a stream has read, and how far it may read next. No IO here.

A topic name stands for a chain of topics (:mod:`modeaware.chain`), nearly always a chain of one. A query reads every
partition of an old topic to its end before it reads the new topic. So the query reads each key's records in order.

A query's offsets, in checkpoints and in progress, contain every partition of the topics that the query has reached, and
their topic ids (invariant I8): ``{"modeaware:offsets": 1, "modeaware:topic_ids": {"<topic>": "<id>"}, "<topic>":
{"<partition>": <offset>}}``. The end of a new query's first batch may also contain the topics at whose ends the query
begins, ``"modeaware:skipped": ["<topic>"]``. They are noted because Spark may run the batch again, and then requests
the beginning again: by then, a topic may have been released, which changes the beginning.

When Spark requests the end of the next batch, it does not pass the batch's beginning. In a running process, the batch
begins at the end of the batch before. After a start the beginning is unknown. So the first batch goes as far as any
position in the chain may require, perhaps into a second topic. One task then reads the records of both topics, the old
topic's first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, dropwhile
from typing import Any, Self

from pyspark.sql.datasource import InputPartition

from modeaware.errors import ConfigError, ModeSourceError
from modeaware.spark.errors import RecordsLost
from modeaware.topic_view import TopicView

OUR_MARK = "modeaware:offsets"
"""The key, among the topics, that marks offsets of ``format("modeaware")``. No topic can have this name."""
_FORMAT = 1
_ID_MARK = "modeaware:topic_ids"
_SKIPPED_MARK = "modeaware:skipped"
EARLIEST, LATEST = -2, -1
"""Kafka's numbers (ListOffsets) for the log start and the log end."""
Wanted = int | Mapping[int, int]
"""An offset, EARLIEST or LATEST: one for all partitions, or one for each."""
Positions = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset; the topics in the order of their chain."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The records of one partition from offset ``start`` to before ``end``, and the topic's id, if known."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.topic} from {self.start} to {self.end}"


@dataclass(frozen=True)
class RangesInOrder(InputPartition):
    """Ranges that one task reads one after another."""

    ranges: tuple[OffsetRange, ...]


@dataclass(frozen=True)
class Offsets:
    """The offsets of a query, and the ids of their topics, if brokers return ids.

    Attributes:
        skipped: the :func:`first_topics` of a new query, if its first batch goes beyond these topics: the query skips
            their records before the end of that batch. Otherwise empty.
    """

    positions: Positions
    ids: Mapping[str, str]
    skipped: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the offsets in a checkpoint."""
        positions = {
            topic: {int(p): int(offset) for p, offset in offsets.items()}
            for topic, offsets in value.items()
            if isinstance(offsets, Mapping) and topic != _ID_MARK
        }
        return cls(positions, value.get(_ID_MARK) or {}, tuple(value.get(_SKIPPED_MARK) or ()))

    def to_json(self) -> dict[str, Any]:
        ids = {topic: self.ids[topic] for topic in self.positions if topic in self.ids}
        by_topic = {topic: {str(p): o for p, o in offsets.items()} for topic, offsets in self.positions.items()}
        marks = {_ID_MARK: ids, _SKIPPED_MARK: list(self.skipped)}
        return {OUR_MARK: _FORMAT, **{mark: value for mark, value in marks.items() if value}, **by_topic}


def resolve(
    name: str, wanted: Wanted, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Return an offset for every partition of ``starts``. The option ``name`` may have offsets of further partitions,
    but none may be missing."""
    if isinstance(wanted, int):
        wanted = dict.fromkeys(starts, wanted)
    if missing := sorted(starts.keys() - wanted.keys()):
        raise ConfigError(f"{name} lacks partitions {missing} of {topic}: add them; -2 is earliest, -1 is latest")
    meanings = {EARLIEST: starts, LATEST: ends}
    return {p: meanings[wanted[p]][p] if wanted[p] in meanings else wanted[p] for p in starts}


def existing(views: Sequence[TopicView]) -> tuple[TopicView, ...]:
    """Return the topics of a chain that exist."""
    return tuple(view for view in views if not view.is_alias)


def first_topics(views: Sequence[TopicView], wanted: Wanted) -> Sequence[TopicView]:
    """Return the topics of a chain to which ``startingOffsets`` of a new query applies; the query reads the others from
    their start. Once an old topic is released, ``latest`` skips the new topic's records, as for a consumer group."""
    count = 1
    while count < len(views) and wanted == LATEST and (before := views[count - 1].replaced_by) and before.released:
        count += 1
    return views[:count]


def needs_ends(view: TopicView, position: Positions | None) -> bool:
    """Return whether a query must request the ends of a topic. False if the topic is released and the query has read
    all of it: such a topic may be deleted at any time."""
    done = view.replaced_by is not None and view.replaced_by.released
    return not done or position is None or view.topic not in position or not _has_read(view, position[view.topic])


def _has_read(view: TopicView, position: Mapping[int, int]) -> bool:
    """Return whether the topic of ``view`` is replaced, and a query has read each of its partitions to the end."""
    new_topic = view.replaced_by
    return new_topic is not None and all(
        partition in new_topic.read_up_to and position.get(partition, 0) >= new_topic.read_up_to[partition]
        for partition in range(len(view.modes))
    )


def next_positions(
    views: Sequence[TopicView],
    ends: Positions,
    position: Positions | None,
    given: Positions,
) -> dict[str, dict[int, int]]:
    """Return how far the next batch may read the topics of a chain.

    Args:
        views: the views of the chain's topics.
        ends: the ends of the topics' logs, or the query's position in a topic whose ends are not requested.
        position: the query's position, or None if it is unknown.
        given: the last result. Its topics stay in the result, because the query may have read them.
    """
    positions: dict[str, dict[int, int]] = {}
    for number, view in enumerate(views, 1):
        positions[view.topic] = readable_to(view, ends[view.topic], given.get(view.topic, {}))
        if number == len(views) or not (views[number].topic in given or _is_read(view, positions, position)):
            break
    return positions


def _is_read(view: TopicView, positions: Positions, position: Positions | None) -> bool:
    """Return whether the replaced topic of ``view`` is read to its end: at ``position`` or, if that is unknown, by the
    next batch.

    If the position is unknown, the query may already have reached the new topic. A late record may then have broken a
    seal of the old topic. So the broken seal suffices: else the batch might end before the query's position.
    """
    if position is not None:
        return _has_read(view, position.get(view.topic, {}))
    read_up_to = {} if view.replaced_by is None else view.replaced_by.read_up_to
    sealed = {**view.resume_offsets, **read_up_to}
    reached = positions[view.topic]
    return all(p in sealed and reached.get(p, 0) >= sealed[p] for p in range(len(view.modes)))


def readable_to(view: TopicView, ends: Mapping[int, int], last: Mapping[int, int]) -> dict[int, int]:
    """Return how far a stream may read: to the end of readable partitions, and to the seal of partitions in mode None.

    The offsets always contain every partition, so a stream continues at its position when a partition is revived. No
    mode lets an offset fall below the previous result, ``last``.
    """
    allowed = {}
    for partition, end in ends.items():
        seal = None if view.is_readable(partition) else view.resume_offsets.get(partition)
        allowed[partition] = end if seal is None else min(end, max(seal, last.get(partition, 0)))
    return allowed


def check_topics(name: str, before: Offsets, after: Offsets, *, strict: bool, gone: Sequence[TopicView] = ()) -> None:
    """Check that the query can continue from ``before`` to ``after``.

    Args:
        gone: the deleted topics of the chain. The controller deletes a topic once every required group has read it.

    Raises:
        ModeSourceError: the known chain of ``name`` ends before a topic that the query has read.
        RecordsLost: ``strict`` is true, and the query has read only part of a topic that is no longer in the chain. (If
            the query had reached the topic after it, there is no error.)
    """
    *_, last = before.positions or (None,)
    if last is None or last in after.positions:
        return
    if any(is_continued(topic, before, after) for topic in before.positions):
        raise ModeSourceError(
            f"the query has read {last}, which is not in the chain of {name} now: the mode log cannot be read, or has "
            f"lost records. A batch without {last} would make the query read {last} again. Start the query again when "
            f"'modeaware topics --describe' shows {last}. If the newest file in the folder 'offsets' of the query's "
            f"checkpoint lacks {last}, first delete that file",
            topic=name,
        )
    has_read_all = last in {view.topic for view in gone} and all(
        view.applies_to(before.ids.get(view.topic)) and _has_read(view, before.positions.get(view.topic, {}))
        for view in dropwhile(lambda view: view.topic != last, gone)
    )
    if strict and not has_read_all and not before.positions.keys() & after.positions.keys():
        raise RecordsLost(
            f"the query has read {', '.join(before.positions)}, which is not in the chain of {name} now: the topic was "
            "deleted before the query had read all of it, or the option topic was changed, or a replacement renamed "
            f"back. The query would continue with {', '.join(after.positions)}. Set the option topic to {last}, use a "
            "new checkpoint location, or set failOnDataLoss to false",
            topic=name,
        )


def is_continued(topic: str, before: Offsets, after: Offsets) -> bool:
    """Return whether both offsets contain ``topic`` and mean the same topic, by its id (invariant I8)."""
    ids = before.ids.get(topic), after.ids.get(topic)
    return topic in before.positions and topic in after.positions and (None in ids or ids[0] == ids[1])


def check_id(topic: str, before: Offsets, after: Offsets) -> None:
    """Check that the topic id is the same in both offsets.

    Raises:
        RecordsLost: the query may not have read all of an earlier topic of this name. The query has, if it had reached
            the next topic in the chain, and the name now belongs to a topic behind that next one.
    """
    if topic not in before.positions or is_continued(topic, before, after):
        return
    come_to = list(before.positions)[list(before.positions).index(topic) + 1 :]
    earlier = list(after.positions)[: list(after.positions).index(topic)]
    if not any(other in earlier and is_continued(other, before, after) for other in come_to):
        raise RecordsLost(
            f"topic {topic} was deleted and created again: its id is {after.ids.get(topic)}, and the query has read "
            f"{before.ids.get(topic)}. Start with another checkpoint, or set failOnDataLoss to false to read the new "
            "topic from its beginning",
            topic=topic,
        )


def ranges_between(
    topic: str,
    start: Mapping[int, int],
    end: Mapping[int, int],
    *,
    strict: bool,
    log_ends: Mapping[int, int] | None = None,
    topic_id: str | None = None,
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch. A partition that is only in ``end`` is new, and read from its first record.

    Args:
        strict: whether to raise RecordsLost if an offset went back or a partition is gone (``failOnDataLoss``).
        log_ends: the log ends when ``end`` was decided, if known. An ``end`` at a seal is no loss if the log is longer:
            the query may have read beyond the seal before the partition was sealed.
    """
    for partition, offset in sorted(start.items()) if strict else ():
        log_end = max(end[partition], (log_ends or {}).get(partition, 0)) if partition in end else None
        if log_end is None or log_end < offset:
            what = "no longer exists" if log_end is None else f"ends at offset {log_end}"
            raise RecordsLost(
                f"{topic}-{partition} {what}, but the query has read it to offset {offset}: the topic was recreated "
                "or its log truncated. Use a new checkpoint location, or set failOnDataLoss to false",
                topic=topic,
                partition=partition,
            )
    return [OffsetRange(topic, p, start.get(p, 0), end[p], topic_id) for p in sorted(end) if start.get(p, 0) < end[p]]


def refuse_gone(topic: str, start: Mapping[int, int], end: Mapping[int, int], *, strict: bool) -> None:
    """Raise RecordsLost if ``strict`` and a micro-batch has unread records of a deleted topic."""
    if strict and (left := ranges_between(topic, start, end, strict=False)):
        raise RecordsLost(
            f"{topic} was replaced and deleted before the query had read all of it: {', '.join(map(str, left))} are "
            "missing (see ProgressListener). Set failOnDataLoss to false to continue with the topic that replaced it",
            topic=topic,
        )


def refuse_late(gone: Sequence[TopicView], before: Offsets, after: Offsets, *, strict: bool) -> None:
    """Raise RecordsLost if ``strict``, and a deleted topic had unread records that arrived after the query had reached
    the next topic. For a topic that was deleted by hand, this is unknown."""
    for view in gone if strict else ():
        new_topic, position = view.replaced_by, before.positions.get(view.topic)
        if position is None or new_topic is None or is_continued(view.topic, before, after):
            continue
        if view.applies_to(before.ids.get(view.topic)):
            refuse_gone(view.topic, position, new_topic.read_up_to, strict=True)


def tasks(by_topic: Sequence[Sequence[OffsetRange]]) -> list[OffsetRange | RangesInOrder]:
    """Return the ranges of a batch by task: one task for each range, or one for all if they are of several topics."""
    ranges = tuple(chain.from_iterable(by_topic))
    return [RangesInOrder(ranges)] if sum(map(bool, by_topic)) > 1 else list(ranges)

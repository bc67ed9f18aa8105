"""Which records outlived their topic: a topic of that name is there, and it is another one (invariant I4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from modeaware.modelog.records import TopicRecord


def replaced_records(
    records: Iterable[TopicRecord], told: Sequence[Mapping[str, str | None]]
) -> tuple[TopicRecord, ...]:
    """The records whose topic was deleted and recreated, by the word of all brokers in ``told``.

    A record is replaced where every broker names an id for its name, and none of them the record's. A broker that still
    names the record's id, knows no such topic, or does not describe it, delays that: each may be stale. A topic that no
    broker knows is not decided on here (:class:`~modeaware.cluster.observer.Observer` waits for a while until it is
    gone).

    Every record is about the topic of its id, so none outlives it. Records that are meant to (aliases of a succession)
    have to be left out here.

    Args:
        told: what each broker says, name -> topic id; None: it knows no topic of that name. Empty: nothing is replaced.
    """
    return tuple(
        record
        for record in records
        if told and all(ids.get(record.topic) not in (None, record.topic_id) for ids in told)
    )


def missing_records(records: Iterable[TopicRecord], ids: Mapping[str, str | None]) -> tuple[TopicRecord, ...]:
    """The records of topics that a broker knows under no id."""
    return tuple(record for record in records if record.topic in ids and ids[record.topic] is None)

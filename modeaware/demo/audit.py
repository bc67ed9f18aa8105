"""The audit of the demo, and its report. A plain consumer reads the new topic; the audit compares these records with
what the producer and consumer threads have noted."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from modeaware.errors import ModeAwareError
from modeaware.librdkafka import Consumer, KafkaException, Message, TopicPartition
from modeaware.topic_view import TopicView

PARTITIONS, SHRINK_TO, REPLACE_BY = 12, 4, 4
TIMEOUT_S = 60.0
MAX_GAP_S = 5.0
ID_HEADER = "id"
BYTES_ARE = "keys and values, as the producers counted them"


Position = tuple[str, int, int]
"""Topic, partition and offset."""


class Ack(NamedTuple):
    """One acknowledged record; ``epochs`` has (lowest, highest) bounds of the mode epoch that decided its partition."""

    id: str
    key: bytes | None
    size: int
    topic: str
    partition: int
    offset: int
    epochs: tuple[int, int]
    at_s: float


class Stored(NamedTuple):
    """A record that a plain consumer reads in the topic."""

    id: str
    key: bytes | None


@dataclass
class ModeHistory:
    """The topic's views in the order in which they came into force, each with its time (monotonic seconds).

    ``changed`` is a listener, so the source or a client may call it in any thread. The list only grows, so any thread
    may read the list.
    """

    topic: str
    views: list[tuple[float, TopicView]] = field(default_factory=list)

    def changed(self, views: Mapping[str, TopicView]) -> None:
        if self.topic in views:
            self.views.append((time.monotonic(), views[self.topic]))

    @property
    def epoch(self) -> int:
        return self.views[-1][1].epoch if self.views else TopicView.unlisted(self.topic).epoch

    def since(self, condition: Callable[[TopicView], bool]) -> float | None:
        """Return since when the condition has held without a break, or None if it does not hold now."""
        since_s = None
        for at_s, view in reversed(self.views):
            if not condition(view):
                break
            since_s = at_s
        return since_s

    def writable(self, epoch: int) -> Sequence[int]:
        """Return the partitions that are writable in an epoch: before the first view, all partitions."""
        return next((view.writable for _, view in self.views if view.epoch == epoch), range(PARTITIONS))

    def between(self, epochs: tuple[int, int]) -> list[Sequence[int]]:
        """Return the lists of writable partitions in all epochs within the bounds ``epochs``."""
        known = {view.epoch for _, view in self.views if epochs[0] < view.epoch < epochs[1]}
        return [self.writable(epoch) for epoch in sorted({*epochs, *known})]


def record_id_of(message: Message) -> str:
    """Return the id that a demo producer gave the record.

    Raises:
        KafkaException: the message is an error.
        ModeAwareError: the record has no such id, so another producer wrote it.
    """
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    record_id = dict(message.headers() or []).get(ID_HEADER)
    if not isinstance(record_id, bytes):
        raise ModeAwareError(
            f"{message.topic()}-{message.partition()}: offset {message.offset()} is not a record of this demo"
        )
    return record_id.decode("ascii")


def position_of(message: Message) -> Position:
    """Return the record's topic, partition and offset."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a record has all three"
    assert partition is not None
    assert offset is not None
    return topic, partition, offset


def read_topic(conf: Mapping[str, Any], topic: str) -> tuple[dict[int, tuple[int, int]], dict[Position, Stored]]:
    """Read the whole topic with a plain consumer; return partition -> (log start, log end), and position -> record."""
    consumer = Consumer({**conf, "group.id": f"demo-audit-{uuid.uuid4()}", "enable.auto.commit": False})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        logs = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=TIMEOUT_S) for p in partitions}
        consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in logs.items()])
        stored: dict[Position, Stored] = {}
        deadline_s = time.monotonic() + TIMEOUT_S
        unread = sum(end - start for start, end in logs.values())
        while len(stored) < unread:
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"{topic} could not be read to its end in {TIMEOUT_S:.0f} s")
            for message in consumer.consume(5000, 0.5):
                stored[position_of(message)] = Stored(record_id_of(message), message.key())
        return logs, stored
    finally:
        consumer.close()


def count(
    acks: Sequence[Ack],
    history: ModeHistory,
    given: Counter[str],
    stored: Mapping[Position, Stored],
    choose: Callable[[bytes, int], int],
) -> dict[str, Any]:
    """Return the figures of the report. No IO.

    Args:
        given: record id -> how often the group received the record.
        stored: the records of the new topic.
        choose: the partitioner: returns the index of a key among n partitions.
    """
    possible = {epochs: history.between(epochs) for epochs in {ack.epochs for ack in acks}}
    switched_s, switch = next(
        ((at_s, view.epoch) for at_s, view in history.views if len(view.writable) == SHRINK_TO), (float("inf"), 0)
    )
    lost = sorted({ack.id for ack in acks} - given.keys())
    in_retired = late = misplaced = contradictions = 0
    deleted = [ack for ack in acks if ack.topic == history.topic]
    for ack in deleted:
        lists = possible[ack.epochs]
        in_retired += all(ack.partition not in writable for writable in lists)
        late += ack.epochs[0] < switch and ack.at_s > switched_s and ack.partition >= SHRINK_TO
        if ack.key:
            misplaced += all(not some or ack.partition != some[choose(ack.key, len(some))] for some in lists)
    for ack in acks:
        if ack.topic == history.topic:
            continue
        record = stored.get((ack.topic, ack.partition, ack.offset))
        contradictions += record is None or record.id != ack.id
        if ack.key:
            misplaced += ack.partition != choose(ack.key, REPLACE_BY)
    return {
        "acknowledged": len(acks),
        "delivered": len(given),
        "lost": len(lost),
        "duplicates": given.total() - len(given),
        "in_retired_after_switch": in_retired,  # although the producer's view at produce() showed the mode
        "late_in_retired": late,  # queued before the shrink's switch, acknowledged after it: allowed
        "misplaced": misplaced,  # with a key, in another writable partition than the one of the key's hash
        "contradictions": contradictions,  # not at the acknowledged position, although nothing there was deleted
        "records_deleted": len(deleted),
        "bytes_deleted": sum(ack.size for ack in deleted),
        "bytes_deleted_are": BYTES_ARE,
    }


def faults(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why the demo failed. On success there is none."""
    if not report["acknowledged"]:
        yield "nothing was acknowledged"
    for figure, text in (
        ("lost", "acknowledged records were never delivered"),
        ("in_retired_after_switch", "records went to a partition that their producer's view showed as retired"),
        ("misplaced", "records lie in a partition their key does not hash to"),
        ("contradictions", "records do not lie where their acknowledgement said"),
    ):
        if report[figure]:
            yield f"{report[figure]} {text}"
    if (left := report["partitions_on_cluster"][-1]) >= PARTITIONS:
        yield f"the cluster has {left} partitions of the topic, and had {PARTITIONS}"
    for number, gap_s in enumerate(report["longest_gap_s"]):
        if gap_s >= MAX_GAP_S:
            yield f"producer {number} went {gap_s:.1f} s without an acknowledgement"


def report_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text."""
    figures = {
        "acknowledged": f"{report['acknowledged']:,}",
        "delivered": f"{report['delivered']:,} distinct",
        "lost": f"{report['lost']:,}",
        "duplicates": f"{report['duplicates']:,}",
        "in retired partitions": f"{report['in_retired_after_switch']:,} sent after the producer had the new modes",
        "": f"{report['late_in_retired']:,} more were queued before the shrink and acknowledged after it (allowed)",
        "in a wrong partition": f"{report['misplaced']:,}, by the hash of the key",
        "not where acknowledged": f"{report['contradictions']:,}",
        "longest pause": ", ".join(f"{gap_s:.2f} s" for gap_s in report["longest_gap_s"])
        + f" (one per producer, between acknowledgements; {MAX_GAP_S:.0f} s would be a failure)",
        "deleted": f"{report['records_deleted']:,} records, {report['bytes_deleted']:,} bytes ({BYTES_ARE})",
        "partitions on cluster": " -> ".join(map(str, [PARTITIONS, *report["partitions_on_cluster"]]))
        + " (as created, shrunk, replaced)",
        "phases": "  ".join(f"{name} {seconds:.2f} s" for name, seconds in report["phases_s"].items()),
    }
    partitions = [f"  {p:>9} {end['log_start']:>10,} {end['log_end']:>10,}" for p, end in report["partitions"].items()]
    return [
        *(f"  {name:<22} {text}" for name, text in figures.items()),
        "",
        f"  {'partition':>9} {'log start':>10} {'log end':>10}",
        *partitions,
        "",
        *([f"FAILED: {fault}" for fault in report["faults"]] or ["OK: nothing acknowledged was lost."]),
    ]

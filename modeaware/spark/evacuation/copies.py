"""Writes copies to one partition of the new topic. No copy overtakes a producer's concurrent write. For executors.

Kafka has no compare-and-set for a key, and producers keep writing. A copy appended behind a newer value of its key
would become the value that consumers keep. Compaction would remove the newer value for good. So copies are written in
transactions: their records have offsets before they are visible. Before a commit, all records that precede the copies
are read. If one of them is a producer's record of a copied key, the transaction is aborted. A new transaction begins,
which takes that record into account. So no committed copy has overtaken a newer value.

``read_committed`` consumers and compaction never see an aborted copy, but a consumer of uncommitted records may have
seen it. For such consumers the newer value is written once more, unless a still later one has followed.

The transactional id contains topic and partition. So a later writer for the partition (a task that is run again,
another job) fences the earlier writer, and aborts its open transaction.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from modeaware.config import split_client_config
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.modelog.connection import tail_conf
from modeaware.spark.errors import EvacuationFailed
from modeaware.spark.evacuation.versions import HEADER, NewRecord, OldRecord, digest, is_newer
from modeaware.spark.snapshot import TopicClient

MOST, FEWEST = 10_000, 1
"""The bounds of the limit of copies in a transaction. It begins at ``MOST``; aborts halve it, commits double it."""
MOST_BYTES = 16_000_000
"""The size of keys and values after which a transaction takes no further copy, so that it is short."""
TRANSACTION_TIMEOUT_MS = 60_000
OPEN_TIMEOUT_S = 900.0
"""How long to wait for another producer's transaction: brokers' default limit of one (transaction.max.timeout.ms)."""
_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 5.0
_BATCH = 2_000
_NO_TIMESTAMP = 0
_HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)  # the consumer is in no group
MAX_BYTES = 1_000_000_000
"""librdkafka's greatest ``message.max.bytes``, so that only the topic's own limit decides how large a copy may be."""
# Settings that librdkafka would refuse in a transaction, and those that choose a partition, which is given here.
_OURS = frozenset(
    {
        *("partitioner", "transactional.id", "on_delivery", "delivery.report.only.error", "default.topic.config"),
        *("acks", "request.required.acks", "max.in.flight", "max.in.flight.requests.per.connection"),
        *("retries", "message.send.max.retries", "message.timeout.ms", "delivery.timeout.ms", "queuing.strategy"),
    }
)

Headers = list[tuple[str, bytes | None]]


_Record = TypeVar("_Record", bound=OldRecord | NewRecord, covariant=True)


class Copy(NamedTuple, Generic[_Record]):
    """A value to be written, with its key and record. If the record is one of the new topic, the copy is a *repair*."""

    key: bytes
    value: bytes | None
    headers: Headers
    record: _Record


@dataclass
class Copied:
    """The outcome of the copies for one partition; see ``EvacuationReport``."""

    copied: int = 0
    tombstones: int = 0
    superseded: int = 0
    placed: int = 0
    repaired: int = 0
    retries: int = 0


@dataclass(frozen=True)
class CopyJob:
    """The facts that all copies of one evacuation share. Picklable.

    Attributes:
        topic: the new topic.
        old_id: the id of the old topic.
        epoch: the evacuation's epoch.
        conf: as for :class:`modeaware.Producer`.
        bases: partition of the new topic -> the offset up to which it was read before the copies were decided.
        tries: the number of attempts to copy a key that producers keep writing.
        new_topic_id: the new topic's id, if known. ``bases`` are offsets of that topic alone.
    """

    topic: str
    old_id: str
    epoch: int
    conf: Mapping[str, Any]
    bases: Mapping[int, int]
    tries: int
    new_topic_id: str | None = None

    def failed(self, partition: int, why: str) -> EvacuationFailed:
        text = f"{self.topic}-{partition}: {why}; no proof is committed, run the evacuation again"
        return EvacuationFailed(text, topic=self.topic, partition=partition)


def copy_all(job: CopyJob, partition: int, copies: Iterable[Copy[OldRecord]]) -> Copied:
    """Write ``copies``, each key once. A copy is left out if a record behind the partition's base makes it needless.

    Raises EvacuationFailed, ClusterError, PartitionRetired or ModeSourceError, with the reason, if the copies cannot be
    written now.
    """
    conf = {"message.max.bytes": MAX_BYTES} | {name: value for name, value in job.conf.items() if name not in _OURS}
    conf |= {
        "transactional.id": f"modeaware-evacuation-{job.topic}-{partition}",
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "acks": "all",
        "enable.idempotence": True,
        "modeaware.on.resize": "ignore",  # the partition is given
        "modeaware.on.unknown": "error",
    }
    try:
        with closing(Producer(conf)) as producer, closing(TargetLog(job, partition)) as log:
            producer.init_transactions(_TIMEOUT_S)
            client = TopicClient(job.conf, job.topic)
            work, waiting = Copying(job, partition, producer, log, lambda: client.describe().topic_id), iter(copies)
            while chunk := list(islice(waiting, work.size)):
                work.write(chunk)
            return work.done
    except KafkaException as error:
        if isinstance(error, ModeAwareError):
            raise
        cause, remedy = error.args[0], ""
        if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            remedy = ": give the job the producers' compression.type, or raise max.message.bytes of the topic"
        raise job.failed(partition, f"copies cannot be written: {cause.str()} ({cause.name()}){remedy}") from error


@dataclass
class Copying:
    """The copies of one task for one partition of the new topic. For one thread."""

    job: CopyJob
    partition: int
    producer: Producer  # with initialised transactions, of which none is open
    log: TargetLog
    topic_id: Callable[[], str | None]  # requests the id of the topic that has the new topic's name now
    done: Copied = field(default_factory=Copied)
    size: int = MOST  # the greatest number of copies in the next transaction
    _failed: KafkaError | None = None

    def write(self, copies: list[Copy[OldRecord]]) -> None:
        """Write ``copies``, in one transaction or in several. An error aborts the open transaction."""
        try:
            self._write(copies)
        except (KafkaException, ModeAwareError):
            with suppress(KafkaException):  # none is open, or the broker will abort it; the first error matters
                self.producer.abort_transaction(_ABORT_TIMEOUT_S)
            raise

    def _write(self, copies: list[Copy[OldRecord]]) -> None:
        tries = dict.fromkeys((copy.key for copy in copies), 0)
        aborted: dict[bytes, int] = {}  # key -> offset of its last aborted copy
        own: set[int] = set()
        undecided = 0  # the next attempt first waits until no transaction below this offset is open
        waiting: deque[Copy[OldRecord | NewRecord]] = deque(copies)
        while waiting:
            self.log.catch_up(undecided)
            batch = list(self._wanted(waiting, aborted))
            if not batch:
                return
            offsets = self._append(batch)
            own.update(offsets.values())
            others = self.log.others(own, max(offsets.values()))
            overtaken = [key for key, offset in offsets.items() if others.get(key, offset) < offset]
            if not overtaken:
                self._check_topic_id()
                self.producer.commit_transaction(_TIMEOUT_S)
                self.log.pass_over()
                for copy in batch:
                    is_repair = isinstance(copy.record, NewRecord)
                    self.done.repaired += is_repair
                    self.done.copied += not is_repair
                    self.done.tombstones += copy.value is None and not is_repair
                undecided = 0
                self.size = min(self.size * 2, MOST)
                continue
            self.producer.abort_transaction(_TIMEOUT_S)
            undecided = max(offsets.values()) + 1
            aborted.update({key: offsets[key] for key in overtaken})
            waiting.extendleft(reversed(batch))
            self.done.retries += 1
            self.size = max(self.size // 2, FEWEST)
            for key in overtaken:
                tries[key] += 1
                if tries[key] >= self.job.tries:
                    raise self.job.failed(
                        self.partition,
                        f"producers wrote the key {key!r} during each of the {self.job.tries} tries of its copy "
                        "(evacuate(passes=...) allows more tries)",
                    )

    def _check_topic_id(self) -> None:
        """Refuse to commit copies to another topic of the new topic's name: its newer values were not read."""
        wanted = self.job.new_topic_id
        if wanted is not None and self.topic_id() not in (None, wanted):
            raise self.job.failed(self.partition, "the topic was deleted and created again")

    def _wanted(
        self, waiting: deque[Copy[OldRecord | NewRecord]], aborted: Mapping[bytes, int]
    ) -> Iterator[Copy[OldRecord | NewRecord]]:
        """Yield the next copies that are still needed, up to :attr:`size`; count the others as done."""
        taken = taken_bytes = 0
        while waiting and taken < self.size and taken_bytes < MOST_BYTES:
            copy = waiting.popleft()
            held = self.log.newest.get(copy.key)
            if held is not None and is_newer(held.record, copy.record, self.partition):
                is_repair = isinstance(copy.record, NewRecord)  # a later record makes a repair needless
                if held.record.offset > aborted.get(copy.key, -1):
                    same = held.record.source == copy.record
                    self.done.placed += same and not is_repair
                    self.done.superseded += not same and not is_repair
                    continue
                self.done.superseded += not is_repair
                copy = held
            taken += 1
            taken_bytes += len(copy.key) + len(copy.value or b"")
            yield copy

    def _append(self, batch: list[Copy[OldRecord | NewRecord]]) -> dict[bytes, int]:
        """Append the copies in a transaction, which stays open; return key -> the offset of its copy."""
        offsets: dict[bytes, int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            key, offset = message.key(), message.offset()
            if error is not None:
                self._failed = self._failed or error
            elif key is not None and offset is not None:
                offsets[_bytes(key)] = offset

        self.producer.begin_transaction()
        for copy in batch:
            headers, record = copy.headers, copy.record
            if isinstance(record, OldRecord):
                made = record.header(self.job.epoch, self.job.old_id, digest(copy.key, copy.value))
                headers = [*(header for header in headers if header[0] != HEADER), (HEADER, made)]
            # confluent_kafka takes 0 for "now", hence 1. A record without a timestamp (-1) gets the present time.
            stamped = {"timestamp": record.timestamp_ms or 1} if record.timestamp_ms >= 0 else {}
            self._produce(copy, delivered, {"headers": headers, **stamped})
        self.producer.flush(_TIMEOUT_S)
        if self._failed is not None:
            raise KafkaException(self._failed)
        if len(offsets) < len(batch):
            lacking = len(batch) - len(offsets)
            raise self.job.failed(self.partition, f"{lacking} copies were not acknowledged within {_TIMEOUT_S:g} s")
        return offsets

    def _produce(self, copy: Copy[OldRecord | NewRecord], delivered: Any, more: dict[str, Any]) -> None:
        while True:
            try:
                self.producer.produce(self.job.topic, copy.value, copy.key, self.partition, delivered, **more)
                return
            except BufferError:
                self.producer.poll(0.05)


class TargetLog:
    """Follows the writes of other producers to one partition of the new topic, from its base on. For one thread, which
    closes it. Raises EvacuationFailed if the partition cannot be read."""

    def __init__(self, job: CopyJob, partition: int) -> None:
        base = job.bases[partition]
        self._old_id = job.old_id
        self.newest: dict[bytes, Copy[NewRecord]] = {}  # key -> the last committed record that was read
        self._partition = partition
        self._clean_up_to = base
        self._failed = job.failed
        # Committed records decide which copies are needed. Uncommitted ones may still be committed, so a copy must not
        # overtake them either.
        self._committed = _Reader(job, partition, base, "read_committed")
        self._all = _Reader(job, partition, base, "read_uncommitted")

    def catch_up(self, at_least: int = 0) -> None:
        """Note every record that is committed by now, and wait until no transaction is open below ``at_least``."""
        open_s = time.monotonic() + OPEN_TIMEOUT_S
        while True:
            for message in self._committed.read_to(self._committed.end()):
                self._note(message)
            if self._committed.position >= at_least:
                return
            if time.monotonic() > open_s:
                raise self._failed(
                    self._partition,
                    f"another producer's transaction stays open for {OPEN_TIMEOUT_S:g} s (kafka-transactions.sh "
                    "find-hanging lists those that no producer will end)",
                )
            time.sleep(0.01)  # brokers write the markers of an ended transaction within milliseconds

    def others(self, own: Container[int], last: int) -> dict[bytes, int]:
        """Return key -> the offset of the key's first record of another producer, committed or not. Read from the
        position of :meth:`catch_up` to ``last``, the last of our ``own`` offsets."""
        self._all.go_to(self._committed.position)
        offsets: dict[bytes, int] = {}
        self._clean_up_to = last + 1
        for message in self._all.read_to(last + 1):
            key, offset = message.key(), message.offset()
            if offset is None or offset > last or offset in own:
                continue
            self._clean_up_to = self._committed.position
            if key is not None:
                offsets.setdefault(_bytes(key), offset)
        return offsets

    def pass_over(self) -> None:
        """Skip our own records, which are committed now: :meth:`others` has just read them. If a record of another
        producer lies among them, skip nothing."""
        self._committed.go_to(self._clean_up_to)

    def close(self) -> None:
        self._committed.close()
        self._all.close()

    def _note(self, message: Message) -> None:
        found_key, found_value, offset = message.key(), message.value(), message.offset()
        if found_key is None or offset is None:
            return
        key, value = _bytes(found_key), None if found_value is None else _bytes(found_value)
        headers: Headers = []
        with suppress(UnicodeDecodeError, SystemError):  # the client decodes header names, which may be any bytes
            headers = [(str(h[0]), None if h[1] is None else _bytes(h[1])) for h in message.headers() or []]
        sources = (
            OldRecord.parse(header_value, self._old_id, digest(key, value))
            for name, header_value in reversed(headers)
            if name == HEADER
        )
        kind, timestamp_ms = message.timestamp()
        record = NewRecord(self._partition, offset, timestamp_ms if kind != _NO_TIMESTAMP else -1, next(sources, None))
        self.newest[key] = Copy(key, value, headers, record)


class _Reader:
    """One consumer on one partition, and its position."""

    def __init__(self, job: CopyJob, partition: int, start: int, isolation: str) -> None:
        self._job = job
        self._place = TopicPartition(job.topic, partition)
        conf = tail_conf(split_client_config(job.conf)[1], fetch_wait_ms=20)
        self._consumer = Consumer({**conf, "isolation.level": isolation, "auto.offset.reset": "error"})
        self.position = start
        self._assigned = False
        self.close = self._consumer.close

    def go_to(self, position: int) -> None:
        """Continue at ``position``."""
        if position != self.position:
            self.position, self._assigned = position, False

    def end(self) -> int:
        """Return the log end now; with ``read_committed``, the offset before which no transaction is open."""
        try:
            return self._consumer.get_watermark_offsets(self._place, timeout=_TIMEOUT_S)[1]
        except KafkaException as error:
            raise self._failed(error.args[0].str()) from error

    def read_to(self, end: int) -> Iterator[Message]:
        """Yield the records up to ``end``, and perhaps some behind ``end``."""
        deadline_s, before = 0.0, -1
        while self.position < end:
            if self.position != before:  # a busy partition may take minutes
                deadline_s, before = time.monotonic() + _TIMEOUT_S, self.position
            if time.monotonic() > deadline_s:
                raise self._failed(f"offset {self.position} was not read within {_TIMEOUT_S:g} s")
            if not self._assigned:
                self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, self.position)])
                self._assigned = True
            if (first := self._consumer.poll(0.2)) is not None:
                yield from filter(self._take, [first, *self._consumer.consume(_BATCH, 0)])

    def _take(self, message: Message) -> bool:
        """Return whether the message is a record not read before; move the position behind it."""
        error, offset = message.error(), message.offset()
        if error is not None and error.code() not in _HARMLESS:
            if error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                return False  # librdkafka reconnects by itself
            raise self._failed(error.str())
        if offset is None or offset < self.position or message.partition() != self._place.partition:
            return False
        if error is None:
            self.position = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self.position = offset  # behind control records and aborted records, which are not returned
        return error is None

    def _failed(self, why: str) -> EvacuationFailed:
        return self._job.failed(self._place.partition, f"cannot be read: {why}")


def _bytes(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode()

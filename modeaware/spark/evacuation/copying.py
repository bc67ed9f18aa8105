"""Copies to one survivor, none of which overtakes what a producer writes meanwhile. Runs on executors.

Kafka has no compare-and-set for a key, and producers go on writing. A copy that is appended behind a newer value of its
key would be what everybody ends up with, and compaction would take the newer value for ever. So copies are written in
transactions, and before one is committed all that lies in front of its records is read: a transaction's records have
their offsets while nobody sees them yet. Where a producer has written one of the keys in between, the transaction is
aborted, and begun anew with what is known then. What is committed has overtaken nothing.

An aborted copy is not seen by ``read_committed``, nor by compaction. A consumer that reads uncommitted records has seen
it; for its sake the newer value is written once more, where none has followed.

The transactional id is that of topic and survivor: whoever writes copies there later (a task that is run again, another
job) fences the one before, and aborts what that has left open.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from modeaware.config import split_client_config
from modeaware.confluent.producer import Producer
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaError, KafkaException, Message
from modeaware.spark.evacuation.errors import EvacuationFailed
from modeaware.spark.evacuation.survivor_log import Headers, SurvivorLog
from modeaware.spark.evacuation.versions import HEADER, Order, Version

logger = logging.getLogger(__name__)

MOST, FEWEST = 10_000, 1
"""How many copies a transaction has at most, and where producers write many of the same keys."""
MOST_BYTES = 16_000_000
"""After so many bytes of keys and values a transaction takes no further copy: it must be over soon."""
TRANSACTION_TIMEOUT_MS = 60_000
_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 5.0
_OURS = frozenset(
    {
        "partitioner",  # the partition is given
        "transactional.id",
        "on_delivery",
        "delivery.report.only.error",
        # What a transaction decides, and librdkafka would refuse beside it.
        "acks",
        "request.required.acks",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "retries",
        "message.send.max.retries",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "queuing.strategy",
        "default.topic.config",
    }
)


class Copy(NamedTuple):
    """A value to be written to the survivor that its key belongs to, and which version it is."""

    key: bytes
    value: bytes | None
    headers: Headers
    version: Version


@dataclass
class Copied:
    """What became of the copies for one survivor."""

    copied: int = 0
    tombstones: int = 0
    superseded: int = 0
    placed: int = 0
    repaired: int = 0
    retries: int = 0


@dataclass(frozen=True)
class CopyJob:
    """What all copies of one evacuation have in common. Picklable.

    Attributes:
        conf: as for :class:`modeaware.Producer`.
        bases: survivor -> the offset up to which it was read when it was decided what is to be copied.
        tries: how often a copy is tried whose key producers write all the time.
    """

    topic: str
    epoch: int
    conf: Mapping[str, Any]
    order: Order
    bases: Mapping[int, int]
    tries: int


def copy_all(job: CopyJob, survivor: int, copies: Iterable[Copy]) -> Copied:
    """Write ``copies``, each key once, unless what was written to the survivor since makes one needless.

    Raises:
        EvacuationFailed: it cannot be done now.
        PartitionRetired, ModeSourceError: the modes do not let it (any more).
    """
    _, rest = split_client_config(job.conf)
    try:
        with (
            closing(_producer(job, survivor)) as producer,
            SurvivorLog(rest, job.topic, survivor, job.bases[survivor]) as log,
        ):
            producer.init_transactions(_TIMEOUT_S)
            work = Copying(job, survivor, producer, log)
            waiting = iter(copies)
            while chunk := list(islice(waiting, work.size)):
                work.write(chunk)
            return work.done
    except KafkaException as error:
        if isinstance(error, ModeAwareError):
            raise
        cause = error.args[0]
        raise EvacuationFailed(
            f"{job.topic}-{survivor}: copies cannot be written: {cause.str()} ({cause.name()}). Nothing is recorded, "
            "run it again",
            topic=job.topic,
            partition=survivor,
        ) from error


def _producer(job: CopyJob, survivor: int) -> Producer:
    conf = {name: value for name, value in job.conf.items() if name not in _OURS}
    return Producer(
        {
            **conf,
            "transactional.id": f"modeaware-evacuation-{job.topic}-{survivor}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "acks": "all",
            "enable.idempotence": True,
            "modeaware.on.resize": "ignore",  # the partition is given
            "modeaware.on.unknown": "error",
        }
    )


@dataclass
class Copying:
    """The copies of one task for one survivor. For one thread.

    Attributes:
        producer: has begun to be transactional; no transaction is open.
        done: what became of the copies so far.
        size: how many the next transaction has at most.
    """

    job: CopyJob
    survivor: int
    producer: Producer
    log: SurvivorLog
    done: Copied = field(default_factory=Copied)
    size: int = MOST
    _failed: KafkaError | None = None

    def write(self, copies: list[Copy]) -> None:
        """Write them, in one transaction or in several.

        Raises:
            KafkaException, EvacuationFailed: not all of them are written; what is open is aborted.
        """
        try:
            self._write(copies)
        except (KafkaException, ModeAwareError):
            with suppress(KafkaException):  # none is open, or the broker ends it: what matters is the first error
                self.producer.abort_transaction(_ABORT_TIMEOUT_S)
            raise

    def _write(self, copies: list[Copy]) -> None:
        tries = dict.fromkeys((copy.key for copy in copies), 0)
        phantoms: dict[bytes, int] = {}  # key -> offset of the last copy that was taken back
        own: set[int] = set()
        undecided = 0  # up to where it has to be known what has overtaken copies that were taken back
        waiting = deque(copies)
        while waiting:
            self.log.catch_up(undecided)
            batch = list(self._wanted(waiting, phantoms))
            if not batch:
                return
            offsets = self._append(batch)
            own.update(offsets.values())
            others = self.log.others(own, max(offsets.values()))
            overtaken = [key for key, offset in offsets.items() if others.get(key, offset) < offset]
            if not overtaken:
                self.producer.commit_transaction(_TIMEOUT_S)
                self.log.pass_over()
                self._count(batch)
                undecided = 0
                self.size = min(self.size * 2, MOST)
                continue
            self.producer.abort_transaction(_TIMEOUT_S)
            undecided = max(offsets.values()) + 1
            phantoms.update({key: offsets[key] for key in overtaken})
            waiting.extendleft(reversed(batch))
            self.done.retries += 1
            self.size = max(self.size // 2, FEWEST)
            self._check(tries, overtaken)

    def _wanted(self, waiting: deque[Copy], phantoms: Mapping[bytes, int]) -> Iterator[Copy]:
        """Those of the next ones that have to be written, as things stand, up to :attr:`size`; the others are done."""
        taken = taken_bytes = 0
        while waiting and taken < self.size and taken_bytes < MOST_BYTES:
            copy = waiting.popleft()
            held = self.log.newest.get(copy.key)
            if held is not None and self.job.order.is_newer(held.version, copy.version, self.survivor):
                if held.version.offset > phantoms.get(copy.key, -1):
                    self._settle(copy, held.version)
                    continue
                self.done.superseded += copy.version.partition != self.survivor
                copy = Copy(copy.key, held.value, held.headers, held.version)
            taken += 1
            taken_bytes += len(copy.key) + len(copy.value or b"")
            yield copy

    def _settle(self, copy: Copy, held: Version) -> None:
        if copy.version.partition == self.survivor:
            return  # was to be repaired, and a producer has written the key again
        same = self.job.order.stands_for(held) == self.job.order.stands_for(copy.version)
        self.done.placed += same
        self.done.superseded += not same

    def _append(self, batch: list[Copy]) -> dict[bytes, int]:
        """Key -> the offset that its copy has got."""
        offsets: dict[bytes, int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            key, offset = message.key(), message.offset()
            if error is not None:
                self._failed = self._failed or error
            elif key is not None and offset is not None:
                offsets[key] = offset

        self.producer.begin_transaction()
        for copy in batch:
            self._produce(copy, delivered)
        self.producer.flush(_TIMEOUT_S)
        if self._failed is not None:
            raise KafkaException(self._failed)
        if len(offsets) < len(batch):
            raise EvacuationFailed(
                f"{self.job.topic}-{self.survivor}: {len(batch) - len(offsets)} copies were not acknowledged within "
                f"{_TIMEOUT_S:g} s; nothing is recorded, run it again",
                topic=self.job.topic,
                partition=self.survivor,
            )
        return offsets

    def _produce(self, copy: Copy, delivered: Any) -> None:
        source = self.job.order.stands_for(copy.version)
        headers = [header for header in copy.headers if header[0] != HEADER]
        headers.append((HEADER, source.header(self.job.epoch)))
        # confluent_kafka takes 0 for "now"; where there was no timestamp, the copy gets one.
        stamped = {"timestamp": source.timestamp_ms or 1} if source.timestamp_ms >= 0 else {}
        while True:
            try:
                self.producer.produce(
                    self.job.topic, copy.value, copy.key, self.survivor, delivered, headers=headers, **stamped
                )
                return
            except BufferError:
                self.producer.poll(0.05)

    def _count(self, batch: list[Copy]) -> None:
        for copy in batch:
            if copy.version.partition == self.survivor:
                self.done.repaired += 1
            else:
                self.done.copied += 1
                self.done.tombstones += copy.value is None

    def _check(self, tries: dict[bytes, int], overtaken: list[bytes]) -> None:
        for key in overtaken:
            tries[key] += 1
            if tries[key] > self.job.tries:
                raise EvacuationFailed(
                    f"{self.job.topic}-{self.survivor}: producers wrote the key {key!r} each of the {self.job.tries} "
                    "times that its copy was tried; nothing is recorded, run it again, or with more passes",
                    topic=self.job.topic,
                    partition=self.survivor,
                )

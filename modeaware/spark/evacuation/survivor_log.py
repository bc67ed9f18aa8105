"""What others write to a survivor while it takes copies: read to the end, and between copies and the end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Container, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from modeaware.librdkafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from modeaware.modelog.connection import connection_conf
from modeaware.spark.evacuation.errors import EvacuationFailed
from modeaware.spark.evacuation.versions import HEADER, Source, Version

TIMEOUT_S = 60.0
TRANSACTIONS_TIMEOUT_S = 900.0
"""The longest that brokers let a transaction last by default (transaction.max.timeout.ms)."""
_BATCH = 2_000
_HARMLESS = (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED)  # it is no member of any group
_NO_TIMESTAMP = 0

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Held:
    """A record that lies in a survivor, and all of it that a copy needs."""

    version: Version
    value: bytes | None
    headers: Headers


class SurvivorLog:
    """Follows one survivor from ``base`` on. For one thread; close it.

    Args:
        conf: librdkafka settings, without ours.

    Attributes:
        newest: key -> its last committed record from ``base`` on, as far as it was read.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, partition: int, base: int) -> None:
        self._topic = topic
        self._partition = partition
        self.newest: dict[bytes, Held] = {}
        self._clean_up_to = base
        # What is committed decides; what is not (yet) may still be, so it counts when a copy must not overtake it.
        self._committed = _Reader(conf, topic, partition, base, "read_committed")
        self._all = _Reader(conf, topic, partition, base, "read_uncommitted")

    def catch_up(self, at_least: int = 0) -> None:
        """Note all that was committed when this is called, and wait until offsets below ``at_least`` are decided.

        Raises:
            EvacuationFailed: they are not: another producer's transaction stays open.
        """
        undecided_s = time.monotonic() + TRANSACTIONS_TIMEOUT_S
        while True:
            end, deadline_s = self._committed.end(), time.monotonic() + TIMEOUT_S
            while self._committed.position < end:
                for message in self._committed.read():
                    self._note(message)
                if time.monotonic() > deadline_s:
                    raise self._stuck("it cannot be read to its end", TIMEOUT_S)
            if end >= at_least:
                return
            if time.monotonic() > undecided_s:
                raise self._stuck(
                    "a transaction of another producer stays open (kafka-transactions.sh find-hanging shows those that "
                    "nobody will end)",
                    TRANSACTIONS_TIMEOUT_S,
                )
            time.sleep(0.01)  # markers of a transaction that ended are written within milliseconds

    def others(self, own: Container[int], last: int) -> dict[bytes, int]:
        """Key -> the first offset of it that others have written, or try to write, between what was caught up with and
        ``last``.

        Args:
            own: the offsets of records that are to be passed over.
            last: one of them; it has been acknowledged.

        Raises:
            EvacuationFailed: the log cannot be read up to there.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        self._all.go_to(self._committed.position)
        found: dict[bytes, int] = {}
        self._clean_up_to = last + 1
        while self._all.position <= last:
            for message in self._all.read():
                key, offset = message.key(), message.offset()
                if offset is None or offset > last or offset in own:
                    continue
                self._clean_up_to = self._committed.position
                if key is not None:
                    found.setdefault(_bytes(key), offset)
            if time.monotonic() > deadline_s:
                raise self._stuck("it cannot be read to its end", TIMEOUT_S)
        return found

    def pass_over(self) -> None:
        """Our own records that :meth:`others` has just read past are committed: where nothing else is among them, they
        need not be read again."""
        self._committed.go_to(self._clean_up_to)

    def close(self) -> None:
        self._committed.close()
        self._all.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, message: Message) -> None:
        key, offset = message.key(), message.offset()
        if key is None or offset is None:
            return
        headers: Headers = []
        with suppress(UnicodeDecodeError, SystemError):  # the client makes text of their names, which may be any bytes
            headers = [(str(header[0]), _maybe_bytes(header[1])) for header in message.headers() or []]
        source = next((Source.parse(value) for name, value in reversed(headers) if name == HEADER), None)
        kind, timestamp_ms = message.timestamp()
        version = Version(self._partition, offset, timestamp_ms if kind != _NO_TIMESTAMP else -1, source)
        self.newest[_bytes(key)] = Held(version, _maybe_bytes(message.value()), headers)

    def _stuck(self, why: str, waited_s: float) -> EvacuationFailed:
        return EvacuationFailed(
            f"{self._topic}-{self._partition}: {why}, for {waited_s:g} s; nothing is recorded, run it again",
            topic=self._topic,
            partition=self._partition,
        )


class _Reader:
    """One consumer on one partition, and how far it is."""

    def __init__(self, conf: Mapping[str, Any], topic: str, partition: int, start: int, isolation: str) -> None:
        self._topic = topic
        self._at = partition
        self._consumer = Consumer(
            {
                **connection_conf(conf, "evacuate"),
                "group.id": f"modeaware-evacuate-{uuid.uuid4().hex}",  # librdkafka wants one; nothing joins it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "error",
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": 20,
            }
        )
        self.position = start
        self._assigned: int | None = None

    def go_to(self, position: int) -> None:
        """Go on from there."""
        if position != self.position:
            self.position, self._assigned = position, None

    def end(self) -> int:
        """The end now: of what is decided, for ``read_committed``."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, self._at), timeout=TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        return end

    def read(self) -> list[Message]:
        """The next records, if any come within a moment.

        Raises:
            EvacuationFailed: the partition cannot be read.
        """
        if self._assigned is None:
            self._consumer.assign([TopicPartition(self._topic, self._at, self.position)])
            self._assigned = self.position
        first = self._consumer.poll(0.2)
        messages = [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]
        found = []
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() not in _HARMLESS:
                if error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                    continue  # librdkafka goes on by itself
                raise self._failed(error)
            if offset is None or offset < self.position or message.partition() != self._at:
                continue
            if error is None:
                self.position = offset + 1
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self.position = offset  # behind control records and what was aborted
        return found

    def close(self) -> None:
        with closing(self._consumer):
            pass

    def _failed(self, error: KafkaError) -> EvacuationFailed:
        return EvacuationFailed(
            f"{self._topic}-{self._at}: cannot be read: {error.str()}; nothing is recorded, run it again",
            topic=self._topic,
            partition=self._at,
        )


def _bytes(found: str | bytes) -> bytes:
    return found if isinstance(found, bytes) else found.encode()


def _maybe_bytes(found: str | bytes | None) -> bytes | None:
    return None if found is None else _bytes(found)

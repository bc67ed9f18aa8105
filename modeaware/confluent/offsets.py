"""Offsets that librdkafka requests from brokers for a consumer, and the auxiliary client for any topic's offsets.

Only the polling thread may use this module. ``stock`` are the client's own methods.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from modeaware.callouts import get_logger
from modeaware.clients.actions import Committed
from modeaware.clients.starts import Key
from modeaware.librdkafka import (
    COORDINATOR_MOVES,
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Renewed,
    TopicPartition,
)
from modeaware.modelog.connection import connection_conf

log = get_logger(__name__)

TIMEOUT_S = 10.0
ANSWER_S = 1.0
"""How long the polling thread waits for an answer outside a rebalance. The request is repeated later."""
SINGLE_ANSWER_S = 0.25
RETRY_S = 0.1
# Errors while a leader or coordinator moves, and when a connection breaks.
_RETRIABLE = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._DESTROY_BROKER,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
    }
)


def key_of(partition: TopicPartition) -> Key:
    return (partition.topic, partition.partition)


def parts_of(keys: Iterable[Key]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, OFFSET_INVALID) for topic, partition in sorted(keys)]


def positions(stock: Any, keys: Collection[Key]) -> dict[Key, int | None]:
    """Return the offset behind the last record that the application got, or None for a partition without one."""
    if not keys:
        return {}
    return {key_of(p): p.offset if p.offset >= 0 else None for p in stock.position(parts_of(keys))}


def commits_of(answer: Iterable[TopicPartition]) -> dict[Key, Committed | None]:
    """Return the group's commits in the answer of ``committed()``."""
    answered = {key_of(p): p for p in answer if p.error is None}
    return {key: Committed(p.offset, metadata_of(p)) if p.offset >= 0 else None for key, p in answered.items()}


def metadata_of(committed: TopicPartition) -> str:
    """Return the metadata of a commit."""
    try:
        return committed.metadata or ""
    except UnicodeDecodeError:
        # confluent_kafka reads beyond metadata that another client has not ended with a zero byte.
        return "not readable"


class LibrdkafkaOffsets:
    """Offsets that librdkafka requests from brokers: :class:`~modeaware.clients.starts.BrokerOffsets`, and commits.

    Args:
        non_member: requests offsets of topics that need not be assigned.
        is_final: without an answer to :meth:`committed`, librdkafka decides the starts for good. So the request is
            repeated while the coordinator moves.
    """

    def __init__(self, stock: Any, group_id: str, non_member: Any = None, *, is_final: bool = True) -> None:
        self._stock = stock
        self._non_member = non_member or stock
        self._group_id = group_id
        self._is_final = is_final
        self._leader_epochs: dict[Key, tuple[int, int | None]] = {}  # committed offset, leader epoch

    def committed(self, keys: Collection[Key]) -> dict[Key, Committed | None]:
        if not keys:
            return {}
        try:
            answer = self._commits(keys)
        except KafkaException as error:
            log.warning(
                "%s: committed offsets unknown (%s); librdkafka decides the start of %d partitions",
                self._group_id, error, len(keys),
            )  # fmt: skip
            return {}
        for partition in answer:
            if partition.error is not None:
                log.warning("%s: committed offset of %s unknown: %s", self._group_id, partition, partition.error)
        self._leader_epochs |= {key_of(p): (p.offset, p.leader_epoch) for p in answer if p.error is None}
        return commits_of(answer)

    def _commits(self, keys: Collection[Key]) -> list[TopicPartition]:
        """Request the group's commits. With ``is_final``, repeat this while the coordinator moves to another broker.

        librdkafka itself requests the commits only once in that case, and then never reads the partitions (#5586).
        """
        deadline_s = time.monotonic() + (TIMEOUT_S if self._is_final else 0)
        while True:
            try:
                answer: list[TopicPartition] = self._stock.committed(parts_of(keys), timeout=TIMEOUT_S)
                return answer
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES or time.monotonic() > deadline_s:
                    raise
            time.sleep(RETRY_S)  # the coordinator is moving

    def committed_elsewhere(self, keys: Collection[Key]) -> dict[Key, int | None]:
        try:
            answer = self._non_member.committed(parts_of(keys), timeout=TIMEOUT_S)
        except KafkaException as error:
            log.warning("%s: committed offsets of earlier topics unknown: %s", self._group_id, error)
            return {}
        return {key_of(p): p.offset if p.offset >= 0 else None for p in answer if p.error is None}

    def remember(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep the leader epochs of offsets that the application has chosen."""
        self._leader_epochs |= {key_of(p): (p.offset, p.leader_epoch) for p in partitions if p.offset >= 0}

    def placed(self, key: Key, offset: int) -> TopicPartition:
        """Return where to start. A committed offset keeps its leader epoch, by which librdkafka detects truncation.

        An offset that was raised above the commit gets no leader epoch: the commit's epoch may end below the offset.
        """
        committed, leader_epoch = self._leader_epochs.get(key, (None, None))
        if committed != offset or leader_epoch is None:
            return TopicPartition(*key, offset)
        return TopicPartition(*key, offset, leader_epoch=leader_epoch)

    def log_starts(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.listed(dict.fromkeys(keys, OFFSET_BEGINNING))

    def log_starts_now(self, keys: Collection[Key]) -> dict[Key, int]:
        """Return log starts. Leave out partitions whose leader does not answer at once.

        ``poll`` waits meanwhile. One silent leader makes librdkafka return no offset at all. Then partitions are
        requested one by one, in random order, until the time is over.
        """
        asked = [TopicPartition(*key, OFFSET_BEGINNING) for key in sorted(keys)]
        log_starts = self._answered(asked, ANSWER_S) if asked else {}
        if not log_starts and len(asked) > 1:
            deadline_s = time.monotonic() + ANSWER_S
            for partition in random.sample(asked, len(asked)):  # unshuffled, silent leaders might always come first
                if time.monotonic() >= deadline_s:
                    break
                log_starts |= self._answered([partition], SINGLE_ANSWER_S)
        return log_starts

    def _answered(self, asked: list[TopicPartition], timeout_s: float) -> dict[Key, int]:
        """Request offsets once, by the timestamps in ``asked``. Partitions without an answer are left out."""
        try:
            answer = self._stock.offsets_for_times(asked, timeout=timeout_s)
        except KafkaException as error:
            log.debug("%s: offsets of %s unknown: %s", self._group_id, asked, error)
            return {}
        return {key_of(p): p.offset for p in answer if p.error is None and p.offset >= 0}

    def log_ends(self, keys: Collection[Key]) -> dict[Key, int]:
        return self.listed(dict.fromkeys(keys, OFFSET_END))

    def listed(self, logical: Mapping[Key, int]) -> dict[Key, int]:
        """Return the offsets that logical offsets stand for now; partitions without an answer are left out."""
        # ListOffsets' special timestamps are librdkafka's logical offsets.
        known: dict[Key, int] = {}
        deadline_s = time.monotonic() + TIMEOUT_S
        while left := [TopicPartition(*key, offset) for key, offset in logical.items() if key not in known]:
            error: KafkaError | None = None
            try:
                answer = self._stock.offsets_for_times(left, timeout=TIMEOUT_S)
            except KafkaException as failure:
                error = failure.args[0]
            else:
                known |= {key_of(p): p.offset for p in answer if p.error is None and p.offset >= 0}
                error = next((p.error for p in answer if p.error is not None), None)
            if len(known) == len(logical):
                break
            if error is None or error.code() not in _RETRIABLE or time.monotonic() > deadline_s:
                log.warning(
                    "%s: start offsets of %d partitions unknown (%s); auto.offset.reset decides at their first fetch",
                    self._group_id, len(logical) - len(known), error,
                )  # fmt: skip
                break
            time.sleep(RETRY_S)  # a leader is being elected; other partitions wait for this answer as well
        return known


class NonMember:
    """A consumer that never joins the group and requests the group's committed offsets.

    librdkafka keeps every partition about which a consumer has sent a request. Once the topic is deleted, librdkafka
    queues an error for each of these partitions every second, until the consumer is assigned the partition and releases
    it. If other members read the partition, the errors never end. So the requests do not go through the application's
    consumer. There, each request would also wait for the answer to a fetch (``fetch.wait.max.ms``).
    """

    def __init__(self, conf: Mapping[str, Any], group_id: str) -> None:
        same = {"group.id": group_id, "isolation.level": conf.get("isolation.level", "read_committed")}
        settings = {**connection_conf(conf, "offsets"), **same, "enable.auto.commit": False}
        self._client = Renewed(Consumer, settings, lambda consumer: consumer.close())
        self._group_id = group_id
        self.set_sasl_credentials = self._client.set_sasl_credentials

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._client.ask(lambda consumer: consumer.committed(partitions, timeout=timeout))

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return self._client.ask(lambda consumer: consumer.offsets_for_times(partitions, timeout=timeout))

    def topics(self) -> frozenset[str]:
        """Return the names of all topics, or an empty set without an answer."""
        try:
            topics = self._client.ask(lambda consumer: consumer.list_topics(timeout=ANSWER_S)).topics
        except KafkaException as error:
            log.debug("%s: topics unknown: %s", self._group_id, error)
            return frozenset()
        return frozenset(name for name, topic in topics.items() if topic.error is None)

    def close(self) -> None:
        self._client.close()

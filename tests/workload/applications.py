"""Applications that handle records in ways of their own. Each notes a record when it has handled it, not before."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import kafka
from confluent_kafka import TopicPartition

from tests.workload.journal import Kind
from tests.workload.reader import Reader
from tests.workload.record import log_of, number_of

WAIT_S = 0.1
ALL = 10_000
"""More records than ever wait: each call takes what there is."""

Key = tuple[str, int]


class _Handled(Reader):
    """A reader that has worked on a record before it notes it."""

    def given(self, number: int, topic: str, partition: int, offset: int) -> None:
        self.sink.note(Kind.READ, number, log_of(topic, partition), offset)
        self.pace.event()


class BatchWorker(_Handled):
    """Takes all records that wait, and works ``work_s`` on them together."""

    def turn(self) -> None:
        messages = self.consumer.consume(ALL, WAIT_S)
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        if messages:
            time.sleep(self.work_s)  # the work on the records
        self._uncommitted += self.take(messages)
        if self._every and self._uncommitted:
            self._commit()


class RareCommitter(_Handled):
    """Commits when a record comes, if it has handled ``every`` since its last commit, or if the first of those came
    ``after_s`` ago. It never commits what comes last.

    Args:
        revoke_commits: it commits in ``on_revoke``, too.
    """

    def __init__(
        self, *args: Any, every: int = 0, after_s: float = 0.0, revoke_commits: bool = False, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._limit, self._after_s, self._revoke_commits = every, after_s, revoke_commits
        self._first_s: float | None = None

    def subscribe(self) -> None:
        def revoked(consumer: Any, partitions: Any) -> None:
            if self._uncommitted:
                self._commit()

        callbacks = {"on_revoke": revoked} if self._revoke_commits else {}
        self.consumer.subscribe(self.topics, **callbacks)

    def turn(self) -> None:
        message = self.consumer.poll(WAIT_S)
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        if message is None or not self.take([message]):
            return
        self._uncommitted += 1
        now_s = time.monotonic()
        self._first_s = now_s if self._first_s is None else self._first_s
        if self._uncommitted >= self._limit if self._limit else now_s >= self._first_s + self._after_s:
            self._commit()
            self._first_s = None


class Handover(_Handled):
    """Hands the records of a partition to a worker, pauses the partition and polls on. It resumes it ``work_s``
    later, when they are handled. A revocation waits for the worker."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._handed: dict[Key, tuple[float, list[Any]]] = {}

    def subscribe(self) -> None:
        self.consumer.subscribe(self.topics, on_revoke=self._revoked)

    def turn(self) -> None:
        messages = self.consumer.consume(ALL, WAIT_S)
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        by_partition: dict[Key, list[Any]] = {}
        for message in messages:
            by_partition.setdefault((message.topic(), message.partition()), []).append(message)
        self._hand(by_partition)

    def _hand(self, by_partition: dict[Key, list[Any]]) -> None:
        now_s, work_s = time.monotonic(), self.work_s
        for key, messages in by_partition.items():
            self.pause(key)
            self._handed[key] = (now_s + work_s, self._handed.get(key, (0.0, []))[1] + messages)
        for key in [key for key, (due_s, _) in self._handed.items() if now_s >= due_s]:
            self._handled(key)
            if key in self.held:
                self.resume(key)

    def _handled(self, key: Key) -> None:
        self.note(self._handed.pop(key)[1])

    def _revoked(self, _: Any, partitions: Iterable[Any]) -> None:
        for key in [(each.topic, each.partition) for each in partitions]:
            if key in self._handed:
                time.sleep(max(self._handed[key][0] - time.monotonic(), 0.0))  # the worker works
                self._handled(key)
                self.resume(key)  # a pause outlives an assignment

    def pause(self, key: Key) -> None:
        self.consumer.pause([TopicPartition(*key)])

    def resume(self, key: Key) -> None:
        self.consumer.resume([TopicPartition(*key)])

    def note(self, messages: list[Any]) -> None:
        self.take(messages)


class KafkaPythonHandover(Handover):
    """The same with a consumer of kafka-python's kind."""

    def subscribe(self) -> None:
        reader = self

        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked: Any) -> None:
                reader._revoked(None, revoked)

            def on_partitions_assigned(self, assigned: Any) -> None:
                pass

        self.consumer.subscribe(self.topics, listener=Listener())

    def turn(self) -> None:
        found = self.consumer.poll(int(WAIT_S * 1000))
        self.held = frozenset((each.topic, each.partition) for each in self.consumer.assignment())
        self._hand({(each.topic, each.partition): records for each, records in found.items()})

    def pause(self, key: Key) -> None:
        self.consumer.pause(kafka.TopicPartition(*key))

    def resume(self, key: Key) -> None:
        self.consumer.resume(kafka.TopicPartition(*key))

    def note(self, messages: list[Any]) -> None:
        for record in messages:
            self.given(number_of(record.value, record.key), record.topic, record.partition, record.offset)

    def close(self, consumer: Any) -> None:
        consumer.close()

"""Two users beside the run's own topic: one deletes and recreates a shrunk topic, one shrinks many topics at once.

A recreated topic has nothing to do with its predecessor (invariant I8): a producer and a group that start after the
creation must reach every partition of it, whatever the mode log still holds under the name. A request for many topics
must report each topic's outcome as it is: no error that promises "nothing was changed" for a topic that was shrunk.
"""

from __future__ import annotations

import random
import time
import uuid
from contextlib import closing
from itertools import cycle
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

import modeaware
from modeaware.errors import ModeAwareError
from modeaware.librdkafka_admin import NewPartitions
from modeaware.topic_view import TopicView
from tests.chaos.plain import create_topic, delete_topic
from tests.chaos.setting import LOWEST_TARGET, PARTITIONS, Setting
from tests.chaos.tasks import Task, outcome, until
from tests.chaos.watch import Watch

RECREATED_COUNTS = (PARTITIONS, 2)
RECORDS = 300
KEYS = 60
CROWD = 40
REQUEST_S = 60.0
RECLAIM_S = 60.0
READ_S = 90.0


class Remaker(Task):
    """Both users, in turn.

    Args:
        pause_s: the rest between two rounds (from, to).
    """

    def __init__(self, setting: Setting, watch: Watch, pause_s: tuple[float, float]) -> None:
        super().__init__(watch.chronicle, "remaker")
        self._setting = setting
        self._view = watch.view_of
        self._pause_s = pause_s
        self._chance = random.Random(f"{setting.seed}-remaker")
        self._admin = modeaware.AdminClient(setting.conf)

    def work(self) -> None:
        crowd = [f"{self._setting.topic}-crowd-{number}" for number in range(CROWD)]
        for topic in crowd:
            create_topic(self._setting, topic, 2)
        counts = cycle(RECREATED_COUNTS)
        with closing(self._admin):
            while not self.stopping.is_set():
                self._remake(f"{self._setting.topic}-remade", next(counts))
                self._shrink_crowd(crowd)
                self.stopping.wait(self._chance.uniform(*self._pause_s))

    def _remake(self, topic: str, count: int) -> None:
        """Delete a shrunk topic and create it again under its name, with ``count`` partitions."""
        create_topic(self._setting, topic, PARTITIONS)
        self._write(topic)
        shrunk = self._shrunk(topic)
        delete_topic(self._setting, topic)
        self.stopping.wait(self._chance.choice((0.0, 0.0, 1.0, 4.0)))
        create_topic(self._setting, topic, count)
        acknowledged, failures = self._write(topic)
        unread = self._unread(topic, acknowledged)
        self.chronicle.note(
            "remade", shrunk=shrunk, count=count, acknowledged=len(acknowledged), failures=failures[:5], unread=unread
        )
        delete_topic(self._setting, topic)

    def _shrunk(self, topic: str) -> bool:
        """Whether the topic was shrunk, records reclaimed; under faults that may take longer than is waited for."""
        request = {topic: modeaware.DeletePartitions(LOWEST_TARGET)}
        answer = outcome(self._admin.delete_partitions(request, 0, request_timeout=REQUEST_S)[topic])
        if answer != "done":
            self.chronicle.note("remade-not-shrunk", error=answer)
        retired = set(range(LOWEST_TARGET, PARTITIONS))
        return until(lambda: self._view(topic).reclaimed >= retired, RECLAIM_S)

    def _write(self, topic: str) -> tuple[set[bytes | None], list[str]]:
        """What was acknowledged to a new aware producer, and what failed."""
        acknowledged: set[bytes | None] = set()
        failures: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.add(message.value())
            else:
                failures.append(str(error))

        producer = modeaware.Producer({**self._setting.conf, "acks": "all", "enable.idempotence": True})
        with producer:
            for number in range(RECORDS):
                value = str(uuid.uuid4())
                for _ in range(10):
                    try:
                        producer.produce(topic, value, f"key-{number % KEYS}", on_delivery=delivered)
                        break
                    except BufferError:  # no view yet
                        producer.poll(1.0)
                    except (KafkaException, ModeAwareError) as error:
                        failures.append(str(error))
                        break
                producer.poll(0)
            left = producer.flush(READ_S)
        return acknowledged, failures + [f"{left} records not settled"] * bool(left)

    def _unread(self, topic: str, expected: set[bytes | None]) -> int:
        """How many of them a new group does not read, from the earliest offsets on."""
        missing = set(expected)
        consumer = modeaware.Consumer(
            {
                **self._setting.conf,
                "group.id": f"{topic}-{uuid.uuid4()}",
                "auto.offset.reset": self._chance.choice(("earliest", "beginning")),
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([topic])
            deadline_s = time.monotonic() + READ_S
            while missing and time.monotonic() < deadline_s:
                missing.difference_update(each.value() for each in consumer.consume(100, 0.5) if each.error() is None)
        finally:
            consumer.close()
        return len(missing)

    def _shrink_crowd(self, topics: list[str]) -> None:
        """Shrink many topics in one request, and grow them again in another."""
        before = {topic: self._view(topic) for topic in topics}
        request = {topic: modeaware.DeletePartitions(1) for topic in topics}
        futures = self._admin.delete_partitions(request, 0, request_timeout=REQUEST_S)
        answers = {topic: outcome(future) for topic, future in futures.items()}
        untrue = [topic for topic, answer in answers.items() if not self._is_true(answer, before[topic])]
        self._note_answers("crowd-shrunk", list(answers.values()), untrue=untrue[:5])
        growth = self._admin.create_partitions([NewPartitions(t, 2) for t in topics], request_timeout=REQUEST_S)
        self._note_answers("crowd-grown", [outcome(future) for future in growth.values()])

    def _note_answers(self, event: str, answers: list[str], **more: Any) -> None:
        others = sorted({*answers} - {"done"})[:3]
        self.chronicle.note(event, topics=len(answers), done=answers.count("done"), answers=others, **more)

    def _is_true(self, answer: str, before: TopicView) -> bool:
        """Whether the answer agrees with the view: "done" is seen soon; what promises no change has changed nothing."""
        if answer == "done":
            return until(lambda: len(self._view(before.topic).writable) == 1, RECLAIM_S)
        if answer.startswith("unchanged"):
            return self._view(before.topic).epoch == before.epoch
        return True  # an outcome that is not known, and is reported so

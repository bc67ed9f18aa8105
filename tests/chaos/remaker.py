"""Two users beside the run's own topic: one deletes and recreates a shrunk topic, one shrinks many topics at once.

A recreated topic has nothing to do with its predecessor (invariant I8): a producer and a group that start after the
creation must reach every partition of it, whatever the mode log still holds under the name. A request for many topics
must report each topic's outcome as it is: no error that promises "nothing was changed" for a topic that was shrunk.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic

import modeaware
from modeaware.errors import ControllerUnavailable, ModeAwareError, RequestRefused
from modeaware.librdkafka_admin import NewPartitions
from modeaware.topic_view import TopicView
from tests.chaos.chronicle import Chronicle
from tests.chaos.setting import LOWEST_TARGET, PARTITIONS, Setting

RECREATED_COUNTS = (PARTITIONS, 2)
RECORDS = 300
KEYS = 60
CROWD = 40
REQUEST_S = 60.0
RECLAIM_S = 60.0
READ_S = 90.0
INSIST_S = 120.0
POLL_S = 0.2

View = Callable[[str], TopicView]


class Remaker:
    """Works in a thread of its own between :meth:`start` and :meth:`stop`.

    Args:
        view: a topic's view now, as a client of the run's own process has it.
        pause_s: the rest between two rounds (from, to).
    """

    def __init__(self, setting: Setting, chronicle: Chronicle, view: View, pause_s: tuple[float, float]) -> None:
        self._setting = setting
        self._chronicle = chronicle
        self._view = view
        self._pause_s = pause_s
        self._chance = random.Random(f"{setting.seed}-remaker")
        self._admin = modeaware.AdminClient(setting.conf)
        self._plain = AdminClient(setting.conf)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos-remaker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let the round under way come to its end.

        Raises:
            ModeAwareError, KafkaException, TimeoutError: why the thread had stopped before.
        """
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._admin.close()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            crowd = [f"{self._setting.topic}-crowd-{number}" for number in range(CROWD)]
            for topic in crowd:
                self._create(topic, 2)
            number = 0
            while not self._stopping.is_set():
                self._remake(f"{self._setting.topic}-remade", RECREATED_COUNTS[number % len(RECREATED_COUNTS)])
                self._shrink_crowd(crowd)
                number += 1
                self._stopping.wait(self._chance.uniform(*self._pause_s))
        except Exception as error:  # noqa: BLE001 - raised again in stop(), in the thread that waits for it
            self._chronicle.note("remaker-failed", error=repr(error))
            self._failure = error

    # A topic deleted and created again under its name

    def _remake(self, topic: str, count: int) -> None:
        self._create(topic, PARTITIONS)
        self._write(topic)
        shrunk = self._shrunk(topic)
        self._delete(topic)
        self._stopping.wait(self._chance.choice((0.0, 0.0, 1.0, 4.0)))
        self._create(topic, count)
        acknowledged, failures = self._write(topic)
        unread = self._unread(topic, acknowledged)
        self._chronicle.note(
            "remade", shrunk=shrunk, count=count, acknowledged=len(acknowledged), failures=failures[:5], unread=unread
        )
        self._delete(topic)

    def _shrunk(self, topic: str) -> bool:
        """Whether the topic was shrunk, records reclaimed; under faults that may take longer than is waited for."""
        request = {topic: modeaware.DeletePartitions(LOWEST_TARGET)}
        try:
            self._admin.delete_partitions(request, 0, request_timeout=REQUEST_S)[topic].result(REQUEST_S + 5)
        except (ModeAwareError, KafkaException, TimeoutError) as error:
            self._chronicle.note("remade-not-shrunk", error=str(error))
        retired = set(range(LOWEST_TARGET, PARTITIONS))
        return self._until(lambda: self._view(topic).reclaimed >= retired, RECLAIM_S)

    def _write(self, topic: str) -> tuple[set[str], list[str]]:
        """What was acknowledged to a new aware producer, and what failed."""
        acknowledged: set[str] = set()
        failures: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.add(str(message.value(), "ascii"))
            else:
                failures.append(str(error))

        producer = modeaware.Producer({**self._setting.conf, "acks": "all", "enable.idempotence": True})
        with producer:
            for number in range(RECORDS):
                value = f"{uuid.uuid4()}"
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

    def _unread(self, topic: str, expected: set[str]) -> int:
        """How many of them a new group does not read, from the earliest offsets on."""
        missing = set(expected)
        conf: dict[str, Any] = {
            **self._setting.conf,
            "group.id": f"{topic}-{uuid.uuid4()}",
            "auto.offset.reset": self._chance.choice(("earliest", "beginning")),
            "enable.auto.commit": False,
        }
        consumer: PlainConsumer = modeaware.Consumer(conf)
        try:
            consumer.subscribe([topic])
            deadline_s = time.monotonic() + READ_S
            while missing and time.monotonic() < deadline_s:
                for message in consumer.consume(100, 0.5):
                    value = message.value()
                    if message.error() is None and value is not None:
                        missing.discard(str(value, "ascii"))
        finally:
            consumer.close()
        return len(missing)

    # Many topics in one request

    def _shrink_crowd(self, topics: list[str]) -> None:
        before = {topic: self._view(topic) for topic in topics}
        request = {topic: modeaware.DeletePartitions(1) for topic in topics}
        futures = self._admin.delete_partitions(request, 0, request_timeout=REQUEST_S)
        answers = {topic: _outcome(future) for topic, future in futures.items()}
        untrue = [topic for topic, answer in answers.items() if not self._is_true(answer, before[topic])]
        done = sum(answer == "done" for answer in answers.values())
        told = sorted({answer for answer in answers.values() if answer != "done"})[:3]
        self._chronicle.note("crowd-shrunk", topics=len(topics), done=done, untrue=untrue[:5], answers=told)
        growth = self._admin.create_partitions([NewPartitions(t, 2) for t in topics], request_timeout=REQUEST_S)
        grown = Counted(growth)
        self._chronicle.note("crowd-grown", topics=len(topics), done=grown.done, answers=grown.others[:3])

    def _is_true(self, answer: str, before: TopicView) -> bool:
        """Whether the answer agrees with the view: "done" is seen soon; what promises no change has changed nothing."""
        if answer == "done":
            return self._until(lambda: len(self._view(before.topic).writable) == 1, RECLAIM_S)
        if answer.startswith("unchanged"):  # an earlier shrink may go on, which raises the epoch
            return len(before.writable) == 1 or len(self._view(before.topic).writable) == len(before.writable)
        return True  # an outcome that is not known, and is reported so

    # Kafka

    def _create(self, topic: str, count: int) -> None:
        new = NewTopic(topic, count, replication_factor=3, config={"min.insync.replicas": "2"})
        self._insist(lambda: self._plain.create_topics([new])[topic].result(REQUEST_S), f"create {topic}")

    def _delete(self, topic: str) -> None:
        self._insist(
            lambda: self._plain.delete_topics([topic])[topic].result(REQUEST_S),
            f"delete {topic}",
            done=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )

    def _insist(self, ask: Callable[[], object], what: str, done: int | None = None) -> None:
        """Request it until it is done: brokers are killed meanwhile, and an earlier deletion may not be complete.

        Raises:
            TimeoutError: not within :data:`INSIST_S` seconds.
        """
        deadline_s = time.monotonic() + INSIST_S
        while True:
            try:
                ask()
                return
            except (KafkaException, TimeoutError) as error:
                code = error.args[0].code() if isinstance(error, KafkaException) else None
                if done is not None and code == done:
                    return
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"could not {what} within {INSIST_S:.0f} s: {error}") from error
            time.sleep(POLL_S)  # a broker is coming back

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)  # the view is looked at, nothing wakes this thread
        return True


class Counted:
    """How many of the futures ended well, and what the others raised."""

    def __init__(self, futures: Mapping[str, Any]) -> None:
        outcomes = [_outcome(future) for future in futures.values()]
        self.done = outcomes.count("done")
        self.others = sorted({outcome for outcome in outcomes if outcome != "done"})


def _outcome(future: Any) -> str:
    try:
        future.result(REQUEST_S + 5)
    except (ControllerUnavailable, RequestRefused) as error:  # by their documentation nothing was changed
        return f"unchanged: {error}"
    except (ModeAwareError, KafkaException, TimeoutError) as error:
        return f"unknown: {error}"
    return "done"

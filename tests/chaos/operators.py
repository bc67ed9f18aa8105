"""The operators of a run's topics, who shrink them while the nemesis is at work."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any

from confluent_kafka import KafkaException

import modeaware
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import NewPartitions
from modeaware.topic_view import TopicView
from tests.chaos.fleet import Fleet
from tests.chaos.nemesis import struck
from tests.chaos.plain import below_seals, create_topic, delete_topic
from tests.chaos.setting import LOWEST_TARGET, PARTITIONS, SHRINK_DELAYS_MS, WRITERS, Setting
from tests.chaos.tasks import Task, outcome, until
from tests.chaos.watch import Watch
from tests.workload.load import Load

UNDONE_SHARE = 0.2
AGAIN_SHARE = 0.3
UNDO_AFTER_S = (0.0, 9.0)
SHRINK_S = 90.0
SHORT_REQUEST_S = 20.0
INSIST_S = 120.0
POLL_S = 0.1
EVIDENCE_S = 45.0
ASLEEP_EVERY = 3
QUIET_S = 3.0
"""Beyond the delay: longer than a partition has to be quiet until it is sealed."""

RECREATED_COUNTS = (PARTITIONS, 2)
WITH_PARTITION = ("_DESTROY", "_UNKNOWN_PARTITION")
"""How librdkafka fails records of a partition that is gone: a broker that has just started may still describe the topic
that was deleted, with more partitions (docs/client-faults.md)."""
RECORDS = 300
REMADE_KEYS, REMADE_PER_S = 60, 1_000.0
CROWD = 40
REQUEST_S = 60.0
RECLAIM_S = 60.0
READ_S = 90.0


class Operator(Task):
    """Shrinks the run's topic again and again, takes some of it back in the middle, and grows it again.

    When it is stopped the shrink under way comes to its end.
    """

    def __init__(self, setting: Setting, fleet: Fleet, watch: Watch) -> None:
        super().__init__(fleet.chronicle, "operator")
        self._setting = setting
        self._topic = setting.topic
        aware = {writer.name for writer in WRITERS if writer.aware}
        self._aware = [child for child in fleet.of("writer") if child.name in aware]
        self._watch = watch
        self._chance = random.Random(f"{setting.seed}-operator")
        self._admin = modeaware.AdminClient(setting.conf)
        self._sleeper_chance = random.Random(f"{setting.seed}-sleepers")
        self._shrinks = 0
        self._switched_s: float | None = None

    def in_force_s(self) -> float:
        """How long ago the first switch was seen; 0 before."""
        return time.monotonic() - self._switched_s if self._switched_s is not None else 0.0

    def work(self) -> None:
        with closing(self._admin):
            while not self.done.is_set():
                self._once()

    def _once(self) -> None:
        writable = len(self._watch.view.writable) or PARTITIONS
        target = self._chance.randint(LOWEST_TARGET, max(writable - 1, LOWEST_TARGET))
        delay_ms = self._chance.choice(SHRINK_DELAYS_MS)
        began_s = time.monotonic()
        with self._writer_asleep() as asleep:
            asked_ms = self._setting.now_ms()
            if not self._requested(
                f"shrink to {target}",
                lambda: self._admin.delete_partitions(
                    {self._topic: modeaware.DeletePartitions(target)}, delay_ms, request_timeout=SHORT_REQUEST_S
                ),
                lambda view: 0 < len(view.writable) <= target,
            ):
                # Refused all the time: a straggler broke the seals of the shrink before, which goes on.
                self.chronicle.note("not-shrunk", to=target, delay_ms=delay_ms, after_s=INSIST_S)
                self._grow()
                return
            self._switched_s = self._switched_s or time.monotonic()
            self.chronicle.note("switched", to=target, delay_ms=delay_ms, asked_ms=asked_ms)
            if asleep:
                time.sleep(delay_ms / 1000 + QUIET_S)  # the writer's sleep, which is what this is about
        if self._chance.random() < UNDONE_SHARE:
            self.done.wait(self._chance.uniform(*UNDO_AFTER_S))
            done = self._reclaimed() is not None
            self._grow()
            self.chronicle.note("grown" if done else "undone", target=target)
            return
        if until(lambda: self._reclaimed() is not None, SHRINK_S, POLL_S):
            took_s = round(time.monotonic() - began_s, 1)
            self.chronicle.note("shrunk", to=target, delay_ms=delay_ms, took_s=took_s, **self._evidence())
            self.done.wait(self._chance.uniform(0.5, 3.0))
            if target > LOWEST_TARGET and self._chance.random() < AGAIN_SHARE:
                return  # and shrink it further
        else:
            self.chronicle.note("not-shrunk", to=target, delay_ms=delay_ms, after_s=SHRINK_S)
        self._grow()

    @contextmanager
    def _writer_asleep(self) -> Iterator[bool]:
        """Pause an aware writer around every third shrink, from before its request on; whether one is paused.

        What it had on the way then lands in partitions that are retired by that time.
        """
        turn, self._shrinks = self._shrinks % ASLEEP_EVERY == 0, self._shrinks + 1
        if not turn:
            yield False
            return
        child = self._sleeper_chance.choice(self._aware)
        with child.turn:  # neither the nemesis nor the fleet touches it meanwhile
            if child.pid is None:
                yield False
                return
            with struck(self.chronicle, "writer-pause", child, child.resume, least_s=QUIET_S):
                yield True

    def _evidence(self) -> dict[str, dict[int, int]]:
        """What Kafka and the mode log say to a shrink that the view calls complete; what they do not say is missing."""
        found: dict[str, dict[int, int]] = {}

        def look() -> bool:
            view = self._reclaimed()
            try:
                found.update(below_seals(self._setting, view.version) if view is not None else {})
            except (KafkaException, TimeoutError) as error:
                self.chronicle.note("evidence-failed", error=str(error))
            return bool(found)  # else a straggler has broken a seal: it is drained, and reclaimed, again

        until(look, EVIDENCE_S, POLL_S)
        return found

    def _grow(self) -> None:
        """
        Raises:
            ModeAwareError: not done within :data:`INSIST_S` seconds.
        """
        everything = [NewPartitions(self._topic, PARTITIONS)]
        if not self._requested(
            "grow",
            lambda: self._admin.create_partitions(everything, request_timeout=SHORT_REQUEST_S),
            lambda view: view.all_writable,
        ):
            raise ModeAwareError(f"could not grow {self._topic} within {INSIST_S:.0f} s")

    def _requested(
        self, what: str, request: Callable[[], Mapping[str, Future[Any]]], done: Callable[[TopicView], bool]
    ) -> bool:
        """Request until the view shows that it is done; whether it does so within :data:`INSIST_S` seconds."""
        deadline_s = time.monotonic() + INSIST_S
        while time.monotonic() < deadline_s:
            # Whether it was done all the same the view will tell; a refusal for what is under way goes away.
            self.chronicle.note("command", what=what, answer=outcome(request()[self._topic]))
            if until(lambda: done(self._watch.view), 5.0, POLL_S):
                return True
        return False

    def _reclaimed(self) -> TopicView | None:
        """The view, if it calls every retired partition reclaimed."""
        view = self._watch.view
        return view if view.reclaimed >= set(range(len(view.writable), len(view.modes))) else None


class Remaker(Task):
    """In turn deletes and recreates a shrunk topic, and shrinks many topics at once.

    A recreated topic has nothing to do with the earlier topic of its name (invariant I8): a producer and a group that
    start after the creation must reach every partition of it, whatever the mode log still holds under the name. A
    request for many topics must report each topic's outcome as it is: no error that promises "nothing was changed" for
    a topic that was shrunk.

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
            while not self.done.is_set():
                self._remake(f"{self._setting.topic}-remade", next(counts))
                self._shrink_crowd(crowd)
                self.done.wait(self._chance.uniform(*self._pause_s))

    def _remake(self, topic: str, count: int) -> None:
        """Delete a shrunk topic and create it again under its name, with ``count`` partitions."""
        create_topic(self._setting, topic, PARTITIONS)
        self._write(topic)
        shrunk = self._shrunk(topic)
        delete_topic(self._setting, topic)
        self.done.wait(self._chance.choice((0.0, 0.0, 1.0, 4.0)))
        create_topic(self._setting, topic, count)
        load = self._write(topic)
        unread = self._unread(topic, load)
        failed = load.writers[0].failures
        with_partition = sum(failed.pop(why, 0) for why in WITH_PARTITION) if count < PARTITIONS else 0
        failures = [f"{times} times {why}" for why, times in failed.items()]
        acknowledged = load.ledger.acknowledged
        self.chronicle.note(
            "remade",
            shrunk=shrunk,
            count=count,
            acknowledged=acknowledged,
            failures=failures,
            failed_with_partition=with_partition,
            unread=unread,
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

    def _write(self, topic: str) -> Load:
        """Have a new aware producer write some records."""
        load = Load()
        conf = {**self._setting.conf, "acks": "all", "enable.idempotence": True}
        with load.writer(lambda: modeaware.Producer(conf), topic, keys=REMADE_KEYS, per_s=REMADE_PER_S) as writer:
            until(lambda: writer.sequence >= RECORDS or not writer.is_alive(), READ_S, POLL_S)
        return load

    def _unread(self, topic: str, load: Load) -> int:
        """How many of them a new group does not read, from the earliest offsets on."""
        conf = {
            **self._setting.conf,
            "group.id": f"{topic}-{uuid.uuid4()}",
            "auto.offset.reset": self._chance.choice(("earliest", "beginning")),
            "enable.auto.commit": False,
        }
        with load.reader(lambda: modeaware.Consumer(conf), [topic]) as reader:
            until(lambda: not any(load.ledger.unread().values()) or not reader.is_alive(), READ_S)
        return sum(load.ledger.unread().values())

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
        if answer.startswith("unchanged"):  # an earlier shrink may go on, which raises the epoch
            return len(before.writable) == 1 or len(self._view(before.topic).writable) == len(before.writable)
        return True  # an outcome that is not known, and is reported so

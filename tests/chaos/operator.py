"""The operator: shrinks the topic again and again, takes some of it back in the middle, and grows it again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

import modeaware
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import NewPartitions
from modeaware.topic_view import TopicView
from tests.chaos.fleet import Fleet
from tests.chaos.nemesis import struck
from tests.chaos.plain import below_seals
from tests.chaos.setting import LOWEST_TARGET, PARTITIONS, SHRINK_DELAYS_MS, WRITERS, Setting
from tests.chaos.tasks import Task, outcome, until
from tests.chaos.watch import Watch

UNDONE_SHARE = 0.2
AGAIN_SHARE = 0.3
UNDO_AFTER_S = (0.0, 9.0)
SHRINK_S = 90.0
REQUEST_S = 20.0
INSIST_S = 120.0
POLL_S = 0.1
EVIDENCE_S = 45.0
ASLEEP_EVERY = 3
QUIET_S = 3.0
"""Beyond the delay: longer than a partition has to be quiet until it is sealed."""


class Operator(Task):
    """Shrinks, undoes and grows until it is stopped; then the shrink under way comes to its end."""

    def __init__(self, setting: Setting, fleet: Fleet, watch: Watch) -> None:
        super().__init__(fleet.chronicle, "operator")
        self._setting = setting
        self._topic = setting.topic
        aware = {writer.name for writer in WRITERS if writer.aware}
        self._aware = [child for child in fleet.of("writer") if child.name in aware]
        self._watch = watch
        self._chance = random.Random(f"{setting.seed}-operator")
        self._admin = modeaware.AdminClient(setting.conf)
        self._shrinks = 0
        self._switched_s: float | None = None

    def in_force_s(self) -> float:
        """How long ago the first switch was seen; 0 before."""
        return time.monotonic() - self._switched_s if self._switched_s is not None else 0.0

    def work(self) -> None:
        with closing(self._admin):
            while not self.stopping.is_set():
                self._once()

    def _once(self) -> None:
        writable = len(self._watch.view.writable) or PARTITIONS
        target = self._chance.randint(LOWEST_TARGET, max(writable - 1, LOWEST_TARGET))
        delay_ms = self._chance.choice(SHRINK_DELAYS_MS)
        began_s = time.monotonic()
        with self._writer_asleep() as asleep:
            asked_ms = self._setting.now_ms()
            self._request(
                f"shrink to {target}",
                lambda: self._admin.delete_partitions(
                    {self._topic: modeaware.DeletePartitions(target)}, delay_ms, request_timeout=REQUEST_S
                ),
                lambda view: 0 < len(view.writable) <= target,
            )
            self._switched_s = self._switched_s or time.monotonic()
            self.chronicle.note("switched", to=target, delay_ms=delay_ms, asked_ms=asked_ms)
            if asleep:
                time.sleep(delay_ms / 1000 + QUIET_S)  # the writer's sleep, which is what this is about
        if self._chance.random() < UNDONE_SHARE:
            self.stopping.wait(self._chance.uniform(*UNDO_AFTER_S))
            done = self._reclaimed() is not None
            self._grow()
            self.chronicle.note("grown" if done else "undone", target=target)
            return
        if until(lambda: self._reclaimed() is not None, SHRINK_S, POLL_S):
            took_s = round(time.monotonic() - began_s, 1)
            self.chronicle.note("shrunk", to=target, delay_ms=delay_ms, took_s=took_s, **self._evidence())
            self.stopping.wait(self._chance.uniform(0.5, 3.0))
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
        child = self._chance.choice(self._aware)
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
        everything = [NewPartitions(self._topic, PARTITIONS)]
        self._request(
            "grow",
            lambda: self._admin.create_partitions(everything, request_timeout=REQUEST_S),
            lambda view: view.all_writable,
        )

    def _request(
        self, what: str, request: Callable[[], Mapping[str, Future[Any]]], done: Callable[[TopicView], bool]
    ) -> None:
        """Request until the view shows that it is done.

        Raises:
            ModeAwareError: not within :data:`INSIST_S` seconds.
        """
        deadline_s = time.monotonic() + INSIST_S
        while time.monotonic() < deadline_s:
            # Whether it was done all the same the view will tell; a refusal for what is under way goes away.
            self.chronicle.note("command", what=what, answer=outcome(request()[self._topic]))
            if until(lambda: done(self._watch.view), 5.0, POLL_S):
                return
        raise ModeAwareError(f"could not {what} {self._topic} within {INSIST_S:.0f} s")

    def _reclaimed(self) -> TopicView | None:
        """The view, if it calls every retired partition reclaimed."""
        view = self._watch.view
        return view if view.reclaimed >= set(range(len(view.writable), len(view.modes))) else None

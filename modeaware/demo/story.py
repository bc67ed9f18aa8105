"""The story: producers and consumers at work, the topic shrunk and grown under them, and the audit at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import modeaware
from modeaware.config import ClientConfig
from modeaware.demo import consumer, controlling, producer
from modeaware.demo.audit import Counts, ProducerRun, count
from modeaware.demo.evidence import Evidence, choose, read_topic
from modeaware.demo.flights import load_flights, share_of, write_share
from modeaware.demo.journal import read_acks, read_deliveries
from modeaware.demo.report import PartitionEnd, Report
from modeaware.demo.screen import Picture, Screen
from modeaware.demo.setting import CONSUMERS, GROW_TO, PARTITIONS, PRODUCERS, SHRINK_TO, Setting
from modeaware.demo.timeline import (
    Condition,
    Timeline,
    durations_s,
    none_from,
    reclaimed_from,
    sealed_from,
    writable_are,
)
from modeaware.demo.watch import Watch
from modeaware.demo.worker import STOP, Worker
from modeaware.errors import ModeAwareError
from modeaware.librdkafka import KafkaException
from modeaware.librdkafka_admin import NewPartitions, NewTopic
from modeaware.views import registry

TICK_S = 0.1
START_TIMEOUT_S = 60.0
PHASE_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 30.0
FINISHED_STAGE = 4
PHASES = ["before", "ReadOnly", "seal", "drain", "reclaim", "shrunk", "grow", "grown"]


class Story:
    """One run, told once: :meth:`tell`. One thread owns it.

    Args:
        setting: where and how much.
        screen: where progress is shown.
    """

    def __init__(self, setting: Setting, screen: Screen) -> None:
        self._setting = setting
        self._screen = screen
        self._timeline = Timeline(setting.topic)
        self._watch = Watch(setting)
        self._stage_text = "starting"
        self._workers: list[Worker] = []
        self._producers: list[Worker] = []
        self._consumers: list[Worker] = []
        self._closing = ExitStack()

    def tell(self) -> Report:
        """Run it all; whatever happens, no process of it is left when this returns.

        Raises:
            ModeAwareError: a part of it failed, or did not get done in time.
            KafkaException: the cluster refused something.
        """
        conf = self._setting.quiet_conf
        with self._closing:
            admin = modeaware.AdminClient(conf)
            self._create_topic(admin)
            self._closing.callback(self._delete_topic, admin)
            self._views = registry.acquire(conf, ClientConfig())
            self._closing.callback(self._views.close)
            self._views.subscribe(self._timeline.changed)
            self._start_processes()
            phases_s = self._shrink_and_grow(admin)
            self._finish()
            return self._audit(phases_s)

    def _create_topic(self, admin: modeaware.AdminClient) -> None:
        new = NewTopic(self._setting.topic, num_partitions=PARTITIONS, replication_factor=-1)
        _wait(admin.create_topics([new])[self._setting.topic])
        self._screen.event(f"topic {self._setting.topic} with {PARTITIONS} partitions")

    def _delete_topic(self, admin: modeaware.AdminClient) -> None:
        try:
            _wait(admin.delete_topics([self._setting.topic])[self._setting.topic])
        except (KafkaException, ModeAwareError) as error:  # told, so that it does not hide why the story ended
            self._screen.event(f"the topic {self._setting.topic} could not be deleted: {error}")

    def _start_processes(self) -> None:
        self._start("controller", controlling.run)
        self._consumers = [self._start(f"consumer-{n}", consumer.run, n) for n in range(CONSUMERS)]
        flights = load_flights(self._setting.records)
        for number in range(PRODUCERS):
            write_share(self._setting.flights_path(number), share_of(flights, number, PRODUCERS))
        self._screen.event(f"{len(flights):,} flights to send")
        self._until(self._controlled, START_TIMEOUT_S, "the controller to claim the mode log")
        self._screen.event("a controller that keeps the modes")
        self._until(self._all_assigned, START_TIMEOUT_S, "partitions for every consumer")
        self._screen.event(f"a group of {CONSUMERS} consumers, every one with partitions")
        self._producers = [self._start(f"producer-{n}", producer.run, n) for n in range(PRODUCERS)]
        self._until(lambda: all(self._acknowledged()), START_TIMEOUT_S, "the first acknowledgements")
        self._screen.event(f"{PRODUCERS} producers at work")
        self._closing.callback(self._watch.stop)
        self._watch.start()

    def _start(self, name: str, target: Callable[..., None], *arguments: int) -> Worker:
        worker = Worker(name, self._setting.folder, target, self._setting, *arguments)
        self._closing.callback(worker.close)
        self._workers.append(worker)
        return worker

    def _shrink_and_grow(self, admin: modeaware.AdminClient) -> dict[str, float]:
        topic = self._setting.topic
        times_s = [time.monotonic()]
        self._enter(0, f"all {PARTITIONS} partitions ReadWrite")
        self._linger(self._setting.lead_s)

        self._enter(1, f"shrinking to {SHRINK_TO}")
        times_s.append(time.monotonic())
        self._screen.event(f"asking for {SHRINK_TO} partitions (delay 0: delete once drained)")
        _wait(admin.delete_partitions({topic: modeaware.DeletePartitions(SHRINK_TO)}, delay_ms=0)[topic])
        for condition, text in (
            (writable_are(SHRINK_TO), f"partitions {SHRINK_TO}-{PARTITIONS - 1} are ReadOnly"),
            (sealed_from(SHRINK_TO), "sealed: no aware producer writes to them any more"),
            (none_from(SHRINK_TO), "drained by the group: they are in mode None"),
            (reclaimed_from(SHRINK_TO), "reclaimed: their records are deleted"),
        ):
            times_s.append(self._await(condition, text))

        self._enter(2, f"{SHRINK_TO} partitions at work")
        self._linger(self._setting.lead_s / 2)

        self._enter(3, f"growing to {GROW_TO}")
        times_s.append(time.monotonic())
        self._screen.event(f"asking for {GROW_TO} partitions")
        _wait(admin.create_partitions([NewPartitions(topic, GROW_TO)])[topic])
        times_s.append(self._await(writable_are(GROW_TO), f"partitions {SHRINK_TO}-{GROW_TO - 1} are ReadWrite again"))
        self._stage_text = f"{GROW_TO} partitions at work"
        self._linger(self._setting.lead_s)
        self._enter(FINISHED_STAGE, "sending the rest")
        self._until(lambda: all(p.ended for p in self._producers), PHASE_TIMEOUT_S, "the producers to finish")
        times_s.append(time.monotonic())
        self._screen.event(f"every flight is sent and acknowledged: {sum(self._acknowledged()):,}")
        return durations_s(PHASES, times_s)

    def _finish(self) -> None:
        """Let the group read to the end, then end every process."""
        self._stage_text = "reading to the end"
        asked_s = time.monotonic()

        def read_to_end() -> bool:
            look = self._watch.latest
            return look is not None and look.at_s > asked_s + 1 and look.lag == 0

        self._until(read_to_end, PHASE_TIMEOUT_S, "the group to read to the end")
        for worker in self._workers:
            worker.enter(STOP)
        self._until(lambda: all(w.ended for w in self._workers), PHASE_TIMEOUT_S, "the processes to end")
        self._screen.event(f"the group has read to the end: {sum(self._delivered()):,}")

    def _audit(self, phases_s: dict[str, float]) -> Report:
        self._stage_text = "audit"
        self._show()
        evidence = read_topic(self._setting.quiet_conf, self._setting.topic)
        self._screen.event(f"audit: {len(evidence.stored):,} records read back with a plain consumer")
        view = self._views.view(self._setting.topic)
        partitions = {p: PartitionEnd(view.mode(p), start, end) for p, (start, end) in evidence.logs.items()}
        setting = self._setting
        story = {"topic": setting.topic, "shrunk": [PARTITIONS, SHRINK_TO], "grown": [SHRINK_TO, GROW_TO]}
        return Report(self._count(evidence), phases_s, partitions, story)

    def _count(self, evidence: Evidence) -> Counts:
        runs = [_producer_run(self._setting, n, worker.figures) for n, worker in enumerate(self._producers)]
        deliveries = [d for n in range(CONSUMERS) for d in read_deliveries(self._setting.deliveries_path(n))]
        log_starts = {p: start for p, (start, _) in evidence.logs.items()}
        return count(runs, deliveries, evidence.stored, log_starts, choose, SHRINK_TO)

    # Waiting

    def _enter(self, stage: int, text: str) -> None:
        self._stage_text = text
        for worker in self._producers:
            worker.enter(stage)

    def _linger(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end_s, seconds + PHASE_TIMEOUT_S, "time to pass")

    def _await(self, condition: Condition, text: str) -> float:
        """Wait until the topic's view fulfils the condition; since when it does (monotonic seconds)."""
        self._until(lambda: self._timeline.since(condition) is not None, PHASE_TIMEOUT_S, text)
        self._screen.event(text)
        since_s = self._timeline.since(condition)
        return time.monotonic() if since_s is None else since_s

    def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            for worker in self._workers:
                worker.hear()
            self._show()
            if time.monotonic() > deadline_s:
                raise ModeAwareError(f"waited {timeout_s:.0f} s for: {what}. {self._why()}")
            time.sleep(TICK_S)  # the pace of the display; every wait has a deadline

    def _why(self) -> str:
        if self._watch.error is not None:
            return f"The topic could not be looked at: {self._watch.error}"
        if self._watch.latest is None:
            return ""
        reasons = {p.waits_for for p in self._watch.latest.description.partitions if p.waits_for is not None}
        return f"The controller says: {'; '.join(sorted(reasons))}" if reasons else ""

    # Figures

    def _show(self) -> None:
        assigned = [worker.figures.get("assigned", []) for worker in self._consumers]
        self._screen.show(
            Picture(self._stage_text, self._acknowledged(), self._delivered(), assigned, self._watch.latest)
        )

    def _controlled(self) -> bool:
        claim = self._views.claim()
        return claim is not None and claim.controller_id == self._setting.controller_id

    def _all_assigned(self) -> bool:
        return all(worker.figures.get("assigned") for worker in self._consumers)

    def _acknowledged(self) -> list[int]:
        return [worker.figures.get("acknowledged", 0) for worker in self._producers]

    def _delivered(self) -> list[int]:
        return [worker.figures.get("delivered", 0) for worker in self._consumers]


def _producer_run(setting: Setting, number: int, figures: dict[str, Any]) -> ProducerRun:
    return ProducerRun(
        acks=list(read_acks(setting.acks_path(number))),
        writable=figures["writable"],
        seen_ms=figures["seen_ms"],
        began_ms=figures["began_ms"],
        ended_ms=figures["ended_ms"],
    )


def _wait(future: Future[Any]) -> Any:
    try:
        return future.result(REQUEST_TIMEOUT_S)
    except TimeoutError as error:
        raise ModeAwareError(f"an admin request was not answered in {REQUEST_TIMEOUT_S:.0f} s") from error

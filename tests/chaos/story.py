"""A run from the first broker to the last journal: work, harm, revival, drain, evidence."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from modeaware.errors import ModeAwareError
from modeaware.local import LocalKafka
from tests.chaos.chronicle import Chronicle
from tests.chaos.evidence import unread, write_contents
from tests.chaos.faults import Faults
from tests.chaos.fleet import Child, Fleet
from tests.chaos.mode_records import ModeRecords
from tests.chaos.nemesis import Nemesis
from tests.chaos.operator import Operator
from tests.chaos.remaker import Remaker
from tests.chaos.setting import GROUPS, PARTITIONS, WRITERS, Setting
from tests.chaos.sleepers import Sleepers
from tests.chaos.watch import Watch

START_S = 90.0
END_S = 120.0
DRAIN_S = 180.0
SWITCHED_S = 15.0
LONGER_S = 180.0
"""Harm goes on for up to so much longer until the first switch is :data:`SWITCHED_S` old: before it there is little to
judge, and how soon a shrink gets through is the machine's and the nemesis's to say."""
TICK_S = 0.2
TOPIC_CONFIGS = {"retention.ms": "86400000", "min.insync.replicas": "2"}


class Story:
    """One run, told once: :meth:`tell`.

    Args:
        kafka: three running nodes of its own.
        controllers: how many controller processes.
        seconds: for how long harm is done, at least.
        gap_s: how long each lane of the nemesis rests (from, to).
    """

    def __init__(
        self,
        setting: Setting,
        kafka: LocalKafka,
        chronicle: Chronicle,
        *,
        controllers: int,
        seconds: float,
        gap_s: tuple[float, float],
    ) -> None:
        self._setting = setting
        self._chronicle = chronicle
        self._seconds = seconds
        self._fleet = Fleet(setting, controllers, chronicle)
        faults = Faults(chronicle)
        self._nemesis = Nemesis(kafka, self._fleet, chronicle, faults, setting.seed, self._active, gap_s)
        self._sleepers = Sleepers(self._fleet, faults, setting.seed)
        self._gap_s = gap_s
        self._watch: Watch | None = None

    def tell(self) -> None:
        """Run it all; no process of it but the brokers is left when this returns.

        Raises:
            ModeAwareError, KafkaException, TimeoutError: it could not be brought to its end.
        """
        with ExitStack() as closing:
            closing.callback(self._fleet.close)
            self._set_up()
            watch = self._watch = Watch(self._setting, self._chronicle)
            closing.callback(watch.stop)
            watch.start()
            records = ModeRecords(self._setting, self._chronicle)
            closing.callback(records.stop)
            records.start()
            operator = Operator(self._setting, self._chronicle, lambda: watch.view, records, self._sleepers)
            remaker = Remaker(self._setting, self._chronicle, watch.view_of, self._gap_s)
            self._phase("harm")
            operator.start()
            remaker.start()
            self._nemesis.start()
            try:
                self._until(lambda: self._nemesis.failed, self._seconds)
                self._until(lambda: self._nemesis.failed or _in_force(operator), LONGER_S)
            finally:
                self._phase("revive")
                self._nemesis.stop()
                remaker.stop()
            self._settle(operator)
        self._phase("end")

    def _set_up(self) -> None:
        self._phase("set up")
        setting = self._setting
        new = NewTopic(setting.topic, PARTITIONS, replication_factor=3, config=TOPIC_CONFIGS)
        admin = AdminClient(setting.conf)  # to live until it has answered
        created: Future[None] = admin.create_topics([new])[setting.topic]
        created.result(START_S)
        for group in GROUPS:
            if group.latest:
                self._commit_zeros(group.name)
        # Groups first: while processes start, heartbeats time out, and a coordinator may give what one member still
        # holds to another (librdkafka and KIP-848). Where nothing is written yet, nothing is read twice for that.
        self._fleet.start_all("controller")
        self._fleet.start_all("reader")
        readers = [f"reader.{child.group}.{child.name}" for child in self._fleet.of("reader")]
        self._need(lambda: all(_grown(setting.folder, name) for name in readers), START_S, "every reader's share")
        self._fleet.start_all("writer")
        writers = [f"writer.{writer.name}" for writer in WRITERS]
        self._need(lambda: all(_grown(setting.folder, name) for name in writers), START_S, "everybody to be at work")
        self._fleet.watch()

    def _commit_zeros(self, group: str) -> None:
        consumer = Consumer({**self._setting.conf, "group.id": f"{self._setting.topic}-{group}"})
        try:
            zeros = [TopicPartition(self._setting.topic, partition, 0) for partition in range(PARTITIONS)]
            consumer.commit(offsets=zeros, asynchronous=False)
        finally:
            consumer.close()

    def _settle(self, operator: Operator) -> None:
        """Everybody comes to his end in good order, and every group reads to the end before."""
        self._phase("settle")
        killed = self._fleet.end("writer", END_S)
        operator.stop()
        self._phase("drain")
        for group in GROUPS:
            self._drain(group.name)
        killed += self._fleet.end("reader", END_S) + self._fleet.end("controller", END_S)
        self._chronicle.note("settled", killed=killed)
        records = write_contents(self._setting)
        self._chronicle.note("contents", records=records)

    def _drain(self, group: str) -> None:
        """Wait until a group has committed all there is; if it does not, the judge will say so."""
        left: dict[int, int] = {}

        def drained() -> bool:
            try:
                left.clear()
                left.update(unread(self._setting, group))
            except (KafkaException, TimeoutError) as error:
                self._chronicle.note("drain-failed", group=group, error=str(error))
                return False
            return not left

        done = self._until(drained, DRAIN_S, 1.0)
        self._chronicle.note("drained" if done else "not-drained", group=group, left=dict(left))

    def _active(self) -> Child | None:
        holder = self._watch.controller_id if self._watch is not None else None
        for child in self._fleet.of("controller"):
            if holder is not None and child.pid is not None and f"-{child.pid}-" in f"-{holder}-":
                return child
        return None

    def _phase(self, name: str) -> None:
        self._chronicle.note("phase", phase=name)

    def _need(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        if not self._until(condition, timeout_s):
            words = {child.name: child.last_words() for child in self._fleet.children.values()}
            raise ModeAwareError(f"waited {timeout_s:.0f} s for {what}; the processes' last words: {words}")

    def _until(self, condition: Callable[[], bool], timeout_s: float, interval_s: float = TICK_S) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(interval_s)  # other processes' work: nobody wakes us
        return True


def _in_force(operator: Operator) -> bool:
    return operator.switched_s is not None and time.monotonic() - operator.switched_s >= SWITCHED_S


def _grown(folder: Path, name: str) -> bool:
    """Whether any journal of this name has something in it."""
    return any(path.stat().st_size for path in folder.glob(f"{name}.*.journal"))

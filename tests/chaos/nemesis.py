"""The nemesis: from a seed, it kills and pauses brokers, controllers, writers and readers, and counts what it does.

Two lanes run side by side: one harms brokers, one at a time and only while all partitions are fully in sync; the other
harms processes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from modeaware.errors import LocalKafkaError
from modeaware.local import LocalKafka
from modeaware.local.node import LocalBroker
from tests.chaos.chronicle import Chronicle
from tests.chaos.faults import Doing, Faults
from tests.chaos.fleet import Child, Fleet

IN_SYNC_S = 60.0
POLL_S = 0.25
REVIVE_S = 240.0
Steps = Sequence[Callable[[], object]]


class Kind(NamedTuple):
    """A kind of fault.

    Attributes:
        weight: how many of it are in a lane's deck.
        pause_s: for how long (from, to); one that was shorter, because the run came to its end, does not count.
    """

    name: str
    weight: int
    pause_s: tuple[float, float]


BROKER_KINDS = (
    Kind("broker-kill", 4, (1.0, 6.0)),
    Kind("broker-pause", 4, (1.0, 8.0)),
    Kind("rolling-restart", 1, (0.0, 0.0)),
)
PROCESS_KINDS = (
    Kind("controller-kill", 2, (0.5, 5.0)),
    Kind("controller-pause", 1, (11.0, 14.0)),  # longer than its session (10 s at most)
    Kind("writer-kill", 2, (0.2, 3.0)),
    Kind("writer-pause", 2, (5.0, 9.0)),  # longer than the longest delay and the quiet time of a shrink
    Kind("reader-kill", 2, (0.2, 3.0)),
    Kind("reader-pause", 1, (8.0, 10.0)),  # longer than its session
)


class Nemesis:
    """Does harm in two threads of its own, between :meth:`start` and :meth:`stop`.

    Args:
        active: the controller that is active now, if it is known.
        gap_s: how long each lane rests between two faults (from, to).
    """

    def __init__(
        self,
        kafka: LocalKafka,
        fleet: Fleet,
        chronicle: Chronicle,
        faults: Faults,
        seed: int,
        active: Callable[[], Child | None],
        gap_s: tuple[float, float],
    ) -> None:
        self._kafka = kafka
        self._fleet = fleet
        self._chronicle = chronicle
        self._faults = faults
        self._active = active
        self._gap_s = gap_s
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        lanes: Sequence[tuple[str, Callable[[random.Random], None]]] = (
            ("brokers", lambda chance: self._lane(chance, BROKER_KINDS, self._harm_broker)),
            ("processes", lambda chance: self._lane(chance, PROCESS_KINDS, self._harm_process)),
        )
        self._threads = [
            threading.Thread(target=self._guard, args=(run, random.Random(f"{seed}-{name}")), name=f"chaos-{name}")
            for name, run in lanes
        ]

    @property
    def failed(self) -> bool:
        """Whether a lane has stopped on an error; :meth:`stop` raises it."""
        return bool(self._failures)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the faults under way come to their end; all is revived when this returns.

        Raises:
            LocalKafkaError: a broker did not come back.
        """
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _guard(self, run: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            run(chance)
        except Exception as error:  # noqa: BLE001 - raised again in stop(), in the thread that waits for it
            self._chronicle.note("nemesis-failed", error=repr(error))
            self._failures.append(error)

    def _lane(self, chance: random.Random, kinds: Sequence[Kind], harm: Callable[[Kind, random.Random], None]) -> None:
        deck: list[Kind] = []
        while not self._stopping.wait(chance.uniform(*self._gap_s)):
            if not deck:
                deck = [kind for kind in kinds for _ in range(kind.weight)]
                chance.shuffle(deck)
            harm(deck.pop(), chance)

    def _harm(
        self, kind: Kind, target: str, group: str | None, victim: LocalBroker | Child, steps: Steps, rest_s: float
    ) -> None:
        """Do the first step, wait, do the other; noted before and after."""
        kill = kind.name.endswith("-kill")
        first, revive = steps
        with self._faults.fault(kind.name, target, group, least_s=kind.pause_s[0]) as doing:
            pid = victim.pid
            try:
                first()
                if pid is not None and (victim.pid is None if kill else victim.pid == pid):
                    doing.stands(pid)
                self._stopping.wait(rest_s)
            finally:
                doing.is_over()
                revive()

    def _harm_broker(self, kind: Kind, chance: random.Random) -> None:
        if not self._in_sync():
            return
        broker = chance.choice(self._kafka.brokers)
        target, rest_s = f"broker-{broker.node_id}", chance.uniform(*kind.pause_s)
        if kind.name == "broker-kill":
            self._harm(kind, target, "*", broker, (broker.kill, lambda: _revive(broker)), rest_s)
        elif kind.name == "broker-pause":
            self._harm(kind, target, "*", broker, (broker.pause, broker.resume), rest_s)
        else:
            with self._faults.fault(kind.name, "brokers", "*", restarts=len(self._kafka.brokers)) as doing:
                self._restart_all(doing)
        self._in_sync(until_stopped=False)

    def _restart_all(self, doing: Doing) -> None:
        for broker in self._kafka.brokers:
            if not self._stopping.is_set() and self._in_sync():
                try:
                    broker.stop()
                except LocalKafkaError as error:  # it took too long, and was killed
                    self._chronicle.note("stop-failed", broker=broker.node_id, error=str(error)[:300])
                _revive(broker)
                doing.restarted.append(broker.node_id)

    def _in_sync(self, *, until_stopped: bool = True) -> bool:
        """Wait until every partition has all its replicas in sync; False: not in time, or told to stop."""
        for _ in range(int(IN_SYNC_S / POLL_S)):
            try:
                topics = self._admin.list_topics(timeout=2).topics.values()
                partitions = [p for topic in topics for p in topic.partitions.values()]
                if partitions and all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions):
                    return True
            except KafkaException as error:
                self._chronicle.note("metadata-failed", error=str(error))
            if until_stopped and self._stopping.is_set():
                return False
            threading.Event().wait(POLL_S)
        self._chronicle.note("not-in-sync", after_s=IN_SYNC_S)
        return False

    def _harm_process(self, kind: Kind, chance: random.Random) -> None:
        role, _, how = kind.name.partition("-")
        child = chance.choice(self._fleet.of(role))
        if role == "controller" and chance.random() < 0.75:
            child = self._active() or child
        rest_s = chance.uniform(*kind.pause_s)
        with child.turn:  # the fleet's watch leaves it alone meanwhile
            if not child.running:
                return
            if how == "kill":
                steps: Steps = (child.kill, lambda: self._fleet.start(child))
            else:
                steps = (child.pause, child.resume)
            self._harm(kind, child.name, child.group, child, steps, rest_s)


def _revive(broker: LocalBroker) -> None:
    """Start a broker and wait until it serves; a busy machine may take its time.

    Raises:
        LocalKafkaError: it does not.
    """
    broker.start(wait=False)
    broker.wait_until_serving([broker.node_id], deadline=time.monotonic() + REVIVE_S)

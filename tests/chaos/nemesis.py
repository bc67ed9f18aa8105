"""The nemesis: from a seed, it kills and pauses brokers, controllers, writers and readers.

Two lanes run side by side: one harms brokers, one at a time and only while all partitions are fully in sync; the other
harms processes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, ClassVar, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from modeaware.errors import LocalKafkaError
from modeaware.local import LocalBroker, LocalKafka
from tests.chaos.chronicle import Chronicle
from tests.chaos.fleet import Child, Fleet
from tests.chaos.tasks import Task, until

IN_SYNC_S = 60.0
REVIVE_S = 240.0
_numbers = count(1)


class Kind(NamedTuple):
    """A kind of fault.

    Attributes:
        weight: how many of it are in a lane's deck.
        pause_s: for how long (from, to); one that was shorter, because the run came to its end, does not count.
    """

    name: str
    weight: int
    pause_s: tuple[float, float]


@contextmanager
def _fault(chronicle: Chronicle, kind: str, target: str, group: str | None) -> Iterator[dict[str, Any]]:
    """Note a fault before and after it is done.

    Args:
        group: whose readers may read again because of it, ``"*"`` for all.

    Yields:
        What to note after it; it counts if ``reached`` is true.
    """
    number = next(_numbers)
    what: dict[str, Any] = {"reached": False}
    chronicle.note("fault-begins", id=number, kind=kind, target=target, group=group)
    try:
        yield what
    finally:
        chronicle.note("fault-ends", id=number, **what)


@contextmanager
def struck(
    chronicle: Chronicle, kind: str, victim: LocalBroker | Child, revive: Callable[[], object], least_s: float
) -> Iterator[None]:
    """Kill or pause the victim, as ``kind`` says, for as long as the block takes, and note it.

    Args:
        least_s: the fault counts if the process was dead, or stood still, for so long.
    """
    whose = (victim.name, victim.group) if isinstance(victim, Child) else (f"broker-{victim.node_id}", "*")
    with _fault(chronicle, kind, *whose) as what:
        pid, kill = victim.pid, kind.endswith("-kill")
        try:
            if kill:
                victim.kill()
            else:
                victim.pause()
            since_s = time.monotonic()
            down = pid is not None and victim.pid == (None if kill else pid)
            yield
            stood_s = time.monotonic() - since_s
            what.update(reached=down and stood_s >= least_s, pid=pid, stood_s=round(stood_s, 2))
        finally:
            revive()


class Lane(Task):
    """Harms in turn with rests.

    Args:
        gap_s: how long a rest is (from, to).
    """

    name: ClassVar[str]
    kinds: ClassVar[Sequence[Kind]]

    def __init__(self, chronicle: Chronicle, seed: int, gap_s: tuple[float, float]) -> None:
        super().__init__(chronicle, self.name)
        self.chance = random.Random(f"{seed}-{self.name}")
        self._gap_s = gap_s

    def harm(self, kind: Kind) -> None:
        """Do harm of this kind, and revive what was harmed."""
        raise NotImplementedError

    def work(self) -> None:
        deck: list[Kind] = []
        while not self.done.wait(self.chance.uniform(*self._gap_s)):
            if not deck:
                deck = [kind for kind in self.kinds for _ in range(kind.weight)]
                self.chance.shuffle(deck)
            self.harm(deck.pop())

    def strike(self, kind: Kind, victim: LocalBroker | Child, revive: Callable[[], object]) -> None:
        """Kill or pause the victim for a time of the kind, or until the run stops, and revive it."""
        rest_s = self.chance.uniform(*kind.pause_s)
        with struck(self.chronicle, kind.name, victim, revive, least_s=kind.pause_s[0]):
            self.done.wait(rest_s)


class BrokerLane(Lane):
    """Kills, pauses and restarts brokers."""

    name = "brokers"
    kinds = (
        Kind("broker-kill", 4, (1.0, 6.0)),
        Kind("broker-pause", 4, (1.0, 8.0)),
        Kind("rolling-restart", 1, (0.0, 0.0)),
    )

    def __init__(self, kafka: LocalKafka, chronicle: Chronicle, seed: int, gap_s: tuple[float, float]) -> None:
        super().__init__(chronicle, seed, gap_s)
        self._brokers = kafka.brokers
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})

    def harm(self, kind: Kind) -> None:
        if not self._in_sync_again():
            return
        broker = self.chance.choice(self._brokers)
        if kind.name == "rolling-restart":
            self._restart_all(kind)
        else:
            revive = broker.resume if kind.name == "broker-pause" else lambda: _revive(broker)
            self.strike(kind, broker, revive)
        self._in_sync_again(even_if_stopping=True)

    def _restart_all(self, kind: Kind) -> None:
        restarted: list[int] = []
        with _fault(self.chronicle, kind.name, "brokers", "*") as what:
            for broker in self._brokers:
                if not self.done.is_set() and self._in_sync_again():
                    try:
                        broker.stop()
                    except LocalKafkaError as error:  # it took too long, and was killed
                        self.chronicle.note("stop-failed", broker=broker.node_id, error=str(error)[:300])
                    _revive(broker)
                    restarted.append(broker.node_id)
            what.update(reached=len(restarted) == len(self._brokers), restarted=restarted)

    def _in_sync_again(self, *, even_if_stopping: bool = False) -> bool:
        """Wait until every partition has all its replicas in sync; False: not in time, or the run is stopping."""
        over = until(lambda: self._in_sync() or (self.done.is_set() and not even_if_stopping), IN_SYNC_S)
        return over and self._in_sync()

    def _in_sync(self) -> bool:
        try:
            topics = self._admin.list_topics(timeout=2).topics.values()
        except KafkaException as error:
            self.chronicle.note("metadata-failed", error=str(error))
            return False
        partitions = [p for topic in topics for p in topic.partitions.values()]
        return bool(partitions) and all(p.leader >= 0 and len(p.isrs) == len(p.replicas) for p in partitions)


class ProcessLane(Lane):
    """Kills and pauses controllers, mostly the active one, writers and readers.

    Args:
        active: the controller that is active now, if it is known.
    """

    name = "processes"
    kinds = (
        Kind("controller-kill", 2, (0.5, 5.0)),
        Kind("controller-pause", 1, (11.0, 14.0)),  # longer than its session (10 s at most)
        Kind("writer-kill", 2, (0.2, 3.0)),
        Kind("writer-pause", 2, (5.0, 9.0)),  # longer than the longest delay and the quiet time of a shrink
        Kind("reader-kill", 2, (0.2, 3.0)),
        Kind("reader-pause", 1, (8.0, 10.0)),  # longer than its session
    )

    def __init__(self, fleet: Fleet, active: Callable[[], Child | None], seed: int, gap_s: tuple[float, float]) -> None:
        super().__init__(fleet.chronicle, seed, gap_s)
        self._fleet = fleet
        self._active = active

    def harm(self, kind: Kind) -> None:
        role, _, how = kind.name.partition("-")
        child = self.chance.choice(self._fleet.of(role))
        if role == "controller" and self.chance.random() < 0.75:
            child = self._active() or child
        with child.turn:  # the fleet leaves it alone meanwhile
            if child.pid is not None:
                revive = child.resume if how == "pause" else lambda: self._fleet.start_child(child)
                self.strike(kind, child, revive)


def _revive(broker: LocalBroker) -> None:
    """Start a broker and wait until it serves; a busy machine may take its time.

    Raises:
        LocalKafkaError: it does not.
    """
    broker.start(wait=False)
    broker.wait_until_serving([broker.node_id], deadline=time.monotonic() + REVIVE_S)

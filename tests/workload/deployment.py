"""Processes of an application and its controllers, which are restarted as they work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaError

from tests.support.group import FAST
from tests.support.process import LoggedProcess
from tests.support.source_tree import ROOT
from tests.support.waiting import eventually
from tests.workload.evidence import Evidence, logs_of
from tests.workload.journal import Entry, Kind, read_journal, replay
from tests.workload.judge import judge
from tests.workload.ledger import Ledger

BETWEEN = 150
"""How many records of each producer at least are sent, and read, between two events."""
OURS, PLAIN = "modeaware", "confluent_kafka"
"""The packages that clients come from."""
IN_ORDER = {"max.in.flight.requests.per.connection": 1}
"""A producer that is not idempotent may reorder records of one partition by itself, where a broker dies."""
GROUP = {"auto.offset.reset": "earliest", "session.timeout.ms": 10_000}  # soon without a member that was killed
OTHERS = (1 << 16) - 1
"""The run of records in the topic that others wrote."""
TIMEOUT_S = 120
STARTS_S = 60
_runs = count(1)


class Program(LoggedProcess):
    """One incarnation of a process, with a number of its own."""

    def __init__(self, name: str, folder: Path, command: list[str], incarnation: int) -> None:
        self.name, self.incarnation = name, incarnation
        super().__init__([sys.executable, "-m", *command], folder / f"{name}.{incarnation}.out")

    def stop(self) -> None:
        """SIGTERM, and the exit status of a program that has ended well."""
        self.send_sigterm()
        assert self.wait(STARTS_S) == 0, f"{self.name}: {self.said}"


class Client(Program):
    """A writer or a reader of :mod:`tests.workload.process` and its journal."""

    def __init__(self, role: str, clients: str, conf: dict[str, object], topic: str, folder: Path, name: str) -> None:
        self.role, run = role, next(_runs)
        self.journal = folder / f"{name}.{run}.journal"
        words = [role, clients, json.dumps(conf), topic, str(self.journal), str(run)]
        super().__init__(name, folder, ["tests.workload.process", *words], run)

    def entries(self, kind: Kind) -> list[Entry]:
        """What it has noted so far."""
        return [each for each in read_journal(self.journal) if each[4] == kind] if self.journal.exists() else []

    def refusals(self) -> set[str]:
        """The names of the errors with which records were refused."""
        codes = {code for _, _, code, _, _ in self.entries(Kind.REFUSED)}
        return {KafkaError(code - (code >> 31 << 32)).name() for code in codes}


class Deployment:
    """Controllers, producers and consumers of one topic, by name."""

    def __init__(self, servers: str, log: str, topic: str, group: str, folder: Path, quiet_ms: int = 300) -> None:
        self._servers, self._log, self.topic, self.group, self._folder = servers, log, topic, group, folder
        self._quiet_ms = quiet_ms
        self._all: list[Program] = []
        self.now: dict[str, Program] = {}

    def start(self, name: str, clients: str = OURS) -> None:
        """``name`` says what it is: controller-N, producer-N, consumer-N."""
        ours: dict[str, object] = {"modeaware.mode.log.topic": self._log} if clients == OURS else {}
        conf = {"bootstrap.servers": self._servers, **ours}
        started: Program
        if name.startswith("controller"):
            started = Program(name, self._folder, ["modeaware", *self._controller()], next(_runs))
        elif name.startswith("producer"):
            started = Client("writer", clients, {**conf, **IN_ORDER}, self.topic, self._folder, name)
        else:
            group = {**FAST, **GROUP, "group.id": self.group}
            started = Client("reader", clients, {**conf, **group}, self.topic, self._folder, name)
        self._all.append(started)
        self.now[name] = started

    def replace(self, name: str, clients: str = OURS, *, kill: bool = False) -> None:
        old = self.now[name]
        old.kill() if kill else old.stop()
        self.start(name, clients)

    def command(self, *arguments: str) -> str:
        """Run ``modeaware`` on this mode log; return what it prints."""
        config = self._folder / "client.properties"
        config.write_text(f"modeaware.mode.log.topic={self._log}\n", encoding="utf-8")
        where = ("--bootstrap-server", self._servers, "--command-config", str(config))
        words = [sys.executable, "-m", "modeaware", *arguments, *where]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def clients(self, role: str) -> list[Client]:
        return [each for each in self._all if isinstance(each, Client) and each.role == role]

    def more(self) -> None:
        """Wait until each producer has sent more, and all that is acknowledged by then is read."""
        writers = [each for each in self.now.values() if isinstance(each, Client) and each.role == "writer"]
        goals = {each.name: len(each.entries(Kind.ACKED)) + BETWEEN for each in writers}
        self._wait(lambda: all(len(each.entries(Kind.ACKED)) >= goals[each.name] for each in writers))
        self._await_read()

    def _await_read(self) -> None:
        acknowledged = _all(self.clients("writer"), Kind.ACKED)
        self._wait(lambda: acknowledged <= _all(self.clients("reader"), Kind.READ))

    def stop(self) -> None:
        """All end well: first producers, then, once all is read, consumers and controllers."""
        for prefix in ("producer", "consumer", "controller"):
            for name in [name for name in self.now if name.startswith(prefix)]:
                self.now.pop(name).stop()
            if prefix == "producer":
                self._await_read()

    def check(self, *refused: str, ordered: bool = True, reused: Iterable[str] = ()) -> None:
        """Judge once all have stopped.

        Args:
            refused: errors with which records may be refused, by name.
            ordered: the group was given each key in its order.
            reused: names that more than one topic had.
        """
        ledger = Ledger([self.group], [self.group] if ordered else [])
        for each in self.clients("writer"):
            replay(each.journal, ledger.writer(each.incarnation, each.name, once=False))
            assert each.refusals() <= {*refused}, each.refusals()
        ledger.writer(OTHERS, "others")
        sink = ledger.reader(self.group, self.group)
        entries = [entry for each in self.clients("reader") for entry in each.entries(Kind.READ)]
        for number, log, offset, at_ms, kind in sorted(entries, key=lambda entry: entry[3]):
            sink.note(kind, number, log, offset, at_ms)
        verdict = judge(ledger, Evidence(reused=logs_of(reused, ledger.logs)))
        assert verdict.ok, verdict
        assert verdict.acknowledged > 0

    def kill(self) -> None:
        for each in self._all:
            each.kill()

    def _wait(self, condition: Callable[[], bool]) -> None:
        """With the last words of each process, where it does not come true."""
        try:
            eventually(condition, 90, interval_s=0.3)
        except AssertionError as error:
            told = "\n".join(f"== {each.name}\n{each.said[-1500:]}" for each in self._all)
            raise AssertionError(f"{error}\n{told}") from error

    def _controller(self) -> list[str]:
        configs = {
            "modeaware.mode.log.topic": self._log,
            "modeaware.seal.quiet.ms": self._quiet_ms,
            "delete.topic.partition.check.interval.ms": 500,
            "modeaware.controller.session.timeout.ms": 6000,
        }
        words = [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
        return ["controller", "--bootstrap-server", self._servers, *words]


def _all(clients: Iterable[Client], kind: Kind) -> set[int]:
    return {entry[0] for each in clients for entry in each.entries(kind)}

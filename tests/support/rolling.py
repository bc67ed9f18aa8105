"""Processes of an application and its controllers, which are restarted as they work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.support.group import FAST
from tests.support.process import LoggedProcess
from tests.support.release import Release
from tests.support.waiting import eventually

BETWEEN = 150
"""How many records of each producer at least are sent, and read, between two events."""

IN_ORDER = {"max.in.flight.requests.per.connection": 1}
"""A producer that is not idempotent may reorder records of one partition by itself, where a broker dies."""
GROUP = {"auto.offset.reset": "earliest", "session.timeout.ms": 10_000}  # soon without a member that was killed


class Running(LoggedProcess):
    """One process: what it printed, and what it wrote down.

    ``journal`` has a line for each record: ``value partition offset``, of one that is read its key and
    the time as well (ns, monotonic).
    """

    def __init__(self, release: Release, role: str, arguments: list[str], folder: Path, name: str) -> None:
        self.release = release
        self.role = role
        self.name = name
        self.journal = folder / f"{name}.journal"
        words = [*arguments, str(self.journal), name] if role != "command" else arguments
        super().__init__(release.command(role, *words), folder / f"{name}.out", env=release.environment)

    def lines(self) -> list[str]:
        if not self.journal.exists():
            return []
        *whole, _ = self.journal.read_text(encoding="utf-8").split("\n")
        return whole

    def values(self) -> set[str]:
        return {line.partition(" ")[0] for line in self.lines()}

    def wait_until_it_tells_its_release(self) -> None:
        eventually(lambda: "\n" in self.said or not self.running, 60)
        assert self.release.proves(self.said.partition("\n")[0]), self.said

    def stop(self) -> None:
        """SIGTERM, and the exit status of a program that has ended well."""
        self.send_sigterm()
        assert self.wait(60) == 0, f"{self.name}: {self.said}"


class Deployment:
    """Controllers, producers and consumers of one topic, by name."""

    def __init__(self, servers: str, log: str, topic: str, group: str, folder: Path, quiet_ms: int = 300) -> None:
        self._servers, self._log, self.topic, self.group, self._folder = servers, log, topic, group, folder
        self._quiet_ms = quiet_ms
        self._all: list[Running] = []
        self.now: dict[str, Running] = {}

    def start(self, name: str, release: Release) -> None:
        """``name`` says what it is: controller-N, producer-N, consumer-N."""
        group = {**FAST, **GROUP, "group.id": self.group}
        role, arguments = {
            "controller": ("command", self._controller()),
            "producer": ("send", self._client(release, **IN_ORDER)),
            "consumer": ("read", self._client(release, **group)),
        }[name.partition("-")[0]]
        running = Running(release, role, arguments, self._folder, f"{name}.{len(self._all)}")
        self._all.append(running)
        self.now[name] = running
        running.wait_until_it_tells_its_release()

    def replace(self, name: str, release: Release, *, kill: bool = False) -> None:
        old = self.now[name]
        old.kill() if kill else old.stop()
        self.start(name, release)

    def command(self, release: Release, *arguments: str) -> str:
        """``modeaware`` of that release, on this mode log."""
        config = self._folder / "client.properties"
        config.write_text(f"modeaware.mode.log.topic={self._log}\n", encoding="utf-8")
        where = ("--bootstrap-server", self._servers, "--command-config", str(config))
        return release.run(*arguments, *where)

    def acked(self) -> set[str]:
        """The values that producers were told lie in the topic."""
        return {value for each in self._all if each.role == "send" for value in each.values()} - {"failed"}

    def failed(self) -> list[str]:
        return [line for each in self._all if each.role == "send" for line in each.lines() if line.startswith("failed")]

    def read(self) -> set[str]:
        """The values that the group was given."""
        return {value for each in self._all if each.role == "read" for value in each.values()}

    def out_of_order(self) -> list[str]:
        """Return the values that the group was first given after a later one of their key by the same producer."""
        lines = [line.split(" ") for each in self._all if each.role == "read" for line in each.lines()]
        highest: dict[tuple[str, str], int] = {}
        seen: set[str] = set()
        late = []
        for value, _, _, key, _ in sorted(lines, key=lambda line: int(line[4])):
            name, _, number = value.rpartition("-")
            if value not in seen and int(number) < highest.get((name, key), -1):
                late.append(value)
            seen.add(value)
            highest[name, key] = max(int(number), highest.get((name, key), -1))
        return late

    def more(self) -> None:
        """Wait until each producer has sent more, and all that is acknowledged by then is read."""
        senders = [each for each in self.now.values() if each.role == "send"]
        goals = {each.name: len(each.lines()) + BETWEEN for each in senders}
        self._wait(lambda: all(len(each.lines()) >= goals[each.name] for each in senders))
        acked = self.acked()
        self._wait(lambda: acked <= self.read())

    def stop(self) -> None:
        """All end well: first producers, then, once all is read, consumers and controllers."""
        for prefix in ("producer", "consumer", "controller"):
            for name in [name for name in self.now if name.startswith(prefix)]:
                self.now.pop(name).stop()
            if prefix == "producer":
                self._wait(lambda: self.acked() <= self.read())

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

    def _client(self, release: Release, **settings: object) -> list[str]:
        ours = {"modeaware.mode.log.topic": self._log} if release.clients == "modeaware" else {}
        return [json.dumps({"bootstrap.servers": self._servers, **ours, **settings}), self.topic]

    def _controller(self) -> list[str]:
        configs = {
            "modeaware.mode.log.topic": self._log,
            "modeaware.seal.quiet.ms": self._quiet_ms,
            "delete.topic.partition.check.interval.ms": 500,
            "modeaware.controller.session.timeout.ms": 6000,
        }
        words = [word for name, value in configs.items() for word in ("--config", f"{name}={value}")]
        return ["controller", "--bootstrap-server", self._servers, *words]

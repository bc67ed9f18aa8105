"""Java producers with the plug-ins beside an aware Python one, through a shrink and a replacement on a real Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message

import modeaware
from tests.conftest import MakeTopic
from tests.support.changed_count import BEFORE, DEADLINE_S, Change, change_count, check_stored
from tests.support.controlled import Controlled
from tests.support.jvm import java_command
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

KINDS = ("keyed", "keyless", "transactional")
PYTHON = "python"
MORE = 100


class Writers:
    """Three producers in Java, and one in this process; all write until :meth:`finish`."""

    def __init__(self, served: Controlled, topic: str, folder: Path) -> None:
        self._topic, self._stop = topic, folder / "stop"
        log = f"modeaware.mode.log.topic={served.log}"
        self._java = {
            kind: LoggedProcess(
                java_command("Writing", kind, topic, str(self._stop), f"bootstrap.servers={served.servers}", log),
                folder / f"{kind}.log",
            )
            for kind in KINDS
        }
        conf = {**served.conf, "modeaware.mode.log.topic": served.log, "partitioner": "murmur2_random", "linger.ms": 1}
        self._python = modeaware.Producer({**conf, "enable.idempotence": True})
        self._sent = 0
        self._stored: list[str] = []
        self.failed: list[str] = []

    def acknowledged(self, kind: str) -> list[str]:
        lines = self._java[kind].said.splitlines()
        return [line.split()[0] for line in lines if line.startswith(f"{kind}:")]

    def write_more(self) -> None:
        """Wait until each has written some more records."""
        wanted = {kind: len(self.acknowledged(kind)) + MORE for kind in KINDS}

        def written() -> bool:
            for _ in range(10):
                key, value = f"{PYTHON}-{self._sent % 40}", f"{PYTHON}:{self._sent}"
                self._python.produce(self._topic, value, key, on_delivery=self._delivered)
                self._sent += 1
            self._python.poll(0.05)
            assert not self._failures()
            return all(len(self.acknowledged(kind)) >= count for kind, count in wanted.items())

        eventually(written, DEADLINE_S)

    def finish(self) -> set[str]:
        """End all; return what was acknowledged to them."""
        self._stop.touch()
        for process in self._java.values():
            process.wait_until_it_says("closed", DEADLINE_S)
        assert self._python.flush(30) == 0
        assert not self._failures()
        return {*self._stored, *(value for kind in KINDS for value in self.acknowledged(kind))}

    def close(self) -> None:
        self._python.close()
        for process in self._java.values():
            process.kill()

    def _failures(self) -> list[str]:
        said = [line for each in self._java.values() for line in each.said.splitlines()]
        return self.failed + [line for line in said if line.startswith(("failed", "Exception"))]

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self._stored.append((message.value() or b"").decode())


@pytest.mark.parametrize("change", ["shrink", "replacement"])
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_a_live_change_loses_doubles_and_misplaces_nothing(
    served: Controlled, make_topic: MakeTopic, tmp_path: Path, change: Change
) -> None:
    topic = make_topic(BEFORE)
    writers = Writers(served, topic, tmp_path)
    try:
        writers.write_more()
        target = change_count(served, topic, change)
        writers.write_more()
        acknowledged = writers.finish()
    finally:
        writers.close()
    check_stored(served, topic, target, acknowledged, key_count=3 * 40)


def test_24_producers_of_one_jvm_share_one_tail(served: Controlled, make_topic: MakeTopic, tmp_path: Path) -> None:
    settings = f"bootstrap.servers={served.servers}", f"modeaware.mode.log.topic={served.log}"
    process = LoggedProcess(java_command("Many", "24", make_topic(2), *settings), tmp_path / "many.log")
    try:
        process.wait_until_it_says("closed", DEADLINE_S)
    finally:
        process.kill()
    found = {words[0]: [int(each) for each in words[1:]] for words in map(str.split, process.said.splitlines()[:-1])}
    threads, sockets = (ours - plain for ours, plain in zip(found["plug-ins"], found["plain"], strict=True))
    assert threads == 1
    assert sockets <= 2, "its bootstrap connection, and one to the leader"
    assert found["left"] == [0]

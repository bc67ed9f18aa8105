"""A Java producer with the plug-ins while its mode log is created again, and while the only broker is down."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import murmur2

from tests.conftest import MakeKafka, topic_maker
from tests.support.jvm import java_command
from tests.support.modelog import RealLog, topic_record
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

MORE = 100
DEADLINE_S = 120
"""The plug-ins request the end of the mode log every 30 s."""


class Writer:
    """A producer in Java that writes records with 40 keys."""

    def __init__(self, servers: str, log: str, topic: str, folder: Path) -> None:
        settings = f"bootstrap.servers={servers}", f"modeaware.mode.log.topic={log}"
        command = java_command("Writing", "keyed", topic, str(folder / "stop"), *settings)
        self._process = LoggedProcess(command, folder / "keyed.log")

    def await_placement(self, writable: int) -> None:
        """Wait until the last :data:`MORE` records went to the places of their keys among ``writable`` partitions."""

        def is_placed() -> bool:
            assert self.failures() == []
            stored = self.stored()[-MORE:]
            return len(stored) == MORE and all(where == place(number, writable) for number, where in stored)

        eventually(is_placed, DEADLINE_S)

    def write_more(self) -> None:
        """Wait until it has written :data:`MORE` records."""
        wanted = len(self.stored()) + MORE
        eventually(lambda: len(self.stored()) >= wanted, DEADLINE_S)

    def failures(self) -> list[str]:
        return [line for line in self._process.said.splitlines() if line.startswith(("failed", "Exception"))]

    def close(self) -> None:
        self._process.kill()

    def stored(self) -> list[tuple[int, int]]:
        """The number and the partition of each record that a broker acknowledged."""
        lines = self._process.said.rpartition("\n")[0].splitlines()
        words = [line.split() for line in lines if line.startswith("keyed:")]
        return [(int(value.removeprefix("keyed:")), int(where)) for value, _, where in words]


def place(number: int, writable: int) -> int:
    return murmur2(b"keyed-%d" % (number % 40), writable)


def test_views_follow_a_log_created_again_and_outlive_the_broker(make_kafka: MakeKafka, tmp_path: Path) -> None:
    kafka = make_kafka()
    topic, log = topic_maker(kafka)(12), RealLog(kafka.bootstrap_servers)
    log.create()
    log.append(*(topic_record(topic, epoch, writable=4) for epoch in (1, 2, 3)))
    writer = Writer(kafka.bootstrap_servers, log.topic, topic, tmp_path)
    try:
        writer.await_placement(4)
        log.delete()
        eventually(lambda: log.topic not in log.admin.list_topics(timeout=30).topics)
        log.create()
        log.append(topic_record(topic, 4, writable=5))
        writer.await_placement(5)

        before = len(writer.stored())
        [broker] = kafka.brokers
        broker.stop()
        broker.start()
        writer.write_more()
        assert [each for each in writer.stored()[before:] if each[1] != place(each[0], 5)] == []
        log.close()
        log.append(topic_record(topic, 5, writable=3))
        writer.await_placement(3)
        assert writer.failures() == []
    finally:
        writer.close()
        log.close()

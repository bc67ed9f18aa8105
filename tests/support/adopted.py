"""Framework applications in processes of their own, under load, while what they read and write shrinks from 12 to 4."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.modelog.deletion import RETENTION_DELAY_MS
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.support.controlled import Controlled
from tests.support.group import Unending
from tests.support.plain import drain_topic, watermarks
from tests.support.waiting import eventually

BETWEEN = 400
"""How many records at least are sent between two events."""
DIFFERENT_KEYS = 97  # of tests.support.controlled.produce


class Load(Unending[modeaware.Producer]):
    """Keyed records without end; ``acked`` has the values that lie in the topic."""

    def __init__(self, setting: Controlled, topic: str) -> None:
        super().__init__(modeaware.Producer({**setting.conf, "modeaware.mode.log.topic": setting.log}), 0.002)
        self.acked: set[bytes] = set()
        self._topic = topic
        self._sent = 0

    def write(self) -> None:
        acknowledged = self.to(lambda message: self.acked.add(message.value()))
        with suppress(BufferError):  # no view of the modes yet
            self.producer.produce(
                self._topic, b"%d" % self._sent, b"key-%d" % (self._sent % 211), on_delivery=acknowledged
            )
            self._sent += 1
        self.producer.poll(0)

    def stop(self) -> None:
        super().stop()
        self.producer.close()

    def more(self) -> None:
        goal = len(self.acked) + BETWEEN
        eventually(lambda: len(self.acked) >= goal, 60)


def command(setting: Controlled, example: str, source: str, to: str, group: str, *more: str) -> list[str]:
    """``python`` with these arguments runs an example by ``modeaware run``."""
    path = str(Path(__file__).parents[2] / "examples" / example)
    run = ["-m", "modeaware", "run", "--set", f"modeaware.mode.log.topic={setting.log}", path]
    return [*run, "--bootstrap-server", setting.servers, "--from", source, "--to", to, "--group", group, *more]


def arrived(setting: Controlled, topic: str) -> set[bytes]:
    return {message.value() or b"" for message in drain_topic(setting.servers, topic)}


def committed(setting: Controlled, topic: str, group: str) -> list[int]:
    """What the group has committed of the twelve partitions; 0 where it has not."""
    consumer = Consumer({**setting.conf, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(12)], 30)
        return [max(partition.offset, 0) for partition in found]
    finally:
        consumer.close()


def end(running: list[subprocess.Popen[bytes]], log: Path) -> None:
    """End applications as a supervisor does; they were alive, and go in good order."""
    for process in running:
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in running] == [0] * len(running), log.read_text()


def through_a_shrink_of_both(
    setting: Controlled, source: str, to: str, group: str, running: list[subprocess.Popen[bytes]], log: Path
) -> None:
    """Nothing is lost, and nothing comes to the retired partitions of ``to`` once they are sealed."""
    with Load(setting, source) as load:
        eventually(lambda: len(arrived(setting, to)) > BETWEEN, 90, message=log.read_text()[-3000:])
        # Workers that had not committed everywhere before the shrink were seen never to (docs/adoption.md, Faust).
        eventually(lambda: all(committed(setting, source, group)), 90, message=log.read_text()[-3000:])
        setting.shrink(source, 4)
        load.more()
        result = setting.ask(DeletePartitionsCommand(to, 4, RETENTION_DELAY_MS))
        assert result.code is ErrorCode.NONE, result.message
        load.more()
        setting.wait_done(source, 90)
        sealed = setting.wait_for(to, lambda record: all(r.seal_offset is not None for r in record.retired.values()))
        ends = watermarks(setting.servers, to)
        assert all(ends[partition][1] == retired.seal_offset for partition, retired in sealed.retired.items())
        load.more()
        load.done.set()
        eventually(lambda: load.acked <= arrived(setting, to), 60, message=log.read_text()[-3000:])
        end(running, log)
    assert load.acked - arrived(setting, to) == set()
    assert setting.modes(source) == (PartitionMode.READ_WRITE,) * 4 + (PartitionMode.NONE,) * 8
    now = watermarks(setting.servers, to)
    assert {p: now[p][1] for p in range(4, 12)} == {p: ends[p][1] for p in range(4, 12)}
    assert all(now[p][1] > ends[p][1] for p in range(4))


def refused_for_its_state(setting: Controlled, source: str, group: str) -> None:
    """A shrink of ``source`` is refused, with the reason, and leaves no trace."""
    refused = setting.ask(DeletePartitionsCommand(source, 4, 0))
    assert refused.code is not ErrorCode.NONE
    assert group in (refused.message or "")
    assert "state" in (refused.message or "")
    assert read_mode_log(setting.conf, setting.log, 20).record(source) is None

"""QuixStreams, unchanged, by ``modeaware run``."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import modeaware
from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.local import Kafka
from modeaware.modelog.deletion import RETENTION_DELAY_MS
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.conftest import MakeTopic
from tests.support.controlled import Controlled, produce
from tests.support.frameworks import programs, quixstreams
from tests.support.plain import drain_topic, watermarks
from tests.support.waiting import eventually

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "quixstreams_app.py")
BETWEEN = 400
"""How many records at least are sent between two events."""

DIFFERENT_KEYS = 97  # of tests.support.controlled.produce


@pytest.fixture
def setting(kafka: Kafka) -> Iterator[Controlled]:
    controlled = Controlled(kafka)
    controlled.start()
    yield controlled
    for controller in controlled.started:
        controller.stop()


class Load:
    """Keyed records without end; ``acked`` has the values that lie in the topic."""

    def __init__(self, setting: Controlled, topic: str) -> None:
        self.acked: set[bytes] = set()
        self.failed: list[object] = []
        self.stopping = threading.Event()
        self._producer = modeaware.Producer({**setting.conf, "modeaware.mode.log.topic": setting.log})
        self._topic = topic

    def send(self) -> None:
        sent = 0
        while not self.stopping.wait(0.002):
            try:
                self._producer.produce(self._topic, b"%d" % sent, b"key-%d" % (sent % 211), on_delivery=self._told)
                sent += 1
            except BufferError:  # no view of the modes yet
                pass
            self._producer.poll(0)
        self._producer.close()

    def more(self) -> None:
        goal = len(self.acked) + BETWEEN
        eventually(lambda: len(self.acked) >= goal, 60)

    def _told(self, error: object, message: object) -> None:
        if error is None:
            self.acked.add(message.value())
        else:
            self.failed.append(error)


@contextmanager
def loading(setting: Controlled, topic: str) -> Iterator[Load]:
    load = Load(setting, topic)
    thread = threading.Thread(target=load.send)
    thread.start()
    try:
        yield load
    finally:
        load.stopping.set()
        thread.join()


def command(setting: Controlled, source: str, to: str, group: str, *more: str) -> list[str]:
    run = ["-m", "modeaware", "run", "--set", f"modeaware.mode.log.topic={setting.log}", EXAMPLE]
    names = ["--bootstrap-server", setting.servers, "--from", source, "--to", to, "--group", group]
    return [*run, *names, *more]


def arrived(setting: Controlled, topic: str) -> set[bytes]:
    return {message.value() or b"" for message in drain_topic(setting.servers, topic)}


@pytest.mark.timeout(280)
def test_two_processes_through_a_shrink_of_what_they_read_and_what_they_write(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    source, to, group = make_topic(12), make_topic(12), make_group()
    log = tmp_path / "log"
    two = [command(setting, source, to, group, "--state-dir", str(tmp_path / name)) for name in ("one", "two")]
    with programs(two, log, PYTHONPATH=str(quixstreams())) as running, loading(setting, source) as load:
        eventually(lambda: len(arrived(setting, to)) > BETWEEN, 90)
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
        load.stopping.set()
        eventually(lambda: load.acked <= arrived(setting, to), 60, message=log.read_text()[-3000:])
        for process in running:
            assert process.poll() is None, log.read_text()
            process.send_signal(signal.SIGTERM)
        assert [process.wait(30) for process in running] == [0, 0], log.read_text()
    assert load.failed == []
    assert load.acked - arrived(setting, to) == set()
    assert setting.modes(source) == (PartitionMode.READ_WRITE,) * 4 + (PartitionMode.NONE,) * 8
    now = watermarks(setting.servers, to)
    assert {p: now[p][1] for p in range(4, 12)} == {p: ends[p][1] for p in range(4, 12)}
    assert all(now[p][1] > ends[p][1] for p in range(4))


@pytest.mark.timeout(200)
def test_a_shrink_under_an_application_with_state_is_refused_with_the_reason_and_the_state_goes_on(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], tmp_path: Path
) -> None:
    source, to, group = make_topic(12), make_topic(12), make_group()
    log, one = tmp_path / "log", command(setting, source, to, group, "--count", "--state-dir", str(tmp_path / "state"))
    with programs([one], log, PYTHONPATH=str(quixstreams())) as (process,):
        produce(setting, source, 2 * DIFFERENT_KEYS)
        eventually(lambda: len(drain_topic(setting.servers, to)) == 2 * DIFFERENT_KEYS, 90)

        refused = setting.ask(DeletePartitionsCommand(source, 4, 0))
        assert refused.code is not ErrorCode.NONE
        assert group in (refused.message or "")
        assert "state" in (refused.message or "")
        assert read_mode_log(setting.conf, setting.log, 20).record(source) is None

        produce(setting, source, DIFFERENT_KEYS)
        eventually(lambda: len(drain_topic(setting.servers, to)) == 3 * DIFFERENT_KEYS, 60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    counts = Counter(message.value() for message in drain_topic(setting.servers, to))
    assert counts == {b"1": DIFFERENT_KEYS, b"2": DIFFERENT_KEYS, b"3": DIFFERENT_KEYS}

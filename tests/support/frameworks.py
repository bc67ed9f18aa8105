"""QuixStreams, in a folder of its own beside the test environment, and its applications.

It requires a confluent-kafka older than ours, so that pip would not install both: it comes without its dependencies,
and these by themselves. The folder stays (``MODEAWARE_CACHE_DIR``); the first test that needs it installs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from modeaware.errors import ErrorCode
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.local.jars import cache_folder, locked
from modeaware.modelog.reader import read_mode_log
from modeaware.modes import PartitionMode
from tests.support.controlled import Controlled
from tests.support.group import Keyed
from tests.support.plain import drain_topic, watermarks
from tests.support.waiting import eventually


def quixstreams() -> Path:
    """The folder to be put on ``PYTHONPATH``."""
    return _installed(
        "quixstreams==3.28.1",
        *("attrs", "authlib<2", "fastavro", "httpx", "jsonlines", "jsonpath-ng", "jsonschema"),
        *("orjson", "protobuf", "pydantic>=2.7,<3", "pydantic-settings", "requests", "rocksdict", "typing-extensions"),
    )


def _installed(package: str, *needs: str) -> Path:
    folder = cache_folder() / "frameworks" / f"{package.replace('==', '-')}-{sysconfig.get_python_version()}"
    done = folder / ".done"
    with locked(folder.with_name(folder.name + ".lock")):
        if not done.exists():
            _pip("--upgrade", "--target", str(folder), *needs)
            _pip("--upgrade", "--target", str(folder), "--no-deps", package)
            done.touch()
    return folder


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def programs(commands: list[list[str]], log: Path, **variables: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of this Python, all of whose output goes to the file ``log``; they are killed at the end."""
    running: list[subprocess.Popen[bytes]] = []
    environment = {**os.environ, **variables}
    with log.open("ab") as output:
        try:
            for command in commands:
                process = subprocess.Popen([sys.executable, *command], stdout=output, stderr=output, env=environment)
                running.append(process)
            yield running
        finally:
            for process in running:
                process.kill()
                process.wait()


BETWEEN = 400
"""How many records at least are sent between two events."""
DIFFERENT_KEYS = 97  # of tests.support.controlled.produce


def more(load: Keyed) -> None:
    goal = len(load.values) + BETWEEN
    eventually(lambda: len(load.values) >= goal, 60)


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
    with Keyed({**setting.conf, "modeaware.mode.log.topic": setting.log}, source) as load:
        eventually(lambda: len(arrived(setting, to)) > BETWEEN, 90, message=log.read_text()[-3000:])
        eventually(lambda: all(committed(setting, source, group)), 90, message=log.read_text()[-3000:])
        setting.shrink(source, 4)
        more(load)
        result = setting.ask(DeletePartitionsCommand(to, 4, None))
        assert result.code is ErrorCode.NONE, result.message
        more(load)
        setting.wait_done(source, 90)
        sealed = setting.wait_for(to, lambda record: all(r.seal_offset is not None for r in record.retired.values()))
        ends = watermarks(setting.servers, to)
        assert all(ends[partition][1] == retired.seal_offset for partition, retired in sealed.retired.items())
        more(load)
        load.done.set()
        eventually(lambda: load.values <= arrived(setting, to), 60, message=log.read_text()[-3000:])
        end(running, log)
    assert load.values - arrived(setting, to) == set()
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

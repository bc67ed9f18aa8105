"""The producer plug-ins for the JVM in a stock worker of Kafka Connect: set for a connector, and for the worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import murmur2

from modeaware.local import Kafka
from modeaware.local.jars import find_java
from tests.conftest import MakeTopic
from tests.support.changed_count import AFTER, BEFORE, DEADLINE_S, Change, change_count, check_stored
from tests.support.controlled import Controlled
from tests.support.jvm import connect_class_path
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import drain_topic
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually

MORE = 100
SEAL_QUIET_MS = 2_000
"""A worker on a busy machine may apply a switch late."""
TEXT = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "key.converter": TEXT,
    "value.converter": TEXT,
    "listeners": "http://127.0.0.1:0",
    "plugin.discovery": "service_load",
}
CONNECTOR = {"name": "numbers", "connector.class": "connect.NumberSource", "tasks.max": "1"}


def plug_ins(log: str, prefix: str) -> dict[str, str]:
    settings = {
        "partitioner.class": "modeaware.ModePartitioner",
        "interceptor.classes": "modeaware.ModeInterceptor",
        "modeaware.partitioner": "murmur2_random",
        "modeaware.mode.log.topic": log,
    }
    return {prefix + name: value for name, value in settings.items()}


class Worker:
    """A standalone worker with one connector. It writes records until :meth:`stop`."""

    def __init__(self, folder: Path, worker: Mapping[str, str], connector: Mapping[str, str]) -> None:
        offsets = {"offset.storage.file.filename": str(folder / "offsets")}
        files = [
            self._properties(folder / "worker.properties", {**WORKER, **offsets, **worker}),
            self._properties(folder / "connector.properties", {**CONNECTOR, **connector}),
        ]
        java = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", connect_class_path()]
        command = [*java, "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]
        self._process = LoggedProcess(command, folder / "worker.log")

    @staticmethod
    def _properties(path: Path, settings: Mapping[str, str]) -> Path:
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return path

    def acknowledged(self) -> list[str]:
        return [line for line in self._process.said.splitlines() if line.startswith("connect:")]

    def write_more(self) -> None:
        """Wait until it has written some more records."""
        wanted = len(self.acknowledged()) + MORE

        def has_written() -> bool:
            said = self._process.said
            if not self._process.running or "uncaught" in said:
                pytest.fail(said[-4_000:])
            return len(self.acknowledged()) >= wanted

        eventually(has_written, DEADLINE_S)

    def await_failure(self) -> str:
        """Wait until its task has ended; return what it has logged."""
        self._process.wait_until_it_says("uncaught", DEADLINE_S)
        return self._process.said

    def stop(self) -> set[str]:
        """End it; return what was acknowledged to it."""
        self._process.send_sigterm()
        self._process.wait(DEADLINE_S)
        return set(self.acknowledged())

    def kill(self) -> None:
        self._process.kill()


@pytest.mark.parametrize(("change", "is_set_in"), [("shrink", "connector"), ("replacement", "worker")])
@pytest.mark.filterwarnings("ignore::modeaware.errors.ResizeWarning")
def test_a_source_follows_a_live_change(
    setting: Controlled, make_topic: MakeTopic, tmp_path: Path, change: Change, is_set_in: str
) -> None:
    setting.start(seal_quiet_ms=SEAL_QUIET_MS)
    topic = make_topic(BEFORE)
    of_worker = plug_ins(setting.log, "producer.") if is_set_in == "worker" else {}
    of_connector = plug_ins(setting.log, "producer.override.") if is_set_in == "connector" else {}
    worker = Worker(tmp_path, {"bootstrap.servers": setting.servers, **of_worker}, {"topic": topic, **of_connector})
    try:
        worker.write_more()
        target = change_count(setting, topic, change)
        worker.write_more()
        acknowledged = worker.stop()
    finally:
        worker.kill()
    check_stored(setting, topic, target, acknowledged, key_count=40)


@pytest.mark.parametrize("has_partitioner", [True, False])
def test_a_task_without_a_view_fails_and_its_restart_sends_every_record(
    kafka: Kafka, make_topic: MakeTopic, tmp_path: Path, has_partitioner: bool
) -> None:
    """A ModePartitioner fails the send; the Error of an interceptor alone leaves ``send()``."""
    log = RealLog(kafka.bootstrap_servers)
    log.create()
    topic, override = make_topic(BEFORE), "producer.override."
    log.append(topic_record(topic, writable=AFTER))
    log.close()
    connector = {"topic": topic, **plug_ins(log.topic, override), f"{override}modeaware.view.timeout.ms": "10000"}
    if not has_partitioner:
        del connector[f"{override}partitioner.class"]
    unread = {f"{override}modeaware.mode.log.topic": "no/topic", f"{override}modeaware.view.timeout.ms": "0"}
    worker = Worker(tmp_path, {"bootstrap.servers": kafka.bootstrap_servers}, {**connector, **unread})
    try:
        said = worker.await_failure()
        assert worker.stop() == set()
    finally:
        worker.kill()
    assert "no view of the partition modes within 0 ms" in said
    assert ("java.lang.Error: the record was not sent: " in said) is not has_partitioner
    assert drain_topic(kafka.bootstrap_servers, topic) == []

    worker = Worker(tmp_path, {"bootstrap.servers": kafka.bootstrap_servers}, connector)
    try:
        worker.write_more()
        acknowledged = worker.stop()
    finally:
        worker.kill()
    stored = drain_topic(kafka.bootstrap_servers, topic)
    values = {(message.value() or b"").decode() for message in stored}
    assert values == {f"connect:{number}" for number in range(len(stored))}
    assert acknowledged <= values
    places = {(message.key(), message.partition()) for message in stored}
    assert not has_partitioner or places == {(key, murmur2(key, AFTER)) for key, _ in places}

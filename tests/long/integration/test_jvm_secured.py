"""A Java producer with the plug-ins on brokers with TLS, SCRAM and ACLs: its tail of the mode log logs in as it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import murmur2
from confluent_kafka.admin import AclOperation

from tests.support.guarded import Guarded
from tests.support.jvm import java_command
from tests.support.modelog import RealLog, topic_record
from tests.support.process import LoggedProcess
from tests.support.secured import ADMIN, login, secret
from tests.support.waiting import eventually

RECORDS = 100
WRITABLE = 5
DEADLINE_S = 120
WITH_LOG, WITHOUT_LOG = "alice", "bob"


@pytest.fixture
def shrunk(guarded: Guarded) -> Iterator[tuple[str, str]]:
    """A topic that both users may write to, and the mode log, which one of them may read."""
    log = RealLog(guarded.servers, **login(guarded.secured.certificate, ADMIN, "PLAIN"))
    log.create()
    topic = guarded.topic(12)
    log.append(topic_record(topic, writable=WRITABLE))
    for user in (WITH_LOG, WITHOUT_LOG):
        guarded.grant(user, topic, AclOperation.WRITE)
    guarded.grant(WITH_LOG, log.topic, AclOperation.READ)
    yield topic, log.topic
    log.close()


@contextmanager
def producer(
    guarded: Guarded, shrunk: tuple[str, str], user: str, folder: Path, view_timeout_ms: int
) -> Iterator[LoggedProcess]:
    """One that writes records with keys until the end of the block."""
    topic, log = shrunk
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings = {
        "bootstrap.servers": guarded.servers,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(guarded.secured.certificate.certificate),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{user}" password="{secret(user)}";',
        "modeaware.mode.log.topic": log,
        "modeaware.view.timeout.ms": str(view_timeout_ms),
    }
    arguments = [f"{name}={value}" for name, value in settings.items()]
    command = java_command("Writing", "keyed", topic, str(folder / "stop"), *arguments, log_level="info")
    process = LoggedProcess(command, folder / "producer.log")
    try:
        yield process
        assert secret(user) not in process.said
    finally:
        process.kill()


def lines(process: LoggedProcess, start: str) -> list[str]:
    return [line for line in process.said.splitlines() if line.startswith(start)]


def test_a_user_that_reads_the_mode_log_writes_to_writable_partitions(
    guarded: Guarded, shrunk: tuple[str, str], tmp_path: Path
) -> None:
    with producer(guarded, shrunk, WITH_LOG, tmp_path, 60_000) as process:
        eventually(lambda: len(lines(process, "keyed:")) >= RECORDS, DEADLINE_S, message=process.said)
        stored = [line.split() for line in lines(process, "keyed:")[:RECORDS]]
        assert lines(process, "failed") == []
    numbers = [int(value.removeprefix("keyed:")) for value, _, _ in stored]
    expected = [murmur2(b"keyed-%d" % (number % 40), WRITABLE) for number in numbers]
    assert [int(partition) for _, _, partition in stored] == expected


def test_no_record_of_a_user_that_may_not_read_the_mode_log_is_sent(
    guarded: Guarded, shrunk: tuple[str, str], tmp_path: Path
) -> None:
    with producer(guarded, shrunk, WITHOUT_LOG, tmp_path, 3_000) as process:
        eventually(lambda: len(lines(process, "failed")) >= RECORDS, DEADLINE_S, message=process.said)
        refusals = {line.partition("(")[0] for line in lines(process, "failed")}
        assert lines(process, "keyed:") == []
        assert "TopicAuthorizationException" in process.said
    timeout = "failed org.apache.kafka.common.errors.TimeoutException: "
    assert refusals == {timeout + "no view of the partition modes within 3000 ms "}

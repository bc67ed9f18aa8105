"""The mode log on a real Kafka: written, tailed, and harmed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, ModeSourceError, NotAuthorized
from modeaware.local import Kafka
from modeaware.modelog import reader
from modeaware.modelog.reader import LogAbsent, read_mode_log
from modeaware.modelog.topic import ensure_mode_log
from modeaware.modelog.writer import ModeLogWriter
from modeaware.views import registry
from tests.support.modelog import RealLog, topic_record
from tests.support.plain import drain_topic
from tests.support.rights import Acls
from tests.support.secured import SecuredKafka
from tests.support.waiting import eventually


@pytest.fixture
def log(kafka: Kafka) -> Iterator[RealLog]:
    made = RealLog(kafka.bootstrap_servers)
    yield made
    made.close()


def test_the_mode_log_is_made_once_and_as_it_must_be(log: RealLog) -> None:
    topic_id = ensure_mode_log(log.admin, log.topic)
    assert ensure_mode_log(log.admin, log.topic) == topic_id
    resource = ConfigResource(ResourceType.TOPIC, log.topic)
    configs = log.admin.describe_configs([resource])[resource].result(30)
    assert configs["cleanup.policy"].value == "compact"
    assert len(log.admin.list_topics(timeout=30).topics[log.topic].partitions) == 1


def test_reading_and_following_create_no_topic(log: RealLog) -> None:
    assert read_mode_log(log.conf, log.topic, 30).records == {}
    with pytest.raises(LogAbsent):
        read_mode_log(log.conf, log.topic, 1, must_exist=True)
    views = registry.acquire(log.conf, log.config)
    assert views.wait_ready(30)
    views.refresh(30)
    views.close()
    assert log.topic not in log.admin.list_topics(timeout=30).topics


def test_a_writer_that_was_replaced_appends_nothing(log: RealLog) -> None:
    log.create()
    first, second = ModeLogWriter(log.conf, log.topic), ModeLogWriter(log.conf, log.topic)
    first.open()
    first.append([("id-of-orders", topic_record(epoch=1).to_json())])
    second.open()
    with pytest.raises(ControllerFenced):
        first.append([("id-of-orders", topic_record(epoch=2).to_json())])
    assert not first.is_open
    with pytest.raises(ClusterError, match="not open"):
        first.append([("id-of-orders", topic_record(epoch=2).to_json())])
    second.append([("id-of-orders", topic_record(epoch=3).to_json())])
    record = read_mode_log(log.conf, log.topic, 30).record("orders")
    assert record is not None
    assert record.epoch == 3
    second.close()


def test_a_record_that_brokers_find_too_large_is_refused_alone(log: RealLog) -> None:
    """Their limit is one of batches, and what they refuse leaves a gap in the producer's sequence."""
    log.create()
    resource = ConfigResource(ResourceType.TOPIC, log.topic)
    resource.add_incremental_config(
        ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    )
    log.admin.incremental_alter_configs([resource])[resource].result(30)
    writer = ModeLogWriter(log.conf, log.topic)
    writer.open()
    writer.append([(f"id-{n}", b"x" * 1_000) for n in range(100)])
    for _ in range(2):
        with pytest.raises(ClusterError) as refused:
            writer.append([("small", b"x"), ("large", os.urandom(30_000))])
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert writer.is_open
    writer.append([("small", b"y")])
    writer.append([("another", b"z")])
    writer.close()
    found = {message.key(): message.value() for message in drain_topic(log.conf["bootstrap.servers"], log.topic)}
    assert (len(found), found[b"small"], found[b"another"]) == (102, b"y", b"z")


def test_a_log_that_is_deleted_and_made_anew_takes_no_view_back(log: RealLog) -> None:
    log.create()
    log.append(topic_record(epoch=5), topic_record("bills", 1))
    views = registry.acquire(log.conf, log.config)
    assert views.wait_ready(30)
    log.delete()
    eventually(lambda: views.stats()["stale"], 60)
    assert views.view("orders").epoch == 5
    log.create()
    # More records than the old log had: nobody can tell by the offsets that they are new.
    log.append(topic_record(epoch=4), *(topic_record(f"t{n}") for n in range(20)), topic_record("bills", 2))
    eventually(lambda: views.view("bills").epoch == 2 and views.view("t0").epoch == 1)
    assert views.view("orders").epoch == 5
    log.append(topic_record(epoch=6))
    eventually(lambda: views.view("orders").epoch == 6)
    assert views.error() is None
    views.close()


def test_a_first_view_misses_no_acknowledged_record(log: RealLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind another producer's open transaction what is appended is acknowledged, and not yet read."""
    monkeypatch.setattr(reader, "MARKER_WAIT_S", 60.0)
    log.create()
    with Producer({**log.conf, "transactional.id": f"other-{log.topic}"}) as other:
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(log.topic, key="junk", value=b"junk")
        other.flush(30)
        log.append(topic_record(epoch=1))
        views = registry.acquire(log.conf, log.config)
        assert not views.wait_ready(1.0)
        other.abort_transaction(30)
        assert views.wait_ready(30)
        assert views.view("orders").epoch == 1
        views.close()


def test_an_unauthorized_user_gets_an_error_and_the_log_is_never_taken_for_absent(
    secured: SecuredKafka, acls: Acls
) -> None:
    log = RealLog(**secured.conf())
    log.create()
    log.append(topic_record())
    log.close()
    alice = {**log.conf, **secured.conf("alice", "PLAIN")}

    with pytest.raises(NotAuthorized):
        read_mode_log(alice, log.topic, 30)
    views = registry.acquire(alice, log.config)
    eventually(lambda: isinstance(views.error(), NotAuthorized))
    acls.grant("alice", {(ResourceType.TOPIC, log.topic, AclOperation.DESCRIBE)})
    with pytest.raises(NotAuthorized):
        read_mode_log(alice, log.topic, 30)
    assert not views.ready
    acls.grant("alice", {(ResourceType.TOPIC, log.topic, AclOperation.READ)})  # none on a group, which does not matter
    assert views.wait_ready(30)
    assert views.view("orders").epoch == 1
    views.refresh(30)
    assert views.error() is None
    views.close()
    with pytest.raises(ModeSourceError, match="Authentication failed"):
        read_mode_log({**alice, "sasl.password": "guessed"}, log.topic, 2)

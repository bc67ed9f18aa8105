"""A topic that was replaced is deleted under attack on a real Kafka: no acknowledged record is lost or skipped."""

from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

import modeaware
from modeaware.cluster import cluster as cluster_module
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.effects import BATCHED, alter_configs, create_topics
from modeaware.errors import ClusterError, ControllerUnavailable, ErrorCode
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import CreateTopic, ReplaceTopicCommand
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.modelog.reader import LogRecord, read_to_end
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modelog.topic import ensure_mode_log
from tests.conftest import MakeKafka, MakeTopic
from tests.support.background import Background
from tests.support.command_line import Site
from tests.support.controlled import Controlled, commit_zero, produce
from tests.support.group import FAST
from tests.support.plain import commit, create_topic, drain_topic, ends, produce_keyed
from tests.support.program import run_program
from tests.support.waiting import eventually
from tests.workload.deployment import Deployment
from tests.workload.journal import Kind
from tests.workload.ledger import Ledger
from tests.workload.load import MORE, Load
from tests.workload.reader import Reader
from tests.workload.record import Identity, key_bytes, log_of, value_bytes
from tests.workload.verdict import Verdict
from tests.workload.writer import Writer

SOON = {"topic.metadata.refresh.interval.ms": 500}


def now(record: TopicRecord) -> Replacement:
    assert record.replacement is not None
    return record.replacement


def is_gone(record: TopicRecord) -> bool:
    return now(record).gone_ms is not None


def topics(setting: Controlled, *names: str) -> dict[str, int]:
    """Topic -> its partitions, of those that are there."""
    found = setting.admin.list_topics(timeout=20).topics
    return {name: len(found[name].partitions) for name in names if name in found}


def aware(setting: Controlled, **more: object) -> dict[str, Any]:
    return {**setting.conf, **SOON, "modeaware.mode.log.topic": setting.log, **more}


def replace(setting: Controlled, topic: str, new_topic: str, count: int = 2) -> None:
    result = setting.ask(ReplaceTopicCommand(topic, new_topic, count, delay_ms=0))
    assert result.code is ErrorCode.NONE, result.message


def rename_back(setting: Controlled, topic: str, name: str) -> None:
    """Replace ``topic`` by one of an earlier name, once that has been free for as long as clients may know it."""

    def done() -> bool:
        with suppress(ControllerUnavailable):  # the only controller may have lost its place with the broker
            return setting.ask(ReplaceTopicCommand(topic, name, 2, delay_ms=0)).code is ErrorCode.NONE
        return False

    eventually(done, 90, interval_s=1.0)


class Application(Load):
    """An aware writer and an aware group of one topic."""

    def __init__(self, setting: Controlled, topic: str, group: str) -> None:
        super().__init__()
        self.writer(lambda: modeaware.Producer(aware(setting)), topic, once=False)
        conf = aware(setting, **FAST, **{"group.id": group, "auto.offset.reset": "earliest"})
        self.reader(lambda: modeaware.Consumer(conf), [topic], batch=0)

    def check(self, *args: Any, **options: Any) -> Verdict:
        """Judge; whatever was refused: what counts is what was acknowledged."""
        return super().check(*args, refused=self.writers[0].failures, **options)


class Loop(Background):
    """Does something again and again, as a GitOps loop does."""

    def __init__(self, step: Callable[[], object], pause_s: float) -> None:
        super().__init__()
        self._step, self._pause_s = step, pause_s
        self.steps = 0

    def work(self) -> None:
        while not self.done.wait(self._pause_s):
            self._step()
            self.steps += 1


class Stock(Writer):
    """Writes records by a producer that knows no modes, whatever becomes of them."""

    def produce(self, number: int, key: int, partition: int | None) -> None:
        try:
            super().produce(number, key, partition)
        except KafkaException as error:  # at once, where the topic is known to be missing
            self.refused(number, error.args[0].code(), error.args[0].name())


def stock(load: Load, setting: Controlled, topic: str, *, is_read: bool = True) -> Stock:
    """Make a stock writer, which the test starts and stops.

    Args:
        is_read: the group has to read what it was told is written.
    """
    conf = {**setting.conf, **SOON, "acks": "all", "message.timeout.ms": 10_000}
    sink, run = load.sink("stock", once=False, in_order=False)
    if not is_read:
        sink = Ledger(()).writer(run, "stock")
    return Stock(lambda: Producer(conf), topic, sink, run, keys=1_000, per_s=200)


# The mode log


def entries(setting: Controlled) -> list[tuple[bytes | None, bytes | None]]:
    """A backup of the mode log."""
    found: list[LogRecord] = []
    read_to_end(setting.conf, setting.log, 0, found.extend, 30, must_exist=True)
    return [(record.key, record.value) for record in found]


def restore(setting: Controlled, backup: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """As the runbook has it; no controller is there meanwhile."""
    for controller in setting.started:
        controller.stop()
    setting.admin.delete_topics([setting.log])[setting.log].result(30)
    eventually(lambda: not topics(setting, setting.log))
    ensure_mode_log(setting.admin, setting.log)
    producer = Producer(setting.conf)
    for key, value in backup:
        producer.produce(setting.log, value, key)
    assert producer.flush(30) == 0


def truncate(setting: Controlled) -> None:
    """Delete all records of the mode log. Brokers refuse that while it is compacted, and apply a config after they have
    acknowledged it."""
    with closing(Cluster(setting.conf)) as cluster:
        alter_configs(cluster.brokers, setting.log, {"cleanup.policy": "delete"})

    def is_deleted() -> bool:
        (deleted,) = setting.admin.delete_records([TopicPartition(setting.log, 0, -1)]).values()
        failure = deleted.exception(30)
        if failure is not None and failure.args[0].code() == KafkaError.POLICY_VIOLATION:
            return False
        return deleted.result().low_watermark > 0

    eventually(is_deleted)


class Held:
    """Stops a controller of this process right before it deletes a topic, once everything is proved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._there, self._go, self._check = threading.Event(), threading.Event(), cluster_module.check_sealed
        self._refused = False
        monkeypatch.setattr(cluster_module, "check_sealed", self._hold)

    def _hold(self, *args: Any) -> None:
        self._check(*args)
        self._there.set()
        assert self._go.wait(60)
        if self._refused:
            raise ClusterError("the controller dies here", code=ErrorCode.REQUEST_TIMED_OUT)

    def wait(self) -> None:
        assert self._there.wait(60)

    def release(self, *, deletes: bool) -> None:
        self._refused = not deletes
        self._go.set()


@pytest.mark.timeout(400)
def test_a_mode_log_that_is_lost_between_record_and_deletion_and_restored_from_before_the_switch_loses_nothing(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, held = make_topic(4), Held(monkeypatch)
    name, application = f"{topic}-v2", Application(setting, topic, make_group())
    setting.start()
    with application.running():
        replace(setting, topic, name)
        setting.wait_for(topic, lambda record: now(record).announced_ms is not None)
        old = entries(setting)
        held.wait()
        truncate(setting)
        held.release(deletes=True)
        eventually(lambda: topics(setting, topic, name) == {name: 2})
        restore(setting, ())
        setting.start()
        application.more()  # both keep their views
        restore(setting, old)
        setting.start()
        setting.wait_for(topic, is_gone, 60)
        application.more()
        sink, run = application.sink("anew")
        sent = run_program(
            """
            import json, sys, modeaware
            from tests.workload.record import Identity, key_bytes, value_bytes

            def told(error, message):
                print(message.topic(), message.partition(), message.offset())

            producer = modeaware.Producer(json.loads(sys.argv[1]))
            value = value_bytes(Identity(int(sys.argv[3]), 0, 0).number)
            producer.produce(sys.argv[2], value, key_bytes(0), on_delivery=told)
            producer.flush(30)
            """,
            json.dumps(aware(setting)),
            topic,
            str(run),
        )
        where, partition, offset = sent.stdout.split()
        assert where == name, sent.stderr
        sink.note(Kind.ACKED, Identity(run, 0, 0).number, log_of(where, int(partition)), int(offset))
    application.check(servers=setting.servers, chain={name: 2})
    assert topics(setting, topic, name) == {name: 2}


@pytest.mark.timeout(400)
def test_nothing_is_deleted_on_the_proofs_of_a_restored_mode_log(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says that the topic is being deleted; a record has come since, and the fence is there again."""
    topic, group, held = make_topic(2), make_group(), Held(monkeypatch)
    name = f"{topic}-v2"
    produce(setting, topic, 20)
    commit(setting.servers, group, topic, ends(setting.servers, topic))
    setting.start()
    replace(setting, topic, name)
    setting.wait_for(topic, lambda record: now(record).switched_ms is not None)
    commit_zero(setting, group, name, 2)
    held.wait()
    old = entries(setting)
    assert now(setting.record(topic)).deleting_ms is not None
    held.release(deletes=False)
    for controller in setting.started:
        controller.stop()
    with closing(Cluster(setting.conf)) as cluster:
        alter_configs(cluster.brokers, topic, {}, FENCE_CONFIGS)
        eventually(lambda: produce_keyed(setting.servers, topic, [(b"late", b"1")]), message="the fence is lifted")
        alter_configs(cluster.brokers, topic, FENCE_CONFIGS)
    restore(setting, old)
    held.release(deletes=True)
    setting.start()
    lags = reasons.of_group(reasons.GROUP_LAG, group)
    setting.wait_for(topic, lambda record: lags in {retired.reason for retired in record.retired.values()})
    assert b"1" in {message.value() for message in drain_topic(setting.servers, topic)}
    commit(setting.servers, group, topic, ends(setting.servers, topic))
    setting.wait_for(topic, is_gone, 60)


@pytest.mark.timeout(400)
def test_a_loop_that_lifts_the_fence_each_second_loses_no_record_of_a_stock_writer(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic = make_topic(2, max_message_bytes=1_000_000)
    name, application = f"{topic}-v2", Application(setting, topic, make_group())
    other = stock(application, setting, topic)
    setting.start(fence_after_ms=1_000)
    with closing(Cluster(setting.conf)) as cluster, application.running():

        def lift() -> None:
            alter_configs(cluster.brokers, topic, {"max.message.bytes": "1000000"}, ["compression.type"])

        with other:
            with Loop(lift, 1.0) as loop:
                replace(setting, topic, name)
                setting.wait_for(topic, lambda record: now(record).own_configs is not None)
                lifted, written = loop.steps, other.written
                eventually(lambda: loop.fine() and loop.steps > lifted + 12, 60)
                assert other.written > written, "the loop does lift it"
                assert now(setting.record(topic)).deleting_ms is None
                assert topics(setting, topic) == {topic: 2}
            setting.wait_for(topic, is_gone, 60)
        application.more()
    application.check()
    assert "MSG_SIZE_TOO_LARGE" in other.failures


@pytest.mark.timeout(400)
def test_a_name_that_automatic_creation_brings_back_is_not_used_until_its_topic_is_deleted(
    make_kafka: MakeKafka, make_group: Callable[[], str]
) -> None:
    kafka = make_kafka(configs={"auto.create.topics.enable": "true", "num.partitions": "3"})
    with Controlled(kafka) as setting:
        topic, name = "orders", "orders-v2"
        create_topic(setting.servers, topic, 2, configs={})
        application = Application(setting, topic, make_group())
        other = stock(application, setting, topic, is_read=False)
        setting.start(fence_after_ms=1_000)
        with application.running():
            with other:
                replace(setting, topic, name)
                gone = setting.wait_for(topic, is_gone, 60)
                eventually(lambda: topics(setting, topic, name) == {topic: 3, name: 2})
                written = other.written
                eventually(lambda: other.written > written + MORE)
                application.more()
            assert application.acknowledged_in(topic, name)
            taken = setting.wait_for(topic, lambda record: now(record).reason == reasons.NAME_TAKEN)
            assert taken.topic_id == gone.topic_id
            setting.admin.delete_topics([topic])[topic].result(30)
            setting.wait_for(topic, lambda record: now(record).reason is None, 90)  # absent for 30 s
            application.more()
        application.check(reused=[topic])


@pytest.mark.timeout(400)
def test_where_brokers_delete_no_topics_only_a_replacement_that_keeps_the_old_one_is_begun(
    make_kafka: MakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = make_kafka(configs={"delete.topic.enable": "false"})
    with Controlled(kafka) as setting:
        topic, name = "orders", "orders-v2"
        create_topic(setting.servers, topic, 2, configs={})
        setting.start()
        site, file = Site(kafka, tmp_path, capsys, setting.log), tmp_path / "topics.yaml"
        file.write_text(json.dumps({"version": 1, "topics": {topic: {"partitions": 1, "replace": name}}}))
        replaced = ("replace", topic, "--with", name, "--partitions", "1")
        for planned in (replaced, (*replaced[:2], "--partitions", "1", "--keep-name"), ("apply", str(file))):
            told = site.run(*planned, "--dry-run")
            assert (told.status, "the brokers delete no topics" in told.out + told.err) == (1, True), told
        kept = site.run(*replaced, "--fence", "none", "--dry-run")
        assert kept.status == 0, kept.err
        command = ReplaceTopicCommand(topic, name, 1, delay_ms=0, pause_before_switch=True)
        for validate_only in (True, False):
            result = setting.ask(dataclasses.replace(command, validate_only=validate_only))
            assert result.code is ErrorCode.TOPIC_DELETION_DISABLED
            assert "--fence none" in str(result.message)
        assert topics(setting, topic, name) == {topic: 2}
        unfenced = dataclasses.replace(command, fence="none")
        assert setting.ask(unfenced).code is ErrorCode.NONE
        setting.wait_for(topic, lambda record: now(record).announced_ms is not None)
        assert setting.ask(dataclasses.replace(unfenced, undo=True)).code is ErrorCode.TOPIC_DELETION_DISABLED
        undo = site.run("replace", topic, "--undo", "--dry-run")
        assert (undo.status, f"an undo of its replacement deletes {name!r}" in undo.err) == (1, True), undo.err
        assert setting.ask(dataclasses.replace(unfenced, pause_before_switch=False)).code is ErrorCode.NONE
        setting.wait_for(topic, lambda record: now(record).released_ms is not None)
        assert topics(setting, topic, name) == {topic: 2, name: 1}


@pytest.mark.timeout(400)
def test_squatters_of_either_name_are_not_taken_for_what_was_meant(
    setting: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    name, application = f"{topic}-v2", Application(setting, topic, make_group())

    def too_late(brokers: Any, creations: list[CreateTopic], *args: Any) -> list[ClusterError | None]:
        if creations:
            create_topic(setting.servers, name, 5, configs={})
        return create_topics(brokers, creations, *args)

    setting.start()
    with application.running():
        with monkeypatch.context() as squatting:
            squatting.setitem(BATCHED, CreateTopic, too_late)
            replace(setting, topic, name)
            setting.wait_for(topic, lambda record: record.replacement is None)
        assert topics(setting, topic, name) == {topic: 2, name: 5}
        application.more()
        assert application.acknowledged_in(topic)

        other = f"{topic}-v3"
        replace(setting, topic, other)
        setting.wait_for(topic, is_gone, 60)
        create_topic(setting.servers, topic, 7, configs={})
        setting.wait_for(topic, lambda record: now(record).reason == reasons.NAME_TAKEN)
        application.more()
    application.check(reused=[topic, name])
    assert ends(setting.servers, topic) == dict.fromkeys(range(7), 0)
    assert ends(setting.servers, name) == dict.fromkeys(range(5), 0)


@pytest.mark.timeout(400)
def test_a_topic_whose_new_topic_was_deleted_by_hand_stays_though_another_one_has_the_name(
    setting: Controlled, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    name, values = f"{topic}-v2", produce(setting, topic, 30)
    setting.start()
    replace(setting, topic, name)
    setting.wait_for(topic, lambda record: now(record).released_ms is not None)
    setting.admin.delete_topics([name])[name].result(30)
    setting.wait_for(topic, lambda record: now(record).reason == reasons.NO_NEW_TOPIC, 60)
    create_topic(setting.servers, name, 2, configs={})
    eventually(lambda: topics(setting, name) == {name: 2})
    setting.started[-1].stop()
    setting.start()
    setting.wait_for(topic, lambda record: record.controller_epoch > 0 and now(record).deleting_ms is None)
    assert {message.value() for message in drain_topic(setting.servers, topic)} == values


@pytest.mark.timeout(400)
def test_no_record_is_skipped_or_refused_on_the_way_back_after_a_broker_was_killed_at_the_deletion(
    make_kafka: MakeKafka, make_group: Callable[[], str]
) -> None:
    """A coordinator that is away when a topic is deleted keeps the offsets on it, and a broker that reads its metadata
    anew the configs: they would be those of the next topic of that name."""
    kafka, group = make_kafka(), make_group()
    with Controlled(kafka) as setting:
        topic, name, load = "orders", "orders-v2", Load()
        _, run = load.sink("stock")
        conf = aware(setting, **{"group.id": group, "auto.offset.reset": "earliest"})

        def send(numbers: range) -> None:
            records = [(key_bytes(n % 50), value_bytes(Identity(run, n % 50, n).number)) for n in numbers]
            produce_keyed(setting.servers, topic, records)

        def member() -> Reader:
            return load.reader(lambda: modeaware.Consumer(conf), [topic], batch=0)

        create_topic(setting.servers, topic, 2, configs={})
        send(range(400))
        setting.start()
        with member():
            load.more(400)
            replace(setting, topic, name)
            setting.wait_for(topic, lambda record: now(record).released_ms is not None, 60)
        eventually(lambda: topics(setting, topic) == {}, 60, interval_s=0.005)
        kafka.brokers[0].kill()
        kafka.brokers[0].start()
        setting.wait_for(topic, is_gone, 90)

        rename_back(setting, name, topic)
        begun = setting.wait_for(name, lambda record: record.replacement is None or now(record).switched_ms, 60)
        if begun.replacement is None:  # the offsets were kept; the alarm says what to do
            setting.admin.delete_topics([topic])[topic].result(30)
            eventually(lambda: topics(setting, topic) == {})
            rename_back(setting, name, topic)
            setting.wait_for(name, lambda record: now(record).switched_ms is not None, 60)
        kafka.brokers[0].restart()
        send(range(400, 1_400))  # no broker has kept the fence
        with member():
            load.more(1_000)


@pytest.mark.timeout(400)
def test_everything_is_killed_before_and_within_the_deletion(
    make_kafka: MakeKafka, make_group: Callable[[], str], tmp_path: Path
) -> None:
    """The broker, the controller and its standby, the producer and the consumer."""
    kafka = make_kafka()
    names = ("controller-1", "controller-2", "consumer-1", "producer-1")
    with Controlled(kafka) as setting:
        chain = [f"orders-{uuid.uuid4().hex[:8]}"]
        create_topic(setting.servers, chain[0], 4, configs={})
        site = Deployment(setting.servers, setting.log, chain[0], make_group(), tmp_path)
        try:
            for each in names:
                site.start(each)
            site.more()
            for phase in (lambda now: now.released_ms, lambda now: now.deleting_ms):
                chain.append(f"{chain[0]}-v{len(chain) + 1}")
                options = ("--partitions", "3", "--delay", "0s", "--yes")
                site.command("replace", chain[-2], "--with", chain[-1], *options)
                setting.wait_for(chain[-2], lambda record, phase=phase: phase(now(record)) is not None, 60)
                for each in names:
                    site.now[each].kill()
                kafka.brokers[0].kill()
                kafka.brokers[0].start()
                for each in names:
                    site.start(each)
                setting.wait_for(chain[-2], is_gone, 90)
                site.more()
            site.stop()
            site.check()
            assert topics(setting, *chain) == {chain[-1]: 3}
        finally:
            site.kill()

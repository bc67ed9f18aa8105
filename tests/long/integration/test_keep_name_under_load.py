"""A topic gets fewer partitions, or more, and keeps its name, under all kinds of clients that honour modes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import murmur2
from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.interim import kept_name
from modeaware.kafka_python import KafkaConsumer, KafkaProducer
from tests.conftest import MakeKafka, MakeTopic
from tests.support.command_line import WAIT, Site
from tests.support.jvm import java_command
from tests.support.kafka_tools import run_tool
from tests.support.plain import committed, create_topic, drain_topic, ends
from tests.support.process import LoggedProcess
from tests.support.waiting import eventually
from tests.workload.kafka_python import KafkaPythonReader, KafkaPythonWriter
from tests.workload.load import Load
from tests.workload.reader import Reader
from tests.workload.writer import TransactionalWriter, Writer

GROUPS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
    "latest": {"partition.assignment.strategy": "range", "auto.offset.reset": "latest"},
}
KAFKA_PYTHON = "kafka-python"
READER = {"auto.offset.reset": "earliest", "partition.assignment.strategy": "range"}


@pytest.mark.parametrize(
    ("before", "counts"),
    [
        pytest.param(12, (4, 2), marks=pytest.mark.timeout(400), id="fewer"),
        # It waits ten minutes for the caches of clients.
        pytest.param(4, (9,), marks=pytest.mark.timeout(1_000), id="more"),
    ],
)
def test_every_kind_of_client_follows_twice(
    site: Site, make_topic: MakeTopic, make_group: Callable[[], str], before: int, counts: tuple[int, ...]
) -> None:
    topic, groups = make_topic(before), {name: make_group() for name in (*GROUPS, KAFKA_PYTHON)}
    for name in groups:  # so `latest` misses nothing by its first start
        site.commit(topic, groups[name], dict.fromkeys(range(before), 0))
    aware = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    java = {"bootstrap_servers": site.servers, "modeaware_mode_log_topic": site.mode_log}
    load = Load(*groups)

    def member(name: str) -> Any:
        return modeaware.Consumer({**aware, "auto.offset.reset": "earliest", **GROUPS[name], "group.id": groups[name]})

    def python() -> Any:
        own = {"group_id": groups[KAFKA_PYTHON], "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        return KafkaConsumer(**java, **own)

    writing = {**aware, "linger.ms": 5, "partitioner": "murmur2_random"}
    load.writer(lambda: modeaware.Producer({**writing, "enable.idempotence": True}), topic)
    load.writer(lambda: modeaware.Producer({**writing, "transactional.id": topic}), topic, TransactionalWriter)
    load.writer(lambda: KafkaProducer(**java, linger_ms=5), topic, KafkaPythonWriter)
    for _ in range(2):
        for name in GROUPS:
            load.reader(partial(member, name), [topic], name, batch=0)
        load.reader(python, [topic], KAFKA_PYTHON, KafkaPythonReader)
    with load.running():
        for count in counts:
            load.more()
            told = site.run("replace", topic, "--partitions", str(count), "--keep-name", *WAIT)
            assert told.status == 0, told.err
            described = run_tool(f"kafka-topics.sh --bootstrap-server {site.servers} --describe --topic {topic}")
            assert f"Topic: {topic}\t" in described
            assert f"\tPartitionCount: {count}\t" in described
        load.more()
    names = AdminClient({"bootstrap.servers": site.servers}).list_topics(timeout=20).topics
    assert [name for name in names if kept_name(name) == topic] == [], "the interim topics are deleted"
    assert load.check(reused=[topic]).duplicates == dict.fromkeys(groups, 0)


@pytest.mark.timeout(400)
def test_java_producers_place_keys_by_the_new_count(site: Site, make_topic: MakeTopic, tmp_path: Path) -> None:
    """When the name returns, their metadata is still of the deleted topic, which had more partitions."""
    topic, stop = make_topic(12), tmp_path / "stop"
    # Of two requests in flight, Kafka may store the later one first in a recreated topic, and fail the other.
    one = "max.in.flight.requests.per.connection=1"
    conf = f"bootstrap.servers={site.servers}", f"modeaware.mode.log.topic={site.mode_log}", one
    kinds = ("keyed", "transactional")
    with ExitStack() as ending:
        writers = []
        for kind in kinds:
            command = java_command("Writing", kind, topic, str(stop), *conf)
            writers.append(LoggedProcess(command, tmp_path / f"{kind}.log"))
            ending.callback(writers[-1].kill)

        def write_more() -> None:
            wanted = [writer.said.count("\n") + 300 for writer in writers]
            eventually(lambda: all(w.said.count("\n") >= n for w, n in zip(writers, wanted, strict=True)), 120)

        write_more()
        told = site.run("replace", topic, "--partitions", "5", "--keep-name", *WAIT)
        assert told.status == 0, told.err
        write_more()
        stop.touch()
        for writer in writers:
            writer.wait_until_it_says("closed", 90)
    assert [line for w in writers for line in w.said.splitlines() if line.startswith("failed")] == []
    stored = drain_topic(site.servers, topic)
    misplaced = {(m.key(), m.partition()) for m in stored if m.partition() != murmur2(m.key() or b"", 5)}
    assert misplaced == set()
    assert len({m.key() for m in stored}) == 40 * len(kinds)


@pytest.mark.timeout(400)
def test_stock_clients_that_follow_the_steps_of_the_plan_skip_and_reread_nothing(
    site: Site, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """``replace --keep-name --dry-run`` prints the steps."""
    topic, ours, theirs, load = make_topic(12), make_group(), make_group(), Load("ours", "theirs")
    plain = {"bootstrap.servers": site.servers, "partitioner": "murmur2_random", "enable.idempotence": True}
    reading = {"bootstrap.servers": site.servers, "auto.offset.reset": "error", "group.id": theirs}
    aware = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}

    def stock_writer() -> Writer:
        return load.writer(lambda: confluent_kafka.Producer(plain), topic)

    def stock_reader(name: str) -> Reader:
        return load.reader(lambda: confluent_kafka.Consumer(reading), [name], "theirs", batch=0)

    def kept() -> dict[str, Any]:
        found: dict[str, Any] = site.describe(topic)["kept_name"]
        return found

    def is_fenced(name: str) -> bool:
        return bool(site.describe(name)["phase"] == "drain")

    def has_read(name: str) -> bool:
        done = committed(site.servers, theirs, name)
        return all(done.get(p, 0) >= end for p, end in ends(site.servers, name).items())

    def prepare(name: str) -> None:
        prepared = site.run("groups", "prepare", theirs, "--topic", name, "--yes")
        assert prepared.status == 0, prepared.err

    site.commit(topic, theirs, dict.fromkeys(range(12), 0))
    load.reader(lambda: modeaware.Consumer({**aware, **READER, "group.id": ours}), [topic], "ours", batch=0)
    load.writer(lambda: modeaware.Producer({**aware, "partitioner": "murmur2_random"}), topic)
    with load.readers[0], ExitStack() as ending:
        with load.writers[0]:
            with stock_reader(topic):
                with stock_writer():
                    load.more()
                command = site.spawn("replace", topic, "--partitions", "4", "--keep-name", *WAIT)
                change = ending.enter_context(command)
                ending.callback(change.kill)
                eventually(lambda: is_fenced(topic) and has_read(topic), 90, interval_s=0.5)
            interim = kept()["interim"]
            prepare(interim)
            with stock_reader(interim):
                eventually(lambda: kept()["second_switched_ms"] is not None and is_fenced(interim), 90, interval_s=0.5)
                eventually(lambda: has_read(interim), 90)
            prepare(topic)
            assert change.wait(90) == 0
            with stock_writer(), stock_reader(topic):
                load.more()
        with stock_reader(topic):
            load.await_read()
    assert load.check(reused=[topic]).duplicates == {"ours": 0, "theirs": 0}


@pytest.mark.timeout(400)
def test_topic_that_a_metadata_request_creates_in_the_gap_is_deleted_and_the_name_returns(
    make_kafka: MakeKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = make_kafka(configs={"auto.create.topics.enable": "true", "num.partitions": "3"})
    site, topic = Site(kafka, tmp_path, capsys), "orders"
    create_topic(site.servers, topic, 6, configs={})
    admin = AdminClient({"bootstrap.servers": site.servers})

    def kept() -> dict[str, Any]:
        return site.describe(topic)["kept_name"] or {}

    def partitions(*named: str) -> int:
        """Of the topic; 0 if there is none. A request that names a missing topic makes the broker create it."""
        listed = admin.list_topics(*named, timeout=20).topics.get(topic)
        return len(listed.partitions) if listed is not None else 0

    command = ("replace", topic, "--partitions", "2", "--keep-name", *WAIT)
    refused = site.run(*command)
    assert (refused.status, "creates topics automatically" in refused.err) == (1, True), refused.err
    assert site.changed_topics() == set()
    with site.spawn(*command, "--accept-auto-create") as change:
        try:
            eventually(lambda: kept().get("phase") == "gap" and not partitions(), 90)
            eventually(lambda: partitions(topic) == 3)
            eventually(lambda: kept()["reason"] == "name-taken")
            assert change.wait(180) == 0
        finally:
            change.kill()
    assert partitions() == 2
    assert (kept()["half"], kept()["phase"]) == (2, "done")

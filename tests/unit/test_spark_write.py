"""Writing with Spark, without Spark: a sender and its producer, partitions, and what a worker forgets."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import zipfile
import zipimport
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle

from modeaware.confluent.errors import FirstViewPending, RetiredPartitionChosen
from modeaware.errors import ConfigError, ErrorCode, ModeSourceError, PartitionRetired, ViewTimeout
from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.spark import writer as writer_module
from modeaware.spark.column import index_udf
from modeaware.spark.connector import chosen_partitioner
from modeaware.spark.errors import WriteFailed
from modeaware.spark.sink import JAVA_NAME, placement
from modeaware.spark.snapshot import TopicClient, TopicDescription
from modeaware.spark.worker import forget_archive_finders
from modeaware.spark.writer import POLL_EVERY, Sender, borrow, key_of, producer_conf, producers
from modeaware.topic_view import ReplacedBy, TopicView
from partitioners import NAMES, Manual, named, rule_named
from tests.support.fake_views import FakeViews, modes_of

CONF = {"bootstrap.servers": "127.0.0.1:1"}


class FakeProducer:
    """Raises what ``errors`` says, then takes records; reports what :meth:`fail` was told at the next poll."""

    made: list[FakeProducer]

    def __init__(self, conf: dict[str, Any]) -> None:
        self.conf = conf
        self.taken: list[tuple[Any, ...]] = []
        self.errors: list[Exception] = []
        self.reports: list[tuple[Any, KafkaError]] = []
        self.polls = 0
        self.closed = False
        FakeProducer.made.append(self)

    def produce(self, topic: str, value: Any, key: Any, *, on_delivery: Any, **more: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.taken.append((topic, key, value, more))
        self.callback = on_delivery

    def poll(self, timeout_s: float) -> int:
        self.polls += 1
        while self.reports:
            callback, error = self.reports.pop()
            callback(error, SimpleNamespace(topic=lambda: "orders", partition=lambda: 3))
        return 0

    def flush(self, timeout_s: float) -> int:
        self.poll(0)
        return 0

    def close(self) -> bool:
        self.closed = True
        return True

    def fail(self, code: int) -> None:
        self.reports.append((self.callback, KafkaError(code, "broken")))


@pytest.fixture(autouse=True)
def views(monkeypatch: pytest.MonkeyPatch) -> FakeViews:
    made = FakeViews()
    FakeProducer.made = []
    monkeypatch.setattr(writer_module, "Producer", FakeProducer)
    monkeypatch.setattr(writer_module, "acquire", lambda conf, config: made)
    producers.forget_parent()  # each test is a worker process
    return made


def test_a_full_queue_is_waited_for() -> None:
    with Sender("orders", CONF) as sender:
        [producer] = FakeProducer.made
        producer.errors = [BufferError("full"), BufferError("full"), BufferError("still")]
        sender.send(b"k", b"v", 3, 0, [("h", None)])
        more = {"partition": 3, "timestamp": 1, "headers": [("h", None)]}  # a timestamp of 0 would mean now
        assert producer.taken == [("orders", b"k", b"v", more)]
        assert producer.polls == 3
        producer.errors = [BufferError("full")]
        sender.send_pairs([(b"k", b"v")])
    assert sender.sent == 2


def test_it_looks_at_deliveries_as_it_goes() -> None:
    sender = Sender("orders", CONF)
    [producer] = FakeProducer.made
    sender.send_pairs([(None, b"v")] * (2 * POLL_EVERY + 1))
    assert (producer.polls, sender.sent) == (2, 2 * POLL_EVERY + 1)
    producer.fail(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(WriteFailed, match="partition 3 of orders: a record was not delivered: broken") as failed:
        sender.send_pairs([(b"k", b"v")] * POLL_EVERY)
    assert (failed.value.topic, failed.value.partition) == ("orders", 3)


def test_a_topic_id_is_waited_for_and_a_first_view_was_already(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sender("orders", CONF) as sender:
        FakeProducer.made[0].errors = [FirstViewPending("no broker has returned its topic id yet")] * 2
        sender.send(b"k", b"v")
        monkeypatch.setattr(FakeViews, "ready", False)
        FakeProducer.made[0].errors = [FirstViewPending("no view")]
        with pytest.raises(ViewTimeout):
            sender.send(b"k", b"v")


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RetiredPartitionChosen("partition 7 takes no records", topic="orders", partition=7), PartitionRetired),
        (KafkaException(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")), WriteFailed),
    ],
)
def test_what_cannot_be_waited_for_is_raised(error: Exception, raised: type[Exception]) -> None:
    sender = Sender("orders", CONF)
    FakeProducer.made[0].errors = [error] * 2
    with pytest.raises(raised):
        sender.send(b"k", b"v")
    with pytest.raises(raised):
        sender.send_pairs([(b"k", b"v")])


def test_a_fatal_error_costs_the_producer() -> None:
    with Sender("orders", CONF):
        [producer] = FakeProducer.made
        failing = Sender("orders", CONF)
        failing.send(b"k", b"v")
        producer.fail(KafkaError._FATAL)  # a delivery report has only the code
        with pytest.raises(WriteFailed):
            failing.__exit__(None, None, None)
        assert not producer.closed, "the other sender uses it"
        with Sender("orders", CONF):
            assert len(FakeProducer.made) == 2
    assert producer.closed
    with Sender("orders", CONF):
        assert len(FakeProducer.made) == 2


def test_a_refusal_behind_the_fence_says_where_a_retry_writes(views: FakeViews) -> None:
    sender = Sender("orders", CONF)
    sender.send(b"k", b"v")
    switched = ReplacedBy("orders-v2", "id-of-v2", 4, switched=True)
    views.put(TopicView("orders", "id", (1, 2), modes_of(6, 0), replaced_by=switched))
    FakeProducer.made[0].fail(KafkaError.MSG_SIZE_TOO_LARGE)
    said = r"partition 3 of orders: .*orders was replaced by orders-v2.*then goes to orders-v2 .*MSG_SIZE_TOO_LARGE"
    with pytest.raises(WriteFailed, match=said) as failed:
        sender.__exit__(None, None, None)
    assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_modes_that_do_not_come_fail_the_task(views: FakeViews) -> None:
    views.set("orders", modes_of(4, 4), epoch=1)
    views.failure = ModeSourceError("the mode log is out of reach")
    with pytest.raises(ViewTimeout, match=r"planned with epoch 2 .* orders epoch 1.*out of reach; nothing was written"):
        Sender("orders", CONF, at_least=(1, 2))
    assert borrow(key_of(CONF), CONF).users == 1, "it was given back"


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_worker_makes_its_own() -> None:
    key = key_of(CONF)
    ours = borrow(key, CONF)
    child = os.fork()
    if child == 0:
        os._exit(borrow(key, CONF) is ours or FakeProducer.made[0].closed)
    assert os.waitpid(child, 0)[1] == 0
    assert borrow(key, CONF) is ours


def test_the_configuration_of_a_writer() -> None:
    assert producer_conf(CONF)["enable.idempotence"] is True
    assert "enable.idempotence" not in producer_conf({**CONF, "acks": 1})
    assert producer_conf({**CONF, "enable.idempotence": False})["enable.idempotence"] is False
    for refused in ("on_delivery", "transactional.id", "delivery.report.only.error"):
        with pytest.raises(ConfigError, match=refused):
            producer_conf({**CONF, refused: "x"})
    assert key_of(CONF) == key_of(dict(CONF))
    assert key_of(CONF) != key_of({**CONF, "acks": 1})
    assert "secret" not in key_of({**CONF, "sasl.password": "secret"})


# Which partitions records may go to

WHOLE = TopicView.unlisted("orders")
SHRUNK = FakeViews().set("orders", modes_of(6, 4))


@pytest.mark.parametrize("name", NAMES)
def test_javas_own_way_is_left_alone_while_all_are_writable_and_then_they_alone_are_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicClient, "describe", lambda _: TopicDescription(list(range(7)), None))
    conf = {**CONF, "partitioner": name}
    whole, shrunk = placement(WHOLE, conf), placement(SHRUNK, conf)
    if name in ("murmur2_random", "sticky", "uniform_sticky"):
        assert whole is None
    else:
        assert (whole.partitions, whole.rule, whole.refusal) == (tuple(range(7)), rule_named(name), "")
    assert (shrunk.partitions, shrunk.rule) == ((0, 1, 2, 3), rule_named(name))
    assert "ReadOnly 4-5" in shrunk.refusal


def test_objects_are_taken_and_nonsense_is_refused() -> None:
    made = placement(SHRUNK, {"partitioner": Manual()})
    assert made.rule is None
    for nonsense in ("murmur3", "no.such.module:thing", 7):
        with pytest.raises(ConfigError, match="partitioner"):
            chosen_partitioner({"partitioner": nonsense}, JAVA_NAME)


KEYS = [None, b"", b"k", None, b"", b"key"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_placed_by_their_hash_and_others_take_turns(name: str) -> None:
    placed, topic = placement(SHRUNK, {"partitioner": name}), named(name).for_topic("orders")
    picked = pickle.loads(cloudpickle.dumps(index_udf(placed).func))  # as it comes to an executor
    indices = picked(pd.Series(KEYS, dtype=object))
    assert indices.dtype == "int32"
    others = []
    for key, index in zip(KEYS, indices, strict=True):
        if topic.requires_consistency(key):
            assert index == topic.partition(key, 4)
        else:
            others.append(index)
    assert others == [(others[0] + turn) % 4 for turn in range(len(others))]


def test_partitioner_of_the_application_picks_for_every_row() -> None:
    placed = placement(SHRUNK, {"partitioner": "tests.unit.test_spark_write:by_length"})
    picked = pickle.loads(cloudpickle.dumps(index_udf(placed).func))
    assert picked(pd.Series(KEYS, dtype=object)).tolist() == [0, 0, 1, 0, 0, 3]


def by_length(key: bytes | None, count: int) -> int:
    return len(key or b"") % count


# What is forgotten between tasks of a Python worker


@pytest.mark.parametrize("name", ["pyspark.zip", "py4j-0.10.9.9-src.zip", "org_hadoop-client-runtime.jar"])
def test_finders_of_sparks_archives_are_forgotten_and_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    own, users = tmp_path / name, tmp_path / "users.zip"
    for module in ("of_spark_first", "of_spark_second", "of_a_user_first", "of_a_user_second"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for archive, module in ((own, "of_spark"), (users, "of_a_user")):
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(f"{module}_first.py", "")
            file.writestr(f"{module}_second.py", "")
        monkeypatch.syspath_prepend(str(archive))
        monkeypatch.setitem(sys.path_importer_cache, str(archive), zipimport.zipimporter(str(archive)))
        importlib.import_module(f"{module}_first")
    forget_archive_finders()
    assert str(own) not in sys.path_importer_cache
    assert str(users) in sys.path_importer_cache
    importlib.import_module("of_spark_second")
    importlib.import_module("of_a_user_second")
    assert str(own) in sys.path_importer_cache

"""Publishing progress: what is retried, what is logged, and which rules are made."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryProgress

from modeaware.errors import ControllerUnavailable
from modeaware.librdkafka import KafkaError, KafkaException, TopicPartition
from modeaware.modelog.group_rules import REQUIRE, WAIVE, GroupRule
from modeaware.spark import progress as module
from modeaware.spark.progress import ProgressListener
from tests.support.waiting import eventually

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "theirs", "fetch.min.bytes": 5}


class World:
    """The admin client, and what clients were asked for, in order; ``refuse`` makes the next such requests fail."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.refuse: dict[str, int] = {}
        self.rules: list[GroupRule] = []
        self.errors: dict[str, int] = {}  # topic -> the code that brokers return for its offsets
        self.ids: dict[str, str] = {}  # of the topics that exist

    def ask(self, kind: str, *what: Any) -> bool:
        if self.refuse.get(kind, 0):
            self.refuse[kind] -= 1
            return False
        self.done.append((kind, *what))
        return True

    def describe_group_rules(self, timeout_s: float) -> Future[tuple[GroupRule, ...]]:
        future: Future[tuple[GroupRule, ...]] = Future()
        future.set_result(tuple(self.rules))
        return future

    def alter_group_rules(self, add: list[GroupRule], request_timeout: float) -> Future[None]:
        future: Future[None] = Future()
        [group], [reason] = {rule.group for rule in add}, {rule.reason for rule in add}
        if self.ask("require", group, [rule.topic for rule in add], reason):
            self.rules.extend(add)
            future.set_result(None)
        else:
            future.set_exception(ControllerUnavailable("no controller is running"))
        return future

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        futures = {name: Future[Any]() for name in topics.topic_names}
        for name, future in futures.items():
            if name in self.ids:
                future.set_result(SimpleNamespace(topic_id=self.ids[name]))
            else:
                future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return futures

    def close(self) -> None:
        """Nothing."""


class Committed(NamedTuple):
    error: KafkaError | None


class FakeConsumer:
    def __init__(self, world: World, conf: dict[str, Any]) -> None:
        assert "fetch.min.bytes" not in conf
        self._world = world
        self._group = conf["group.id"]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Committed]:
        assert not asynchronous
        if not self._world.ask("commit", self._group, {(p.topic, p.partition, p.offset) for p in offsets}):
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, "no coordinator"))
        return [
            Committed(KafkaError(self._world.errors[p.topic]) if p.topic in self._world.errors else None)
            for p in offsets
        ]

    def close(self) -> None:
        self._world.done.append(("close", self._group))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "Consumer", lambda conf: FakeConsumer(made, conf))
    monkeypatch.setattr(module, "AdminClient", lambda conf: made)
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_RETRY_S", 0.01)
    return made


@pytest.fixture
def listener(world: World) -> Iterator[ProgressListener]:
    with closing(listening()) as made:
        yield made


def listening(**options: Any) -> ProgressListener:
    listener = ProgressListener(CONF, **{"group": lambda progress: progress.name} | options)
    listener.spark = Streams().session
    return listener


class Streams(dict[str, Any]):
    """Stands for Spark: the queries that run, and the session that the listener was added to."""

    @property
    def session(self) -> Any:
        return SimpleNamespace(streams=self)

    def start(self, listener: ProgressListener, run: str = "a-run") -> Any:
        self["an-id"] = query = SimpleNamespace(id="an-id", runId=run, lastProgress=None)
        listener.spark = self.session
        listener.onQueryStarted(lifetime(run))
        return query


def lifetime(run: str = "a-run") -> Any:
    """An event of another kind than progress."""
    return SimpleNamespace(id="an-id", runId=run)


def event(
    name: str | None,
    *ends: str | None,
    description: str = "KafkaV2[Subscribe[flights]]",
    batch: int = 0,
    run: str = "a-run",
) -> Any:
    sources = [{"description": description, "endOffset": None if end is None else json.loads(end)} for end in ends]
    progress = SimpleNamespace(name=name, id="an-id", runId=run, batchId=batch, json=json.dumps({"sources": sources}))
    return SimpleNamespace(progress=progress)


def test_the_group_is_required_before_its_first_offsets_are_committed(world: World, listener: ProgressListener) -> None:
    listener.onQueryProgress(event("g", '{"flights": {"0": 5, "1": 0}}'))
    assert listener.flush(10)
    assert world.done == [
        ("require", "g", ["flights"], "the Spark query g"),
        ("commit", "g", {("flights", 0, 5), ("flights", 1, 0)}),
    ]


@pytest.mark.parametrize("kind", ["require", "commit"])
def test_a_failure_is_logged_and_retried(
    kind: str, world: World, listener: ProgressListener, caplog: pytest.LogCaptureFixture
) -> None:
    world.refuse[kind] = 3
    with caplog.at_level(logging.WARNING):
        listener.onQueryProgress(event("g", '{"flights": {"0": 5}}'))
        assert listener.flush(10)
    assert {entry[0] for entry in world.done} >= {"require", "commit"}
    first, last = [record.message for record in caplog.records]
    assert "progress of group g not published" in first
    assert {"require": "no controller is running", "commit": "no coordinator"}[kind] in first
    assert "published again" in last


def test_a_topic_that_is_gone_holds_no_other_up(
    world: World, listener: ProgressListener, caplog: pytest.LogCaptureFixture
) -> None:
    world.errors = {"orders": KafkaError.UNKNOWN_TOPIC_OR_PART}
    listener.onQueryProgress(event("g", '{"orders": {"0": 5}, "orders-v2": {"0": 1}}'))
    assert listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("orders", 0, 5), ("orders-v2", 0, 1)})
    assert not caplog.records
    world.errors = {"orders-v2": KafkaError.GROUP_AUTHORIZATION_FAILED}
    listener.onQueryProgress(event("g", '{"orders-v2": {"0": 2}}'))
    assert not listener.flush(0.1)
    world.errors = {}
    assert listener.flush(10)


def test_a_group_without_progress_keeps_no_consumer(
    world: World, listener: ProgressListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.05)
    for batch in range(2):
        listener.onQueryProgress(event("g", f'{{"flights": {{"0": {batch}}}}}', batch=batch))
        assert listener.flush(10)
        eventually(lambda: world.done[-1] == ("close", "g"))
    assert [entry[0] for entry in world.done] == ["require", "commit", "close", "commit", "close"]


def test_offsets_of_a_deleted_topic_are_not_committed_on_the_next_topic_of_its_name(
    world: World, listener: ProgressListener
) -> None:
    """They would claim that the query has come to it (a name that is kept)."""
    end = '{"modeaware:offsets": 1, "modeaware:topic_ids": {"a": "1", "b": "2"}, "a": {"0": 5}, "b": {"0": 1}}'
    world.ids = {"a": "3", "b": "2"}
    listener.onQueryProgress(event("g", end, description="PythonMicroBatchStream"))
    assert listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("b", 0, 1)})
    world.refuse["commit"] = 1
    listener.onQueryProgress(event("g", end, description="PythonMicroBatchStream", batch=1))
    later = '{"modeaware:offsets": 1, "modeaware:topic_ids": {"b": "2"}, "b": {"0": 2}}'
    listener.onQueryProgress(event("g", later, description="PythonMicroBatchStream", batch=2))
    assert listener.flush(10)
    commits = [done[2] for done in world.done if done[0] == "commit"]
    assert {topic for offsets in commits for topic, *_ in offsets} == {"b"}, "nor by a retry"
    del world.ids["a"]
    listener.onQueryProgress(event("g", end, description="PythonMicroBatchStream", batch=3))
    assert listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("a", 0, 5), ("b", 0, 1)}), "a deleted topic is no failure"


def test_closing_publishes_what_is_left_or_says_that_it_does_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ended = listening()
    ended.onQueryProgress(event("g", '{"flights": {"0": 5}}'))
    ended.close(10)
    assert world.done[-2:] == [("commit", "g", {("flights", 0, 5)}), ("close", "g")]
    ended.onQueryProgress(event("g", '{"flights": {"0": 6}}'))
    ended.close(10)
    assert world.done[-1] == ("close", "g")

    world.refuse["commit"] = 10**9
    stuck = listening()
    stuck.onQueryProgress(event("lost", '{"flights": {"0": 5}}'))
    stuck.close(0.05)
    assert "lost" in caplog.text
    assert "not published within" in caplog.text


def test_only_rules_that_are_missing_are_made_and_once(world: World, listener: ProgressListener) -> None:
    world.rules = [
        GroupRule(REQUIRE, "g", "kept", "", 1),
        GroupRule(REQUIRE, "g", "passing", "", 1, expires_ms=2),
        GroupRule(WAIVE, "g", "waived", "because", 1),
    ]
    for _ in range(2):
        listener.require("g", ["kept", "passing", "waived"])
    reason = "a Spark query, before its first batch"
    assert world.done == [("require", "g", ["passing", "waived"], reason)]
    listener.require("other", ["kept"])
    assert world.done[1:] == [("require", "other", ["kept"], reason)]


def test_each_query_has_a_group_of_its_own(world: World) -> None:
    with closing(listening(group=None)) as listener:
        listener.onQueryProgress(event("billing", '{"orders": {"0": 5}}', '{"orders": {"0": 4}, "rates": {"1": 2}}'))
        assert listener.flush(10)
        listener.onQueryProgress(event(None, '{"orders": {"0": 7}}'))
        listener.onQueryProgress(event("files", '{"orders": {"0": 7}}', description="FileStreamSource[there]"))
        assert listener.flush(10)
    assert [entry for entry in world.done if entry[0] == "commit"] == [
        ("commit", "modeaware-spark-billing", {("orders", 0, 4), ("rates", 1, 2)}),
        ("commit", "modeaware-spark-an-id", {("orders", 0, 7)}),
    ]


def test_progress_that_pyspark_made_of_json_is_published(world: World, listener: ProgressListener) -> None:
    """As ``lastProgress`` is since PySpark 4.1, and all of Spark Connect's: with an ``endOffset`` that is no JSON."""
    source = {
        "description": "KafkaV2[Subscribe[flights]]",
        "startOffset": None,
        "endOffset": {"flights": {"0": 5}},
        "latestOffset": None,
        "numInputRows": 5,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }
    progress = StreamingQueryProgress.fromJson(
        {
            "id": str(uuid.uuid4()),
            "runId": str(uuid.uuid4()),
            "name": "g",
            "timestamp": "2026-01-01T00:00:00Z",
            "batchId": 0,
            "batchDuration": 1,
            "durationMs": {},
            "eventTime": {},
            "stateOperators": [],
            "sources": [source],
            "sink": {"description": "memory", "numOutputRows": 5},
        }
    )
    listener.onQueryProgress(SimpleNamespace(progress=progress))
    assert listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("flights", 0, 5)})


def test_closing_publishes_the_last_batch_of_a_query_whose_events_are_still_to_come(world: World) -> None:
    streams, ended = Streams(), listening()
    query = streams.start(ended)
    del streams["an-id"]  # it has ended
    query.lastProgress = event("g", '{"flights": {"0": 5}}').progress
    ended.close()
    assert ("commit", "g", {("flights", 0, 5)}) in world.done


def test_flush_publishes_what_a_query_has_finished_and_events_of_earlier_batches_take_nothing_back(
    world: World, listener: ProgressListener
) -> None:
    query = Streams().start(listener)
    assert listener.flush(10)
    query.lastProgress = event("g", '{"flights": {"0": 7}}', batch=3).progress
    assert listener.flush(10)
    listener.onQueryProgress(event("g", '{"flights": {"0": 5}}', batch=2))
    listener.onQueryProgress(event("g", '{"flights": {"0": 9}}', batch=4))
    assert listener.flush(10)
    assert [entry for entry in world.done if entry[0] == "commit"] == [
        ("commit", "g", {("flights", 0, 7)}),
        ("commit", "g", {("flights", 0, 9)}),
    ]


def test_positions_of_an_earlier_run_are_not_published_again(world: World, listener: ProgressListener) -> None:
    """A query that was started again from an older checkpoint reads again, also where the earlier run's end is lost."""
    streams = Streams()
    earlier = streams.start(listener)
    earlier.lastProgress = event("g", '{"flights": {"0": 9}}', batch=9).progress
    assert listener.flush(10)
    streams.start(listener, "another-run")
    listener.onQueryProgress(event("g", '{"flights": {"0": 5}}', batch=3, run="another-run"))
    listener.onQueryProgress(event("g", '{"flights": {"0": 8}}', batch=8))
    listener.onQueryTerminated(lifetime())
    assert listener.flush(10)
    assert [entry for entry in world.done if entry[0] == "commit"] == [
        ("commit", "g", {("flights", 0, 9)}),
        ("commit", "g", {("flights", 0, 5)}),
    ]


@pytest.mark.parametrize("ends", [False, True])
def test_a_batch_is_published_whose_event_spark_never_delivers(
    world: World, listener: ProgressListener, ends: bool
) -> None:
    """Of a restart that reads nothing, or of a listener that was too far behind."""
    streams = Streams()
    query = streams.start(listener)
    query.lastProgress = event("g", '{"flights": {"0": 5}}').progress
    if ends:
        listener.onQueryTerminated(lifetime())
        query.lastProgress = None
    else:
        del streams["an-id"]
        listener.onQueryIdle(lifetime())
    assert listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("flights", 0, 5)})


def test_a_query_that_runs_already_is_followed_and_one_that_cannot_be_read_is_reported(
    world: World, listener: ProgressListener, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        runId = "a-run"  # noqa: N815 # Spark's name

        @property
        def lastProgress(self) -> None:  # noqa: N802 # Spark's name
            raise PySparkException("the session has ended")

    listener.spark = Streams({"an-id": Broken()}).session
    listener.onQueryProgress(event("g", '{"flights": {"0": 5}}'))
    assert not listener.flush(10)
    assert world.done[-1] == ("commit", "g", {("flights", 0, 5)})
    assert "the run a-run of a Spark query cannot be read" in caplog.text
    assert "the session has ended" in caplog.text

"""Publishing progress: what is tried again, what is told, and which rules are made."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ControllerUnavailable
from modeaware.librdkafka import KafkaError, KafkaException, TopicPartition
from modeaware.modelog.group_rules import REQUIRE, WAIVE, GroupRule
from modeaware.spark.read import publisher as publisher_module
from modeaware.spark.read.progress import ProgressListener
from modeaware.spark.read.publisher import Publisher, Registrar

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "theirs", "fetch.min.bytes": 5}


class World:
    """What clients were asked for, in order; ``refuse`` makes the next such requests fail."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.refuse: dict[str, int] = {}

    def ask(self, kind: str, *what: Any) -> bool:
        if self.refuse.get(kind, 0):
            self.refuse[kind] -= 1
            return False
        self.done.append((kind, *what))
        return True


class FakeConsumer:
    def __init__(self, world: World, conf: dict[str, Any]) -> None:
        assert "fetch.min.bytes" not in conf
        self._world = world
        self._group = conf["group.id"]

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if not self._world.ask("commit", self._group, {(p.topic, p.partition, p.offset) for p in offsets}):
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE, "no coordinator"))
        return offsets

    def close(self) -> None:
        self._world.done.append(("close", self._group))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def require(_: Registrar, group: str, topics: Iterable[str], reason: str, timeout_s: float) -> None:
        if not made.ask("require", group, sorted(topics), reason):
            raise ControllerUnavailable("no controller is running")

    monkeypatch.setattr(publisher_module, "Consumer", lambda conf: FakeConsumer(made, conf))
    monkeypatch.setattr(Registrar, "require", require)
    monkeypatch.setattr(publisher_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(publisher_module, "LONGEST_RETRY_S", 0.01)
    return made


@pytest.fixture
def published(world: World) -> Iterator[Publisher]:
    made = Publisher(CONF)
    yield made
    made.close(10)


def test_the_group_is_required_before_its_first_offsets_are_committed(world: World, published: Publisher) -> None:
    published.publish("g", {"flights": {0: 5, 1: 0}}, "why")
    assert published.flush(10)
    assert world.done == [
        ("require", "g", ["flights"], "why"),
        ("commit", "g", {("flights", 0, 5), ("flights", 1, 0)}),
    ]


@pytest.mark.parametrize("kind", ["require", "commit"])
def test_what_fails_is_told_and_tried_again(
    kind: str, world: World, published: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    world.refuse[kind] = 3
    with caplog.at_level(logging.WARNING):
        published.publish("g", {"flights": {0: 5}}, "why")
        assert published.flush(10)
    assert {entry[0] for entry in world.done} >= {"require", "commit"}
    first, last = [record.message for record in caplog.records]
    assert "g is not published" in first
    assert {"require": "no controller is running", "commit": "no coordinator"}[kind] in first
    assert "published again" in last


def test_closing_publishes_what_is_left_or_says_that_it_does_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ended = Publisher(CONF)
    ended.publish("g", {"flights": {0: 5}}, "why")
    ended.close(10)
    assert world.done[-2:] == [("commit", "g", {("flights", 0, 5)}), ("close", "g")]
    ended.publish("g", {"flights": {0: 6}}, "why")
    ended.close(10)
    assert world.done[-1] == ("close", "g")

    world.refuse["commit"] = 10**9
    stuck = Publisher(CONF)
    stuck.publish("lost", {"flights": {0: 5}}, "why")
    stuck.close(0.05)
    assert "lost" in caplog.text
    assert "no time is left" in caplog.text


def test_only_rules_that_are_missing_are_made_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = GroupRule(REQUIRE, "g", "kept", "", 1)
    passing = GroupRule(REQUIRE, "g", "passing", "", 1, expires_ms=2)
    waived = GroupRule(WAIVE, "g", "waived", "because", 1)
    rules = [kept, passing, waived]
    changes: list[list[GroupRule]] = []

    def answer(value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(value)
        return future

    def alter(add: list[GroupRule], request_timeout: float) -> Future[Any]:
        changes.append(add)
        rules.extend(add)
        return answer(None)

    admin = SimpleNamespace(
        describe_group_rules=lambda _: answer(tuple(rules)), alter_group_rules=alter, close=lambda: None
    )
    monkeypatch.setattr(publisher_module, "AdminClient", lambda conf: admin)
    made = Registrar(CONF)
    for _ in range(2):
        made.require("g", ["kept", "passing", "waived"], "a Spark query")
    assert [(rule.kind, rule.topic, rule.reason) for add in changes for rule in add] == [
        (REQUIRE, topic, "a Spark query") for topic in ("passing", "waived")
    ]
    made.require("other", ["kept"], "a Spark query")
    assert len(changes) == 2


def told(name: str | None, *ends: str | None, description: str = "KafkaV2[Subscribe[flights]]") -> Any:
    """An event as Spark's."""
    sources = [SimpleNamespace(description=description, endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="an-id", sources=sources))


def test_each_query_has_a_group_of_its_own(world: World) -> None:
    with closing(ProgressListener(CONF)) as listener:
        listener.onQueryProgress(told("billing", '{"orders": {"0": 5}}', '{"orders": {"0": 4}, "rates": {"1": 2}}'))
        assert listener.flush(10)
        listener.onQueryProgress(told(None, '{"orders": {"0": 7}}'))
        listener.onQueryProgress(told("files", '{"orders": {"0": 7}}', description="FileStreamSource[there]"))
        assert listener.flush(10)
    assert [entry for entry in world.done if entry[0] == "commit"] == [
        ("commit", "modeaware-spark-billing", {("orders", 0, 4), ("rates", 1, 2)}),
        ("commit", "modeaware-spark-an-id", {("orders", 0, 7)}),
    ]

"""Creations through AdminClient: which go to the controller, which to the brokers, and who is answered how."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as StockAdminClient
from confluent_kafka.admin import NewTopic as StockNewTopic

from modeaware import AdminClient, CreationResult, NewPartitions, NewTopic
from modeaware.errors import (
    ControllerUnavailable,
    ModeSourceError,
    NotAuthorized,
    RecordError,
)
from modeaware.lifecycle.commands import Command, CommandResult, CreatePartitionsCommand
from modeaware.modelog.observed_brokers import OBSERVED_BROKERS_KEY, ObservedBrokersRecord
from modeaware.modelog.records import ClaimRecord
from modeaware.modelog.replay import fold
from tests.support.endpoint import StubController, served
from tests.support.fake_brokers import CreatingBrokers
from tests.support.fake_views import FakeViews, modes_of

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
ENABLED = ObservedBrokersRecord("enabled", {1: "a", 2: "b", 3: "c"}, 1, 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> CreatingBrokers:
    made = CreatingBrokers()
    made.placed = {"t": [(1, 2, 3)], "shrunk": [(1, 2, 3)] * 4}
    monkeypatch.setattr("modeaware.wire.brokers.client.Brokers", lambda conf: made)
    return made


@pytest.fixture
def controller(cluster: CreatingBrokers) -> StubController:
    """It grows topics as told; without assignments, on brokers 1 to 3."""
    stub = StubController()

    def grow(command: Command) -> CommandResult:
        assert isinstance(command, CreatePartitionsCommand)
        held = cluster.placed[command.topic]
        if not command.validate_only:
            held += command.assignments or [(1, 2, 3)] * (command.total_count - len(held))
        return CommandResult(command.topic)

    stub.answer = grow
    return stub


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch, controller: StubController) -> Iterator[FakeViews]:
    views = FakeViews()
    views.set("shrunk", modes_of(4, 2))
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    with served(controller, "stub") as server:
        views.set_claim(ClaimRecord(1, server.address, "stub"))
        yield views


@pytest.fixture
def admin(views: FakeViews) -> Iterator[AdminClient]:
    with AdminClient(CONF) as admin:
        yield admin


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """What the mode log holds."""
    records = [(OBSERVED_BROKERS_KEY, ENABLED.to_json())]
    monkeypatch.setattr("modeaware.confluent.controller_calls.read_mode_log", lambda *arguments: fold(records))
    return records


@pytest.fixture
def stock_calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics of each call that reaches a stock method; all of them succeed."""
    calls = []

    def create(self: object, new: list[Any], **kwargs: Any) -> dict[str, Future[None]]:
        calls.append([one.topic for one in new])
        futures: dict[str, Future[None]] = {one.topic: Future() for one in new}
        for future in futures.values():
            future.set_result(None)
        return futures

    monkeypatch.setattr(StockAdminClient, "create_partitions", create)
    monkeypatch.setattr(StockAdminClient, "create_topics", create)
    return calls


def test_a_mapping_goes_to_the_brokers_and_to_the_controller(
    admin: AdminClient, cluster: CreatingBrokers, controller: StubController
) -> None:
    futures = admin.create_partitions({t: NewPartitions.increase_to(5) for t in ("t", "shrunk")})
    assert futures["t"].result(10).partitions == (1, 2, 3, 4)
    assert futures["shrunk"].result(10) == CreationResult("shrunk", (4,), {4: (3,)})
    assert controller.commands == [CreatePartitionsCommand("shrunk", 5)]
    assert [topic.name for request in cluster.sent for topic in request.topics] == ["t"]


def test_the_controller_is_given_the_assignments_of_the_really_new_ones(
    admin: AdminClient, controller: StubController, log: object
) -> None:
    new = NewPartitions.increase_to(6, min_required_replication_factor=2)
    assert admin.create_partitions({"shrunk": new})["shrunk"].result(10).under_replicated == {4: (3,), 5: (3,)}
    (command,) = controller.commands
    assert isinstance(command, CreatePartitionsCommand)
    assert [sorted(ids) for ids in command.assignments or ()] == [[1, 2, 3]] * 2
    revived = NewPartitions.increase_to(3, min_required_replication_factor=3)
    assert admin.create_partitions({"shrunk": revived})["shrunk"].result(10) == CreationResult("shrunk")


def test_without_a_controller_only_shrunk_topics_cannot_grow(admin: AdminClient, views: FakeViews) -> None:
    views.set_claim(None)
    futures = admin.create_partitions({t: NewPartitions.increase_to(5) for t in ("t", "shrunk")}, timeout_ms=500)
    assert futures["t"].result(10).partitions == (1, 2, 3, 4)
    with pytest.raises(ControllerUnavailable):
        futures["shrunk"].result(10)


def test_topics_are_stock_but_for_those_with_a_minimum(
    admin: AdminClient, cluster: CreatingBrokers, log: object, stock_calls: list[list[str]]
) -> None:
    new = [
        StockNewTopic("plain", 2, 1),
        NewTopic("ours", 2, 1),
        NewTopic("mine", 1, 3, min_required_replication_factor=2),
    ]
    futures = admin.create_topics(new)
    assert [futures[topic].result(10) for topic in ("plain", "ours")] == [None, None]
    assert futures["mine"].result(10) == CreationResult("mine", (0,), {0: (3,)})
    admin.create_topics(new[:2])
    assert stock_calls == [["plain", "ours"], ["plain", "ours"]]


def test_a_policy_that_cannot_be_read_creates_nothing(
    admin: AdminClient, cluster: CreatingBrokers, log: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    growth = {"t": NewPartitions.increase_to(2, min_required_replication_factor=2)}
    log.append((OBSERVED_BROKERS_KEY, b"rubbish"))
    with pytest.raises(RecordError, match="cannot be used here"):
        admin.create_partitions(growth)["t"].result(10)

    def denied(*arguments: object) -> None:
        raise NotAuthorized("no READ on the mode log")

    monkeypatch.setattr("modeaware.confluent.controller_calls.read_mode_log", denied)
    with pytest.raises(ModeSourceError, match="no READ"):
        admin.create_partitions(growth)["t"].result(10)
    assert admin.create_partitions({"t": NewPartitions.increase_to(2)})["t"].result(10).partitions == (1,)
    assert len(cluster.sent) == 1

"""What our AdminClient sends again, and what it says in the end, against a real endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions
from modeaware.errors import ClusterError, ErrorCode, RequestRefused
from modeaware.lifecycle.commands import Command, CommandResult
from modeaware.modelog.records import ClaimRecord
from tests.support.endpoint import StubController, served
from tests.support.fake_views import FakeViews, modes_of


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch, controller: StubController) -> Iterator[FakeViews]:
    views = FakeViews()
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    with served(controller, "stub") as server:
        views.set_claim(ClaimRecord(1, server.address, "stub"))
        yield views


@pytest.fixture
def admin(views: FakeViews) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as admin:
        yield admin


def test_refusals_that_pass_are_retried_for_their_topics_alone(admin: AdminClient, controller: StubController) -> None:
    codes = {"a": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE], "b": []}

    def answer(command: Command) -> CommandResult:
        passing = codes[command.topic]
        return CommandResult(command.topic, passing.pop(0), "not yet") if passing else CommandResult(command.topic)

    controller.answer = answer
    futures = admin.delete_partitions({"a": DeletePartitions(1), "b": DeletePartitions(1)})
    assert [future.result(10).topic for future in futures.values()] == ["a", "b"]
    assert [command.topic for command in controller.commands] == ["a", "b", "a", "a"]


def test_deadline_ends_the_retries_with_the_last_refusal(admin: AdminClient, controller: StubController) -> None:
    controller.answer = lambda command: CommandResult(command.topic, ErrorCode.LEADER_NOT_AVAILABLE, "no leader")
    with pytest.raises(RequestRefused, match=r"no leader \(gave up after") as caught:
        admin.delete_partitions({"a": DeletePartitions(1)}, request_timeout=0.5)["a"].result(10)
    assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE


class Doubtful:
    """A controller whose first answer gets lost; ``then`` refuses every later command."""

    def __init__(self, controller: StubController, views: FakeViews, done: tuple[int, int] | None) -> None:
        self.controller, self.views, self.done = controller, views, done
        controller.answer = self.answer

    def answer(self, command: Command) -> CommandResult:
        if len(self.controller.submitted) > 1:
            return CommandResult(command.topic, ErrorCode.INVALID_PARTITIONS, "it has so many already")
        if self.done is not None:
            self.views.set(command.topic, modes_of(*self.done))
        return CommandResult(command.topic, ErrorCode.REQUEST_TIMED_OUT, "lost")


def test_shrink_that_an_earlier_attempt_has_done_succeeds(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    Doubtful(controller, views, done=(4, 1))
    result = admin.delete_partitions({"a": DeletePartitions(1)})["a"].result(10)
    assert (sorted(result.retired), len(controller.commands)) == ([1, 2, 3], 2)


def test_refusal_after_a_doubt_stands_where_the_log_shows_no_change(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    Doubtful(controller, views, done=None)
    with pytest.raises(RequestRefused, match="so many already"):
        admin.delete_partitions({"a": DeletePartitions(1)})["a"].result(10)


def test_doubt_remains_where_the_log_shows_another_change(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    Doubtful(controller, views, done=(4, 3))
    with pytest.raises(ClusterError, match="may have been carried out"):
        admin.delete_partitions({"a": DeletePartitions(1)})["a"].result(10)


def test_immediate_deletion_is_not_sent_twice_after_a_doubt(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    Doubtful(controller, views, done=None)
    with pytest.raises(ClusterError, match="lost"):
        admin.delete_partitions({"a": DeletePartitions(1, immediate_delete=True)})["a"].result(10)
    assert len(controller.commands) == 1


def test_growth_and_removed_rules_are_not_sent_twice_after_a_doubt(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    views.set("shrunk", modes_of(4, 2))
    controller.answer = lambda command: CommandResult(command.topic, ErrorCode.REQUEST_TIMED_OUT, "lost")
    with pytest.raises(KafkaException, match="lost"):
        admin.create_partitions([NewPartitions("shrunk", 4)])["shrunk"].result(10)
    with pytest.raises(ClusterError, match="lost"):
        admin.alter_group_rules(remove=[("closed", "", "*")]).result(10)
    assert len(controller.commands) == 2

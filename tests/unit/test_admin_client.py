"""Our AdminClient against a real endpoint with a stand-in controller behind it, and views held in memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient as StockAdminClient
from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions, GroupRule
from modeaware.errors import (
    ControllerUnavailable,
    ErrorCode,
    ModeSourceError,
    NotAuthorized,
    RecordError,
    RequestRefused,
)
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    CreatePartitionsCommand,
    DeletePartitionsCommand,
)
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.records import ClaimRecord
from modeaware.modelog.replay import fold
from modeaware.wire.messages import TopicResult
from tests.support.endpoint import RO, StubController, served
from tests.support.fake_views import FakeViews, modes_of

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def address(controller: StubController) -> Iterator[str]:
    with served(controller, "stub") as server:
        yield server.address


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch, address: str) -> FakeViews:
    views = FakeViews()
    views.set_claim(ClaimRecord(1, address, "stub"))
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    return views


@pytest.fixture
def admin(views: FakeViews) -> Iterator[AdminClient]:
    with AdminClient(CONF) as admin:
        yield admin


@pytest.fixture
def stock_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[NewPartitions], dict[str, Any]]]:
    """What reaches the stock create_partitions; each topic succeeds, but one named ``refused``."""
    calls = []

    def create_partitions(self: object, new: list[NewPartitions], **kwargs: Any) -> dict[str, Future[None]]:
        calls.append((new, kwargs))
        futures: dict[str, Future[None]] = {}
        for one in new:
            futures[one.topic] = Future()
            if one.topic == "refused":
                futures[one.topic].set_exception(KafkaException("no"))
            else:
                futures[one.topic].set_result(None)
        return futures

    monkeypatch.setattr(StockAdminClient, "create_partitions", create_partitions)
    return calls


def test_a_shrink_goes_to_the_controller(admin: AdminClient, controller: StubController) -> None:
    future = admin.delete_partitions({"orders": DeletePartitions(1)})["orders"]
    assert future.result(10) == TopicResult("orders", {1: RO})
    assert controller.commands == [DeletePartitionsCommand("orders", 1, delay_ms=-1, immediate_delete=False)]


def test_interrupted_client_sends_no_more_and_ends_long_before_its_deadline(
    views: FakeViews, controller: StubController
) -> None:
    """Ctrl-C while a call waits for a controller: the change must not be made minutes later."""
    running = views.claim()
    views.set_claim(None)
    admin = AdminClient(CONF)
    future = admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=600)["orders"]
    with pytest.raises(KeyboardInterrupt), admin:
        raise KeyboardInterrupt
    assert isinstance(future.exception(0), ControllerUnavailable)
    assert controller.commands == []
    views.set_claim(running)
    with admin:
        assert admin.delete_partitions({"orders": DeletePartitions(1)})["orders"].result(10).topic == "orders"


def test_a_refusal_is_the_failure_of_its_topic_alone(admin: AdminClient, controller: StubController) -> None:
    def answer(command: Command) -> CommandResult:
        if command.topic == "bad":
            return CommandResult("bad", ErrorCode.POLICY_VIOLATION, "it is compacted")
        return CommandResult(command.topic)

    controller.answer = answer
    futures = admin.delete_partitions({"bad": DeletePartitions(1), "good": DeletePartitions(1)})
    with pytest.raises(RequestRefused, match="it is compacted") as caught:
        futures["bad"].result(10)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert futures["good"].result(10).topic == "good"


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_refused_before_anything_is_sent(
    admin: AdminClient, controller: StubController, count: int
) -> None:
    with pytest.raises(RequestRefused, match="at least 1") as caught:
        admin.delete_partitions({"good": DeletePartitions(1), "orders": DeletePartitions(count)})
    assert (caught.value.code, caught.value.topic) == (ErrorCode.INVALID_PARTITIONS, "orders")
    assert controller.commands == []


@pytest.mark.parametrize("claim", [None, ClaimRecord(3, None, "stopped")])
def test_without_a_controller_the_error_says_how_to_start_one(
    admin: AdminClient, views: FakeViews, claim: ClaimRecord | None
) -> None:
    views.set_claim(claim)
    with pytest.raises(ControllerUnavailable, match=r"modeaware controller --bootstrap-server 127\.0\.0\.1:1.*--wait"):
        admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"].result(10)


def test_a_mode_log_that_cannot_be_read_fails_every_call(
    admin: AdminClient, views: FakeViews, controller: StubController, stock_calls: list[Any]
) -> None:
    views.failure = NotAuthorized("not yours to read")
    calls: list[Future[Any]] = [
        admin.delete_partitions({"t": DeletePartitions(1)})["t"],
        admin.describe_modes(["t"])["t"],
    ]
    for future in calls:
        with pytest.raises(NotAuthorized, match="not yours"):
            future.result(10)
    with pytest.raises(KafkaException, match="not yours") as caught:
        admin.create_partitions([NewPartitions("t", 4)])["t"].result(10)
    assert caught.value.args[0].code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(ModeSourceError):
        admin.describe_modes()
    assert (controller.commands, stock_calls) == ([], []), "an unreadable log is never taken for an absent one"


def test_growth_of_a_topic_never_changed_is_the_brokers_business(
    admin: AdminClient, controller: StubController, stock_calls: list[Any]
) -> None:
    new = NewPartitions("plain", 8)
    assert admin.create_partitions([new], operation_timeout=2.0, validate_only=True)["plain"].result(10) is None
    assert stock_calls == [([new], {"operation_timeout": 2.0, "validate_only": True})]
    assert controller.commands == []


def test_growth_of_a_changed_topic_goes_to_the_controller(
    admin: AdminClient, views: FakeViews, controller: StubController, stock_calls: list[Any]
) -> None:
    views.set("shrunk", modes_of(4, 2))
    views.set("full", modes_of(4, 4))
    futures = admin.create_partitions(
        [NewPartitions("shrunk", 6, [[0], [1]]), NewPartitions("plain", 8), NewPartitions("full", 5)]
    )
    assert [future.result(10) for future in futures.values()] == [None, None, None]
    assert controller.commands == [
        CreatePartitionsCommand("shrunk", 6, ((0,), (1,)), False),
        CreatePartitionsCommand("full", 5, None, False),
    ]
    assert [[one.topic for one in new] for new, _ in stock_calls] == [["plain"]]


def test_growth_fails_with_the_stock_exception(
    admin: AdminClient, views: FakeViews, controller: StubController, stock_calls: list[Any]
) -> None:
    views.set("shrunk", modes_of(4, 2))
    controller.answer = lambda command: CommandResult(command.topic, ErrorCode.INVALID_PARTITIONS, "no increase")
    futures = admin.create_partitions([NewPartitions("shrunk", 1), NewPartitions("refused", 9), NewPartitions("ok", 9)])
    with pytest.raises(KafkaException) as caught:
        futures["shrunk"].result(10)
    assert (caught.value.args[0].code(), caught.value.args[0].str()) == (37, "no increase")
    assert isinstance(caught.value.__cause__, RequestRefused)
    with pytest.raises(KafkaException):
        futures["refused"].result(10)
    assert futures["ok"].result(10) is None


def test_modes_are_described_per_topic(admin: AdminClient, views: FakeViews) -> None:
    view = views.set("shrunk", modes_of(4, 2))
    described = admin.describe_modes(["shrunk", "plain", "shrunk"])
    assert list(described) == ["shrunk", "plain"]
    assert described["shrunk"].result(10) == view
    assert described["plain"].result(10).modes == ()


RULE = GroupRule("waive", "old-*", "orders", "the team is gone", 1000, None, glob=True)


def test_rules_about_groups_go_to_the_controller(admin: AdminClient, controller: StubController) -> None:
    assert admin.alter_group_rules([RULE], remove=[("closed", "", "*")]).result(10) is None
    assert controller.commands == [AlterGroupRulesCommand((RULE,), (("closed", "", "*"),))]


def _log(monkeypatch: pytest.MonkeyPatch, *records: tuple[str, bytes]) -> None:
    replay = fold(records)
    monkeypatch.setattr("modeaware.confluent.controller_calls.read_mode_log", lambda *arguments: replay)


def test_rules_are_described_from_the_log(admin: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    _log(monkeypatch)
    assert admin.describe_group_rules().result(10) == ()
    _log(monkeypatch, (GROUP_RULES_KEY, GroupRulesRecord((RULE,), 1, 0).to_json()))
    assert admin.describe_group_rules().result(10) == (RULE,)


@pytest.mark.parametrize("value", [b"rubbish", b'{"version": 9, "min_reader": 9}'])
def test_rules_that_cannot_be_read_are_an_error(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    _log(monkeypatch, (GROUP_RULES_KEY, GroupRulesRecord((RULE,), 1, 0).to_json()), (GROUP_RULES_KEY, value))
    with pytest.raises(RecordError, match="cannot be used here"):
        admin.describe_group_rules().result(10)


def test_close_gives_the_views_back_and_it_can_be_used_again(views: FakeViews) -> None:
    admin = AdminClient(CONF)
    admin.describe_modes(["t"])["t"].result(10)
    assert not views.closed
    admin.close()
    admin.close()
    assert views.closed
    assert admin.describe_modes(["t"])["t"].result(10).topic == "t"
    admin.close()


def test_each_topic_keeps_its_own_options(admin: AdminClient, controller: StubController) -> None:
    wanted = {
        "a": DeletePartitions(1),
        "b": DeletePartitions(2, immediate_delete=True),
        "c": DeletePartitions(3, accept_state_loss=["app"]),
        "d": DeletePartitions(4, evacuate=True),
    }
    futures = admin.delete_partitions(wanted, delay_ms=0)
    assert [future.result(10).topic for future in futures.values()] == list(wanted)
    assert sorted(controller.commands, key=lambda command: command.topic) == [
        DeletePartitionsCommand("a", 1, 0),
        DeletePartitionsCommand("b", 2, 0, True),
        DeletePartitionsCommand("c", 3, 0, accept_state_loss=("app",)),
        DeletePartitionsCommand("d", 4, 0, evacuate=True),
    ]
    assert admin.delete_partitions({}) == {}


@pytest.mark.parametrize(
    ("wanted", "delay_ms", "error", "words"),
    [
        (DeletePartitions("4"), None, TypeError, "orders"),  # type: ignore[arg-type]  # on purpose
        (DeletePartitions(True), None, TypeError, "orders"),
        (4, None, TypeError, "orders"),
        (DeletePartitions(1, evacuate="yes"), None, TypeError, "evacuate"),  # type: ignore[arg-type]  # on purpose
        (DeletePartitions(1, accept_state_loss="app"), None, TypeError, "accept_state_loss"),
        (DeletePartitions(1, accept_state_loss=[1]), None, TypeError, "accept_state_loss"),  # type: ignore[list-item]  # on purpose
        (DeletePartitions(1), -1, RequestRefused, "delay"),
        (DeletePartitions(1), "5", TypeError, "delay"),
        (DeletePartitions(1), True, TypeError, "delay"),
    ],
)
def test_bad_argument_of_a_shrink_is_rejected(
    admin: AdminClient, wanted: Any, delay_ms: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        admin.delete_partitions({"orders": wanted}, delay_ms=delay_ms)


def test_a_controller_that_is_gone_is_named(admin: AdminClient, views: FakeViews) -> None:
    views.set_claim(ClaimRecord(3, "127.0.0.1:1", "crashed"))
    with pytest.raises(ControllerUnavailable, match=r"127\.0\.0\.1:1 cannot be reached.*modeaware controller"):
        admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"].result(10)

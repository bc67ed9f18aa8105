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
    ClusterError,
    ConfigError,
    ControllerUnavailable,
    ErrorCode,
    ModeSourceError,
    NotAuthorized,
    RecordError,
    RequestRefused,
    ViewTimeout,
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
from tests.support.fake_views import FakeViews, modes_of
from tests.support.stub_controller import RO, StubController, served

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


def test_it_is_a_stock_admin_client_and_takes_our_settings_out() -> None:
    with AdminClient({**CONF, "modeaware.mode.log.topic": "modes"}) as admin:
        assert isinstance(admin, StockAdminClient)


def test_an_unknown_setting_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'modeaware\.mode\.log\.topic'"):
        AdminClient({**CONF, "modeaware.mode.log.topics": "modes"})


def test_the_constructor_asks_for_no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    def acquire(conf: object, config: object) -> FakeViews:
        raise AssertionError("asked for views")

    monkeypatch.setattr("modeaware.views.registry.acquire", acquire)
    with AdminClient(CONF):
        pass


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


def test_each_topic_has_its_own_count_and_immediate_delete(admin: AdminClient, controller: StubController) -> None:
    wanted = {"a": DeletePartitions(1), "b": DeletePartitions(2, immediate_delete=True), "c": DeletePartitions(3)}
    futures = admin.delete_partitions(wanted, delay_ms=0)
    assert [future.result(10).topic for future in futures.values()] == ["a", "b", "c"]
    assert sorted(controller.commands, key=lambda command: command.topic) == [
        DeletePartitionsCommand("a", 1, 0, False),
        DeletePartitionsCommand("b", 2, 0, True),
        DeletePartitionsCommand("c", 3, 0, False),
    ]


def test_accepted_loss_of_state_goes_with_its_topic(admin: AdminClient, controller: StubController) -> None:
    wanted = {"a": DeletePartitions(1, accept_state_loss=["app"]), "b": DeletePartitions(1)}
    for future in admin.delete_partitions(wanted, delay_ms=0).values():
        future.result(10)
    assert controller.commands == [
        DeletePartitionsCommand("a", 1, 0, accept_state_loss=("app",)),
        DeletePartitionsCommand("b", 1, 0),
    ]


def test_an_evacuation_goes_with_its_topic(admin: AdminClient, controller: StubController) -> None:
    wanted = {"a": DeletePartitions(1, evacuate=True), "b": DeletePartitions(1)}
    for future in admin.delete_partitions(wanted, delay_ms=0).values():
        future.result(10)
    assert controller.commands == [
        DeletePartitionsCommand("a", 1, 0, evacuate=True),
        DeletePartitionsCommand("b", 1, 0),
    ]
    with pytest.raises(TypeError, match="evacuate"):
        admin.delete_partitions({"orders": DeletePartitions(1, evacuate="yes")})


@pytest.mark.parametrize("groups", ["app", [1]])
def test_accepted_loss_that_is_no_list_of_names_is_a_type_error(admin: AdminClient, groups: Any) -> None:
    with pytest.raises(TypeError, match="accept_state_loss"):
        admin.delete_partitions({"orders": DeletePartitions(1, accept_state_loss=groups)})


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


@pytest.mark.parametrize("wanted", [DeletePartitions("4"), DeletePartitions(True), DeletePartitions(4.0), 4])  # type: ignore[arg-type]  # on purpose
def test_a_count_that_is_no_int_is_a_type_error(admin: AdminClient, wanted: Any) -> None:
    with pytest.raises(TypeError, match="orders"):
        admin.delete_partitions({"orders": wanted})


@pytest.mark.parametrize(
    ("delay", "error"), [(-1, RequestRefused), ("5", TypeError), (1.5, TypeError), (True, TypeError)]
)
def test_a_bad_delay_is_refused(admin: AdminClient, delay: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="delay"):
        admin.delete_partitions({"orders": DeletePartitions(1)}, delay_ms=delay)


def test_nothing_asked_nothing_done(admin: AdminClient) -> None:
    assert admin.delete_partitions({}) == {}


@pytest.mark.parametrize("claim", [None, ClaimRecord(3, None, "stopped")])
def test_without_a_controller_the_error_says_how_to_start_one(
    admin: AdminClient, views: FakeViews, claim: ClaimRecord | None
) -> None:
    views.set_claim(claim)
    with pytest.raises(ControllerUnavailable, match=r"modeaware controller --bootstrap-server 127\.0\.0\.1:1.*--wait"):
        admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"].result(10)


def test_a_controller_that_is_gone_is_named(admin: AdminClient, views: FakeViews) -> None:
    views.set_claim(ClaimRecord(3, "127.0.0.1:1", "crashed"))
    with pytest.raises(ControllerUnavailable, match=r"127\.0\.0\.1:1 cannot be reached.*modeaware controller"):
        admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"].result(10)


def test_a_command_follows_the_claim_to_the_next_controller(
    admin: AdminClient, views: FakeViews, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    views.set_claim(ClaimRecord(3, "127.0.0.1:1", "crashed"))
    refresh = views.refresh

    def refresh_late(timeout_s: float) -> None:
        refresh(timeout_s)
        if views.refreshes == 2:
            views.set_claim(ClaimRecord(4, address, "stub"))

    monkeypatch.setattr(views, "refresh", refresh_late)
    assert admin.delete_partitions({"orders": DeletePartitions(1)})["orders"].result(10).topic == "orders"


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


def test_no_view_in_time_is_a_view_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    views = FakeViews(ready=False)
    views.failure = ClusterError("no broker")
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    with AdminClient(CONF) as admin:
        future = admin.delete_partitions({"t": DeletePartitions(1)}, request_timeout=0.05)["t"]
        with pytest.raises(ViewTimeout, match="no broker"):
            future.result(10)


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


def test_validate_only_reaches_the_controller(admin: AdminClient, views: FakeViews, controller: StubController) -> None:
    views.set("shrunk", modes_of(4, 2))
    admin.create_partitions([NewPartitions("shrunk", 4)], validate_only=True)["shrunk"].result(10)
    assert controller.commands == [CreatePartitionsCommand("shrunk", 4, None, True)]


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


def test_without_a_controller_only_changed_topics_fail(
    admin: AdminClient, views: FakeViews, stock_calls: list[Any]
) -> None:
    views.set("shrunk", modes_of(4, 2))
    views.set_claim(None)
    futures = admin.create_partitions([NewPartitions("shrunk", 4), NewPartitions("plain", 4)], request_timeout=0.5)
    assert futures["plain"].result(10) is None
    with pytest.raises(KafkaException, match="no controller is running"):
        futures["shrunk"].result(10)


@pytest.mark.parametrize("arguments", [[], [NewPartitions("a", 3), NewPartitions("a", 4)]])
def test_arguments_the_stock_method_refuses_are_left_to_it(
    admin: AdminClient, arguments: list[NewPartitions], stock_calls: list[Any]
) -> None:
    admin.create_partitions(arguments)
    assert stock_calls == [(arguments, {})]


def test_the_stock_method_complains_of_an_unknown_option(admin: AdminClient) -> None:
    with pytest.raises(TypeError):
        admin.create_partitions([NewPartitions("a", 3)], validate=True)


def test_modes_are_described_per_topic(admin: AdminClient, views: FakeViews) -> None:
    view = views.set("shrunk", modes_of(4, 2))
    described = admin.describe_modes(["shrunk", "plain", "shrunk"])
    assert list(described) == ["shrunk", "plain"]
    assert described["shrunk"].result(10) == view
    assert described["plain"].result(10).modes == ()


def test_all_modes_are_described_at_once(admin: AdminClient, views: FakeViews) -> None:
    expected = {name: views.set(name, modes_of(4, 2)) for name in ("a", "b")}
    assert {name: future.result(10) for name, future in admin.describe_modes().items()} == expected


RULE = GroupRule("waive", "old-*", "orders", "the team is gone", 1000, None, glob=True)


def test_rules_about_groups_go_to_the_controller(admin: AdminClient, controller: StubController) -> None:
    assert admin.alter_group_rules([RULE], remove=[("closed", "", "*")]).result(10) is None
    assert controller.commands == [AlterGroupRulesCommand((RULE,), (("closed", "", "*"),))]


def test_refused_rules_are_the_futures_failure(admin: AdminClient, controller: StubController) -> None:
    controller.answer = lambda command: CommandResult("", ErrorCode.INVALID_REQUEST, "needs a reason")
    with pytest.raises(RequestRefused, match="needs a reason"):
        admin.alter_group_rules([RULE]).result(10)


@pytest.mark.parametrize(
    "arguments", [{"add": [("waive", "g", "t")]}, {"remove": [("waive", "g")]}, {"remove": [RULE]}, {"remove": ["abc"]}]
)
def test_what_is_no_rule_is_a_type_error(
    admin: AdminClient, controller: StubController, arguments: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="expected"):
        admin.alter_group_rules(**arguments)
    assert controller.commands == []


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

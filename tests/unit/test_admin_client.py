"""Our AdminClient against a real endpoint with a stand-in controller behind it, and views held in memory."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient as StockAdminClient
from confluent_kafka.admin import NewPartitions

from modeaware import AdminClient, DeletePartitions, GroupRule, TopicReplacement
from modeaware.admin import replacements
from modeaware.admin.acls import Acl, ClusterAcls
from modeaware.admin.replacements import OldTopic
from modeaware.config import ClientConfig
from modeaware.confluent.controller_calls import ControllerCalls
from modeaware.errors import (
    ClusterError,
    ControllerUnavailable,
    ErrorCode,
    ModeAwareError,
    ModeSourceError,
    NotAuthorized,
    RecordError,
    RequestRefused,
)
from modeaware.interim import interim_name
from modeaware.lifecycle.commands import (
    AlterGroupRulesCommand,
    Command,
    CommandResult,
    DeletePartitionsCommand,
    ReplaceTopicCommand,
)
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.records import ClaimRecord
from modeaware.wire.retries import Deadline
from tests.support.endpoint import StubController, served
from tests.support.fake_views import FakeViews, modes_of, switch
from tests.support.modelog import fold
from tests.support.waiting import eventually

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


def test_calls_that_were_given_up_send_nothing_more(views: FakeViews, controller: StubController) -> None:
    """Ctrl-C between the calls of one command: the next shrink must not be sent."""
    with closing(ControllerCalls(CONF, ClientConfig())) as calls:
        wanted, deadline = {"orders": DeletePartitions(1)}, Deadline(10)
        assert not isinstance(calls.delete_partitions(views, wanted, 0, deadline)["orders"], Exception)
        calls.give_up()
        assert isinstance(calls.delete_partitions(views, wanted, 0, deadline)["orders"], ControllerUnavailable)
    assert len(controller.commands) == 1


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


def test_new_topic_without_a_record_is_grown_by_the_controller_until_its_old_topic_is_released(
    admin: AdminClient, views: FakeViews, controller: StubController, stock_calls: list[Any]
) -> None:
    """It refuses that; the brokers would not."""
    switch(views, "orders", "orders-v2")
    refused = CommandResult("orders-v2", ErrorCode.REASSIGNMENT_IN_PROGRESS, "wait until that is done")
    controller.answer = lambda command: refused
    with pytest.raises(KafkaException, match="wait until"):
        admin.create_partitions([NewPartitions("orders-v2", 9)])["orders-v2"].result(10)
    assert stock_calls == []
    switch(views, "orders", "orders-v2", released=True)
    admin.create_partitions([NewPartitions("orders-v2", 9)])["orders-v2"].result(10)
    assert len(stock_calls) == 1


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


RULE = GroupRule("waive", "old-*", "orders", "the team is gone", 1000, None, glob=True)


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
    with pytest.raises(RecordError, match=r"cannot be read \(malformed"):
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
    }
    futures = admin.delete_partitions(wanted, delay_ms=0)
    assert [future.result(10).topic for future in futures.values()] == list(wanted)
    assert sorted(controller.commands, key=lambda command: command.topic) == [
        DeletePartitionsCommand("a", 1, 0),
        DeletePartitionsCommand("b", 2, 0, True),
        DeletePartitionsCommand("c", 3, 0, accept_state_loss=("app",)),
    ]
    assert admin.delete_partitions({}) == {}


@pytest.mark.parametrize(
    ("wanted", "delay_ms", "error", "words"),
    [
        (DeletePartitions("4"), None, TypeError, "orders"),  # type: ignore[arg-type]  # on purpose
        (DeletePartitions(True), None, TypeError, "orders"),
        (4, None, TypeError, "orders"),
        (DeletePartitions(1, accept_state_loss="app"), None, TypeError, "accept_state_loss"),
        (DeletePartitions(1, accept_state_loss=[1]), None, TypeError, "accept_state_loss"),  # type: ignore[list-item]  # on purpose
        (DeletePartitions(1), -1, RequestRefused, "delay"),
        (DeletePartitions(1), "5", TypeError, "delay"),
        (DeletePartitions(1), True, TypeError, "delay"),
        (DeletePartitions(0), None, RequestRefused, "at least 1"),
        (DeletePartitions(-1), None, RequestRefused, "at least 1"),
    ],
)
def test_bad_argument_of_a_shrink_is_rejected(
    admin: AdminClient, controller: StubController, wanted: Any, delay_ms: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        admin.delete_partitions({"good": DeletePartitions(1), "orders": wanted}, delay_ms=delay_ms)
    assert controller.commands == []


@pytest.fixture
def old_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the brokers say of each topic that is to be replaced; ``missing`` is none."""

    def look(_: object, topics: Sequence[str]) -> dict[str, OldTopic | ModeAwareError]:
        configs = {"retention.bytes": "1000", "leader.replication.throttled.replicas": "0:1", "retention.ms": "7"}
        missing = RequestRefused("no such topic", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
        return {topic: missing if topic == "missing" else OldTopic(3, 2, configs) for topic in topics}

    monkeypatch.setattr(replacements, "describe_old_topics", look)
    monkeypatch.setattr(replacements, "read_acls", lambda _: None)
    monkeypatch.setattr(replacements, "topic_names", lambda _: ["a"])


def test_replaced_topic_keeps_its_configs_and_replicas(
    admin: AdminClient, controller: StubController, old_topic: None
) -> None:
    futures = admin.replace_topics(
        {
            "a": TopicReplacement("a2", 4),
            "missing": TopicReplacement("m2", 1),
            "b": TopicReplacement("b2", 1, -1, {"retention.ms": "9"}, 0, "none", ["app", "app"]),
        },
        pause_before_switch=True,
    )
    assert [futures[topic].result(10).topic for topic in "ab"] == ["a", "b"]
    with pytest.raises(RequestRefused, match="no such topic"):
        futures["missing"].result(10)
    copied = {"retention.bytes": "750", "retention.ms": "7"}
    assert controller.commands == [
        ReplaceTopicCommand("a", "a2", 4, 2, copied, pause_before_switch=True),
        ReplaceTopicCommand(
            "b", "b2", 1, -1, {"retention.bytes": "3000", "retention.ms": "9"}, 0, "none", True, ("app",)
        ),
    ]


def test_commands_name_the_servers_by_whichever_setting_has_them(
    views: FakeViews, controller: StubController, old_topic: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = ClusterAcls([Acl(3, "User:a", "*", 3, "a", False)])
    seen: list[str] = []

    def compare(acls: object, topic: str, new_topic: str, servers: str) -> None:
        assert acls is lacking
        seen.append(servers)

    monkeypatch.setattr(replacements, "read_acls", lambda _: lacking)
    monkeypatch.setattr(replacements, "compare_acls", compare)
    named = {"metadata.broker.list" if name == "bootstrap.servers" else name: value for name, value in CONF.items()}
    with AdminClient(named) as admin:
        admin.replace_topics({"a": TopicReplacement("a2", 4)})["a"].result(10)
    assert seen == [CONF["bootstrap.servers"]]


def test_repetition_of_a_change_that_keeps_its_name_is_about_the_interim_topic_once_the_old_topic_is_gone(
    admin: AdminClient, controller: StubController, views: FakeViews
) -> None:
    interim = interim_name("a", "id")
    switch(views, "a", interim, released=True, gone=True)
    found = admin.replace_topics({"a": TopicReplacement("a", 4, keep_name=True)})["a"].result(10)
    assert found.topic == "a"
    assert controller.commands == [ReplaceTopicCommand(interim, "a", 4, keep_name=True)]


def test_undone_replacement_looks_at_nothing_and_is_not_sent_twice_after_a_doubt(
    admin: AdminClient, controller: StubController
) -> None:
    controller.answer = lambda command: CommandResult(command.topic, ErrorCode.REQUEST_TIMED_OUT, "lost")
    with pytest.raises(ClusterError, match="lost"):
        admin.replace_topics({"a": TopicReplacement("a2", 4)}, undo=True)["a"].result(10)
    assert controller.commands == [ReplaceTopicCommand("a", "a2", 4, undo=True)]


def test_replacement_is_repeated_after_a_doubt(admin: AdminClient, controller: StubController, old_topic: None) -> None:
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    controller.answer = lambda command: CommandResult(command.topic, codes.pop(0), "said")
    found = admin.replace_topics({"a": TopicReplacement("a2", 4)}, validate_only=True)["a"].result(10)
    assert (found.message, len(controller.commands)) == ("said", 2)
    assert all(isinstance(command, ReplaceTopicCommand) and command.validate_only for command in controller.commands)


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        (4, TypeError, "orders"),
        (TopicReplacement("v2", True), TypeError, "num_partitions"),
        (TopicReplacement("v2", 4, "3"), TypeError, "replication_factor"),  # type: ignore[arg-type]  # on purpose
        (TopicReplacement(b"v2", 4), TypeError, "new_topic"),  # type: ignore[arg-type]  # on purpose
        (TopicReplacement("v2", 4, config=[]), TypeError, "config"),  # type: ignore[arg-type]  # on purpose
        (TopicReplacement("v2", 4, accept_state_loss="app"), TypeError, "accept_state_loss"),
        (TopicReplacement("v2", 4, delete_partitions_delay_ms=-1), RequestRefused, "delay"),
        (TopicReplacement("v2", 0), RequestRefused, "invalid partition count 0"),
        (TopicReplacement("v2", 4, 0), RequestRefused, "invalid replication factor 0"),
        (TopicReplacement("v2", 4, 40_000), RequestRefused, "invalid replication factor 40000"),
    ],
)
def test_bad_argument_of_a_replacement_is_rejected(
    admin: AdminClient, controller: StubController, wanted: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        admin.replace_topics({"good": TopicReplacement("v3", 1), "orders": wanted})
    assert controller.commands == []


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (None, r"modeaware controller --bootstrap-server 127\.0\.0\.1:1.*--wait"),
        (ClaimRecord(3, None, "stopped"), r"modeaware controller --bootstrap-server 127\.0\.0\.1:1.*--wait"),
        (ClaimRecord(3, "127.0.0.1:1", "crashed"), r"127\.0\.0\.1:1 cannot be reached.*modeaware controller"),
    ],
)
def test_without_a_controller_the_error_says_how_to_start_one(
    admin: AdminClient, views: FakeViews, claim: ClaimRecord | None, told: str
) -> None:
    views.set_claim(claim)
    with pytest.raises(ControllerUnavailable, match=told):
        admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"].result(10)


# What is sent again, and what is said in the end


def test_more_topics_than_a_request_holds_are_sent_in_parts(admin: AdminClient, controller: StubController) -> None:
    wanted = {f"{n:0249}": DeletePartitions(1) for n in range(600)}
    futures = admin.delete_partitions(wanted)
    assert [future.result(10).topic for future in futures.values()] == list(wanted)
    assert [command.topic for command in controller.commands] == list(wanted)
    assert len(controller.submitted) == 4


def test_refusals_that_pass_are_retried_for_their_topics_alone(admin: AdminClient, controller: StubController) -> None:
    codes = {"a": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE], "b": []}

    def answer(command: Command) -> CommandResult:
        passing = codes[command.topic]
        return CommandResult(command.topic, passing.pop(0), "not yet") if passing else CommandResult(command.topic)

    controller.answer = answer
    futures = admin.delete_partitions({"a": DeletePartitions(1), "b": DeletePartitions(1)})
    assert [future.result(10).topic for future in futures.values()] == ["a", "b"]
    assert [command.topic for command in controller.commands] == ["a", "b", "a", "a"]


def test_deadline_that_cuts_a_read_of_the_log_short_leaves_the_earlier_refusal(
    admin: AdminClient, views: FakeViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    views.set_claim(None)
    reads: list[float] = []

    def refresh(timeout_s: float) -> None:
        reads.append(timeout_s)
        if len(reads) > 1:
            time.sleep(timeout_s)  # as a read that does not reach the end of the log in time
            raise ModeSourceError("the end of the log was not reached")

    monkeypatch.setattr(views, "refresh", refresh)
    with pytest.raises(ControllerUnavailable, match="no controller is running"):
        admin.delete_partitions({"a": DeletePartitions(1)}, request_timeout=2)["a"].result(10)
    assert len(reads) == 2


def lose_first_answer(controller: StubController, views: FakeViews, done: tuple[int, int] | None) -> None:
    """Its first command may have been done; every later one is refused."""

    def answer(command: Command) -> CommandResult:
        if len(controller.submitted) > 1:
            return CommandResult(command.topic, ErrorCode.INVALID_PARTITIONS, "it has so many already")
        if done is not None:
            views.set(command.topic, modes_of(*done))
        return CommandResult(command.topic, ErrorCode.REQUEST_TIMED_OUT, "lost")

    controller.answer = answer


def test_shrink_that_an_earlier_attempt_has_done_succeeds(
    admin: AdminClient, views: FakeViews, controller: StubController
) -> None:
    lose_first_answer(controller, views, done=(4, 1))
    result = admin.delete_partitions({"a": DeletePartitions(1)})["a"].result(10)
    assert (sorted(result.retired), len(controller.commands)) == ([1, 2, 3], 2)


@pytest.mark.parametrize(
    ("done", "shrink", "error", "told", "commands"),
    [
        (None, DeletePartitions(1), RequestRefused, "so many already", 2),  # the log shows no change
        ((4, 3), DeletePartitions(1), ClusterError, "may have been carried out", 2),  # or another one
        (None, DeletePartitions(1, immediate_delete=True), ClusterError, "lost", 1),  # never sent twice
    ],
)
def test_shrink_in_doubt_ends_with_what_is_known(
    admin: AdminClient,
    views: FakeViews,
    controller: StubController,
    done: tuple[int, int] | None,
    shrink: DeletePartitions,
    error: type[Exception],
    told: str,
    commands: int,
) -> None:
    lose_first_answer(controller, views, done)
    with pytest.raises(error, match=told):
        admin.delete_partitions({"a": shrink})["a"].result(10)
    assert len(controller.commands) == commands


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


# Where the known claim leads to a controller that stands by


@pytest.mark.parametrize("rules", [False, True], ids=["topics", "rules"])
def test_a_command_follows_the_claim_away_from_a_standby(
    admin: AdminClient, views: FakeViews, controller: StubController, monkeypatch: pytest.MonkeyPatch, rules: bool
) -> None:
    active = views.claim()
    refresh = views.refresh

    def refresh_late(timeout_s: float) -> None:
        refresh(timeout_s)
        if views.refreshes == 2:
            views.set_claim(active)

    monkeypatch.setattr(views, "refresh", refresh_late)
    with served(controller, "standby", active=False) as standby:
        views.set_claim(ClaimRecord(1, standby.address, "standby"))
        if rules:
            assert admin.alter_group_rules([RULE], remove=[("closed", "", "*")]).result(10) is None
            assert controller.commands == [AlterGroupRulesCommand((RULE,), (("closed", "", "*"),))]
        else:
            admin.delete_partitions({"orders": DeletePartitions(1)})["orders"].result(10)
            assert controller.commands == [DeletePartitionsCommand("orders", 1)]


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({}, ("modeaware-librdkafka", "modeaware")),
        ({"client.software.name": "mine", "client.id": "app"}, ("mine", "app")),
    ],
)
def test_brokers_and_endpoints_are_shown_a_mode_aware_client_unless_the_application_names_it(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], told: tuple[str, str]
) -> None:
    heard: list[dict[str, Any]] = []
    real = StockAdminClient.__init__

    def listen(self: StockAdminClient, conf: dict[str, Any], **named: Any) -> None:
        heard.append(conf)
        real(self, conf, **named)

    monkeypatch.setattr(StockAdminClient, "__init__", listen)
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **conf}).close()
    assert [(conf["client.software.name"], conf["client.id"]) for conf in heard] == [told]


@pytest.mark.usefixtures("without_garbage_collection")
def test_a_client_that_is_dropped_ends_and_gives_its_views_back(views: FakeViews) -> None:
    admin = AdminClient(CONF)
    admin.describe_modes(["t"])["t"].result(10)
    ended = weakref.ref(admin)
    del admin
    eventually(lambda: ended() is None)  # a thread of its pool may have it until the next moment
    eventually(lambda: views.closed)


def test_a_name_is_listed_as_the_topic_that_it_points_to_once_its_own_is_gone(
    admin: AdminClient, views: FakeViews, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers that create topics automatically would bring the old one back."""
    listed: list[str] = []

    def list_topics(self: object, topic: str, timeout: float) -> SimpleNamespace:
        listed.append(topic)
        return SimpleNamespace(topics={topic: topic})

    monkeypatch.setattr(StockAdminClient, "list_topics", list_topics)
    for state in ({}, {"released": True}, {"gone": True}):
        switch(views, "orders", "orders-v2", **state)
        assert list(admin.list_topics("orders", timeout=10).topics) == ["orders"]
    assert listed == ["orders", "orders", "orders-v2"]
    views.failure = ModeSourceError("no broker has it")
    admin.list_topics("orders", timeout=10)
    assert listed[-1] == "orders"
    assert "listed under this name" in caplog.text

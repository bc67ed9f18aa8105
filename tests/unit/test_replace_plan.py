"""``modeaware replace``: its options, what it shows beforehand, and when it stops to wait."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware import cli
from modeaware.admin.acls import TopicAcls, check_access, read_acls
from modeaware.admin.new_topics import TopicReplacement
from modeaware.admin.successors import Predecessor, replace_command, replace_commands, successor_configs
from modeaware.cli.change import Situation
from modeaware.cli.replace import _Look, _Watch
from modeaware.cli.topics import undo_command
from modeaware.errors import ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import Admission
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.plan.replacement import hints_of, plan_replacement, replacement_text
from modeaware.reports.describe import ReplacementDescription, TopicDescription, describe_text
from modeaware.reports.serialise import json_text
from modeaware.reports.session import ModeLog, no_such_topic
from modeaware.topic_view import Successor
from modeaware.wire.requests import DescribeAclsRequest

OWN = {
    "retention.bytes": "1000",
    "local.retention.bytes": "-2",
    "cleanup.policy": "delete",
    "follower.replication.throttled.replicas": "0:1",
}
FOUND = Predecessor(6, 3, OWN)
WANTED = TopicReplacement("orders-v2", 4, config={"retention.ms": "5"})
COMMAND = replace_command("orders", WANTED, FOUND)
GROUPS = {
    "app": GroupFacts({0: 1}, stateful=True, kind="streams"),
    "billing": GroupFacts({0: 1}, has_members=True),
    "connect-sink": GroupFacts({0: 1}),
}
FACTS = TopicFacts("orders", "id", 6, groups=GROUPS)


@pytest.mark.parametrize(("count", "bytes_"), [(4, "1500"), (6, "1000"), (7, "858"), (12, "500")])
def test_as_much_is_kept_in_all_whatever_the_count(count: int, bytes_: str) -> None:
    configs = successor_configs(FOUND, TopicReplacement("v2", count))
    assert configs == {"retention.bytes": bytes_, "local.retention.bytes": "-2", "cleanup.policy": "delete"}


def test_named_configs_and_replicas_outweigh_those_of_the_topic() -> None:
    named = TopicReplacement("v2", 4, -1, {"retention.bytes": "9"}, 5, "none", ("b", "b"))
    expected = {"retention.bytes": "9", "local.retention.bytes": "-2", "cleanup.policy": "delete"}
    assert replace_command("orders", named, FOUND) == ReplaceTopicCommand(
        "orders", "v2", 4, -1, expected, 5, "none", accept_state_loss=("b",)
    )
    assert COMMAND.replication_factor == 3
    assert replace_command("orders", named, None).configs == {"retention.bytes": "9"}, "nothing is copied anew"


@pytest.mark.parametrize(
    "arguments",
    [
        "--undo --pause-before-switch",
        "--undo --config a=b",
        "--with v2 --partitions 4 --fence config+acl",
        "--with v2 --partitions 4 --json",
        "--with v2 --partitions four",
        "payments --with v2 --partitions 4",
        "orders --partitions 4",
        "payments=p2 --with v2 --partitions 4",
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["replace", "orders", *arguments.split(), "--bootstrap-server", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert "modeaware replace" in capsys.readouterr().err


def test_plan_says_everything_beforehand() -> None:
    acls = TopicAcls(("kafka-acls.sh --add",))
    plan = plan_replacement(COMMAND, FACTS, FOUND, WANTED.config, 10_000, acls, ["mm2-status", "__strimzi_store_topic"])
    told = "\n".join(replacement_text(plan))
    for words in (
        "orders: 6 -> 4 partitions, by the new topic orders-v2 (3 replicas).",
        "nothing is deleted",
        "Config retention.bytes=1500 (scaled)",
        "Config cleanup.policy=delete (copied)",
        "Config retention.ms=5 (given)",
        "Not copied, it names partitions: follower.replication.throttled.replicas",
        "Group app (streams): keeps state per partition",
        "refused without --accept-state-loss app",
        "Group billing (classic): nothing where all members run modeaware; else read orders to its end",
        "Group connect-sink (classic): has no members now",
        "wait about 11 s",
        "  kafka-acls.sh --add",
        "MirrorMaker 2 seems to be in use",
        "strimzi.io/managed=false",
        "Sink connectors of Kafka Connect: sink",
        "MSG_SIZE_TOO_LARGE",
    ):
        assert words in told
    assert '"origin": "scaled"' in json_text(plan)


def test_plan_names_what_is_not_known_and_what_goes_without_a_fence() -> None:
    facts = replace(FACTS, groups={}, groups_doubt=GroupsDoubt("a rebalance"))
    command = replace(COMMAND, fence="none", replication_factor=-1, accept_state_loss=("app",))
    hidden = TopicAcls(unknown="not authorized")
    told = "\n".join(replacement_text(plan_replacement(command, facts, FOUND, {}, 10_000, hidden)))
    for words in (
        "(as many replicas as brokers choose)",
        "No group uses it.",
        "There may be more groups, and the switch waits until that is known: a rebalance",
        "Whether orders-v2 lacks ACLs of orders is not known: not authorized",
        "WARNING: without the fence",
        "wait about 10 s",
    ):
        assert words in told
    plan = plan_replacement(command, replace(FACTS, groups={"app": GROUPS["app"]}), FOUND, {}, 0)
    assert "refused" not in plan.groups[0].to_do


def test_cluster_without_such_tools_gets_the_general_hints() -> None:
    assert len(hints_of("orders", ["orders", "payments"], ["billing"])) == 2


def acl(principal: str, operation: int, permission: int, host: str = "*") -> Any:
    return SimpleNamespace(principal=principal, host=host, operation=operation, permission_type=permission)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (54, None),
        (31, "CLUSTER_AUTHORIZATION_FAILED"),
        (0, ["deny-principal User:b --deny-host 10.0.0.1 --operation Write", "allow-principal User:a --operation All"]),
    ],
)
def test_acls_become_the_commands_for_the_new_name_and_those_that_deny_come_first(error: int, told: Any) -> None:
    own = [acl("User:a", 2, 3), acl("User:b", 4, 2, "10.0.0.1")]
    covered = [acl("User:c", 3, 3), acl("User:d", 4, 3)]
    of = {"orders": [*own, *covered], "orders-v2": [acl("User:c", 3, 3), acl("User:d", 2, 3), acl("User:b", 4, 3)]}

    def respond(request: Any, *_: Any) -> Any:
        assert isinstance(request, DescribeAclsRequest)
        assert request.pattern_type_filter == 2, "literal names, prefixes and * that match"
        resource = SimpleNamespace(acls=of[request.resource_name_filter])
        return SimpleNamespace(error_code=error, error_message=None, resources=[] if error else [resource])

    brokers = cast(Any, SimpleNamespace(ask=respond))
    found = read_acls(brokers, "orders", "orders-v2", "broker:9092")
    if not isinstance(told, list):
        assert (found and told in (found.unknown or "")) or found is told
        check_access(brokers, COMMAND, "broker:9092")
        return
    assert found is not None
    head = "kafka-acls.sh --bootstrap-server broker:9092 --add --"
    assert list(found.commands) == [f"{head}{each} --topic orders-v2" for each in told]
    with pytest.raises(RequestRefused, match="2 of its ACLs do not cover 'orders-v2'") as refused:
        check_access(brokers, COMMAND, "broker:9092")
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    for later in (replace(COMMAND, pause_before_switch=True), replace(COMMAND, undo=True)):
        check_access(brokers, later, "broker:9092")
    of["orders"] = covered
    check_access(brokers, COMMAND, "broker:9092")


@pytest.mark.parametrize(("accepted", "switched"), [(False, False), (True, False), (False, True)])
def test_requests_of_programs_are_refused_while_acls_are_missing_before_the_switch(
    accepted: bool, switched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = TopicAcls(("kafka-acls.sh",))
    monkeypatch.setattr("modeaware.admin.acls.read_acls", lambda *_: lacking)
    monkeypatch.setattr("modeaware.admin.successors.look_at_predecessor", lambda *_: FOUND)
    wanted = {"orders": replace(WANTED, accept_access_loss=accepted)}
    under_way = {"orders": Successor("orders-v2", "id", 4, switched=True)} if switched else {}
    at_once = SimpleNamespace(call=lambda look, repeatable: look())
    commands, failures = replace_commands(cast(Any, None), wanted, under_way, "b:1", lambda: cast(Any, at_once))
    passes = accepted or switched
    assert ([c.topic for c in commands], list(failures)) == ((["orders"], []) if passes else ([], ["orders"]))


RECORD = TopicRecord("orders", "id", 3, 1, (PartitionMode.READ_WRITE,), changed_ms=9_000)
BEGUN = Replacement("orders-v2", 4, 1_000, successor_id="v2", announced_ms=2_000)
SWITCHED = replace(BEGUN, switched_ms=5_000, reason="group-not-moved:billing")


def described(replacement: Replacement | None, phase: str, changed_ms: int = 0) -> TopicDescription:
    record = replace(RECORD, replacement=replacement, changed_ms=changed_ms, required_groups=("audit", "billing"))
    moved = {"audit": GroupFacts(dict.fromkeys(range(4), 0)), "billing": GroupFacts({0: 0})}
    shown = ReplacementDescription.of(record, moved)
    return TopicDescription("orders", "id", 3, phase, None, ("audit", "billing"), (), replacement=shown)


def test_description_shows_phase_times_and_groups_that_have_not_moved() -> None:
    told = describe_text([described(replace(SWITCHED, fence="none"), "drain")], expand=False)
    assert "Replaced by orders-v2 (id v2, 4 partitions): requested 1970-01-01 00:00:01 UTC, announced" in told
    assert "Waits: group 'billing' has no offset on the successor" in told
    assert "Not on the successor yet: billing" in told
    assert "Fence none" in told
    assert "Successor of payments" in describe_text(
        [replace(described(None, "done"), replaces="payments")], expand=False
    )


def test_wait_ends_where_it_pauses_is_done_or_is_given_up_and_knows_the_pause_of_readers() -> None:
    watch = _Watch(undo=False)
    assert not watch.ended(described(BEGUN, "announce"))
    assert not watch.ended(described(SWITCHED, "seal", 6_000))
    assert not watch.ended(described(SWITCHED, "drain", 17_000))
    assert watch.ended(described(replace(SWITCHED, let_go_ms=1), "done", 30_000))
    assert watch.pause_ms == 12_000
    late = _Watch(undo=False)
    assert late.ended(described(replace(SWITCHED, let_go_ms=1), "done", 30_000))
    assert late.pause_ms is None, "it was not seen"
    paused = replace(BEGUN, pause_before_switch=True, reason=reasons.PAUSED)
    assert _Watch(undo=False).ended(described(paused, "announce"))
    assert not _Watch(undo=True).ended(described(paused, "announce"))
    assert _Watch(undo=True).ended(described(None, "done"))


def test_name_of_a_topic_that_is_gone_leads_to_its_successor() -> None:
    gone = replace(RECORD, topic_id="old", replacement=replace(SWITCHED, gone_ms=6_000))
    deleted = replace(RECORD, topic_id="older")
    records = {"orders": [deleted, gone]}
    log = ModeLog("modes", cast(Any, SimpleNamespace(records_of=lambda topic: records.get(topic, []))))
    assert (log.gone_ids("orders", "new"), log.leads_to("orders", "new")) == (("older",), "orders-v2")
    assert log.leads_to("orders", "old") is None, "that is the topic itself"
    assert "its name leads to 'orders-v2', which has replaced it" in str(no_such_topic("orders", log))
    for log_of in (log, None):
        assert str(no_such_topic("payments", log_of)).endswith("does not exist")
    again = replace(described(None, ""), gone_ids=("older",), leads_to="orders-v2")
    told = describe_text([again], expand=False)
    assert "The name leads to orders-v2" in told
    assert "topic id older: that topic was deleted" in told


BEFORE = ("the look", "its ACLs")


class FakeChange:
    """Looks at topics as a test lays them out, and notes what is requested of the controller."""

    is_embedded = False

    def __init__(self, failures: dict[str, ModeAwareError | None]) -> None:
        self.failures = failures
        self.replaced: list[str] = []

    def retry(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def replace(self, commands: list[ReplaceTopicCommand]) -> dict[str, ModeAwareError | None]:
        self.replaced = [command.topic for command in commands]
        return {topic: self.failures.get(topic) for topic in self.replaced}


@pytest.mark.parametrize("failing", ["none", "the look", "its ACLs", "the controller"])
def test_of_several_topics_one_that_is_refused_does_not_keep_the_others_and_fails_the_call(
    failing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = RequestRefused("topic 'payments': not so", code=ErrorCode.POLICY_VIOLATION)
    change = FakeChange({"payments": refusal} if failing == "the controller" else {})
    seen: list[tuple[str, str | None]] = []

    def look(args: Any, change: Any, topic: str, successor: str | None, begun: list[Any]) -> _Look:
        seen.append((topic, successor))
        assert len(begun) == (topic == "payments")
        if (topic, failing) == ("payments", "the look"):
            raise refusal
        command = ReplaceTopicCommand(topic, successor or "", 4)
        admission = Admission(replace(RECORD, topic=topic))
        lacking = refusal if (topic, failing) == ("payments", "its ACLs") else None
        return _Look(Situation(topic, None, FACTS), command, admission, [f"plan {topic}"], lacking)

    monkeypatch.setattr("modeaware.cli.replace._look", look)
    monkeypatch.setattr("modeaware.cli.replace.open_session", lambda *_: nullcontext())
    monkeypatch.setattr("modeaware.cli.replace.Change", lambda *_: nullcontext(change))
    call = ["replace", "orders=o2", "payments=p2", "--partitions", "4", "--bootstrap-server", "127.0.0.1:1"]
    assert cli.main([*call, "--yes"]) == (0 if failing == "none" else 1)
    told = capsys.readouterr()
    assert seen == [("orders", "o2"), ("payments", "p2")]
    assert "orders: being replaced by o2 (4 partitions)." in told.out
    assert ("payments: being replaced by p2" in told.out) is (failing == "none")
    assert ("error: topic 'payments': not so" in told.err) is (failing != "none")
    assert "plan orders" in told.err
    assert change.replaced == (["orders"] if failing in BEFORE else ["orders", "payments"])
    assert cli.main([*call, "--dry-run"]) == (1 if failing in BEFORE else 0)


def test_undo_of_a_shrink_is_none_of_a_replacement() -> None:
    record = replace(RECORD, replacement=SWITCHED)
    with pytest.raises(RequestRefused, match="modeaware replace orders --undo"):
        undo_command(Situation("orders", record, FACTS))

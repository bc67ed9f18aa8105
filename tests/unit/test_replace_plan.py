"""``modeaware replace``: its options, what it shows beforehand, and when it stops to wait."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware import cli
from modeaware.admin.new_topics import TopicReplacement
from modeaware.admin.successors import Predecessor, replace_command, successor_configs
from modeaware.cli.change import Situation
from modeaware.cli.replace import _Watch
from modeaware.cli.topics import undo_command
from modeaware.errors import RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, TopicFacts
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.plan.replacement import hints_of, plan_replacement, replacement_text
from modeaware.reports.acls import TopicAcls, read_acls
from modeaware.reports.describe import ReplacementDescription, TopicDescription, describe_text
from modeaware.reports.serialise import json_text
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
    assert replace_command("orders", named, None, undo=True).configs == {}


@pytest.mark.parametrize(
    "arguments",
    [
        "--undo --pause-before-switch",
        "--undo --config a=b",
        "--with v2 --partitions 4 --fence config+acl",
        "--with v2 --partitions 4 --json",
        "--with v2 --partitions four",
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
        "ACLs on the name orders are not known, and not copied: not authorized",
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
    acls = [acl("User:a", 2, 3), acl("User:b", 4, 2, "10.0.0.1")]
    resource = SimpleNamespace(resource_type=2, resource_name="orders", pattern_type=3, acls=acls)
    answer = SimpleNamespace(error_code=error, error_message=None, resources=[] if error else [resource])

    def respond(request: Any, *_: Any) -> Any:
        assert isinstance(request, DescribeAclsRequest)
        assert (request.resource_name_filter, request.pattern_type_filter) == ("orders", 3)
        return answer

    found = read_acls(cast(Any, SimpleNamespace(ask=respond)), "orders", "orders-v2", "broker:9092")
    if not isinstance(told, list):
        assert (found and told in (found.unknown or "")) or found is told
        return
    assert found is not None
    head = "kafka-acls.sh --bootstrap-server broker:9092 --add --"
    assert list(found.commands) == [f"{head}{each} --topic orders-v2" for each in told]


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


def test_undo_of_a_shrink_is_none_of_a_replacement() -> None:
    record = replace(RECORD, replacement=SWITCHED)
    with pytest.raises(RequestRefused, match="modeaware replace orders --undo"):
        undo_command(Situation("orders", record, FACTS))

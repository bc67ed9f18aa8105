"""``modeaware replace``: its options, what it shows beforehand, and when it stops to wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware import cli
from modeaware.admin.acls import ALL_OPERATIONS, Acl, TopicAcls, check_access, compare_acls, read_acls
from modeaware.admin.new_topics import TopicReplacement
from modeaware.admin.replacements import OldTopic, new_topic_configs, replace_command, replace_commands
from modeaware.cli.change import Change, Situation
from modeaware.cli.outcome import Watch, outcome
from modeaware.cli.topics import undo_command
from modeaware.clock import SYSTEM_CLOCK
from modeaware.cluster import effects as effects_module
from modeaware.cluster.observer import SnapshotTarget
from modeaware.config import ControllerConfig
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import ReplaceTopicCommand
from modeaware.lifecycle.drain import required_of
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, MembersSeen, PartitionFacts, TopicFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.lifecycle.report import ReplacementReport
from modeaware.modelog.group_rules import GroupRule, GroupRulesRecord
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modelog.replay import Replay
from modeaware.modes import PartitionMode
from modeaware.plan.diff import CurrentTopic
from modeaware.plan.replacement import acls_text, hints_of, plan_replacement, replacement_text
from modeaware.plan.steps import Replace
from modeaware.reports.describe import TopicDescription, describe_text
from modeaware.reports.serialise import json_text
from modeaware.reports.session import ModeLog, no_such_topic
from modeaware.topic_view import ReplacedBy
from modeaware.wire.requests import DescribeAclsRequest
from modeaware.wire.retries import Deadline, Retrying, RetryPolicy
from tests.support.modelog import fold

OWN = {
    "retention.bytes": "1000",
    "local.retention.bytes": "-2",
    "cleanup.policy": "delete",
    "follower.replication.throttled.replicas": "0:1",
}
FOUND = OldTopic(6, 3, OWN)
WANTED = TopicReplacement("orders-v2", 4, config={"retention.ms": "5"})
COMMAND = replace_command("orders", WANTED, FOUND)
GROUPS = {
    "app": GroupFacts({0: 1}, stateful=True, kind="streams"),
    "audit": GroupFacts({0: 1}, has_members=True, members=MembersSeen(2)),
    "billing": GroupFacts({0: 1}, has_members=True, members=MembersSeen(2, 1)),
    "connect-sink": GroupFacts({0: 1}),
}
FACTS = TopicFacts("orders", "id", 6, groups=GROUPS)


@pytest.mark.parametrize(("count", "bytes_"), [(4, "1500"), (6, "1000"), (7, "858"), (12, "500")])
def test_as_much_is_kept_in_all_whatever_the_count(count: int, bytes_: str) -> None:
    configs = new_topic_configs(FOUND, TopicReplacement("v2", count))
    assert configs == {"retention.bytes": bytes_, "local.retention.bytes": "-2", "cleanup.policy": "delete"}


def test_a_fence_that_is_left_from_an_earlier_replacement_is_not_copied() -> None:
    """The mode log was lost after the switch: the topic is fenced, and nothing says that it was replaced."""
    left = OldTopic(4, 3, {"retention.ms": "7", **FENCE_CONFIGS})
    assert new_topic_configs(left, TopicReplacement("v3", 2)) == {"retention.ms": "7"}
    own = OldTopic(4, 3, {"compression.type": "gzip", "max.message.bytes": "2000000"})
    assert new_topic_configs(own, TopicReplacement("v3", 2)) == own.configs


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
        "orders --undo --pause-before-switch",
        "orders --undo --evacuate",
        "orders --undo --config a=b",
        "orders --undo --partitions 4",
        "orders --with v2 --partitions 4 --fence config+acl",
        "orders --with v2 --partitions 4 --json",
        "orders --with v2 --partitions four",
        "orders payments --with v2 --partitions 4",
        "orders orders --partitions 4",
        "orders payments=p2 --with v2 --partitions 4",
        "orders payments= --partitions 4",
        "orders =p2 --partitions 4",
        "orders=o2 --partitions 4 --keep-name",
        "orders --with o2 --partitions 4 --keep-name",
        "orders --keep-name --stay",
        "orders --keep-name --undo",
        "orders --stay --undo",
        "orders --stay --partitions 4",
    ],
)
def test_options_that_do_not_go_together_are_bad_usage(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["replace", *arguments.split(), "--bootstrap-server", "127.0.0.1:1"])
    assert ended.value.code == 2
    assert "modeaware replace" in capsys.readouterr().err


def test_plan_says_everything_beforehand() -> None:
    acls = TopicAcls(("kafka-acls.sh --add",))
    plan = plan_replacement(COMMAND, FACTS, FOUND, WANTED.config, 10_000, acls, ["mm2-status", "__strimzi_store_topic"])
    told = "\n".join(replacement_text(plan))
    for words in (
        "orders: 6 -> 4 partitions, by the new topic orders-v2 (3 replicas).",
        "No record is copied. orders is deleted once its own retention has emptied it, and every group has moved.",
        "Config retention.bytes=1500 (scaled)",
        "Config cleanup.policy=delete (copied)",
        "Config retention.ms=5 (given)",
        "Config follower.replication.throttled.replicas is not copied, because it names partitions",
        "Group app (streams): has no members now",
        "Group audit (classic): members: 2 seen to be mode-aware by their client id. Nothing to do; but with ",
        "Group billing (classic): members: 2 seen to be mode-aware, 1 unknown. Nothing to do if all run modeaware; ",
        "Group connect-sink (classic): has no members now",
        "pause for about 11 s",
        "  kafka-acls.sh --add",
        "MirrorMaker 2 is in use",
        "strimzi.io/managed=false",
        "Sink connectors of Kafka Connect: sink",
        "MSG_SIZE_TOO_LARGE",
    ):
        assert words in told
    assert '"origin": "scaled"' in json_text(plan)


def test_plan_names_no_doubt_about_a_waived_group() -> None:
    facts = replace(FACTS, unclear_groups={"late": GroupsDoubt("a rebalance", rebalancing="late")})
    waive = GroupRule("waive", "late", FACTS.topic, "", 0)
    doubts = [
        plan_replacement(COMMAND, facts, FOUND, {}, 0, requirement=required_of((), facts, rules, (), 1)).groups_doubt
        for rules in ((), (waive,))
    ]
    assert doubts == ["a rebalance", None]


def test_plan_names_what_is_not_known_and_what_goes_without_a_fence() -> None:
    facts = replace(FACTS, groups={}, groups_doubt=GroupsDoubt("a rebalance"))
    command = replace(COMMAND, fence="none", replication_factor=-1, accept_state_loss=("app",))
    hidden = TopicAcls(unknown="not authorized")
    told = "\n".join(replacement_text(plan_replacement(command, facts, FOUND, {}, 10_000, hidden)))
    for words in (
        "(as many replicas as brokers choose)",
        "No group uses orders.",
        "There may be more groups; the switch waits until all groups are known: a rebalance",
        "The ACLs of orders and orders-v2 are not compared: not authorized",
        "WARNING: without the fence",
        "pause for about 10 s",
    ):
        assert words in told


def test_plan_of_a_compacted_topic_names_the_job_that_copies_its_values() -> None:
    command = replace_command("orders", replace(WANTED, evacuate=True), FOUND)
    assert command.evacuate
    assert not COMMAND.evacuate
    plan = plan_replacement(command, FACTS, FOUND, {}, 10_000)
    told = "\n".join(replacement_text(plan))
    assert plan.evacuate
    assert "modeaware.spark.evacuate once orders is sealed: it copies the latest values to orders-v2" in told
    assert "No record is copied" not in told


def test_cluster_without_such_tools_gets_the_general_hints() -> None:
    assert len(hints_of("orders", ["orders", "west.orders", "heartbeats"], ["billing"])) == 2


READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 4, 8, 10, 11
DENIED, ALLOWED, LITERAL, PREFIX = 2, 3, 3, 4


def brokers_with(*acls: Acl, error: int = 0, fails: int = 0) -> Any:
    """Brokers that list these ACLs, after ``fails`` requests without an answer; ``asked`` counts the requests."""

    def respond(request: Any) -> Any:
        assert isinstance(request, DescribeAclsRequest)
        brokers.asked += 1
        if brokers.asked <= fails:
            raise ClusterError("no answer", code=ErrorCode.REQUEST_TIMED_OUT)
        resources = [
            SimpleNamespace(
                resource_name=acl.name,
                pattern_type=PREFIX if acl.is_prefix else LITERAL,
                acls=[
                    SimpleNamespace(
                        permission_type=acl.permission, principal=acl.principal, host=acl.host, operation=acl.operation
                    )
                ],
            )
            for acl in acls
        ]
        return SimpleNamespace(error_code=error, error_message=None, resources=resources)

    brokers = SimpleNamespace(ask=respond, asked=0)
    return brokers


def allow(user: str, operation: int, name: str = "orders", host: str = "*", *, prefix: bool = False) -> Acl:
    return Acl(ALLOWED, f"User:{user}", host, operation, name, prefix)


def deny(user: str, operation: int, name: str = "orders", host: str = "*", *, prefix: bool = False) -> Acl:
    return allow(user, operation, name, host, prefix=prefix)._replace(permission=DENIED)


def compared(*acls: Acl) -> TopicAcls:
    found = compare_acls(read_acls(brokers_with(*acls)), "orders", "orders-v2", "broker:9092")
    assert found is not None
    return found


def test_acls_become_the_commands_for_the_new_name_and_those_that_deny_come_first() -> None:
    found = compared(allow("a", ALL_OPERATIONS), deny("b", WRITE, host="10.0.0.1"), allow("c", READ, "payments"))
    head = "kafka-acls.sh --bootstrap-server broker:9092 --command-config admin.properties --add --"
    assert found.commands == tuple(
        f"{head}{each} --topic orders-v2"
        for each in (
            "deny-principal User:b --deny-host 10.0.0.1 --operation Write",
            "allow-principal User:a --operation All",
        )
    )
    with pytest.raises(RequestRefused, match="2 ACLs of 'orders' do not cover 'orders-v2', and 0 ACLs") as refused:
        check_access(COMMAND, found)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("old", "new", "covers"),
    [
        (allow("a", READ), allow("a", READ), True),
        (allow("a", READ), allow("a", READ, host="10.0.0.1"), False),
        (allow("a", READ, host="10.0.0.1"), allow("a", READ), True),
        (allow("a", READ), allow("*", ALL_OPERATIONS), True),
        (allow("*", READ), allow("a", READ), False),
        (allow("a", DESCRIBE), allow("a", WRITE), True),
        (allow("a", DESCRIBE), allow("a", ALTER_CONFIGS), False),
        (allow("a", DESCRIBE_CONFIGS), allow("a", ALTER_CONFIGS), True),
        (allow("a", READ), allow("a", DESCRIBE), False),
        (deny("a", DESCRIBE), deny("a", READ), False),
        (deny("a", READ), deny("*", ALL_OPERATIONS), True),
        (deny("a", READ), allow("a", READ), False),
    ],
)
def test_acl_is_covered_by_one_of_the_same_permission_that_is_as_wide(old: Acl, new: Acl, covers: bool) -> None:
    assert (compared(old, new._replace(name="orders-v2")).commands == ()) is covers


def test_names_that_a_prefix_or_all_share_need_no_acl_of_their_own() -> None:
    shared = (allow("a", READ, "ord", prefix=True), allow("b", READ, "*"), deny("c", WRITE, "orders", prefix=True))
    assert compared(*shared) == TopicAcls()
    assert len(compared(allow("a", READ, "ord")).commands) == 0, "a literal name is no prefix"


def test_acls_of_the_new_topic_alone_that_deny_refuse_and_those_that_allow_are_shown() -> None:
    found = compared(deny("w", WRITE, "orders-v2"), allow("x", READ, "orders-", "10.0.0.1", prefix=True))
    assert found.commands == ()
    assert found.denied == ("name 'orders-v2' denies User:w Write",)
    assert found.allowed == ("prefix 'orders-' allows User:x Read from host 10.0.0.1",)
    told = "\n".join(acls_text(COMMAND, found))
    assert all(line in told for line in (*found.denied, *found.allowed))
    with pytest.raises(RequestRefused, match="0 ACLs of 'orders' do not cover 'orders-v2', and 1 ACLs"):
        check_access(COMMAND, found)
    check_access(COMMAND, replace(found, denied=()))


def test_acls_that_the_user_may_not_list_are_unknown_and_no_answer_is_an_error() -> None:
    assert read_acls(brokers_with(error=54)) is None, "no authorizer"
    hidden = compare_acls(read_acls(brokers_with(error=31)), "orders", "orders-v2", "")
    assert hidden is not None
    assert "CLUSTER_AUTHORIZATION_FAILED" in (hidden.unknown or "")
    check_access(COMMAND, hidden)
    for brokers in (brokers_with(error=7), brokers_with(fails=1)):
        with pytest.raises(ClusterError) as failed:
            read_acls(brokers)
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT


def requested(
    brokers: Any, *topics: str, wanted: TopicReplacement = WANTED, switched: bool = False, **options: bool
) -> tuple[list[str], dict[str, ModeAwareError]]:
    """What replace_commands makes of a request for these topics."""
    under_way = {topic: ReplacedBy("orders-v2", "id", 4, switched=True) for topic in topics if switched}

    def retrying() -> Retrying:
        return Retrying(Deadline(30.0), RetryPolicy(backoff_max_s=100.0), sleep=lambda _: None)

    commands, failures = replace_commands(brokers, dict.fromkeys(topics, wanted), under_way, "b:1", retrying, **options)
    return [command.topic for command in commands], failures


def looked_at(_: object, topics: Sequence[str]) -> dict[str, OldTopic]:
    """What the brokers say of topics that are to be replaced."""
    return dict.fromkeys(topics, FOUND)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those of all topics, of which the brokers describe each to be replaced."""
    found = ["orders", "payments.orders", "heartbeats"]
    monkeypatch.setattr("modeaware.admin.replacements.describe_old_topics", looked_at)
    monkeypatch.setattr("modeaware.admin.replacements.topic_names", lambda _: found)
    return found


def test_requests_of_programs_are_refused_while_acls_are_missing_before_the_switch(names: list[str]) -> None:
    lacking = brokers_with(allow("a", READ), fails=1)
    commands, failures = requested(lacking, "orders", "audit")
    assert (commands, list(failures)) == (["audit"], ["orders"]), "no answer is asked for again"
    assert lacking.asked == 2, "once for all topics"
    assert failures["orders"].code is ErrorCode.POLICY_VIOLATION
    accepting = replace(WANTED, accept_access_loss=True)
    for options in ({"wanted": accepting}, {"switched": True}, {"pause_before_switch": True}, {"undo": True}):
        assert requested(lacking, "orders", **cast(Any, options)) == (["orders"], {})
    _, failures = requested(brokers_with(fails=99), "orders")
    assert failures["orders"].code is ErrorCode.REQUEST_TIMED_OUT, "no answer is no consent"


@pytest.mark.parametrize(
    "evidence", ["mm2-configs.west.internal", "mm2-offset-syncs.b.internal", "a.checkpoints.internal"]
)
def test_topics_of_mirrormaker_refuse_the_switch_until_the_fence_is_known_to_stay(
    evidence: str, names: list[str]
) -> None:
    brokers = brokers_with()
    assert requested(brokers, "orders") == (["orders"], {}), "a topic .orders and heartbeats alone are no evidence"
    names.append(evidence)
    _, failures = requested(brokers, "orders")
    assert evidence in str(failures["orders"])
    assert "--accept-mirroring" in str(failures["orders"])
    assert failures["orders"].code is ErrorCode.POLICY_VIOLATION
    for wanted in (replace(WANTED, accept_mirroring=True), replace(WANTED, fence="none")):
        assert requested(brokers, "orders", wanted=wanted) == (["orders"], {})
    assert requested(brokers, "orders", pause_before_switch=True) == (["orders"], {})
    assert "MirrorMaker" in "".join(hints_of("orders", names, []))
    names.remove("heartbeats")
    refused = evidence.startswith("mm2-")
    assert bool(requested(brokers, "orders")[1]) is refused, "checkpoints of another tool"


RECORD = TopicRecord("orders", "id", 3, 1, (PartitionMode.READ_WRITE,), changed_ms=9_000)
BEGUN = Replacement("orders-v2", 4, 1_000, new_topic_id="v2", announced_ms=2_000)
SWITCHED = replace(BEGUN, switched_ms=5_000, reason="group-not-moved:billing")


def described(
    replacement: Replacement | None, phase: str, changed_ms: int = 0, not_moved: tuple[str, ...] = ("billing",)
) -> TopicDescription:
    shown = ReplacementReport.of(replacement, changed_ms, not_moved) if replacement is not None else None
    return TopicDescription("orders", "id", 3, phase, None, ("audit", "billing"), (), replacement=shown)


def test_description_shows_phase_times_and_groups_that_have_not_moved() -> None:
    told = describe_text([described(replace(SWITCHED, fence="none"), "drain")], expand=False)
    assert "Replaced by orders-v2 (id v2, 4 partitions): requested 1970-01-01 00:00:01 UTC, announced" in told
    assert "Waits: group 'billing' has no offset on the new topic" in told
    assert "Not on the new topic yet: billing" in told
    assert "Fence none" in told
    told = describe_text([described(SWITCHED, "drain", not_moved=("billing", "late"))], expand=False)
    assert "Waits: group 'billing' (and 1 more) has no offset on the new topic" in told
    assert "Not on the new topic yet: billing, late\n" in told
    assert "Replaces payments" in describe_text([replace(described(None, "done"), replaces="payments")], expand=False)


def test_wait_ends_where_it_pauses_is_done_or_is_given_up_and_knows_the_pause_of_readers() -> None:
    watch = Watch([Replace(6, COMMAND)])
    assert not watch.ended(described(BEGUN, "announce"))
    assert not watch.ended(described(SWITCHED, "seal", 6_000))
    assert not watch.ended(described(SWITCHED, "drain", 17_000))
    assert watch.ended(described(replace(SWITCHED, released_ms=1), "done", 30_000))
    assert watch.pause_ms == 12_000
    late = Watch([Replace(6, COMMAND)])
    assert late.ended(described(replace(SWITCHED, released_ms=1), "done", 30_000))
    assert late.pause_ms is None, "it was not seen"
    paused = replace(BEGUN, pause_before_switch=True, reason=reasons.PAUSED)
    assert Watch([Replace(6, COMMAND)]).ended(described(paused, "announce"))
    assert not Watch([Replace(6, replace(COMMAND, undo=True))]).ended(described(paused, "announce"))
    assert Watch([Replace(6, replace(COMMAND, undo=True))]).ended(described(None, "done"))


@pytest.mark.parametrize(
    ("now_under_the_name", "was_seen", "what"),
    [
        ({"points_to": "orders-v2"}, False, reasons.text(reasons.NAME_TAKEN)),
        ({"points_to": "orders-v2"}, True, reasons.text(reasons.NAME_TAKEN)),
        ({"replaces": "orders-v2"}, False, "a new topic, which replaces orders-v2, has the name now"),
        ({}, True, reasons.text(reasons.NAME_TAKEN)),
    ],
)
def test_wait_for_a_replacement_succeeds_where_another_topic_has_the_old_name_by_now(
    now_under_the_name: dict[str, str], was_seen: bool, what: str
) -> None:
    watch, session = Watch([Replace(6, COMMAND)]), cast(Any, SimpleNamespace())
    with_partitions = replace(described(SWITCHED, "drain"), partitions=cast(Any, ("p",) * 6))
    assert not was_seen or not watch.ended(with_partitions)
    other = replace(described(None, "done"), topic_id="other", partitions=cast(Any, ("p",)))
    other = replace(other, **cast(Any, now_under_the_name))
    assert watch.ended(other)
    fewer = "; 2 fewer partitions" if was_seen else ""
    expected = [f"orders: replaced by orders-v2 and deleted{fewer}.", f"orders: {what}."]
    assert outcome(session, "orders", watch) == expected


def test_wait_for_a_replacement_fails_where_it_was_given_up() -> None:
    watch = Watch([Replace(6, COMMAND)])
    assert not watch.ended(described(BEGUN, "announce"))
    assert watch.ended(described(None, "done"))
    with pytest.raises(ModeAwareError, match="was given up or undone"):
        outcome(cast(Any, SimpleNamespace()), "orders", watch)


def test_name_of_a_topic_that_is_gone_points_to_its_new_topic() -> None:
    gone = replace(RECORD, topic_id="old", replacement=replace(SWITCHED, gone_ms=6_000))
    deleted = replace(RECORD, topic_id="older")
    replay = fold([(record.topic_id, record.to_json()) for record in (deleted, gone)])
    log = ModeLog("modes", replay)
    assert (log.gone_ids("orders", "new"), log.points_to("orders", "new")) == (("older",), "orders-v2")
    assert log.points_to("orders", "old") is None, "that is the topic itself"
    returning = replace(
        RECORD,
        topic="orders-v2",
        topic_id="id-2",
        replacement=replace(SWITCHED, new_topic="orders", new_topic_id="new"),
    )
    replay.apply("id-2", returning.to_json())
    assert ModeLog("modes", replay).points_to("orders", "new") is None, "it has come back to the name"
    assert "its name points to 'orders-v2', which has replaced it" in str(no_such_topic("orders", ["order"], log))
    for log_of in (log, None):
        assert str(no_such_topic("payments", ["orders"], log_of)).endswith("does not exist")
    again = replace(described(None, ""), gone_ids=("older",), points_to="orders-v2")
    told = describe_text([again], expand=False)
    assert "The name points to orders-v2" in told
    assert "topic id older: that topic was deleted" in told


LOG = ModeLog("modes", Replay())
COUNTS = {"orders": 3, "payments": 3}


class FakeChange:
    """Topics that one snapshot has, and brokers whose every request is noted in ``asked``.

    Attributes:
        failures: what the controller returns of a topic.
        ends: what each check of ``--wait`` finds.
        deletes, fences: whether brokers delete topics, and have a fence.
    """

    is_embedded = False
    admission = Change.admission
    take_snapshot = Change.take_snapshot
    deletes = True
    fences = True

    def __init__(
        self,
        log: ModeLog = LOG,
        failures: dict[str, ModeAwareError | None] | None = None,
        ends: Sequence[TopicDescription | RequestRefused | BaseException] = (),
        facts: dict[str, TopicFacts] | None = None,
    ) -> None:
        self.log, self.failures, self.ends, self.facts = log, failures or {}, ends, facts or {}
        self.asked: list[Any] = []
        self.replaced: list[str] = []
        self.waited: tuple[str, ...] = ()
        self.acls: tuple[Acl, ...] = ()
        cluster = SimpleNamespace(
            brokers=SimpleNamespace(ask=self._ask),
            topic_names=lambda: ["orders", "payments"],
            shape=lambda topic: (facts := self.facts.get(topic)) and (facts if facts.topic_id else None),
        )
        self.session = SimpleNamespace(
            cluster=cluster,
            bootstrap_server="broker:9092",
            controller=ControllerConfig(),
            clock=SYSTEM_CLOCK,
            read_log=self._read_log,
            observer=lambda: SimpleNamespace(observe_all=self._observe_all),
        )

    def _read_log(self) -> ModeLog:
        self.asked.append("log")
        return self.log

    def _ask(self, request: Any) -> Any:
        self.asked.append("acls")
        return brokers_with(*self.acls).ask(request)

    def _observe_all(self, targets: Sequence[SnapshotTarget], rules: object) -> list[TopicFacts]:
        self.asked.append({target.topic for target in targets})
        known = {t: TopicFacts(t, "id", n, partitions=dict.fromkeys(range(n), ON)) for t, n in COUNTS.items()}
        return [(known | self.facts).get(target.topic) or TopicFacts(target.topic, None) for target in targets]

    def retry_each(self, topics: Sequence[str], attempt: Callable[[Sequence[str]], Any]) -> Any:
        return attempt(topics)

    def validate(self, topic: str, step: Replace) -> None:
        pass

    def send(self, steps: list[Replace]) -> dict[str, ModeAwareError | None]:
        self.replaced = [step.command.topic for step in steps]
        return {topic: self.failures.get(topic) for topic in self.replaced}

    def embed(self, claim: object) -> None:
        self.asked.append("embed")

    def wait(self, *topics: str, ended: Callable[[Any], bool], lost: Callable[[Any], None], **_: object) -> None:
        self.waited = topics
        for each in self.ends:
            if isinstance(each, RequestRefused):
                lost(each)
            elif isinstance(each, BaseException):
                raise each
            else:
                assert ended(each) is (each.phase == "done")


ON = PartitionFacts(0, 0, 0, 0, 0)
REFUSAL = RequestRefused("topic 'payments': not so", code=ErrorCode.POLICY_VIOLATION, topic="payments")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run ``modeaware replace`` on a :class:`FakeChange`."""
    monkeypatch.setattr("modeaware.cli.replace.describe_old_topics", looked_at)
    monkeypatch.setattr("modeaware.cli.change.open_session", lambda *_: nullcontext())

    def run(change: FakeChange, *arguments: str) -> int:
        monkeypatch.setattr("modeaware.cli.change.Change", lambda *_: nullcontext(change))
        answers = [SimpleNamespace(error_code=0 if change.deletes else ErrorCode.TOPIC_DELETION_DISABLED)]
        monkeypatch.setattr(effects_module, "_ask_controller", lambda *_: change.asked.append("deletes") or answers)
        monkeypatch.setattr("modeaware.cli.change.has_fence", lambda _: change.fences)
        return cli.main(["replace", *arguments, "--bootstrap-server", "127.0.0.1:1"])

    return run


BOTH = ("orders=o2", "payments=p2", "--partitions", "4")


@pytest.mark.parametrize("deletes", [True, False])
def test_log_topics_and_acls_are_read_once_for_all_topics(deletes: bool, run: Callable[..., int]) -> None:
    change = FakeChange()
    change.deletes = deletes
    assert run(change, *BOTH, "--yes") == (0 if deletes else 1)
    assert change.asked == ["log", {"orders", "payments", "o2", "p2"}, "deletes", *(["acls"] if deletes else [])]
    assert change.replaced == (["orders", "payments"] if deletes else [])


@pytest.mark.parametrize("failing", ["none", "the snapshot", "its ACLs", "the controller"])
def test_of_several_topics_one_that_is_refused_does_not_keep_the_others_and_fails_the_call(
    failing: str, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    change = FakeChange(failures={"payments": REFUSAL} if failing == "the controller" else {})
    change.facts = {"p2": TopicFacts("p2", "taken", 1)} if failing == "the snapshot" else {}
    change.acls = (deny("b", WRITE, "p2"),) if failing == "its ACLs" else ()
    assert run(change, *BOTH, "--yes") == (0 if failing == "none" else 1)
    told = capsys.readouterr()
    assert "orders: being replaced by o2 (4 partitions)." in told.out
    assert ("payments: being replaced by p2" in told.out) is (failing == "none")
    assert ("error: topic 'payments': " in told.err) is (failing != "none")
    assert "orders: 3 -> 4 partitions" in told.err
    before = failing in ("the snapshot", "its ACLs")
    assert change.replaced == (["orders"] if before else ["orders", "payments"])
    assert run(change, *BOTH, "--dry-run") == (1 if before else 0)
    del change.replaced[:]
    alone = run(change, "payments=p2", "--partitions", "4", "--yes")
    assert (alone, change.replaced) == (int(failing != "none"), [] if before else ["payments"])


def test_a_topic_that_is_refused_is_not_waited_for(run: Callable[..., int]) -> None:
    change = FakeChange(ends=[described(replace(SWITCHED, released_ms=1), "done", 30_000)])
    change.acls = (deny("b", WRITE, "p2"),)
    assert run(change, *BOTH, "--yes", "--wait") == 1
    assert (change.replaced, change.waited) == (["orders"], ("orders",))


def test_a_yes_is_no_answer_to_what_was_not_shown(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The topic has another number of partitions than when the question was asked."""
    change = FakeChange()

    def confirmed(yes: bool) -> bool:
        change.facts = {"orders": TopicFacts("orders", "id", 5, partitions=dict.fromkeys(range(5), ON))}
        return True

    monkeypatch.setattr("modeaware.cli.progress.confirmed", confirmed)
    assert run(change, *BOTH) == 1
    assert change.replaced == []
    assert "error: the steps for orders differ from those shown. No step was taken" in capsys.readouterr().err


def test_plan_shows_groups_that_are_registered_by_name_and_not_listed(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    named = GroupRule("require", "spark", "o*", "", 0)
    others = (replace(named, group="s*", glob=True), replace(named, group="late"), replace(named, topic="payments"))
    waived = GroupRule("waive", "late", "orders", "", 0)
    log = ModeLog("modes", Replay())
    log.replay.group_rules = GroupRulesRecord((named, *others, waived))
    assert run(FakeChange(log), "orders=o2", "--partitions", "4", "--dry-run") == 0
    told = capsys.readouterr().err
    assert "Group spark (not on the topic yet): registered, so the drain waits for it" in told
    assert "No group uses" not in told
    assert "late" not in told
    assert run(FakeChange(log), "orders=o2", "--partitions", "4", "--dry-run", "--json") == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert [(group["group"], group["kind"]) for group in groups] == [("spark", None)]


@pytest.mark.parametrize(
    ("now", "arguments", "why"),
    [
        (None, ("orders=o2", "--partitions", "4"), "a replacement ends with a deletion: set delete.topic.enable=true"),
        (None, ("orders=o2", "--partitions", "4", "--fence", "none"), None),
        ("begun", ("orders", "--undo"), "an undo of its replacement deletes 'orders-v2': set delete.topic.enable=true"),
        ("begun", ("orders",), None),
    ],
)
def test_dry_run_refuses_what_needs_a_deletion_that_brokers_do_not_make(
    now: str | None,
    arguments: tuple[str, ...],
    why: str | None,
    run: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    change = FakeChange(LOG if now is None else replaced_log(BEGUN))
    assert run(change, *arguments, "--dry-run") == 0
    change.deletes = False
    capsys.readouterr()
    assert run(change, *arguments, "--dry-run") == (0 if why is None else 1)
    told = capsys.readouterr().err
    assert (f"topic 'orders': the brokers delete no topics, and {why}" in told) is (why is not None), told


@pytest.mark.parametrize(("more", "is_refused"), [((), True), (("--fence", "none"), False)])
def test_dry_run_refuses_a_fence_that_brokers_do_not_have(
    more: tuple[str, ...], is_refused: bool, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    change = FakeChange()
    change.fences = False
    assert run(change, "orders=o2", "--partitions", "4", *more, "--dry-run") == int(is_refused)
    assert ("topic 'orders': the fence needs a KRaft cluster" in capsys.readouterr().err) is is_refused


def replaced_log(replacement: Replacement) -> ModeLog:
    return ModeLog("modes", fold([("id", replace(RECORD, replacement=replacement).to_json())]))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--with", "x2"),
            "already being replaced by 'orders-v2': name that topic, or undo the replacement first (--undo)",
        ),
        (("--partitions", "0"), "invalid partition count 0: 1 to"),
        (("--partitions", "5"), "another number of partitions (4)"),
    ],
)
def test_option_that_differs_from_the_replacement_in_progress_is_refused(
    options: tuple[str, ...], told: str, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(FakeChange(replaced_log(BEGUN)), "orders", *options, "--yes") == 1
    assert told in capsys.readouterr().err


GONE = replace(SWITCHED, released_ms=6_000, deleting_ms=7_000, gone_ms=8_000, reason=None)
ABSENT = {"orders": TopicFacts("orders", None)}


@pytest.mark.parametrize(
    ("options", "done"),
    [
        (("--with", "orders-v2", "--partitions", "4"), True),
        (("--with", "orders-v2", "--partitions", "4", "--delay", "1h", "--replication-factor", "-1"), True),
        (("--with", "orders-v2", "--partitions", "4", "--config", "a=1", "--replication-factor", "3"), True),
        (("--with", "orders-v2", "--partitions", "5"), False),
        (("--with", "orders-v3", "--partitions", "4"), False),
        (("--with", "orders-v2", "--partitions", "4", "--config", "a=2"), False),
        (("--with", "orders-v2", "--partitions", "4", "--replication-factor", "2"), False),
        (("--with", "orders-v2", "--partitions", "4", "--pause-before-switch"), False),
        (("--with", "orders-v2"), False),
        (("--partitions", "4"), False),
        (("--partitions", "4", "--keep-name"), False),
        (("--undo",), False),
        ((), False),
    ],
)
def test_repetition_of_a_replacement_that_is_done_sends_nothing_and_succeeds(
    options: tuple[str, ...],
    done: bool,
    run: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    new_topic = CurrentTopic(4, frozenset({3}), {"a": "1"}, topic_id="v2")
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: {"orders-v2": new_topic})
    change = FakeChange(replaced_log(GONE), facts=ABSENT)
    assert run(change, "orders", *options, "--wait", "--yes") == (0 if done else 1)
    told = capsys.readouterr()
    assert told.out == ("orders: already replaced by orders-v2, with 4 partitions.\n" if done else "")
    assert ("its name points to 'orders-v2', which has replaced it" in told.err) is not done
    assert (change.replaced, change.waited, "embed" in change.asked) == ([], (), False)


@pytest.mark.parametrize(
    "new_topic",
    [
        None,
        CurrentTopic(4, topic_id="other"),
        CurrentTopic(4, topic_id="v2", record=replace(RECORD, replacement=replace(SWITCHED, new_topic="orders-v3"))),
    ],
    ids=["deleted", "recreated", "replaced in its turn"],
)
def test_repetition_fails_where_the_name_leads_elsewhere_by_now(
    new_topic: CurrentTopic | None, run: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {} if new_topic is None else {"orders-v2": new_topic}
    monkeypatch.setattr("modeaware.cli.replace.current_topics", lambda *_: found)
    assert run(FakeChange(replaced_log(GONE), facts=ABSENT), "orders=orders-v2", "--partitions", "4", "--yes") == 1


def test_of_several_topics_one_that_is_done_does_not_keep_the_others(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "modeaware.cli.replace.current_topics", lambda *_: {"orders-v2": CurrentTopic(4, frozenset({3}), topic_id="v2")}
    )
    other = TopicFacts("payments", "id-p", 3, partitions=dict.fromkeys(range(3), ON))
    change = FakeChange(replaced_log(GONE), facts={**ABSENT, "payments": other})
    assert run(change, "orders=orders-v2", "payments=p2", "--partitions", "4", "--yes") == 0
    assert change.replaced == ["payments"]
    assert "orders: already replaced by orders-v2, with 4 partitions.\n" in capsys.readouterr().out


@pytest.mark.parametrize(("end", "stays"), [(0, False), (3, True)])
def test_undo_says_whether_the_new_topic_is_deleted_before_and_after(
    end: int, stays: bool, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    found = TopicFacts("orders-v2", "v2", 1, partitions={0: PartitionFacts(0, end, end, 0, 0)})
    change = FakeChange(replaced_log(BEGUN), facts={"orders-v2": found}, ends=[described(None, "done")])
    assert run(change, "orders", "--undo", "--yes") == 0
    told = capsys.readouterr().err
    assert ("orders-v2 will not be deleted: it has records." in told) is stays
    assert ("orders-v2 will be deleted" in told) is not stays
    change.session.cluster.shape = lambda topic: found if stays else None
    assert run(change, "orders", "--undo", "--yes", "--wait") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "orders: undone." + (" orders-v2 is not deleted: it has records, or another partition count." * stays)
    )


def test_each_end_is_printed_when_it_is_seen_and_stays_after_ctrl_c(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    done = described(replace(SWITCHED, released_ms=1), "done", 30_000)
    change = FakeChange(ends=[done, KeyboardInterrupt()])
    assert run(change, *BOTH, "--yes", "--wait") == cli.INTERRUPTED
    told = capsys.readouterr()
    assert "orders: replaced by o2; every required group has moved." in told.out
    assert "--topic payments" in told.err
    assert "--topic orders" not in told.err, "that one has ended"


@pytest.mark.parametrize(("seen", "undoable"), [(BEGUN, "orders payments"), (SWITCHED, "payments")])
def test_ctrl_c_offers_to_undo_what_has_not_switched(
    seen: Replacement, undoable: str, run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    change = FakeChange(ends=[described(seen, "seal"), KeyboardInterrupt()])
    assert run(change, *BOTH, "--yes", "--wait") == cli.INTERRUPTED
    told = capsys.readouterr().err
    assert "--topic orders" in told
    assert f"Undo it:      modeaware replace {undoable} --undo" in told
    alone = FakeChange(ends=[described(seen, "seal"), KeyboardInterrupt()])
    assert run(alone, "orders=o2", "--partitions", "4", "--yes", "--wait") == cli.INTERRUPTED
    assert ("Undo it:" in capsys.readouterr().err) is (seen is BEGUN)


def test_topic_that_vanishes_or_whose_replacement_is_given_up_fails_the_wait(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    change = FakeChange(ends=[REFUSAL, described(None, "done")])
    assert run(change, *BOTH, "--yes", "--wait") == 1
    told = capsys.readouterr().err
    assert "error: topic 'payments': not so" in told
    assert "error: topic 'orders': its replacement by 'o2' was given up" in told


def test_undo_of_a_shrink_is_none_of_a_replacement() -> None:
    session: Any = SimpleNamespace(controller=ControllerConfig(), clock=SYSTEM_CLOCK)
    for now, what in ((SWITCHED, "has replaced it: change that"), (BEGUN, "undo it .modeaware replace --undo")):
        situation = Situation("orders", replace(RECORD, replacement=now), replace(FACTS, topic_id=RECORD.topic_id))
        command = undo_command(situation)
        assert command is not None
        with pytest.raises(RequestRefused, match=what):
            Change(session).admission(command, situation)

"""What a check asks, the rights that it looks for, and what it finds of settings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ClusterError, ControllerUnavailable
from modeaware.librdkafka import KafkaError
from modeaware.modelog.records import ClaimRecord
from modeaware.reports.needs import SHORT_LIVED, Role, Scope, needs
from modeaware.reports.rights import (
    Asked,
    CheckReport,
    SeenTopic,
    Settings,
    Site,
    State,
    Verdict,
    ask,
    check_report,
    check_text,
    over_the_wire,
)
from modeaware.reports.serialise import to_json
from modeaware.wire.brokers import Brokers
from modeaware.wire.transport import Ask
from tests.support.fake_endpoint import FakeEndpoint

LOG = "__partition_modes"
NOT_SAID = {31}
ALL = set(range(3, 12))


class Answering(Brokers):
    """Answers each kind of request as it was told to; by default everything is there and allowed."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.operations: Any = ALL
        self.error = 0
        self.partitions: list[Any] = [SimpleNamespace(replica_nodes=[1, 2])]
        self.asked: list[Any] = []

    def ask_any(self, request: Any) -> tuple[int, Any]:
        told = {"error_code": self.error, "partitions": self.partitions, "authorized_operations": self.operations}
        topics = [SimpleNamespace(name=topic.name, **told) for topic in request.topics]
        return 7, SimpleNamespace(topics=topics, brokers=[1, 2, 3], controller_id=-1)

    def ask_each(self, asks: Any, timeout_s: float | None = None) -> list[Any]:
        (asked,) = asks
        assert isinstance(asked, Ask)
        assert asked.node_id == 7
        self.asked.append(asked.request)
        name = type(asked.request).__name__.removesuffix("Request")
        fine = [SimpleNamespace(error_code=0, error_message=None)]
        default = SimpleNamespace(error_code=0, authorized_operations=ALL, groups=fine, results=fine, topics=fine)
        return [self.answers.get(name, default)]


def asked_of(brokers: Answering, scope: Scope) -> tuple[dict[str, State], Asked]:
    found = ask(brokers, needs(scope), scope.mode_log)
    return {str(need): verdict.state for need, verdict in found.verdicts.items()}, found


CONTROLLER = Scope(Role.CONTROLLER, topics=["a"], groups=["g"])


def test_nothing_that_changes_anything_is_asked() -> None:
    brokers = Answering()
    brokers.error, brokers.partitions = KafkaError.UNKNOWN_TOPIC_OR_PART, []
    asked_of(brokers, CONTROLLER)
    harmless = {"DescribeClusterRequest", "OffsetFetchRequest"}
    refused = {"HeartbeatRequest", "AddOffsetsToTxnRequest"}
    by_kind = {type(request).__name__: request for request in brokers.asked}
    assert by_kind.keys() == {*harmless, *refused, "CreateTopicsRequest"}
    assert by_kind["CreateTopicsRequest"].validate_only is True
    assert by_kind["HeartbeatRequest"].member_id.startswith("modeaware-check-")
    assert by_kind["AddOffsetsToTxnRequest"].producer_id == 2**62


def test_brokers_that_do_not_tell_operations_leave_it_unknown() -> None:
    brokers = Answering(DescribeCluster=SimpleNamespace(error_code=0, authorized_operations=NOT_SAID))
    brokers.operations = NOT_SAID
    states, _ = asked_of(brokers, CONTROLLER)
    assert states[f"topic {LOG} READ"] is State.UNKNOWN
    assert states["cluster kafka-cluster DESCRIBE"] is State.UNKNOWN
    assert states["topic * DESCRIBE"] is State.PASS, "it was described"
    assert states[f"topic {LOG} DESCRIBE_CONFIGS"] is State.PASS, "it was tried"
    assert states["group g READ"] is State.PASS


@pytest.mark.parametrize(
    ("code", "state", "why"),
    [
        (None, State.UNKNOWN, None),
        (0, State.PASS, None),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, State.FAIL, None),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, State.FAIL, None),
        (KafkaError.TOPIC_ALREADY_EXISTS, State.PASS, None),
        (KafkaError.REQUEST_TIMED_OUT, State.UNKNOWN, None),
        (KafkaError.POLICY_VIOLATION, State.PASS, "POLICY_VIOLATION: three replicas at least"),
    ],
)
def test_a_log_that_is_missing_is_tried(code: int | None, state: State, why: str | None) -> None:
    result = SimpleNamespace(error_code=code, error_message="three replicas at least")
    silent = ClusterError("no answer")
    kinds = ("DescribeCluster", "Heartbeat", "AddOffsetsToTxn", "CreateTopics")
    answer = SimpleNamespace(topics=[result])
    brokers = Answering(**dict.fromkeys(kinds, silent) if code is None else {"CreateTopics": answer})
    brokers.error, brokers.partitions = KafkaError.UNKNOWN_TOPIC_OR_PART, []
    states, found = asked_of(brokers, CONTROLLER)
    assert states[f"topic {LOG} CREATE"] is state
    assert states["group g READ"] is (State.UNKNOWN if code is None else State.PASS)
    assert found.not_creatable == why


# Rights


@pytest.mark.parametrize("role", [Role.CONTROLLER, Role.OPERATOR])
def test_replacements_need_more_rights_and_the_creation_of_a_new_topic_is_not_the_mode_logs(role: Role) -> None:
    scope = Scope(role, topics=["a"], new_topics=["a-v2"])
    more = {"topic a ALTER_CONFIGS", "topic a-v2 CREATE"}
    if role is Role.CONTROLLER:
        more |= {"topic a WRITE", "topic a-v2 DESCRIBE_CONFIGS", "topic a-v2 DELETE"}
    assert names(scope) - names(replace(scope, new_topics=())) == more
    refused = SimpleNamespace(topics=[SimpleNamespace(error_code=KafkaError.POLICY_VIOLATION, error_message="no")])
    brokers = Answering(CreateTopics=refused)
    brokers.partitions = []
    found, asked = asked_of(brokers, scope)
    assert found["topic a-v2 CREATE"] is State.PASS, "the right is there"
    (new,) = (
        brokers.asked[-1].topics
        if role is Role.OPERATOR
        else next(
            r for r in brokers.asked if type(r).__name__ == "CreateTopicsRequest" and r.topics[0].name == "a-v2"
        ).topics
    )
    assert (new.configs, new.replication_factor) == ([], -1)
    assert (asked.not_creatable is None) is (role is Role.OPERATOR)
    missing = replace(asked, verdicts={need: Verdict(State.FAIL) for need in asked.verdicts if need.name == "a-v2"})
    assert not any("kafka-topics.sh" in each for each in check_report(scope, missing, {}, Site("b:1")).commands)


def names(scope: Scope) -> set[str]:
    return {str(need) for need in needs(scope)}


def test_a_client_has_rights_of_its_own() -> None:
    log = f"topic {LOG} READ"
    assert names(Scope(Role.CLIENT)) == {log}
    assert names(Scope(Role.CLIENT, mode_source="wire")) == set()
    assert names(Scope(Role.CLIENT, topics=["a"])) == {log, "topic a WRITE"}
    assert names(Scope(Role.CLIENT, topics=["a"], groups=["g"])) == {log, "topic a READ", "group g READ"}
    producer = Scope(Role.CLIENT, topics=["a"], transactional_ids=["t"])
    assert names(producer) == {log, "topic a WRITE", "transactional id t WRITE"}


def test_closed_lists_need_the_sight_of_their_groups_alone() -> None:
    found = names(Scope(Role.OPERATOR, groups=["g"], closed=True))
    assert {"group g DESCRIBE", *(f"group {name} DESCRIBE" for name in SHORT_LIVED)} <= found
    assert not found & {"group * DESCRIBE", "cluster kafka-cluster DESCRIBE"}


SITE = Site("here:1", "User:ann")
PASS, FAIL = Verdict(State.PASS), Verdict(State.FAIL)


def report(site: Site, *failing: str) -> CheckReport:
    scope = Scope(Role.OPERATOR, topics=["orders"], groups=["my group"])
    wanted = needs(scope)
    assert set(failing) <= set(map(str, wanted))
    verdicts = {need: FAIL if str(need) in failing else PASS for need in wanted}
    return check_report(scope, Asked(verdicts, {LOG: SeenTopic(None, True, None)}, 7, 5, None), {}, site)


def test_a_failure_has_its_command_in_text_and_json() -> None:
    lacking = "topic orders DELETE"
    found = report(SITE, lacking)
    assert (found.passed, found.mode_log_missing) == (False, True)
    lines = list(check_text(found, SITE))
    assert [line for line in lines if line.startswith("fail")] == [
        f"fail     {lacking}: shrinking with a delay or at once, waiving groups"
    ]
    told = to_json(found)
    (failed,) = [right for right in told["rights"] if right["state"] == "fail"]
    assert (failed["resource"], failed["name"], failed["operation"]) == ("topic", "orders", "DELETE")
    assert told["commands"] == [failed["command"]]
    assert lines[lines.index(failed["command"]) - 1] == "For an administrator to run:"
    site = Site("here:1", secured=True)
    secured = list(check_text(report(site, lacking), site))
    assert "For an administrator to run, with settings in admin.properties:" in secured
    assert told["notes"] == []
    assert told["passed"] is False


# Settings


MISSING, HIDDEN = SeenTopic(None, True, None), SeenTopic(None, False, None)


class Configured(Brokers):
    """Tells configs by the resource's name; an error code or a ClusterError in the place of some."""

    def __init__(self, **configs: Any) -> None:
        self.configs = configs

    def ask(self, request: Any, node_id: int | None = None) -> Any:
        (resource,) = request.resources
        found = self.configs.get(resource.resource_name, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        if isinstance(found, ClusterError):
            raise found
        if isinstance(found, int):
            return SimpleNamespace(results=[SimpleNamespace(error_code=found, configs=[])])
        configs = [SimpleNamespace(name=name, value=value) for name, value in found.items()]
        return SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=configs)])


@pytest.mark.parametrize(
    ("seen", "policy", "state"),
    [
        (SeenTopic(1, True, None), {"cleanup.policy": "compact"}, State.PASS),
        (SeenTopic(1, True, None), {"cleanup.policy": "compact,delete"}, State.FAIL),
        (SeenTopic(2, True, None), {"cleanup.policy": "compact"}, State.FAIL),
        (SeenTopic(2, True, None), KafkaError.TOPIC_AUTHORIZATION_FAILED, State.FAIL),
        (SeenTopic(1, True, None), KafkaError.TOPIC_AUTHORIZATION_FAILED, State.PASS),
        (SeenTopic(1, True, None), ClusterError("no answer"), State.PASS),
        (MISSING, {}, State.UNKNOWN),
        (HIDDEN, {}, State.UNKNOWN),
    ],
)
def test_the_mode_log(seen: SeenTopic, policy: Any, state: State) -> None:
    asked = Asked({}, {LOG: seen}, 7, 3, None)
    found = Settings(Configured(**{LOG: policy}), Scope(Role.CLIENT), asked, {}, readable=True).found()
    assert dict(found)[f"the mode log {LOG}"].state is state


@pytest.mark.parametrize(
    ("running", "state", "detail"),
    [
        (True, State.PASS, "answers at 127.0.0.1:2"),
        (False, State.UNKNOWN, "none answers"),
        (ControllerUnavailable("it hangs"), State.UNKNOWN, "it hangs"),
    ],
)
def test_an_operator_learns_whether_a_controller_answers(
    running: bool | Exception, state: State, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_running(_: object, claim: ClaimRecord) -> bool:
        if isinstance(running, Exception):
            raise running
        return running

    replay = SimpleNamespace(claim=ClaimRecord(2, "127.0.0.1:2", "one"))
    monkeypatch.setattr("modeaware.reports.rights.read_mode_log", lambda *_: replay)
    monkeypatch.setattr("modeaware.reports.rights.is_running", is_running)
    asked = Asked({}, {LOG: SeenTopic(1, True, None), "t": MISSING}, 7, 3, None)
    found = dict(Settings(Configured(), Scope(Role.OPERATOR, topics=["t"]), asked, {}, readable=True).found())
    assert found["the controller"].state is state
    assert detail in found["the controller"].detail
    assert found["the topic t"] == Verdict(State.FAIL, "it does not exist")


def test_a_controller_is_told_what_weakens_it() -> None:
    scope, conf = Scope(Role.CONTROLLER), {"security.protocol": "ssl"}
    asked = Asked({}, {LOG: SeenTopic(1, True, None, 1)}, 7, 3, None)
    found = dict(Settings(Configured(**{LOG: {"cleanup.policy": "compact"}}), scope, asked, conf, True).found())
    assert found[f"the mode log {LOG}"].detail.startswith("1 partition, compacted, but ")
    assert found["the controller's endpoint"].state is State.UNKNOWN
    refused = replace(asked, topics={LOG: MISSING}, not_creatable="POLICY_VIOLATION")
    found = dict(Settings(Configured(), scope, refused, conf, True).found())
    assert found[f"the mode log {LOG}"] == Verdict(State.FAIL, "it cannot be created: POLICY_VIOLATION")


NOBODY = "127.0.0.1:1"


def client(source: str) -> Scope:
    return Scope(Role.CLIENT, mode_source=source)


@pytest.mark.parametrize("source", ["auto", "wire"])
def test_who_is_told_the_modes_needs_nothing_on_the_log(source: str, endpoint: FakeEndpoint) -> None:
    scope, setting = over_the_wire(client(source), {"bootstrap.servers": f"{NOBODY},{endpoint.address}"})
    assert needs(scope) == ()
    assert (setting.state, setting.detail) == (State.PASS, f"returned by {endpoint.address}")


@pytest.mark.parametrize(
    ("answers", "state", "told"), [(True, State.FAIL, "modeaware.mode.source=wire"), (False, State.UNKNOWN, NOBODY)]
)
def test_without_an_endpoint_auto_goes_to_the_log_and_wire_has_a_verdict(
    answers: bool, state: State, told: str, endpoint: FakeEndpoint
) -> None:
    endpoint.has_feature = False
    conf = {"bootstrap.servers": endpoint.address if answers else NOBODY}
    assert over_the_wire(client("auto"), conf) == (client("auto"), None)
    _, setting = over_the_wire(client("wire"), conf)
    assert setting.state is state
    assert told in setting.detail

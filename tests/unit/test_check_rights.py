"""The rights that a check looks for are the documented ones, and what it says of those that are missing."""

from __future__ import annotations

import shlex

import pytest

from modeaware.controller.election import group_id
from modeaware.endpoint.authorise import AclOperation
from modeaware.reports.rights.findings import Report, Right, Setting, State, Verdict
from modeaware.reports.rights.needs import Need, Role, Scope, controllers_name, needs
from modeaware.reports.rights.told import Site, as_json, as_text, notes
from tests.support.rights import KINDS, documented

LOG = "__partition_modes"
TABLES = {Role.CONTROLLER: "controllers", Role.OPERATOR: "Operators", Role.CLIENT: "producer and consumer"}


def names(scope: Scope) -> set[str]:
    return {str(need) for need in needs(scope)}


@pytest.mark.parametrize("role", Role)
def test_the_needs_are_the_documented_rights(role: Role) -> None:
    kinds = {kind: name for name, kind in KINDS.items()}
    rights = documented(TABLES[role], {})
    wanted = {f"{kinds[kind]} {name} {operation.name}" for kind, name, operation in rights}
    assert names(Scope(role)) == wanted


def test_the_names_follow_the_mode_log() -> None:
    assert controllers_name("modes") == group_id("modes")
    found = names(Scope(Role.CONTROLLER, mode_log="modes"))
    assert {"topic modes WRITE", "transactional id modeaware-controller.modes WRITE"} <= found
    assert not any(LOG in name for name in found)


@pytest.mark.parametrize("role", [Role.CONTROLLER, Role.OPERATOR])
def test_names_take_the_place_of_placeholders(role: Role) -> None:
    found = needs(Scope(role, topics=["a", "b", "a"], groups=["g"]))
    assert all(need.named for need in found)
    assert [str(need) for need in found if need.operation is AclOperation.ALTER] == ["topic a ALTER", "topic b ALTER"]
    assert len(found) == len(set(map(str, found))), "each right once"
    assert {need.name for need in needs(Scope(role)) if not need.named} <= {"TOPIC", "GROUP"}


def test_closed_lists_need_no_sight_of_everything() -> None:
    scope = Scope(Role.CONTROLLER, topics=["a"], groups=["g"], closed=True)
    gone = names(Scope(Role.CONTROLLER, topics=["a"], groups=["g"])) - names(scope)
    come = names(scope) - names(Scope(Role.CONTROLLER, topics=["a"], groups=["g"]))
    assert gone == {"cluster kafka-cluster DESCRIBE", "group * DESCRIBE", "topic * DESCRIBE"}
    assert come == {f"group {name} DESCRIBE" for name in ("g", "modeaware-control-records", "modeaware-stragglers")}


def test_a_client_has_rights_of_its_own() -> None:
    log = f"topic {LOG} READ"
    assert names(Scope(Role.CLIENT)) == {log}
    assert names(Scope(Role.CLIENT, mode_source="wire")) == set()
    assert names(Scope(Role.CLIENT, topics=["a"])) == {log, "topic a WRITE"}
    assert names(Scope(Role.CLIENT, topics=["a"], groups=["g"])) == {log, "topic a READ", "group g READ"}
    producer = Scope(Role.CLIENT, topics=["a"], transactional_ids=["t"])
    assert names(producer) == {log, "topic a WRITE", "transactional id t WRITE"}


SITE = Site("here:1", "User:ann")


PASS, FAIL, UNKNOWN = Verdict(State.PASS), Verdict(State.FAIL), Verdict(State.UNKNOWN, "who knows")


def report(role: Role, *failing: str, settings: tuple[Setting, ...] = (), closed: bool = False) -> Report:
    scope = Scope(role, topics=["orders"], groups=["my group"], closed=closed)
    wanted = needs(scope)
    assert set(failing) <= set(map(str, wanted))
    rights = tuple(Right(need, FAIL if str(need) in failing else PASS) for need in wanted)
    return Report(scope, rights, settings, log_missing=True, brokers=5)


@pytest.mark.parametrize(
    ("need", "arguments"),
    [
        (Need("topic", "*", AclOperation.DESCRIBE, ""), ["--operation", "Describe", "--topic", "*"]),
        (Need("topic", "a", AclOperation.DESCRIBE_CONFIGS, ""), ["--operation", "DescribeConfigs", "--topic", "a"]),
        (Need("group", "my group", AclOperation.READ, ""), ["--operation", "Read", "--group", "my group"]),
        (Need("cluster", "kafka-cluster", AclOperation.DESCRIBE, ""), ["--operation", "Describe", "--cluster"]),
        (Need("transactional id", "t", AclOperation.WRITE, ""), ["--operation", "Write", "--transactional-id", "t"]),
    ],
)
def test_the_command_of_each_kind(need: Need, arguments: list[str]) -> None:
    to = ["kafka-acls.sh", "--bootstrap-server", "here:1"]
    grant = ["--add", "--allow-principal", "User:ann", *arguments]
    assert shlex.split(SITE.grant(need)) == [*to, *grant]
    secured = Site("here:1", "User:ann", secured=True)
    assert shlex.split(secured.grant(need)) == [*to, "--command-config", "admin.properties", *grant]


def test_a_failure_has_its_command_in_text_and_json() -> None:
    lacking = "topic orders DELETE"
    found = report(Role.OPERATOR, lacking)
    assert not found.passed
    lines = list(as_text(found, SITE))
    assert [line for line in lines if line.startswith("fail")] == [f"fail     {lacking}: shrinking"]
    told = as_json(found, SITE)
    (failed,) = [right for right in told["rights"] if right["state"] == "fail"]
    assert (failed["resource"], failed["name"], failed["operation"]) == ("topic", "orders", "DELETE")
    assert told["commands"] == [failed["command"]]
    assert lines[lines.index(failed["command"]) - 1] == "To be pasted by an administrator:"
    secured = list(as_text(found, Site("here:1", secured=True)))
    assert "To be pasted by an administrator, with settings in admin.properties:" in secured
    assert told["notes"] == []
    assert told["passed"] is False


@pytest.mark.parametrize("lacking", ["cluster kafka-cluster DESCRIBE", "group * DESCRIBE", "topic * DESCRIBE"])
def test_who_may_not_see_all_groups_learns_the_way_around(lacking: str) -> None:
    (note,) = notes(report(Role.CONTROLLER, lacking))
    assert "modeaware groups closed" in note.replace("\n", " ")
    assert "--closed-groups" in note
    (other,) = notes(report(Role.OPERATOR, lacking))
    assert other != note

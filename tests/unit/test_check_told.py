"""What a check says: lines, commands to paste, what is lost, JSON."""

from __future__ import annotations

import shlex

import pytest

from modeaware.endpoint.authorise import AclOperation
from modeaware.reports.rights.findings import Report, Right, Setting, State, Verdict
from modeaware.reports.rights.needs import Need, Role, Scope, needs
from modeaware.reports.rights.told import Site, as_json, as_text, notes

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

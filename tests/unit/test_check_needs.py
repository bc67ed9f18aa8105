"""The table of needs is the documents' one."""

from __future__ import annotations

import pytest

from modeaware.controller.election import group_id
from modeaware.endpoint.authorise import AclOperation
from modeaware.reports.rights.needs import Role, Scope, controllers_name, needs
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

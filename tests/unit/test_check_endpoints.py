"""What a check finds of a client that may learn the modes over the wire."""

from __future__ import annotations

import pytest

from modeaware.reports.rights.endpoints import over_the_wire
from modeaware.reports.rights.findings import State
from modeaware.reports.rights.needs import Role, Scope, needs
from tests.support.fake_endpoint import FakeEndpoint

NOBODY = "127.0.0.1:1"


def client(source: str) -> Scope:
    return Scope(Role.CLIENT, mode_source=source)


@pytest.mark.parametrize("source", ["auto", "wire"])
def test_who_is_told_the_modes_needs_nothing_on_the_log(source: str, endpoint: FakeEndpoint) -> None:
    scope, setting = over_the_wire(client(source), {"bootstrap.servers": f"{NOBODY},{endpoint.address}"})
    assert needs(scope) == ()
    assert setting is not None
    assert (setting.verdict.state, setting.verdict.detail) == (State.PASS, f"told by {endpoint.address}")


def test_servers_that_do_not_tell_them_are_not_enough_for_the_wire(endpoint: FakeEndpoint) -> None:
    endpoint.has_feature = False
    conf = {"bootstrap.servers": endpoint.address}
    assert over_the_wire(client("auto"), conf) == (client("auto"), None)
    _, setting = over_the_wire(client("wire"), conf)
    assert setting is not None
    assert setting.verdict.state is State.FAIL
    assert "modeaware.mode.source=wire" in setting.verdict.detail


def test_where_nobody_answers_it_is_not_known() -> None:
    conf = {"bootstrap.servers": NOBODY}
    assert over_the_wire(client("auto"), conf) == (client("auto"), None)
    _, setting = over_the_wire(client("wire"), conf)
    assert setting is not None
    assert setting.verdict.state is State.UNKNOWN
    assert NOBODY in setting.verdict.detail

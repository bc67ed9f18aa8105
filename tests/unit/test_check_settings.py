"""What a check finds of settings: the mode log, topics, and whether modes come over the wire."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.reports.rights.asking import Asked, SeenTopic
from modeaware.reports.rights.endpoints import over_the_wire
from modeaware.reports.rights.findings import State, Verdict
from modeaware.reports.rights.needs import Role, Scope, needs
from modeaware.reports.rights.settings import Settings
from modeaware.wire.brokers.client import Brokers
from tests.support.fake_endpoint import FakeEndpoint

LOG = "__partition_modes"
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


def found(
    role: Role,
    topics: dict[str, SeenTopic],
    configs: dict[str, Any] | None = None,
    *,
    conf: dict[str, Any] | None = None,
    not_creatable: str | None = None,
) -> dict[str, Verdict]:
    """The settings of a check by name."""
    seen = {LOG: SeenTopic(1, True, None), **topics}
    scope = Scope(role, topics=[name for name in topics if name != LOG])
    asked = Asked((), seen, 7, 3, not_creatable)
    told = Settings(Configured(**(configs or {})), scope, asked, conf or {}, readable=True).found()
    return {setting.name: setting.verdict for setting in told}


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
    assert found(Role.CLIENT, {LOG: seen}, {LOG: policy})[f"the mode log {LOG}"].state is state


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

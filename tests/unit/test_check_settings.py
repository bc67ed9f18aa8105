"""What a check says of settings: the mode log, topics, the election's session, the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.errors import ClusterError
from modeaware.librdkafka import KafkaError
from modeaware.reports.rights.asking import Asked, SeenTopic
from modeaware.reports.rights.findings import State, Verdict
from modeaware.reports.rights.needs import Role, Scope
from modeaware.reports.rights.settings import Settings
from modeaware.wire.brokers.client import Brokers

LOG = "__partition_modes"
SESSION = "modeaware.controller.session.timeout.ms=8000"
BOUNDS = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}
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


@pytest.mark.parametrize(
    ("bounds", "state"),
    [
        (BOUNDS, State.PASS),
        ({**BOUNDS, "group.min.session.timeout.ms": "9000"}, State.FAIL),
        ({**BOUNDS, "group.max.session.timeout.ms": "7000"}, State.FAIL),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, State.UNKNOWN),
    ],
)
def test_the_session_of_the_election(bounds: Any, state: State) -> None:
    assert found(Role.CONTROLLER, {}, {"7": bounds})[SESSION].state is state

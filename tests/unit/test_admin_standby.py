"""Our AdminClient where the claim it knows leads to a controller that stands by."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from modeaware import AdminClient, DeletePartitions, GroupRule
from modeaware.errors import ControllerUnavailable
from modeaware.modelog.records import ClaimRecord
from tests.support.endpoint import StubController, served
from tests.support.fake_views import FakeViews

RULE = GroupRule("waive", "old-*", "orders", "the team is gone", 1000, None, glob=True)


@pytest.fixture
def controller() -> StubController:
    return StubController()


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch, controller: StubController) -> Iterator[FakeViews]:
    views = FakeViews()
    monkeypatch.setattr("modeaware.views.registry.acquire", lambda conf, config: views)
    with served(controller, "active") as active:
        views.set_claim(ClaimRecord(2, active.address, "active"))
        yield views


@pytest.fixture
def admin(views: FakeViews) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as admin:
        yield admin


@pytest.mark.parametrize("rules", [False, True], ids=["topics", "rules"])
def test_a_command_follows_the_claim_away_from_a_standby(
    admin: AdminClient, views: FakeViews, controller: StubController, monkeypatch: pytest.MonkeyPatch, rules: bool
) -> None:
    active = views.claim()
    refresh = views.refresh

    def refresh_late(timeout_s: float) -> None:
        refresh(timeout_s)
        if views.refreshes == 2:
            views.set_claim(active)

    monkeypatch.setattr(views, "refresh", refresh_late)
    with served(controller, "standby", active=False) as standby:
        views.set_claim(ClaimRecord(1, standby.address, "standby"))
        if rules:
            admin.alter_group_rules([RULE]).result(10)
        else:
            admin.delete_partitions({"orders": DeletePartitions(1)})["orders"].result(10)
    assert len(controller.commands) == 1


@pytest.mark.parametrize("rules", [False, True], ids=["topics", "rules"])
def test_a_standby_alone_is_no_controller(
    admin: AdminClient, views: FakeViews, controller: StubController, rules: bool
) -> None:
    with served(controller, "standby", active=False) as standby:
        views.set_claim(ClaimRecord(1, standby.address, "standby"))
        future: Future[Any] = (
            admin.alter_group_rules([RULE], request_timeout=0.5)
            if rules
            else admin.delete_partitions({"orders": DeletePartitions(1)}, request_timeout=0.5)["orders"]
        )
        with pytest.raises(ControllerUnavailable, match="other"):
            future.result(10)
    assert controller.commands == []
    assert views.refreshes >= 2, "the log is read before every attempt"

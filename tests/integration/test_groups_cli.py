"""``modeaware groups`` on a real Kafka: whom a drain waits for, and rules that change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer

from modeaware.controller.daemon import Controller
from tests.conftest import MakeTopic
from tests.support.command_line import Site
from tests.support.plain import create_topic, ends, watermarks
from tests.support.waiting import eventually

DRAIN = ("--yes", "--delay", "0s")


def listed(site: Site, topic: str | None = None) -> dict[str, Any]:
    told = site.run("groups", "list", "--json", *((topic,) if topic is not None else ()))
    assert told.status == 0, told.err
    shown: dict[str, Any] = json.loads(told.out)
    return shown


def groups_of(site: Site, topic: str) -> dict[str, dict[str, Any]]:
    """Once the list is certain: any group of the shared cluster that is in a rebalance makes it a doubt."""

    def certain() -> dict[str, dict[str, Any]]:
        (described,) = listed(site, topic)["topics"]
        assert described["groups_doubt"] is None
        return {group["group"]: group for group in described["groups"]}

    return eventually(certain, interval_s=0.5)


def rules(site: Site) -> list[tuple[str, str, str]]:
    return [(rule["kind"], rule["group"], rule["topic"]) for rule in listed(site)["rules"]]


def wait_for_phase(site: Site, topic: str, phase: str) -> None:
    eventually(lambda: site.describe(topic)["phase"] == phase, interval_s=0.5)


def blocked(site: Site, topic: str) -> set[str | None]:
    """The reasons for which its retired partitions wait."""
    return {part["reason"] for part in site.describe(topic)["partitions"] if part["mode"] == "ReadOnly"}


def test_a_waiver_says_what_is_given_up_and_lets_the_drain_go_on(
    site: Site, filled: str, controller: Controller
) -> None:
    slow, quick = f"slow-{filled}", f"quick-{filled}"
    site.commit(filled, slow, dict.fromkeys(range(6), 0))
    site.commit(filled, quick, ends(site.servers, filled))
    assert site.run("shrink", filled, "--partitions", "4", *DRAIN).status == 0
    wait_for_phase(site, filled, "drain")

    groups = groups_of(site, filled)
    unread = ends(site.servers, filled)[4] + ends(site.servers, filled)[5]
    assert groups[slow]["because"] == ["noted", "using"]
    assert groups[slow]["held_up"] == {"4": f"group-lag:{slow}", "5": f"group-lag:{slow}"}
    assert sum(groups[slow]["unread"].values()) == unread
    assert (groups[quick]["held_up"], sum(groups[quick]["unread"].values())) == ({}, 0)

    assert site.run("certificate", filled).status == 3, "not drained yet"
    waive = ("groups", "waive", slow, "--topic", filled, "--reason", "it is being retired", "--expires", "1d")
    asked = site.run(*waive)
    assert asked.status == 1
    assert "pass --yes" in asked.err
    assert slow not in {group for _, group, _ in rules(site)}
    told = site.run(*waive, "--yes")
    assert told.status == 0, told.err
    assert (
        f"{filled}: group '{slow}' has not read {unread} offsets of partitions 4-5: these records may be deleted"
        in told.err
    )
    assert told.out == f"In force: waive '{slow}' on topic '{filled}'\n"

    wait_for_phase(site, filled, "done")
    assert all(start == end for p, (start, end) in watermarks(site.servers, filled).items() if p >= 4)
    assert site.describe(filled)["waived"] == {slow: "it is being retired"}
    certified = site.run("certificate", filled)
    assert certified.status == 0
    document = json.loads(certified.out)
    assert document["waived"] == {slow: "it is being retired"}
    assert document["drained_groups"] == [quick]
    assert [partition["proof"]["groups"] for partition in document["partitions"]] == [1] * 2


def test_state_that_does_not_move_is_given_up_by_name_only(
    site: Site, filled: str, controller: Controller, make_group: Callable[[], str]
) -> None:
    app = make_group()
    create_topic(site.servers, f"{app}-counts-changelog", 6, configs={"cleanup.policy": "compact"})
    site.commit(filled, app, ends(site.servers, filled))
    refused = site.run("shrink", filled, "--partitions", "3", *DRAIN)
    assert refused.status == 1
    assert app in refused.err
    assert "--accept-state-loss" in refused.err
    told = site.run("shrink", filled, "--partitions", "3", "--accept-state-loss", app, *DRAIN)
    assert told.status == 0, told.err
    assert f"group '{app}' loses the state of the keys that move" in told.err
    described = site.describe(filled)
    assert described["deletion"]["accept_state_loss"] == [app]
    assert [group["stateful"] for group in described["groups"] if group["group"] == app] == [True]
    wait_for_phase(site, filled, "done")
    assert json.loads(site.run("certificate", filled).out)["deletion"]["accept_state_loss"] == [app]


def test_a_group_in_a_long_rebalance_elsewhere_is_forgiven_by_its_own_waiver(
    site: Site, filled: str, controller: Controller, make_topic: MakeTopic
) -> None:
    stuck, elsewhere = f"stuck-{filled}", make_topic(1)
    conf = {"bootstrap.servers": site.servers, "group.id": stuck}
    with closing(Consumer(conf)) as silent, closing(Consumer(conf)) as joining:
        silent.subscribe([elsewhere], on_revoke=lambda *_: None)  # it has to poll to rejoin
        eventually(lambda: silent.poll(0.1) is None and silent.assignment())
        joining.subscribe([elsewhere])

        def doubt() -> str:
            joining.poll(0.1)
            return str(listed(site, filled)["topics"][0]["groups_doubt"])

        eventually(lambda: f"group '{stuck}' is in a rebalance" in doubt(), interval_s=0.5)
        assert site.run("shrink", filled, "--partitions", "4", *DRAIN).status == 0
        wait_for_phase(site, filled, "drain")
        eventually(lambda: blocked(site, filled) == {"groups-unknown"}, interval_s=0.5)
        told = site.run("groups", "waive", stuck, "--topic", filled, "--reason", "reads others", "--forever", "--yes")
        assert (told.status, "are not known yet. The drain no longer waits for this" in told.err) == (0, True)
        wait_for_phase(site, filled, "done")
        eventually(lambda: doubt() == "None", interval_s=0.5)  # other tests' groups may be in a rebalance
        assert site.describe(filled)["waived"] == {}, "nothing shows that it ever used the topic"

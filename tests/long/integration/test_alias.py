"""``modeaware alias`` on a real Kafka: another topic of the name is not used; a name is forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from modeaware.controller.daemon import Controller
from tests.conftest import MakeTopic
from tests.support.command_line import WAIT, Site
from tests.support.group import Member
from tests.support.plain import create_topic, produce_keyed
from tests.support.waiting import eventually


def replaced(site: Site, topic: str) -> None:
    """Have the topic replaced, and deleted."""
    told = site.run("replace", topic, "--with", f"{topic}-v2", "--partitions", "1", *WAIT)
    assert told.status == 0, told.err


def alias(site: Site, topic: str) -> dict[str, Any] | None:
    found = json.loads(site.run("alias", "list", "--json").out)["aliases"]
    return next((each for each in found if each["alias"] == topic), None)


def test_topic_that_came_up_under_an_alias_is_listed_and_not_read(
    site: Site, controller: Controller, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    topic = make_topic(2)
    conf = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    reader = Member([topic], {**conf, "group.id": make_group(), "auto.offset.reset": "earliest"})
    with reader:
        replaced(site, topic)
        create_topic(site.servers, topic, 2, configs={})
        produce_keyed(site.servers, topic, [(b"k", b"%d" % n) for n in range(20)])
        eventually(lambda: (alias(site, topic) or {})["reason"] == "name-taken", 60)
        found = alias(site, topic)
        assert found is not None
        assert (found["points_to"], found["taken_by"] is None) == (f"{topic}-v2", False)
        produce_keyed(site.servers, f"{topic}-v2", [(b"k", b"99")])
        eventually(lambda: {name for name, *_ in reader.records} == {f"{topic}-v2"})


def test_alias_is_forgotten(site: Site, controller: Controller, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    early = site.run("alias", "forget", topic, "--yes")
    assert (early.status, "not an alias: " in early.err) == (1, True), early.err
    replaced(site, topic)
    assert f"{topic} -> {topic}-v2\n" in site.run("alias", "list").out
    dry = site.run("alias", "forget", topic, "--dry-run")
    assert (dry.status, f"no longer point to {topic}-v2" in dry.err) == (0, True), dry.err
    assert site.run("alias", "forget", topic, "--yes").out == f"{topic}: forgotten.\n"
    assert alias(site, topic) is None


def test_alias_whose_topic_was_deleted_by_hand_raises_an_alarm_and_is_forgotten(
    site: Site, controller: Controller, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    replaced(site, topic)
    admin = AdminClient({"bootstrap.servers": site.servers})
    admin.delete_topics([f"{topic}-v2"])[f"{topic}-v2"].result(30)
    eventually(lambda: (alias(site, topic) or {})["reason"] == "points-nowhere", 60)
    assert "was deleted: move the clients" in site.run("alias", "list").out
    assert site.run("alias", "forget", topic, "--yes").out == f"{topic}: forgotten.\n"
    assert alias(site, topic) is None


@pytest.mark.parametrize("interim_is_deleted", [False, True])
def test_change_that_cannot_give_the_name_back_is_ended_and_its_name_forgotten(
    site: Site, controller: Controller, make_topic: MakeTopic, interim_is_deleted: bool
) -> None:
    topic = make_topic(2)
    told = site.run("replace", topic, "--keep-name", "--partitions", "1", "--delay", "0s", "--yes")
    assert told.status == 0, told.err
    eventually(lambda: alias(site, topic), 60)
    interim = (alias(site, topic) or {})["points_to"]
    if interim_is_deleted:
        admin = AdminClient({"bootstrap.servers": site.servers})
        admin.delete_topics([interim])[interim].result(30)
    else:
        create_topic(site.servers, topic, 2, configs={})
        produce_keyed(site.servers, topic, [(b"k", b"1")])
    reason = "points-nowhere" if interim_is_deleted else "name-taken"
    eventually(lambda: (alias(site, topic) or {})["reason"] == reason, 90)
    if not interim_is_deleted:
        early = site.run("alias", "forget", topic, "--yes")
        assert (early.status, "--stay" in early.err) == (1, True), early.err
        stays = site.run("replace", topic, "--stay", "--yes")
        assert stays.status == 0, stays.err
    forgotten = site.run("alias", "forget", topic, "--yes")
    assert forgotten.out == f"{topic}: forgotten.\n", forgotten.err
    assert alias(site, topic) is None

"""``modeaware alias`` on a real Kafka: another topic of the name is adopted, and read; a name is forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient

import modeaware
from modeaware.controller.daemon import Controller
from tests.conftest import MakeTopic
from tests.support.command_line import WAIT, Site
from tests.support.plain import create_topic, produce_keyed
from tests.support.replaced_load import Delivered, Member
from tests.support.waiting import eventually


def replaced(site: Site, topic: str) -> None:
    """Have the topic replaced, and deleted."""
    told = site.run("replace", topic, "--with", f"{topic}-v2", "--partitions", "1", *WAIT)
    assert told.status == 0, told.err


def alias(site: Site, topic: str) -> dict[str, Any] | None:
    found = json.loads(site.run("alias", "list", "--json").out)["aliases"]
    return next((each for each in found if each["alias"] == topic), None)


def test_records_of_a_topic_that_came_up_under_an_alias_are_read_once_it_is_adopted(
    site: Site, controller: Controller, make_topic: MakeTopic, make_group: Callable[[], str]
) -> None:
    """A ``latest`` group is given them, too: when they were written it could not see that topic."""
    topic, delivered = make_topic(2), Delivered()
    conf = {"bootstrap.servers": site.servers, "modeaware.mode.log.topic": site.mode_log}
    reader = {**conf, "group.id": make_group(), "auto.offset.reset": "latest"}
    with Member(lambda: modeaware.Consumer(reader), [topic], delivered):
        replaced(site, topic)
        create_topic(site.servers, topic, 2, configs={})
        written = [(b"k-%d" % (n % 3), b"%d" % n) for n in range(20)]
        produce_keyed(site.servers, topic, written)
        found = eventually(lambda: alias(site, topic))
        assert (found["leads_to"], found["taken_by"] is None) == (f"{topic}-v2", False)
        wrong = site.run("alias", "adopt", topic, "--topic-id", found["topic_id"], "--yes")
        assert (wrong.status, "its id is" in wrong.err) == (1, True), wrong.err
        assert not delivered.distinct()
        adopted = site.run("alias", "adopt", topic, "--yes")
        assert adopted.out == f"{topic}: the topic {found['taken_by']} is adopted.\n", adopted.err
        eventually(lambda: delivered.distinct() == {(key, int(value)) for key, value in written})
        assert alias(site, topic) is None
        eventually(lambda: alias(site, topic))  # it has gone the way of the one before


def test_alias_is_forgotten(site: Site, controller: Controller, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    early = site.run("alias", "forget", topic, "--yes")
    assert (early.status, "it is no alias" in early.err) == (1, True), early.err
    replaced(site, topic)
    assert f"{topic} -> {topic}-v2\n" in site.run("alias", "list").out
    dry = site.run("alias", "forget", topic, "--dry-run")
    assert (dry.status, f"leads to {topic}-v2 no more" in dry.err) == (0, True), dry.err
    assert site.run("alias", "forget", topic, "--yes").out == f"{topic}: forgotten.\n"
    assert alias(site, topic) is None


def test_alias_whose_topic_was_deleted_by_hand_raises_an_alarm_and_is_forgotten(
    site: Site, controller: Controller, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    replaced(site, topic)
    admin = AdminClient({"bootstrap.servers": site.servers})
    admin.delete_topics([f"{topic}-v2"])[f"{topic}-v2"].result(30)
    eventually(lambda: (alias(site, topic) or {})["reason"] == "leads-nowhere", 60)
    assert "that topic was deleted" in site.run("alias", "list").out
    assert site.run("alias", "forget", topic, "--yes").out == f"{topic}: forgotten.\n"
    assert alias(site, topic) is None

"""``modeaware replace`` on a real Kafka: with a running controller and without one, refused, undone, only planned."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from modeaware import AdminClient as OurAdminClient
from modeaware import ReplacedBy, TopicReplacement
from modeaware.controller.daemon import Controller
from modeaware.topic_view import Moved
from tests.conftest import MakeTopic
from tests.support.command_line import QUICK, Site, Told
from tests.support.controlled import Controlled
from tests.support.groups import RunningGroup
from tests.support.plain import create_topic, ends, produce_keyed, watermarks
from tests.support.waiting import eventually

SET_ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
WAIT = ("--yes", "--wait", *QUICK)


def own_configs(site: Site, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    admin = AdminClient({"bootstrap.servers": site.servers})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: each.value for name, each in future.result(30).items() if each.source == SET_ON_TOPIC}


def exists(site: Site, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": site.servers}).list_topics(timeout=20).topics


def test_running_controller_replaces_a_topic_whose_group_has_read_it_and_is_moved(
    site: Site, filled: str, controller: Controller, make_group: Callable[[], str]
) -> None:
    name, group = f"{filled}-v2", make_group()
    site.commit(filled, group, ends(site.servers, filled))
    options = ("--with", name, "--partitions", "4", "--config", "retention.ms=5000", "--pause-before-switch")
    told = site.run("replace", filled, *options, "--yes")
    assert told.status == 0, told.err
    eventually(lambda: site.describe(filled)["replacement"]["reason"] == "paused")
    for other in (("--config", "retention.ms=6000"), ("--fence", "none"), ("--delay", "5ms")):
        refused = site.run("replace", filled, *other, "--yes")
        assert (refused.status, "is already being replaced, with another" in refused.err) == (1, True), refused.err
    repeated = site.run("replace", filled, *options, "--yes")
    assert (repeated.status, "already under way; nothing changed" in repeated.err) == (0, True), repeated.err
    going_on = site.run("replace", filled, "--config", "retention.ms=5000", "--yes")
    assert going_on.status == 0, going_on.err
    assert f"{filled}: being replaced by {name} (4 partitions)." in told.out
    eventually(lambda: site.describe(filled)["replacement"]["not_moved"] == [group])
    early = site.run("certificate", filled)
    assert (early.status, json.loads(early.out)["replacement"]["released_ms"], "not released" in early.err) == (
        3,
        None,
        True,
    )
    shown = site.describe(filled)["replacement"]
    assert (shown["new_topic"], shown["num_partitions"], shown["fence"]) == (name, 4, "config")
    assert shown["new_topic_id"] == site.describe(name)["topic_id"]
    assert site.describe(name)["replaces"] == filled
    assert f"Replaces {filled}" in site.run("topics", "--describe", "--topic", name).out
    text = site.run("topics", "--describe", "--topic", filled).out
    assert f"Replaced by {name} (id {shown['new_topic_id']}, 4 partitions)" in text
    assert f"Not on the new topic yet: {group}" in text
    (listed,) = json.loads(site.run("groups", "list", filled, "--json").out)["topics"]
    (shown_group,) = [each for each in listed["groups"] if each["group"] == group]
    assert (shown_group["moved"], "groups prepare" in shown_group["to_do"]) == (False, True)
    prepare = ("groups", "prepare", group, "--topic", name)
    with RunningGroup(site.servers, filled, group):
        refused = eventually(lambda: (told := site.run(*prepare, "--yes")).status and told)
        assert f"group {group!r} has members: stop them" in refused.err
    produce_keyed(site.servers, name, [(b"k", b"v")] * 3, partition=3)
    admin = AdminClient({"bootstrap.servers": site.servers})
    (deleted,) = admin.delete_records([TopicPartition(name, 3, 2)]).values()
    deleted.result(30)
    prepared = eventually(lambda: not (told := site.run(*prepare, "--yes")).status and told, interval_s=0.5)
    assert prepared.out == f"{group}: prepared. Start it on {name}.\n"
    assert f"WARNING: retention has deleted 2 offsets of {name} that the group has not read." in prepared.err
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(name, p) for p in range(4)])
    (offsets,) = admin.list_consumer_group_offsets([asked]).values()
    assert [each.offset for each in offsets.result(30).topic_partitions or ()] == [0, 0, 0, 2]
    assert "nothing to do" in site.run(*prepare, "--yes").out
    again = site.run("replace", filled, *WAIT)
    assert again.status == 0, again.err
    moved = "every required group has moved"
    assert f"{filled}: replaced by {name}; {moved}. {filled} is deleted once its own retention has" in again.out
    assert len(watermarks(site.servers, name)) == 4
    told = site.run("certificate", filled)
    assert told.status == 0, told.err
    shown = json.loads(told.out)
    assert {each["verdict"] for each in shown["partitions"]} == {"drained"}
    assert (shown["deletion"], shown["required_groups"]) == (None, [group])
    assert (shown["fence_proved_now"], shown["replacement"]["not_moved"]) == (list(range(6)), [])
    shown = shown["replacement"]
    assert (shown["new_topic"], shown["released_ms"] > shown["fenced_ms"] > 0) == (name, True)
    admin = AdminClient({"bootstrap.servers": site.servers})
    admin.delete_topics([filled])[filled].result(30)
    eventually(lambda: not exists(site, filled))
    for command in (("topics", "--describe"), ("certificate", filled), ("replace", filled, "--yes")):
        gone = site.run(*command, *(("--topic", filled) if command[0] == "topics" else ()))
        assert (gone.status, f"its name points to '{name}'" in gone.err) == (1, True), gone.err
    done = site.run("replace", filled, *options[:-1], "--wait", "--yes")
    assert (done.status, done.out) == (0, f"{filled}: already replaced by {name}, with 4 partitions.\n"), done.err
    for other in (("--with", name, "--partitions", "5"), ("--with", f"{filled}-v3", "--partitions", "4")):
        differs = site.run("replace", filled, *other, "--yes")
        assert (differs.status, f"its name points to '{name}'" in differs.err) == (1, True), differs.err
    assert own_configs(site, name) == {"retention.ms": "5000"}


def test_without_a_controller_the_command_replaces_the_topic_itself(site: Site, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    name = f"{topic}-v2"
    create_topic(site.servers, f"{topic}-a", 2, configs={"retention.bytes": "1000", "segment.bytes": "1048576"})
    told = site.run("replace", f"{topic}-a", "--with", name, "--partitions", "8", *WAIT)
    assert told.status == 0, told.err
    assert f"{topic}-a: 2 -> 8 partitions, by the new topic {name} (1 replicas)." in told.err
    assert "Config retention.bytes=250 (scaled)" in told.err
    assert "waited" in told.out
    assert own_configs(site, name) == {"retention.bytes": "250", "segment.bytes": "1048576"}


def test_several_topics_in_one_call(site: Site, filled: str, make_topic: MakeTopic) -> None:
    other, missing = make_topic(3), f"{filled}-missing"
    pairs = [f"{topic}={topic}-v2" for topic in (filled, other, missing)]
    for last in ((), WAIT):
        told = site.run("replace", *pairs, "--partitions", "2", *(last or ("--dry-run",)))
        assert told.status == 1, "one topic is not there"
        assert f"{missing}" in told.err
        assert f"{filled}: 6 -> 2 partitions" in told.err
        assert f"{other}: 3 -> 2 partitions" in told.err
    for topic in (filled, other):
        assert f"{topic}: replaced by {topic}-v2; every required group has moved." in told.out
        assert "Groups that had read all records waited" in told.out
    taken = site.run("replace", f"{filled}-v2=x-{filled}", f"{other}-v2=x-{filled}", "--partitions", "1", "--dry-run")
    assert (taken.status, "wait until its groups have moved" in taken.err) == (1, True), (
        "one new topic for two old topics"
    )


def test_several_paused_replacements_are_undone_in_one_call(
    site: Site, filled: str, make_topic: MakeTopic, controller: Controller
) -> None:
    topics = (filled, make_topic(3))
    pairs = [f"{topic}={topic}-v2" for topic in topics]
    paused = site.run("replace", *pairs, "--partitions", "2", "--pause-before-switch", "--yes", "--wait")
    assert paused.status == 0, paused.err
    undone = site.run("replace", *topics, "--undo", "--yes", "--wait")
    assert undone.status == 0, undone.err
    for topic in topics:
        assert f"{topic}: paused before the switch" in paused.out
        assert f"{topic}: undone." in undone.out
        assert not exists(site, f"{topic}-v2")


def test_paused_replacement_waits_and_is_undone_until_the_switch(site: Site, filled: str) -> None:
    name = f"{filled}-v2"
    paused = site.run("replace", filled, "--with", name, "--partitions", "2", "--pause-before-switch", *WAIT)
    assert paused.status == 0, paused.err
    assert f"{filled}: paused before the switch; {name} exists." in paused.out
    assert exists(site, name)
    undone = site.run("replace", filled, "--undo", *WAIT)
    assert (undone.status, undone.out.splitlines()[-1]) == (0, f"{filled}: undone."), undone.err
    assert not exists(site, name)
    assert site.describe(filled)["replacement"] is None


def test_paused_replacement_goes_on_when_it_is_repeated_and_cannot_be_undone_then(site: Site, filled: str) -> None:
    name = f"{filled}-v2"
    options = ("--with", name, "--partitions", "2")
    assert site.run("replace", filled, *options, "--pause-before-switch", *WAIT).status == 0
    told = site.run("replace", filled, *options, *WAIT)
    assert told.status == 0, told.err
    assert "continues to the switch" in told.err
    undo = site.run("replace", filled, "--undo", "--yes")
    assert (undo.status, "producers already write to" in undo.err) == (1, True), undo.err


def test_dry_run_shows_the_plan_and_changes_nothing(site: Site, filled: str, make_group: Callable[[], str]) -> None:
    group = make_group()
    site.commit(filled, group, {0: 1})
    told = site.run("replace", filled, "--with", f"{filled}-v2", "--partitions", "4", "--dry-run")
    assert (told.status, told.out) == (0, "Dry run: nothing was changed.\n"), told.err
    assert f"{filled}: 6 -> 4 partitions, by the new topic {filled}-v2 (1 replicas)." in told.err
    assert f"Group {group} (classic): " in told.err
    as_json = site.run("replace", filled, "--with", f"{filled}-v2", "--partitions", "4", "--dry-run", "--json")
    plan = json.loads(as_json.out)
    assert (plan["num_partitions"], plan["acls"], as_json.status) == (4, None, 0)
    assert not exists(site, f"{filled}-v2")
    assert site.log() is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--partitions", "0"), "invalid partition count 0: 1 to"),
        (("--partitions", "4", "--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("--partitions", "4", "--config", "retention.ms=soon"), "INVALID_CONFIG"),
        (("--partitions", "4", "--config", "no.such.config=1"), "INVALID_CONFIG"),
    ],
)
def test_bad_numbers_and_configs_are_refused_before_anything_is_changed(
    site: Site, filled: str, options: tuple[str, ...], why: str
) -> None:
    told = site.run("replace", filled, "--with", f"{filled}-v2", *options, "--yes")
    assert (told.status, why in told.err) == (1, True), told.err
    assert not exists(site, f"{filled}-v2")


def test_a_share_group_is_prepared_by_its_start_offsets(
    site: Site, filled: str, controller: Controller, make_group: Callable[[], str]
) -> None:
    name, group = f"{filled}-v2", make_group()
    with ShareConsumer({"bootstrap.servers": site.servers, "group.id": group}) as consumer:
        consumer.subscribe([filled])

        def has_started() -> bool:
            produce_keyed(site.servers, filled, [(b"k", b"v")])  # it begins at the end
            return bool(consumer.poll(0.5))

        eventually(has_started)
    assert site.run("replace", filled, "--with", name, "--partitions", "4", "--yes").status == 0
    eventually(lambda: group in site.describe(filled)["replacement"]["not_moved"])
    prepare = ("groups", "prepare", group, "--topic", name)
    prepared = eventually(lambda: not (told := site.run(*prepare, "--yes")).status and told, interval_s=0.5)
    assert prepared.out == f"{group}: prepared. Start it on {name}.\n"
    assert "nothing to do" in site.run(*prepare, "--yes").out
    assert group not in site.describe(filled)["replacement"]["not_moved"]


def test_name_that_is_taken_is_refused(site: Site, filled: str, make_topic: MakeTopic) -> None:
    taken = make_topic(4)
    for name, why in ((taken, "exists already"), (filled, "cannot replace itself")):
        told = site.run("replace", filled, "--with", name, "--partitions", "4", "--yes")
        assert (told.status, why in told.err) == (1, True), told.err
    for group, topic in (("nobody", filled), ("nobody", taken)):
        told = site.run("groups", "prepare", group, "--topic", topic, "--yes")
        assert (told.status, "does not replace another topic" in told.err) == (1, True), told.err
    unnamed = site.run("replace", filled, "--yes")
    assert (unnamed.status, "name the new topic (--with)" in unnamed.err) == (1, True)


@pytest.mark.parametrize("source", ["log", "wire"])
def test_clients_of_both_sources_see_the_same_new_topic(
    site: Site, served: Controlled, make_topic: MakeTopic, make_group: Callable[[], str], source: str
) -> None:
    topic, group = make_topic(2), make_group()
    name = f"{topic}-v2"
    site.commit(topic, group, {0: 0, 1: 0})
    address = served.started[0].address if source == "wire" else served.servers
    conf = {"bootstrap.servers": address, "modeaware.mode.source": source, "modeaware.mode.log.topic": served.log}
    wanted = {topic: TopicReplacement(name, 3)}
    with OurAdminClient(conf) as admin:

        def new_topic() -> ReplacedBy | None:
            return admin.describe_modes([topic])[topic].result().replaced_by

        admin.replace_topics(wanted, pause_before_switch=True)[topic].result()
        announced = eventually(new_topic)
        assert announced == ReplacedBy(name, announced.topic_id, 3)
        admin.replace_topics(wanted)[topic].result()
        switched = replace(announced, switched=True, groups=frozenset({group}))
        # Nothing is to be read. The log has all decisions; over the wire a client is told of its own groups.
        moved = Moved(groups=frozenset({group})) if source == "log" else Moved()
        eventually(lambda: new_topic() == replace(switched, read_up_to={0: 0, 1: 0}, moved=moved))
        site.commit(name, group, dict.fromkeys(range(3), 0))
        eventually(lambda: (found := new_topic()) is not None and found.released)


def test_with_a_delay_the_command_waits_until_the_topic_is_deleted_and_its_name_may_come_back(
    site: Site, filled: str, controller: Controller, tmp_path: Path
) -> None:
    name = f"{filled}-v2"
    told = site.run("replace", filled, "--with", name, "--partitions", "2", "--delay", "0s", *WAIT)
    assert told.status == 0, told.err
    assert f"{filled} is DELETED once every group has moved" in told.err
    assert f"{filled}: replaced by {name} and deleted; 4 fewer partitions." in told.out
    assert not exists(site, filled)
    shown = site.describe(filled)
    assert (shown["phase"], shown["partitions"], shown["replacement"]["gone_ms"] > 0) == ("done", [], True)
    assert ", deleted " in site.run("topics", "--describe", "--topic", filled).out
    certified = site.run("certificate", filled)
    assert certified.status == 0, certified.err
    proof = json.loads(certified.out)
    assert {each["verdict"] for each in proof["partitions"]} == {"deleted"}
    assert [each["seal_offset"] is not None for each in proof["partitions"]] == [True] * 6
    assert proof["replacement"]["gone_ms"] > proof["replacement"]["released_ms"]
    answers: list[Told] = []

    def returns() -> bool:
        answers.append(site.run("replace", name, "--with", filled, "--partitions", "2", *WAIT))
        return answers[-1].status == 0

    eventually(returns, 90, interval_s=2.0)
    assert "clients may still use the metadata of the deleted topic of this name: wait " in answers[0].err
    assert f"every required group has moved. {name} is deleted once its own retention" in answers[-1].out
    assert "clients do not use" not in site.run("topics", "--describe", "--topic", filled).out
    for command in (("grow", filled, "--partitions", "3"), ("replace", filled, "--with", name, "--partitions", "1")):
        waits = site.run(*command, "--yes")
        assert (waits.status, f"wait until {name!r} is deleted" in waits.err) == (1, True), waits.err
    topics = tmp_path / "topics.yaml"
    topics.write_text(json.dumps({"version": 1, "topics": {filled: {"partitions": 2}}}))
    assert site.run("apply", str(topics), "--check").status == 0, "nothing is to be done"


def test_compacted_topic_is_deleted_once_its_evacuation_is_proved(
    site: Site, make_topic: MakeTopic, controller: Controller
) -> None:
    topic = make_topic(3, cleanup_policy="compact")
    produce_keyed(site.servers, topic, [(b"key-%d" % n, b"v") for n in range(20)])
    name = f"{topic}-v2"
    options = ("--with", name, "--partitions", "2", "--delay", "0s")
    refused = site.run("replace", topic, *options, "--yes")
    assert (refused.status, "replace the topic with --evacuate" in refused.err) == (1, True), refused.err
    told = site.run("replace", topic, *options, "--evacuate", "--yes")
    assert (told.status, "Run the Spark job modeaware.spark.evacuate" in told.err) == (0, True), told.err
    described = eventually(
        lambda: (
            (found := site.describe(topic))["phase"] == "drain"
            and {each["reason"] for each in found["partitions"]} == {"not-evacuated"}
            and found
        )
    )
    assert own_configs(site, name)["cleanup.policy"] == "compact"
    proof = described["evacuation_group"]
    (listed,) = json.loads(site.run("groups", "list", topic, "--json").out)["topics"]
    assert [(each["group"], each["because"]) for each in listed["groups"]] == [(proof, ["evacuation"])]
    site.commit(topic, proof, ends(site.servers, topic))
    done = site.run("replace", topic, *WAIT)
    assert done.status == 0, done.err
    assert f"{topic}: replaced by {name} and deleted; 1 fewer partitions." in done.out
    assert not exists(site, topic)
    certified = site.run("certificate", topic)
    assert certified.status == 0, certified.err
    parts = json.loads(certified.out)["partitions"]
    assert [each["evacuated"] for each in parts] == [each["seal_offset"] > 0 for each in parts]

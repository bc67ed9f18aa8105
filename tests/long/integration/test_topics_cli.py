"""``modeaware topics`` beside ``kafka-topics.sh``: the same commands on the same broker, and the same lines."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence

from modeaware.controller.daemon import Controller
from tests.support.command_line import LEAVE, Site
from tests.support.kafka_tools import finish_tool
from tests.support.plain import create_topic
from tests.support.waiting import eventually

MODE = re.compile(r"\tMode: (ReadWrite|ReadOnly|None)$")


def kafkas(site: Site, *arguments: str) -> list[str]:
    """What ``kafka-topics.sh`` prints, with the configs of a topic in order."""
    lines = finish_tool(f"kafka-topics.sh --bootstrap-server {site.servers} " + " ".join(arguments)).out.splitlines()
    return [re.sub(r"(?<=Configs: )\S+", lambda found: ",".join(sorted(found[0].split(","))), line) for line in lines]


def ours(site: Site, *arguments: str) -> list[str]:
    told = site.run("topics", *arguments)
    assert told.status == 0, told.err
    return told.out.splitlines()


def without_modes(lines: Sequence[str]) -> list[str]:
    """The lines without our column, which every line of a partition has to have, and without ours altogether."""
    for line in lines:
        assert line.startswith("\tTopic:") == bool(MODE.search(line)), line
    return [MODE.sub("", line) for line in lines if not line.startswith("  ")]


def name(text: str) -> str:
    return f"{text}-{uuid.uuid4().hex[:8]}"


def test_describe_is_what_kafka_topics_shows_and_the_modes(site: Site) -> None:
    plain, many = name("plain"), name("many")
    configs = ("retention.ms=3600000", "cleanup.policy=compact", "max.message.bytes=2000", "segment.ms=7200000")
    assert ours(site, "--create", "--topic", plain, "--partitions", "3") == [f"Created topic {plain}."]
    created = kafkas(site, "--create", "--topic", many, "--partitions", "2", *(f"--config {c}" for c in configs))
    assert created == [f"Created topic {many}."]
    for arguments in (
        ("--topic", plain),
        ("--topic", many),
        ("--topic", many, "--partition-size-limit-per-response", "1"),
        ("--topic", plain, "--exclude-internal"),
        ("--topic", many, "--topics-with-overrides"),
        ("--topic", many, "--at-min-isr-partitions"),
        ("--topic", many, "--under-replicated-partitions"),
        ("--topic", many, "--under-min-isr-partitions"),
        ("--topic", many, "--unavailable-partitions"),
        ("--if-exists", "--topic", f"absent-{plain}"),
    ):
        found = ours(site, "--describe", *arguments)
        assert without_modes(found) == kafkas(site, "--describe", *arguments), arguments
    assert all("Mode: ReadWrite" in line for line in ours(site, "--describe", "--topic", plain)[1:])


def test_topics_are_listed_and_found_by_pattern_as_kafka_topics_does(site: Site) -> None:
    base = name("a.b")
    names = [f"{base}.x", f"{base}-x", f"{base}.y"]
    for topic in names:
        run = ours(site, "--create", "--topic", topic, "--partitions", "1")
        assert run[-1] == f"Created topic {topic}."
    for pattern in (f"{base}.*", f"{base}.x", f"'{base}.y, {base}.x'", f"({base})[.]x", f"absent-{base}"):
        assert ours(site, "--list", "--topic", pattern.strip("'")) == kafkas(site, "--list", "--topic", pattern)
    assert set(names) <= set(ours(site, "--list", "--exclude-internal"))
    found = ours(site, "--describe", "--topic", f"{base}.*")
    assert sorted(without_modes(found)) == sorted(kafkas(site, "--describe", "--topic", f"{base}.*"))

    (line, *_) = ours(site, "--describe", "--topic", f"{base}.x")
    assert line.split("\t")[0] == f"Topic: {base}.x", "the topic of this name and no other that matches it"
    topic_id = line.split("\t")[1].removeprefix("TopicId: ")
    by_id = ours(site, "--describe", "--topic-id", topic_id)
    kafkas_by_id = kafkas(site, "--describe", "--topic-id", topic_id)  # it does not ask for the eligible leaders here
    assert [re.sub("Elr: (?=\t|$)", "Elr: N/A", line) for line in without_modes(by_id)] == kafkas_by_id
    assert by_id[0] == line


def test_create_and_delete_say_what_kafka_topics_says(site: Site) -> None:
    first, second = name("with_underscore"), name("with_underscore")
    warned = ours(site, "--create", "--topic", first, "--replica-assignment", "1,1,1")
    by_kafka = kafkas(site, "--create", "--topic", second, "--replica-assignment", "1,1,1")
    assert [line.replace(first, second) for line in warned] == by_kafka
    assert len(warned) == 2

    again = site.run("topics", "--create", "--topic", first, "--partitions", "1")
    (complaint, *_) = [line for line in kafkas(site, "--create", "--topic", first) if "already exists" in line]
    assert again.status == 1
    assert complaint.partition(" : ")[2] in again.err
    assert ours(site, "--create", "--if-not-exists", "--topic", first)[:1] == warned[:1]

    assert ours(site, "--delete", "--topic", first, "--yes") == kafkas(site, "--delete", "--topic", second) == []
    eventually(lambda: not set(ours(site, "--list")) & {first, second})
    assert ours(site, "--delete", "--topic", first, "--if-exists", "--yes") == []
    assert kafkas(site, "--delete", "--topic", first, "--if-exists") == []


def test_a_shrunk_topic_has_its_modes_and_what_it_waits_for(site: Site, filled: str, controller: Controller) -> None:
    before = ours(site, "--describe", "--topic", filled)
    assert ours(site, "--alter", "--topic", filled, "--partitions", "4", "--yes")[0] == f"{filled}: ReadOnly now: 4-5."
    lines = ours(site, "--describe", "--topic", filled)
    modes = [line.rpartition("Mode: ")[2] for line in lines if line.startswith("\t")]
    assert modes == ["ReadWrite"] * 4 + ["ReadOnly"] * 2
    assert without_modes(lines) == without_modes(before) == kafkas(site, "--describe", "--topic", filled)

    assert ours(site, "--delete", "--topic", filled, "--yes") == []
    eventually(lambda: filled not in site.changed_topics(), 60, message="the controller removes the record")
    assert ours(site, "--describe", "--topic", filled, "--if-exists") == []


def test_record_of_a_deleted_topic_of_that_name_is_shown_to_apply_to_nothing(site: Site, filled: str) -> None:
    """No controller runs that would remove it."""
    ours(site, "--alter", "--topic", filled, "--partitions", "4", "--delete-partitions-delay", "0", *LEAVE)
    gone = site.describe(filled)["topic_id"]
    kafkas(site, "--delete", "--topic", filled)
    create_topic(site.servers, filled, 6, configs={})
    lines = ours(site, "--describe", "--topic", filled)
    assert without_modes(lines) == kafkas(site, "--describe", "--topic", filled)
    assert all("Mode: ReadWrite" in line for line in lines if line.startswith("\t"))
    said = f"Mode record of topic id {gone}: that topic was deleted; the record has no effect"
    assert [line for line in lines if line.startswith("  ")] == [f"  {said}"]
    described = site.describe(filled)
    assert (described["epoch"], described["writable"], described["gone_ids"]) == (-1, 6, [gone])

"""``modeaware apply`` on a real Kafka with a controller: topics as a file declares them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from modeaware.admin import replacements
from tests.conftest import MakeTopic
from tests.support.command_line import Site
from tests.support.plain import watermarks
from tests.support.waiting import eventually

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of topics: ``write(orders={"partitions": 4})``; JSON is YAML."""

    def write(**topics: dict[str, Any]) -> str:
        path = tmp_path / "topics.yaml"
        path.write_text(json.dumps({"version": 1, "topics": topics}))
        return str(path)

    return write


def told_json(site: Site, *arguments: str, status: int = 0) -> dict[str, dict[str, Any]]:
    """The topics of the printed object, by name."""
    told = site.run("apply", *arguments, "--json")
    assert told.status == status, told.out + told.err
    return {topic["topic"]: topic for topic in json.loads(told.out)["topics"]}


def own_configs(site: Site, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": site.servers})
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items() if entry.source == 1}


def state(site: Site, *topics: str) -> tuple[object, ...]:
    """What a run that changes nothing leaves as it is."""
    seen = ((sorted(watermarks(site.servers, topic)), own_configs(site, topic)) for topic in topics)
    return site.changed_topics() & {*topics}, *seen


def exists(site: Site, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": site.servers}).list_topics(timeout=30).topics


@pytest.mark.usefixtures("controller")
def test_a_file_is_applied_and_applied_again(site: Site, filled: str, make_topic: MakeTopic, write: Write) -> None:
    new, grows = f"new-{uuid.uuid4().hex[:8]}", make_topic(2)
    drained = {"policy": "drained", "delay": "0s"}
    topics = {
        filled: {"partitions": 2, "configs": {"retention.ms": 3600000}, "shrink": drained},
        new: {"partitions": 3, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}},
        grows: {"partitions": 4},
    }
    file = write(**topics)
    before = state(site, filled, grows)
    shown = site.run("apply", file, "--check")
    assert shown.status == 3, shown.err
    assert "  ~ partitions: 6 -> 2" in shown.out
    assert "Topics: 3 to change." in shown.out
    assert site.run("apply", file, "--dry-run").status == 0
    asked = site.run("apply", file)
    assert (asked.status, "pass --yes" in asked.err) == (1, True)
    assert (state(site, filled, grows), exists(site, new)) == (before, False), "nothing was changed by all that"

    done = site.run("apply", file, "--yes", "--wait")
    assert done.status == 0, done.err
    assert site.modes(filled) == ["ReadWrite"] * 2 + ["None"] * 4
    assert (len(watermarks(site.servers, grows)), len(watermarks(site.servers, new))) == (4, 3)
    assert own_configs(site, filled) == {"retention.ms": "3600000"}
    assert own_configs(site, new) == {"cleanup.policy": "compact"}

    again = site.run("apply", file, "--check")
    assert (again.status, again.out) == (0, "Topics: 3 as declared.\nDry run: nothing was changed.\n"), again.err
    reverted = write(**{**topics, filled: {"partitions": 8, "configs": {"retention.ms": None}}})
    grown = site.run("apply", reverted, "--yes", "--wait")
    assert grown.status == 0, grown.err
    assert "ReadWrite again: 2-5" in grown.out
    assert site.modes(filled) == ["ReadWrite"] * 8
    assert own_configs(site, filled) == {}


@pytest.mark.usefixtures("controller")
def test_in_mid_shrink(site: Site, filled: str, write: Write, make_group: Callable[[], str]) -> None:
    site.commit(filled, make_group(), dict.fromkeys(range(6), 0))  # it holds the drain up
    drained = {"policy": "drained", "delay": "0s"}
    assert site.run("apply", write(**{filled: {"partitions": 4, "shrink": drained}}), "--yes").status == 0
    eventually(lambda: site.describe(filled)["phase"] == "drain")
    before = site.describe(filled)["deletion"]

    same = told_json(site, write(**{filled: {"partitions": 4}}), "--check")[filled]
    assert (same["status"], same["in_progress"], same["steps"]) == ("in_progress", "drain of partitions 4-5", [])
    lower = told_json(site, write(**{filled: {"partitions": 2}}), "--yes", status=1)[filled]
    assert lower["status"] == "refused"
    assert f"undo it (modeaware topics --undo --topic {filled})" in lower["error"]
    assert (site.describe(filled)["deletion"], site.modes(filled)[3:]) == (before, ["ReadWrite", *["ReadOnly"] * 2])

    accepts = {"partitions": 4, "shrink": {**drained, "accept_state_loss": ["streams"]}}
    accepted = told_json(site, write(**{filled: accepts}), "--yes")[filled]
    assert accepted["status"] == "applied"
    part = {"partitions": 5, "shrink": accepts["shrink"]}
    back = told_json(site, write(**{filled: part}), "--yes")[filled]
    assert [step["step"] for step in back["steps"]] == ["grow"]
    assert "undoes the shrink" in back["notes"][0]
    assert site.modes(filled) == ["ReadWrite"] * 5 + ["ReadOnly"]
    assert site.describe(filled)["deletion"]["accept_state_loss"] == ["streams"]


@pytest.mark.usefixtures("controller")
def test_a_topic_that_is_replaced_is_left_alone(site: Site, filled: str, write: Write) -> None:
    name = f"{filled}-v2"
    paused = site.run("replace", filled, "--with", name, "--partitions", "2", "--pause-before-switch", "--yes")
    assert paused.status == 0, paused.err
    file = write(**{filled: {"partitions": 6, "configs": {"retention.ms": "5000"}}})
    before = told_json(site, file, "--yes", status=1)[filled]
    assert (before["status"], "--undo" in before["error"]) == ("refused", True)
    assert site.run("replace", filled, "--yes").status == 0
    eventually(lambda: site.describe(filled)["replacement"]["switched_ms"] is not None)
    after = told_json(site, file, "--yes", status=1)[filled]
    assert f"its name points to '{name}'" in after["error"]
    assert "retention.ms" not in own_configs(site, filled)


@pytest.mark.usefixtures("controller")
def test_a_topic_is_replaced_where_the_file_says_so(
    site: Site, make_topic: MakeTopic, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(6, retention_ms=7200000)
    name = f"{topic}-v2"
    declared = {"partitions": 2, "replace": name, "configs": {"segment.ms": 3600000}}
    with monkeypatch.context() as mirrored:
        mirrored.setattr(replacements, "mirrors", lambda names: ["mm2-configs"] if topic in names else [])
        refused = told_json(site, write(**{topic: declared}), "--check", status=1)[topic]
        assert "MirrorMaker 2 is in use (topic 'mm2-configs')" in refused["error"]
        assert site.run("apply", write(**{topic: declared}), "--check", "--accept-mirroring").status == 3
    shown = site.run("apply", write(**{topic: declared}), "--check")
    assert shown.status == 3, shown.err
    assert f"  ~ partitions: 6 -> 2, by the new topic {name}" in shown.out
    assert not exists(site, name)
    done = told_json(site, write(**{topic: declared}), "--yes", "--wait")[topic]
    assert (done["status"], done["steps"][0]["new_topic"]) == ("applied", name)
    assert site.describe(topic)["phase"] in ("reclaim", "done"), "it is released"
    assert len(watermarks(site.servers, name)) == 2
    assert own_configs(site, name) == {"retention.ms": "7200000", "segment.ms": "3600000"}

    again = told_json(site, write(**{topic: declared}), "--check")[topic]
    assert (again["status"], again["steps"]) == ("unchanged", [])
    other = told_json(site, write(**{topic: {**declared, "partitions": 3}}), "--yes", status=1)[topic]
    assert f"it was replaced by '{name}', which has 2 partitions" in other["error"]
    taken = told_json(site, write(**{make_topic(3): {"partitions": 1, "replace": name}}), "--yes", status=1)
    assert [each["status"] for each in taken.values()] == ["refused"]
    assert site.run("apply", write(**{name: {"partitions": 2}}), "--check").status == 0, "it is a topic of its own"

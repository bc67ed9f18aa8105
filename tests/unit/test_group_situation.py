"""What ``modeaware groups`` looks at before a rule is changed: no more topics than the rule can match, one listing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from modeaware import cli
from modeaware.cli import groups
from modeaware.cli.options import Connection
from modeaware.cluster.cluster import Cluster, TopicShape
from modeaware.cluster.groups.found import ListedGroups
from modeaware.cluster.groups.listing import Listing
from modeaware.cluster.observer import Observer
from modeaware.config import ControllerConfig
from modeaware.lifecycle.facts import TopicFacts
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import TopicRecord
from modeaware.modelog.replay import Replay, fold
from tests.support.lifecycle import admitted, shrink

TOPICS = [f"topic-{number:03}" for number in range(400)]
RULE = GroupRule("waive", "billing", "topic-007", "gone", 0)


class Looks:
    """A mode log with 400 pending topics, and what was looked at."""

    brokers = None

    def __init__(self) -> None:
        self.looked_at: list[str] = []
        self.listings = 0

    def log(self, *_: object) -> Replay:
        records = [replace(admitted(shrink(4)), topic=name, topic_id=f"id of {name}") for name in TOPICS]
        entries = [(record.topic_id, record.to_json()) for record in records]
        return fold([*entries, (GROUP_RULES_KEY, GroupRulesRecord((RULE,)).to_json())])

    def describe(self, names: Iterable[str]) -> dict[str, TopicShape]:
        return {name: TopicShape(f"id of {name}", False, 12) for name in names}

    def list(self, _brokers: object) -> ListedGroups:
        self.listings += 1
        return ListedGroups(Listing(), {})

    def look(
        self, _observer: Observer, topic: str, record: TopicRecord | None, _rules: Sequence[GroupRule]
    ) -> TopicFacts:
        assert record is not None
        self.looked_at.append(topic)
        return TopicFacts(topic, record.topic_id)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr(groups, "read_mode_log", looks.log)
    monkeypatch.setattr(groups, "list_groups_with_members", looks.list)
    monkeypatch.setattr(groups, "look_at_groups", looks.look)
    monkeypatch.setattr(groups, "connect", lambda target: looks)
    monkeypatch.setattr(groups, "alter_group_rules", lambda *_: None)
    return looks


@pytest.mark.parametrize(
    ("command", "looked_at"),
    [
        (["waive", "g", "--topic", "topic-007", "--reason", "r", "--forever"], ["topic-007"]),
        (["waive", "g", "--topic", "topic-00[12]", "--reason", "r", "--forever"], ["topic-001", "topic-002"]),
        (["waive", "g", "--topic", "another", "--reason", "r", "--forever"], []),
        (["require", "g", "--topic", "topic-007"], []),
        (["closed", "--topic", "*", "--reason", "r"], []),
        (["forget", "waive", "billing", "--topic", "topic-007"], []),
    ],
    ids=lambda value: value[0] if value else "",
)
def test_only_topics_that_a_waiver_can_match_are_looked_at(
    looks: Looks, command: list[str], looked_at: list[str]
) -> None:
    assert cli.main(["groups", *command, "--yes", "--bootstrap-server", "127.0.0.1:1"]) == 0
    assert looks.looked_at == looked_at
    assert looks.listings == (1 if looked_at else 0)


def test_groups_are_listed_once_for_all_topics(looks: Looks) -> None:
    cluster: Any = looks
    connection = cast(Connection, type("Target", (), {"conf": {}}))
    situation = groups.look_at_topics(connection, cast(Cluster, cluster), ControllerConfig(), None)
    assert (looks.looked_at, looks.listings) == (TOPICS, 1)
    assert situation.rules == (RULE,)

"""What people are told of an evacuation: before it, while it is waited for, and afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from modeaware.cli import plan
from modeaware.cli.display import JSON_HELP, describe_json, describe_text
from modeaware.cli.situation import Situation
from modeaware.cluster.cluster import Cluster, LogOffsets, TopicShape
from modeaware.cluster.groups.found import GroupsFound
from modeaware.lifecycle import reasons
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.evacuation import evacuation_group
from modeaware.lifecycle.facts import GroupFacts, TopicFacts
from modeaware.modelog.records import TopicRecord
from modeaware.modelog.replay import fold
from modeaware.reports import describe as module
from modeaware.reports.describe import TopicDescription, describe_topics
from tests.support.lifecycle import (
    RO,
    TOPIC,
    TOPIC_ID,
    admitted,
    after,
    facts,
    group,
    log,
    shrink,
)

P = 11
JOB, STALE = evacuation_group(TOPIC, 0), evacuation_group(TOPIC, 77)
EVERYWHERE = group(dict.fromkeys(range(12), 10))
FOUND = {"g": EVERYWHERE, STALE: group({P: 3})}


def seen(groups: dict[str, GroupFacts]) -> TopicFacts:
    return facts(logs={p: log(10) for p in range(12)}, groups=groups, cleanup_policy="compact")


def waiting() -> TopicRecord:
    """Sealed and read; nothing is copied."""
    record = after(admitted(shrink(P, evacuate=True), seen=seen(FOUND)), seen(FOUND))
    assert (record.modes[P], record.retired[P].reason) == (RO, reasons.NOT_EVACUATED)
    return record


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> object:
    def describe(record: TopicRecord, groups: dict[str, GroupFacts]) -> TopicDescription:
        class Stub(Cluster):
            def __init__(self, conf: object) -> None: ...

            def describe(self, topics: Iterable[str]) -> dict[str, TopicShape | None]:
                return {topic: TopicShape(TOPIC_ID, False, 12) for topic in topics}

            def offsets(self, *_: object) -> dict[int, LogOffsets]:
                return {p: LogOffsets(0, 10, 10, 3) for p in range(12)}

        def find(_cluster: object, _topic: str, _partitions: object, also: object) -> GroupsFound:
            assert also == [JOB], "its commits are read though nobody lists it"
            return GroupsFound(groups)

        monkeypatch.setattr(module, "Cluster", Stub)
        monkeypatch.setattr(module, "read_mode_log", lambda *_: fold([(TOPIC_ID, record.to_json())]))
        monkeypatch.setattr(module, "find_groups", find)
        (description,) = describe_topics({}, "modes", [TOPIC])
        return description

    return describe


class TestBefore:
    def lines(self, target: int, policy: str = "compact", delay_ms: int = 0) -> str:
        situation = Situation(TOPIC, None, replace(seen(FOUND), cleanup_policy=policy))
        command = DeletePartitionsCommand(TOPIC, target, delay_ms, evacuate=True)
        return "\n".join(plan.plan(command, situation))

    def test_who_has_to_do_what(self) -> None:
        assert "Evacuated first: they wait until the Spark job modeaware.spark.evacuate" in self.lines(4)
        plain = plan.plan(DeletePartitionsCommand(TOPIC, 4), Situation(TOPIC, None, seen(FOUND)))
        assert "vacuat" not in "\n".join(plain)


class TestDescription:
    def test_while_it_is_waited_for(self, described: object) -> None:
        description = described(waiting(), {**FOUND, JOB: group({P: 4})})
        assert (description.evacuation, sorted(description.groups)) == (JOB, ["g", JOB])
        partition = description.partitions[P]
        assert (partition.lag, partition.lagging_group) == (6, JOB)
        assert "modeaware.spark.evacuate" in str(partition.waits_for)
        assert [p.lag for p in description.partitions[:P]] == [0] * P, "survivors are not evacuated"
        text = describe_text([description], expand=False)
        assert f"Evacuated first (modeaware.spark.evacuate), which group {JOB} proves" in text
        assert reasons.text(reasons.NOT_EVACUATED) in text
        (topic,) = describe_json([description])["topics"]
        assert (topic["evacuation_group"], topic["deletion"]["evacuate"]) == (JOB, True)
        assert all(f'"{name}"' in JSON_HELP for name in ("evacuation_group", "evacuate"))

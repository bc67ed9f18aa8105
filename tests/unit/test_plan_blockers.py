"""What a plan says stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.config import ControllerConfig
from modeaware.errors import RequestRefused
from modeaware.lifecycle.admission import Admission, admit
from modeaware.lifecycle.commands import CreatePartitionsCommand, DeletePartitionsCommand
from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts, WriterFacts
from modeaware.lifecycle.objections import current_of
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.plan.report import Blocker, find_blockers, group_lags
from modeaware.plan.sample import TopicSnapshot
from tests.support.lifecycle import RO, TOPIC_ID, admitted, shrink

NOW_MS = 1_700_000_000_000
LOG = PartitionFacts(10, 100, 100, 0, 0)
FACTS = TopicFacts("orders", "id", 4, partitions=dict.fromkeys(range(4), LOG))
ALL_READ = dict.fromkeys(range(4), 100)


SNAPSHOT = TopicSnapshot(FACTS)
SHRUNK = admitted(shrink(3), seen=replace(FACTS, topic_id=TOPIC_ID))
IN_PROGRESS = replace(SHRUNK, topic_id="id")
NOW = Replacement("orders", 4, 0, new_topic_id="id")
REPLACED = TopicRecord("before", "id-of-before", 1, 1, (RO,), replacement=NOW)


def found(facts: TopicFacts, target: int = 2) -> dict[str, Blocker]:
    blockers = find_blockers(TopicSnapshot(facts), target, NOW_MS)
    assert len({blocker.code for blocker in blockers}) == len(blockers)
    return {blocker.code: blocker for blocker in blockers}


@pytest.mark.parametrize(
    ("snapshot", "target", "codes"),
    [
        (replace(SNAPSHOT, facts=replace(FACTS, internal=True)), 2, ["internal"]),
        (replace(SNAPSHOT, facts=replace(FACTS, cleanup_policy="compact")), 2, ["compacted"]),
        (replace(SNAPSHOT, facts=replace(FACTS, partitions={0: LOG, 3: LOG})), 2, ["unavailable"]),
        (replace(SNAPSHOT, facts=replace(FACTS, partitions={0: LOG, 3: LOG})), 8, []),
        (replace(SNAPSHOT, facts=replace(FACTS, stateful_owner="app")), 2, ["streams-internal"]),
        (
            replace(SNAPSHOT, facts=replace(FACTS, groups={"app": GroupFacts(ALL_READ, stateful=True)})),
            2,
            ["stateful-groups"],
        ),
        (replace(SNAPSHOT, record=IN_PROGRESS), 2, ["in-progress"]),
        (replace(SNAPSHOT, record=IN_PROGRESS), 3, ["count"]),
        (replace(SNAPSHOT, record=replace(IN_PROGRESS, replacement=Replacement("v2", 2, 0))), 2, ["replaced"]),
        (replace(SNAPSHOT, replaced=(REPLACED,)), 2, ["alias", "alias"]),
        (replace(SNAPSHOT, config=ControllerConfig(enable=False)), 2, ["off"]),
        (replace(SNAPSHOT, config=ControllerConfig(enable=False)), 8, []),
        (
            TopicSnapshot(
                replace(FACTS, partition_count=6, partitions=dict.fromkeys(range(6), LOG)), record=IN_PROGRESS
            ),
            2,
            ["in-progress", "added-partitions"],
        ),
        (replace(SNAPSHOT, facts=replace(FACTS, partition_count=6), record=IN_PROGRESS), 5, ["added-partitions"]),
        (replace(SNAPSHOT, facts=replace(FACTS, internal=True, cleanup_policy="")), 2, ["internal", "compacted"]),
    ],
)
def test_a_plan_refuses_what_an_admission_refuses_in_its_words(
    snapshot: TopicSnapshot, target: int, codes: list[str]
) -> None:
    refused = [blocker for blocker in find_blockers(snapshot, target, NOW_MS) if blocker.severity == "refused"]
    assert [blocker.code for blocker in refused] == codes
    record, writable = snapshot.record, current_of(snapshot.record, snapshot.facts).writable_count
    command = (DeletePartitionsCommand if target < writable else CreatePartitionsCommand)("orders", target)

    def admission() -> Admission:
        return admit(command, record, snapshot.facts, snapshot.config, NOW_MS, (), snapshot.replaced)

    if not refused:
        assert admission().record is not None
        return
    with pytest.raises(RequestRefused) as caught:
        admission()
    assert caught.value.message == f"topic 'orders': {refused[0].text}"


def test_transactions_that_are_open_where_it_matters() -> None:
    writer = WriterFacts(4711, 0, NOW_MS, transaction_start=90)
    open_ = replace(LOG, last_stable_offset=90, writers=(writer, WriterFacts(12, 0, NOW_MS)))
    text = found(replace(FACTS, partitions={**FACTS.partitions, 3: open_}))["open-transactions"].text
    assert "in partitions 3, which would retire (of producer ids 4711)" in text
    assert "open-transactions" not in found(replace(FACTS, partitions={**FACTS.partitions, 0: open_}))


def test_groups_behind() -> None:
    groups = {
        "behind": GroupFacts({**ALL_READ, 3: 90}, has_members=True),
        "done": GroupFacts(ALL_READ),
        "elsewhere": GroupFacts({**ALL_READ, 0: 20}),
        "idle": GroupFacts({0: 100, 1: 100}),
        "console-consumer-7": GroupFacts(has_members=True),
    }
    facts = replace(FACTS, groups=groups)
    lags = {lag.group: (lag.lag, lag.retiring, lag.uncommitted) for lag in group_lags(facts, 2)}
    assert lags == {
        "behind": (10, 10, 0),
        "done": (0, 0, 0),
        "elsewhere": (80, 0, 0),
        "idle": (180, 180, 2),
        "console-consumer-7": (360, 180, 2),
    }
    assert [lag.group for lag in group_lags(facts, 2)][:2] == ["console-consumer-7", "idle"]
    blockers = found(facts)
    assert blockers["lag"].text.endswith("Groups that are behind on the partitions that would retire: idle, behind.")
    assert blockers["idle-groups"].text.startswith("Groups without members and without commits")
    assert "retire: idle." in blockers["idle-groups"].text
    growth = found(facts, target=8)
    assert growth.keys() == {"producers"}
    assert "remember no idempotent producer" in growth["producers"].text


def test_a_growth_is_not_refused_for_its_keys_but_they_are_to_be_checked() -> None:
    facts = replace(FACTS, cleanup_policy="compact", groups={"app": GroupFacts(stateful=True)}, stateful_owner="app")
    assert {code: blocker.severity for code, blocker in found(facts, target=8).items()} == dict.fromkeys(
        ("compacted", "streams-internal", "stateful-groups", "producers"), "check"
    )

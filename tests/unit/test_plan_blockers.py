"""What a plan says stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.lifecycle.facts import GroupFacts, PartitionFacts, TopicFacts, WriterFacts
from modeaware.lifecycle.intent import why_evacuate
from modeaware.plan.report import Blocker, find_blockers, group_lags

NOW_MS = 1_700_000_000_000
LOG = PartitionFacts(10, 100, 100, 0, 0)
FACTS = TopicFacts("orders", "id", 4, partitions=dict.fromkeys(range(4), LOG))
ALL_READ = dict.fromkeys(range(4), 100)


def found(facts: TopicFacts, target: int = 2, **more: object) -> dict[str, Blocker]:
    blockers = find_blockers(facts, target, NOW_MS, **more)  # type: ignore[arg-type]  # as the test names them
    assert len({blocker.code for blocker in blockers}) == len(blockers)
    return {blocker.code: blocker for blocker in blockers}


def refused(facts: TopicFacts, target: int = 2) -> set[str]:
    return {code for code, blocker in found(facts, target).items() if blocker.severity == "refused"}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (replace(FACTS, internal=True), "internal"),
        (replace(FACTS, cleanup_policy="compact"), "compacted"),
        (replace(FACTS, partitions={0: LOG, 3: LOG}), "unavailable"),
        (replace(FACTS, stateful_owner="app"), "streams-internal"),
        (replace(FACTS, groups={"app": GroupFacts(ALL_READ, stateful=True)}), "stateful-groups"),
    ],
)
def test_what_an_admission_would_refuse(facts: TopicFacts, code: str) -> None:
    assert refused(facts) == {code}
    blockers = find_blockers(facts, 2, NOW_MS)
    assert blockers[0].code == code, "refusals come first"


def test_compacted_topic_is_refused_in_the_words_of_the_admission() -> None:
    assert found(replace(FACTS, cleanup_policy="compact"))["compacted"].text == f"{why_evacuate('compact')}."


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
    assert blockers["lag"].text.endswith("still behind on the partitions that would retire: idle, behind.")
    assert blockers["idle-groups"].text.startswith("Without members, and never committed")
    assert "retire: idle." in blockers["idle-groups"].text
    growth = found(facts, target=8)
    assert growth.keys() == {"producers"}
    assert "remember no idempotent producer" in growth["producers"].text


def test_a_growth_is_not_refused_for_its_keys_but_they_are_to_be_checked() -> None:
    facts = replace(FACTS, cleanup_policy="compact", groups={"app": GroupFacts(stateful=True)}, stateful_owner="app")
    assert {code: blocker.severity for code, blocker in found(facts, target=8).items()} == dict.fromkeys(
        ("compacted", "streams-internal", "stateful-groups", "producers"), "check"
    )
    assert refused(replace(FACTS, internal=True), target=8) == {"internal"}

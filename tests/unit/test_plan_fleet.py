"""What is advised about topics with made-up facts, and the sums of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, MembersSeen, PartitionFacts, TopicFacts
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.plan.file import DesiredTopic, read_topics, topics_text
from modeaware.plan.fleet import (
    Fleet,
    FleetPlan,
    ScannedTopic,
    Sizing,
    TopicAdvice,
    advise,
    batches,
    make_fleet_plan,
    new_name,
)
from modeaware.plan.rates import DAY_MS, HOUR_MS, LogConfigs, TopicLogs, Window
from tests.support.lifecycle import RO

NOW_MS = 1_800_000_000_000
WEEK = Window(NOW_MS, 7)


def logs_of(count: int, per_day: int, size: int = 100, hour_share: float | None = None) -> TopicLogs:
    """``per_day`` records a day in all; with ``hour_share``, that part of each in one hour."""
    reached = [day * per_day for day in range(8)]
    share = per_day * 7 // count
    made = TopicLogs(
        [0] * count,
        [share] * (count - 1) + [per_day * 7 - share * (count - 1)],
        [0] * count,
        [NOW_MS - 7 * DAY_MS if per_day else -1] * count,
        [size * share] * (count - 1) + [size * (per_day * 7 - share * (count - 1))],
        reached,
        NOW_MS - 1 if per_day else -1,
    )
    if hour_share is None:
        return made
    within = [int(per_day * ((1 - hour_share) * hour / 24 + hour_share * (hour > 12))) for hour in range(1, 24)]
    return replace(made, hours={day: [reached[day] + n for n in within] for day in (0, 1)})


FACTS = {"internal", "groups", "groups_doubt", "stateful_owner", "cleanup_policy"}


def topic(name: str = "orders", count: int = 12, per_day: int = 2_400, **changes: object) -> ScannedTopic:
    answered = dict.fromkeys(range(count), PartitionFacts(0, 0, 0, 0, 0))
    facts = TopicFacts(name, f"id-{name}", partition_count=count, partitions=answered)
    of_facts = {key: changes.pop(key) for key in FACTS & changes.keys()}
    facts = replace(facts, **of_facts)  # type: ignore[arg-type]  # of its fields
    made = ScannedTopic(facts, {1: count, 2: count}, logs_of(count, per_day))
    return replace(made, **changes)  # type: ignore[arg-type]  # of its fields


def advised(of: ScannedTopic, sizing: Sizing = Sizing(), *, can_replace: bool = True) -> TopicAdvice:  # noqa: B008  # immutable
    return advise(of, Fleet([of], WEEK, can_replace=can_replace), sizing)


def held(**members: int) -> dict[str, GroupFacts]:
    return {name: GroupFacts(has_members=n > 0, members=MembersSeen(0, n, n)) for name, n in members.items()}


GROUP = held(billing=0)


def steady(per_second: int, size: int) -> TopicLogs:
    """Twelve partitions; each hour is known, and as the others."""
    return logs_of(12, 24 * 3_600 * per_second, size, hour_share=0.0)


@pytest.mark.parametrize(
    ("of", "to", "do", "reason"),
    [
        (topic(), 2, "replace", "2 are enough"),
        (topic(groups=held(billing=5, audit=3)), 5, "replace", "5 members of group 'billing'"),
        (topic(groups=held(billing=9)), 9, "replace", "9 members"),
        (topic(groups=held(billing=10)), 12, "leave", "it needs 10 of its 12 partitions"),
        (topic(count=2), 2, "leave", "it needs 2 of its 2"),
        (topic(count=1), 1, "leave", "it needs 1 of its 1"),
        (topic(logs=steady(4_000, 10)), 2, "replace", "2 are enough"),
        (
            topic(logs=steady(12_000, 10)),
            3,
            "replace",
            "12 000 records/s in its",
        ),
        (topic(logs=steady(4_000, 4_000)), 7, "replace", "16.0 MB/s in its"),
        (topic(logs=logs_of(12, 24 * 3_600 * 400)), 2, "replace", "2 are enough"),
        (topic(logs=logs_of(12, 24 * 3_600 * 2_000, size=10)), 12, "leave", "it needs 10"),
        (topic(per_day=0), 0, "delete?", "no record for 7d, and no group uses it"),
        (topic(per_day=0, groups=GROUP), 2, "replace", "2 are enough"),
        (topic(per_day=0, groups_doubt=GroupsDoubt("a broker is silent")), 2, "replace", "2 are enough"),
        (topic(internal=True), 12, "leave", "it is internal"),
        (topic(cleanup_policy="compact"), 12, "leave", "cleanup.policy is 'compact'"),
        (topic(groups={"app": GroupFacts(stateful=True)}), 12, "leave", "groups that keep state per partition"),
        (topic(stateful_owner="app"), 12, "leave", "it is an internal topic of the Streams application 'app'"),
        (topic(record_error="its record cannot be used"), 12, "leave", "its record cannot be used"),
    ],
)
def test_advice(of: ScannedTopic, to: int, do: str, reason: str) -> None:
    found = advised(of)
    assert (found.to, found.do) == (to, do), found.reason
    assert found.reason.startswith(reason)
    assert found.frees == (0 if do == "leave" else 2 * (of.facts.partition_count - to))


def test_what_is_not_known_is_no_reason_to_shrink() -> None:
    silent = topic(logs=replace(logs_of(12, 2_400), ends=[-1] * 2 + [1_400] * 10))
    assert advised(silent).reason == "no leader answers for partitions 0-1"
    unsized = topic(logs=replace(logs_of(12, 2_400), sizes=[-1] * 12))
    assert advised(unsized).reason == "the size of its records is unknown"
    young = topic(logs=replace(logs_of(12, 2_400), first_ms=[NOW_MS - 5 * HOUR_MS] * 12))
    assert advised(young).reason.startswith("its logs cover only 5 of the 24 hours")
    assert {advised(of).do for of in (silent, unsized, young)} == {"leave"}
    hidden = advised(topic(configs=LogConfigs(None, None, None, None), groups_doubt=GroupsDoubt("no right")))
    assert {note.code for note in hidden.notes} == {"peak-bound", "configs-unknown", "groups-unknown"}


def test_hours_are_wanted_where_the_bound_decides() -> None:
    def wanted(of: ScannedTopic) -> bool:
        return advised(of).wants_hours

    assert not wanted(topic())
    assert not wanted(topic(per_day=0))
    busy = logs_of(12, 24 * 3_600 * 2_000, size=10)
    assert wanted(topic(logs=busy))
    assert not wanted(topic(logs=busy, cleanup_policy="compact")), "it is left in any case"
    assert not wanted(topic(logs=steady(20_000, 10))), "they were looked at"
    assert not wanted(topic(logs=logs_of(12, 24 * 3_600 * 400), groups=held(billing=12))), "members decide"


def test_limits_of_a_partition_are_options() -> None:
    busy = topic(logs=steady(400, 10_000))
    assert advised(busy).to == 2
    assert advised(busy, Sizing(bytes_per_s=2_000_000)).to == 4


def test_without_a_fence_a_shrink_goes_to_a_divisor_and_frees_no_replica() -> None:
    found = advised(topic(groups=held(billing=5)), can_replace=False)
    assert (found.do, found.to, found.frees, found.new_topic) == ("shrink", 6, 0, None)


@pytest.mark.parametrize(
    ("name", "taken", "new"),
    [
        ("orders", (), "orders-v2"),
        ("orders", ("orders-v2", "orders-v3"), "orders-v4"),
        ("orders-v2", ("orders-v2",), "orders-v3"),
        ("a-v1-b", (), "a-v1-b-v2"),
        ("a-v1-v9", (), "a-v1-v10"),
        ("a-vx", (), "a-vx-v2"),
    ],
)
def test_names_of_new_topics(name: str, taken: tuple[str, ...], new: str) -> None:
    assert new_name(name, taken) == new


@pytest.mark.parametrize(
    ("old", "do"),
    [
        ({"new_topic_id": "id-orders-v2"}, "leave"),
        ({}, "leave"),
        ({"new_topic_id": "id-orders-v2", "switched_ms": 2, "released_ms": 3, "fence": "none"}, "replace"),
        (
            {"new_topic_id": "id-orders-v2", "switched_ms": 2, "released_ms": 3, "gone_ms": 4, "keep_name": True},
            "leave",
        ),
        ({"new_topic_id": "id-orders-v2", "switched_ms": 2, "released_ms": 3, "gone_ms": 4}, "delete?"),
        ({"new_topic_id": "id-orders-v2", "undone_ms": 2}, "delete?"),
        ({"new_topic_id": "id-of-another"}, "delete?"),
    ],
    ids=["announced", "not created yet", "released", "an interim topic", "an alias", "undone", "another topic"],
)
def test_an_empty_new_topic_is_not_unused_while_its_replacement_is_in_progress(old: dict[str, Any], do: str) -> None:
    new = topic("orders-v2", per_day=0)
    record = TopicRecord("orders", "id-orders", 1, 1, (RO,) * 12, replacement=Replacement("orders-v2", 12, 0, **old))
    found = advise(new, Fleet([new], WEEK, replaced=(record,)), Sizing())
    assert found.do == do, found.reason


def test_a_name_that_is_too_long_is_refused() -> None:
    found = advised(topic("t" * 249))
    assert (found.do, found.blocks) == ("leave", ("new-topic",))


def fleet(sizing: Sizing = Sizing()) -> FleetPlan:  # noqa: B008  # immutable
    some = [
        topic("small", 4),
        topic("big", 40, groups=held(billing=3)),
        topic("read", 12, groups=GROUP),
        topic("unused", 6, 0),
        topic("123", 6, 0, groups={"old": GroupFacts()}),
        topic("full", 2),
    ]
    names = [each.facts.topic for each in some]
    return make_fleet_plan(Fleet(some, WEEK, names, unseen=("one thing",)), sizing)


def test_topics_that_free_the_most_come_first_and_sums_add_up() -> None:
    plan = fleet(Sizing(most_on_broker=20, price=0.002))
    assert [row.topic for row in plan.topics] == ["big", "read", "123", "small", "unused", "full"]
    assert plan.partitions == 70
    assert plan.replicas == 140
    assert plan.curve == (74, 94, 102, 106)
    assert plan.frees == plan.curve[-1] == 2 * plan.frees_partitions
    assert plan.deletable == 12
    assert plan.saved_a_month == pytest.approx(53 * 0.002 * 730)
    assert [(load.broker, load.before, load.after, load.above) for load in plan.brokers] == [
        (1, 70, 17, False),
        (2, 70, 17, False),
    ]
    assert plan.by_members == 6
    assert fleet(Sizing(most_on_broker=10)).brokers[0].above
    assert fleet().saved_a_month is None


def test_two_topics_do_not_get_one_new_name() -> None:
    some = [topic("a"), topic("a-v1")]
    names = [each.facts.topic for each in some]
    plan = make_fleet_plan(Fleet(some, WEEK, names, why_all_renamed="broker 7 creates topics"), Sizing())
    assert sorted(row.new_topic or "" for row in plan.topics) == ["a-v2", "a-v3"]


def test_batches_have_the_safest_first() -> None:
    found = batches(fleet())
    assert {title: [row.topic for row in rows] for title, rows in found.items()} == {
        "not written in the window": ["123"],
        "written, no members": ["read", "small"],
        "with members, the least bytes/s first": ["big"],
    }
    assert [row.topic for rows in batches(fleet(), limit=1).values() for row in rows] == ["big"], "what frees the most"


def test_a_written_file_is_read_by_apply() -> None:
    first = [DesiredTopic("123", 2, replace="123-v2"), DesiredTopic("kept", 2, keep_name=True)]
    some = {"first": first, "then": [DesiredTopic("read", 3)]}
    text = topics_text(some, head="a reason\n" * 40, why_renamed={"123": "it is\nso: #1"})
    topics, mistakes = read_topics(text, "topics.yaml")
    assert mistakes == []
    assert [replace(each, where="") for each in topics] == [*some["first"], *some["then"]]
    assert "  # batch 1: first\n" in text
    assert 'replace: "123-v2"  # it is\\nso: #1\n' in text
    assert max(map(len, text.splitlines())) <= 120
    assert read_topics(topics_text({}, head=None, why_renamed={}), "topics.yaml") == ([], [])

"""The proof before deletion (invariant I1), and the words for what stands in its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from modeaware.lifecycle.drain import Drain, check_drain
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts
from modeaware.lifecycle.requirement import required_of
from modeaware.modelog.group_rules import GroupRule
from tests.support.lifecycle import LATER_MS, NOW_MS, facts, group, log, rule

SEAL = 100
P = 7


def drain_of(
    groups: dict[str, GroupFacts],
    seen: PartitionFacts | None = None,
    required: tuple[str, ...] = (),
    rules: Sequence[GroupRule] = (),
    ignored: tuple[str, ...] = (),
    accepted: tuple[str, ...] = (),
    truncated_to: int | None = None,
    **more: object,
) -> Drain:
    now = facts(groups=groups, **more)
    requirement = required_of(required, now, rules, ignored, LATER_MS, accepted)
    return check_drain(P, SEAL, truncated_to, seen or log(SEAL), now, requirement)


def reason(*args: Any, **more: Any) -> str | None:
    return drain_of(*args, **more).reason


def test_every_group_at_the_seal_is_the_proof() -> None:
    drain = drain_of({"a": group({P: SEAL}), "b": group({P: SEAL})}, required=("a",))
    assert drain.done
    assert drain.proof == {"a": SEAL, "b": SEAL}


def test_a_commit_on_a_part_of_the_log_that_was_truncated_is_doubt() -> None:
    assert reason({"a": group({P: SEAL}, truncated=frozenset({P}))}) == "group-truncated:a"
    assert reason({"a": group({P: SEAL}, truncated=frozenset({P + 1}))}) is None


def test_a_commit_that_names_no_leader_epoch_is_doubt_beyond_where_the_log_was_truncated_to() -> None:
    """Nobody can tell whether the group has read what was there before, or what was written instead."""
    old = {"a": group({P: SEAL}, epochless=frozenset({P}))}
    assert reason(old) is None, "the log was never truncated"
    assert reason(old, truncated_to=SEAL - 1) == "group-truncated:a"
    assert reason(old, truncated_to=SEAL) is None, "it lies before"
    assert reason({"a": group({P: SEAL})}, truncated_to=SEAL - 1) is None, "its leader epoch was looked at"
    assert reason({"a": group({P: SEAL - 1}, caught_up=(P,), epochless=frozenset({P}))}, truncated_to=9) is not None
    gone = log(SEAL, SEAL - 2)
    assert reason({"a": group({P: SEAL - 2}, epochless=frozenset({P}))}, gone, truncated_to=5) == "group-lag:a"


def test_a_waived_group_is_not_waited_for_and_stands_beside_the_proof() -> None:
    drain = drain_of({"a": group({P: SEAL}), "b": group({P: 3})}, rules=[rule("waive", "b", reason="it is retired")])
    assert drain.done
    assert (drain.proof, drain.waived) == ({"a": SEAL}, {"b": "it is retired"})


@pytest.mark.parametrize(
    "waiver",
    [
        rule("waive", "b", topic="other"),
        rule("waive", "B"),
        rule("waive", "b", expires_ms=LATER_MS),
        rule("waive", "b", uncommitted_only=True),
    ],
    ids=["another topic", "another group", "expired", "for groups without a commit only"],
)
def test_a_waiver_is_for_what_it_says_only(waiver: GroupRule) -> None:
    assert reason({"b": group({P: 3})}, rules=[waiver]) == "group-lag:b"


def test_a_waiver_for_many_spares_a_registered_group() -> None:
    groups = {"etl-main": group({P: 3}), "etl-old": group({P: 3})}
    many = rule("waive", "etl-*")
    assert reason(groups, rules=[many]) is None
    assert reason(groups, rules=[many, rule("require", "etl-main")]) == "group-lag:etl-main"
    assert reason(groups, rules=[many, rule("require", "etl-main"), rule("waive", "etl-main")]) is None


def test_a_registered_group_that_is_not_listed_blocks() -> None:
    """It may be a reader that only publishes its progress, or one that is to run tomorrow."""
    assert reason({}, rules=[rule("require", "spark")]) == "group-gone:spark"
    assert reason({"spark": group({P: SEAL})}, rules=[rule("require", "spark")]) is None
    assert reason({}, rules=[rule("require", "spark-*")]) is None
    assert reason({}, rules=[rule("require", "spark[1]", glob=False)]) == "group-gone:spark[1]", "a name, not a glob"
    assert reason({}, rules=[rule("require", "spark", created_ms=NOW_MS, expires_ms=LATER_MS)]) is None


def test_ignored_groups_count_once_they_have_committed() -> None:
    ignored = ("console-consumer-*",)
    assert reason({"console-consumer-7": group(members=True)}, ignored=ignored) is None
    assert reason({"console-consumer-7": group({0: 3})}, ignored=ignored) == "group-never-committed:console-consumer-7"
    registered = [rule("require", "console-consumer-*")]
    only_members = {"console-consumer-7": group(members=True)}
    assert reason(only_members, ignored=ignored, rules=registered) == "group-never-committed:console-consumer-7"


def test_a_closed_list_forgives_hidden_groups_and_nothing_else() -> None:
    closed = [rule("closed"), rule("require", "a")]
    done, hidden = {"a": group({P: SEAL})}, GroupsDoubt("no DESCRIBE", hidden=True)
    assert reason(done, groups_doubt=hidden) == "groups-hidden"
    assert reason(done, groups_doubt=hidden, rules=closed) is None
    assert reason({}, groups_doubt=hidden, rules=closed) == "group-gone:a"
    assert reason(done, groups_doubt=GroupsDoubt("an error"), rules=closed) == "groups-unknown"
    uncommitted = rule("waive", "*", uncommitted_only=True)
    assert reason({}, groups_doubt=hidden, rules=[rule("closed"), uncommitted], required=("b",)) == "group-gone:b"


@pytest.mark.parametrize(
    ("groups", "more", "expected"),
    [
        ({}, {}, None),
        ({"a": group({P: SEAL}), "b": group({P: SEAL - 1})}, {}, "group-lag:b"),
        ({"a": group({P: SEAL}), "new": group({P: 3})}, {"required": ("a",)}, "group-lag:new"),
        ({"a": group({P: 3})}, {"seen": log(SEAL, start=SEAL - 1)}, "group-lag:a"),
        # An empty partition is drained, whatever the groups say.
        ({"a": group({P: 3})}, {"seen": log(SEAL, start=SEAL), "groups_doubt": GroupsDoubt("none is listed")}, None),
        ({"a": group({P + 1: 5})}, {}, "group-never-committed:a"),
        ({"a": group(members=True)}, {}, "group-never-committed:a"),
        ({"a": group({P: SEAL})}, {"required": ("a", "lost")}, "group-gone:lost"),
        ({"a": group({P: SEAL + 1})}, {}, "group-beyond-end:a"),
        ({"a": group({P: SEAL})}, {"groups_doubt": GroupsDoubt("no answer")}, "groups-unknown"),
        # A consumer commits the offset after its last record, never past a commit marker at the end.
        ({"a": group({P: SEAL - 1}, caught_up=(P,))}, {}, None),
        ({"a": group({P: SEAL - 1}, caught_up=(P + 1,))}, {}, "group-lag:a"),
        ({"app": group({P: SEAL}, stateful=True)}, {}, "group-stateful:app"),
        ({"app": group({P: SEAL}, stateful=True)}, {"accepted": ("other",)}, "group-stateful:app"),
        ({"app": group({P: SEAL}, stateful=True)}, {"accepted": ("app",)}, None),
        ({}, {"required": ("lost",), "rules": [rule("waive", "lo*")]}, None),
        ({}, {"required": ("b",), "rules": [rule("waive", "*", uncommitted_only=True)]}, "group-gone:b"),
        ({"a": group(members=True)}, {"rules": [rule("waive", "*", uncommitted_only=True)]}, None),
    ],
)
def test_partition_is_drained_once_every_group_that_counts_has_read_it(
    groups: dict[str, GroupFacts], more: dict[str, Any], expected: str | None
) -> None:
    assert reason(groups, **more) == expected

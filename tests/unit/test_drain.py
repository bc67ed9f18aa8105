"""The proof before deletion (invariant I1), the words for what stands in its way, and the operator's rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from modeaware.errors import ErrorCode, RecordError, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import LATEST_MS, alter_group_rules
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.drain import Drain, Requirement, check_drain, evacuation_group, required_of
from modeaware.lifecycle.facts import GroupFacts, GroupsDoubt, PartitionFacts
from modeaware.lifecycle.seal import seal_partition
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import MAX_RECORD_BYTES, RetiredPartition
from modeaware.notes import Note
from tests.support.lifecycle import LATER_MS, NOW_MS, TOPIC, facts, group, log, rule
from tests.support.modelog import fold, for_newer_readers

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


def test_the_lowest_end_of_a_log_that_was_truncated_twice_counts() -> None:
    """Further, while there was no seal: a commit from before that may lie beyond, and names no epoch."""
    retired = RetiredPartition(truncated_to=8)
    (sealed, _) = seal_partition(retired, log(5), now_ms=LATER_MS, retired_ms=0, quiet_ms=0)
    assert (sealed.seal_offset, sealed.truncated_to) == (5, 5)
    (sealed, _) = seal_partition(retired, log(9), now_ms=LATER_MS, retired_ms=0, quiet_ms=0)
    assert (sealed.seal_offset, sealed.truncated_to) == (9, 8)


def test_a_waived_group_is_not_waited_for_and_stands_beside_the_proof() -> None:
    groups = {"a": group({P: SEAL}), "b": group({P: 3}), "c": group({P: SEAL})}
    drain = drain_of(groups, required=("a",), rules=[rule("waive", "b", reason="it is retired")])
    assert drain.done
    assert (drain.proof, drain.waived) == ({"a": SEAL, "c": SEAL}, {"b": "it is retired"})


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], "groups-unknown"),
        ([rule("waive", "elsewhere")], None),
        ([rule("waive", "else*")], None),
        ([rule("waive", "other")], "groups-unknown"),
        ([rule("waive", "*", uncommitted_only=True)], "groups-unknown"),  # it may have committed
        ([rule("waive", "else*"), rule("require", "elsewhere")], "groups-unknown"),
        ([rule("closed")], "groups-unknown"),
    ],
)
def test_a_group_that_cannot_be_judged_is_forgiven_by_its_own_waiver_and_nothing_else(
    rules: list[GroupRule], expected: str | None
) -> None:
    done = {"a": group({P: SEAL})}
    unclear = {"elsewhere": GroupsDoubt("group 'elsewhere' is in a rebalance", rebalancing="elsewhere")}
    drain = drain_of(done, unclear_groups=unclear, rules=rules)
    assert (drain.reason, drain.waived) == (expected, {}), "nothing shows that it ever used the topic"
    noted = drain_of(done, unclear_groups=unclear, rules=rules, required=("a", "elsewhere"))
    assert (noted.reason is None) == (expected is None)
    assert list(noted.waived) == ([] if expected else ["elsewhere"]), "the record and the certificate state it"
    incomplete = GroupsDoubt("a broker is silent")
    assert reason(done, unclear_groups=unclear, groups_doubt=incomplete, rules=rules) == "groups-unknown"


def test_a_waiver_for_all_spares_no_evacuation_of_which_nothing_is_known() -> None:
    job = evacuation_group(TOPIC, 5)
    now = facts(unclear_groups={job: GroupsDoubt("no answer")})
    requirement = replace(required_of((), now, [rule("waive", "*")], (), LATER_MS), evacuation=job)
    assert requirement.doubt is None
    assert check_drain(P, SEAL, None, log(SEAL), now, requirement).reason == "not-evacuated"


EPOCHLESS = {"a": group({P: SEAL}, epochless=frozenset({P}))}
CAUGHT_UP = {"a": group({P: SEAL - 1}, caught_up=(P,), epochless=frozenset({P}))}
BEHIND = {"a": group({P: SEAL - 2}, epochless=frozenset({P}))}
ETL, ALL_ETL = {"etl-main": group({P: 3}), "etl-old": group({P: 3})}, rule("waive", "etl-*")
CONSOLE, IGNORED = "console-consumer-7", ("console-consumer-*",)
CLOSED, HIDDEN = [rule("closed"), rule("require", "a")], GroupsDoubt("no DESCRIBE", hidden=True)
DONE, NO_ANSWER = {"a": group({P: SEAL})}, GroupsDoubt("no answer")
IN_REBALANCE = {"unclear_groups": {"g": GroupsDoubt("group 'g' is in a rebalance", rebalancing="g")}}


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
        ({"a": group({P: SEAL})}, {"groups_doubt": NO_ANSWER}, "groups-unknown"),
        # A rebalance, which passes, does not hide a group that surely holds up the drain, and blames no other.
        ({"a": group({P: 3})}, IN_REBALANCE, "group-lag:a"),
        ({"a": group({P: 3})}, IN_REBALANCE | {"required": ("_lost", "a")}, "group-lag:a"),
        ({"a": group({P: SEAL})}, IN_REBALANCE | {"required": ("a", "lost")}, "groups-unknown"),
        ({"g": group(members=True)}, IN_REBALANCE, "groups-unknown"),
        ({"a": group({P: 3})}, {"groups_doubt": NO_ANSWER}, "groups-unknown"),
        ({"a": group({P: 3})}, {"groups_doubt": HIDDEN}, "groups-hidden"),
        # A consumer commits the offset after its last record, never past a commit marker at the end.
        ({"a": group({P: SEAL - 1}, caught_up=(P,))}, {}, None),
        ({"a": group({P: SEAL - 1}, caught_up=(P + 1,))}, {}, "group-lag:a"),
        ({"app": group({P: SEAL}, stateful=True)}, {}, "group-stateful:app"),
        ({"app": group({P: SEAL}, stateful=True)}, {"accepted": ("other",)}, "group-stateful:app"),
        ({"app": group({P: SEAL}, stateful=True)}, {"accepted": ("app",)}, None),
        ({}, {"required": ("lost",), "rules": [rule("waive", "lo*")]}, None),
        ({}, {"required": ("b",), "rules": [rule("waive", "*", uncommitted_only=True)]}, "group-gone:b"),
        ({"a": group(members=True)}, {"rules": [rule("waive", "*", uncommitted_only=True)]}, None),
        # A commit on a part of the log that was truncated is doubt.
        ({"a": group({P: SEAL}, truncated=frozenset({P}))}, {}, "group-truncated:a"),
        ({"a": group({P: SEAL}, truncated=frozenset({P + 1}))}, {}, None),
        # One that names no leader epoch is doubt beyond where the log was truncated to: whether the group has read what
        # was there before, or what was written instead, is not known.
        (EPOCHLESS, {}, None),  # the log was never truncated
        (EPOCHLESS, {"truncated_to": SEAL - 1}, "group-truncated:a"),
        (EPOCHLESS, {"truncated_to": SEAL}, None),  # it lies before
        ({"a": group({P: SEAL})}, {"truncated_to": SEAL - 1}, None),  # its leader epoch was looked at
        (CAUGHT_UP, {"truncated_to": 9}, "group-truncated:a"),
        (BEHIND, {"seen": log(SEAL, SEAL - 2), "truncated_to": 5}, "group-lag:a"),
        # A waiver is for what it says only.
        ({"b": group({P: 3})}, {"rules": [rule("waive", "b", topic="other")]}, "group-lag:b"),
        ({"b": group({P: 3})}, {"rules": [rule("waive", "B")]}, "group-lag:b"),
        ({"b": group({P: 3})}, {"rules": [rule("waive", "b", expires_ms=LATER_MS)]}, "group-lag:b"),
        ({"b": group({P: 3})}, {"rules": [rule("waive", "b", uncommitted_only=True)]}, "group-lag:b"),
        # A waiver for many spares a registered group.
        (ETL, {"rules": [ALL_ETL]}, None),
        (ETL, {"rules": [ALL_ETL, rule("require", "etl-main")]}, "group-lag:etl-main"),
        (ETL, {"rules": [ALL_ETL, rule("require", "etl-main"), rule("waive", "etl-main")]}, None),
        # A registered group that is not listed may only publish its progress, or is to run tomorrow.
        ({}, {"rules": [rule("require", "spark")]}, "group-gone:spark"),
        ({"spark": group({P: SEAL})}, {"rules": [rule("require", "spark")]}, None),
        ({}, {"rules": [rule("require", "spark-*")]}, None),
        ({}, {"rules": [rule("require", "spark[1]", glob=False)]}, "group-gone:spark[1]"),  # a name, not a glob
        ({}, {"rules": [rule("require", "spark", created_ms=NOW_MS, expires_ms=LATER_MS)]}, None),
        # Ignored groups count once they have committed.
        ({CONSOLE: group(members=True)}, {"ignored": IGNORED}, None),
        ({CONSOLE: group({0: 3})}, {"ignored": IGNORED}, f"group-never-committed:{CONSOLE}"),
        (
            {CONSOLE: group(members=True)},
            {"ignored": IGNORED, "rules": [rule("require", IGNORED[0])]},
            f"group-never-committed:{CONSOLE}",
        ),
        # A closed list forgives hidden groups and nothing else.
        (DONE, {"groups_doubt": HIDDEN}, "groups-hidden"),
        (DONE, {"groups_doubt": HIDDEN, "rules": CLOSED}, None),
        ({}, {"groups_doubt": HIDDEN, "rules": CLOSED}, "group-gone:a"),
        (DONE, {"groups_doubt": GroupsDoubt("an error"), "rules": CLOSED}, "groups-unknown"),
        (
            {},
            {
                "groups_doubt": HIDDEN,
                "rules": [rule("closed"), rule("waive", "*", uncommitted_only=True)],
                "required": ("b",),
            },
            "group-gone:b",
        ),
    ],
)
def test_partition_is_drained_once_every_group_that_counts_has_read_it(
    groups: dict[str, GroupFacts], more: dict[str, Any], expected: str | None
) -> None:
    assert reason(groups, **more) == expected


# The operator's rules about groups: their record, and changing them


FIRST = rule("require", "spark")
SECOND = rule("waive", "old-*", topic="*", expires_ms=NOW_MS + 5, uncommitted_only=True)
HELD = GroupRulesRecord((FIRST, SECOND), controller_epoch=3, epoch=4)


class TestRecord:
    def test_it_comes_back_as_it_was(self) -> None:
        assert GroupRulesRecord.from_json(HELD.to_json()) == HELD

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"[]",
            b"{}",
            b'{"rules":[{}],"epoch":0,"controller_epoch":1}',
            HELD.to_json().replace(b'"require"', b'"demand"'),
            HELD.to_json().replace(b'"spark"', b"7"),
            for_newer_readers(HELD),
        ],
    )
    def test_rubbish_is_refused(self, value: bytes) -> None:
        with pytest.raises(RecordError):
            GroupRulesRecord.from_json(value)

    def test_names_are_exact_and_globs_are_globs(self) -> None:
        assert rule("waive", "a*", glob=True).matches("abc")
        assert not rule("waive", "a*", glob=True).matches("Abc")
        assert rule("waive", "we[ird", glob=True).matches("we[ird"), "an unclosed bracket is itself"
        assert not rule("waive", "abc").matches("abcd")

    @pytest.mark.parametrize("name", ["reports[1]", "all*", "wh?t", "*"])
    def test_literal_name_with_glob_characters_matches_itself_alone(self, name: str) -> None:
        waiver = GroupRule("waive", name, TOPIC, "because", NOW_MS)
        assert waiver.matches(name)
        assert not any(waiver.matches(other) for other in ("reports1", "all of them", "what", "other"))
        assert GroupRulesRecord.from_json(GroupRulesRecord((waiver,)).to_json()).rules == (waiver,)


class TestReplay:
    def test_the_latest_holds_and_changes_no_topic(self) -> None:
        later = replace(HELD, rules=(FIRST,), epoch=5)
        replay = fold([(GROUP_RULES_KEY, HELD.to_json()), (GROUP_RULES_KEY, later.to_json())])
        assert replay.group_rules == later
        assert replay.apply(GROUP_RULES_KEY, later.to_json()) == frozenset()
        assert replay.rejected == 0


class TestAlter:
    def test_add_replace_and_remove(self) -> None:
        again = replace(SECOND, reason="another")
        closed = rule("closed")
        after = alter_group_rules(HELD, AlterGroupRulesCommand((again, closed), (FIRST.key,)), 7, NOW_MS)
        assert after == GroupRulesRecord((again, closed), 7, 5)

    def test_the_same_again_changes_nothing(self) -> None:
        assert alter_group_rules(HELD, AlterGroupRulesCommand((FIRST,)), 7, NOW_MS) is HELD

    @pytest.mark.parametrize(
        "added",
        [
            rule("demand", "g"),
            rule("require", ""),
            rule("waive", "g", reason=" "),
            rule("closed", reason=""),
            rule("closed", "g"),
            rule("waive", "g", topic=""),
            rule("require", "\N{EURO SIGN}" * 167),  # 501 bytes
            rule("require", "g", topic="t" * 250),
            rule("waive", "g", reason="r" * 1_001),
            rule("waive", "reports", glob=True),
            rule("waive", "g", expires_ms=NOW_MS),
            rule("waive", "g", expires_ms=LATEST_MS + 1),
        ],
    )
    def test_bad_rules_are_refused(self, added: GroupRule) -> None:
        with pytest.raises(RequestRefused) as caught:
            alter_group_rules(HELD, AlterGroupRulesCommand((FIRST, added)), 7, NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_REQUEST

    def test_name_is_refused_while_a_glob_of_the_same_text_is_in_force(self) -> None:
        for held, added in ((True, False), (False, True)):
            record = GroupRulesRecord((rule("waive", "reports[1]", glob=held),), 3, 4)
            command = AlterGroupRulesCommand((rule("waive", "reports[1]", glob=added),))
            with pytest.raises(RequestRefused, match="forget waive") as caught:
                alter_group_rules(record, command, 7, NOW_MS)
            assert caught.value.code is ErrorCode.INVALID_REQUEST
            removed = alter_group_rules(record, replace(command, remove=(command.add[0].key,)), 7, NOW_MS)
            assert removed.rules == command.add

    def test_removing_what_is_not_there_is_refused(self) -> None:
        with pytest.raises(RequestRefused, match="no rule 'waive' for group 'g'"):
            alter_group_rules(HELD, AlterGroupRulesCommand(remove=(("waive", "g", "*"),)), 7, NOW_MS)

    @pytest.mark.parametrize(("topics", "told"), [(1, "of topic 't0'"), (100, "all rules about groups")])
    def test_more_than_fit_the_log_or_are_one_topics_share_are_refused(self, topics: int, told: str) -> None:
        many = tuple(rule("require", f"group-{n}-{'x' * 200}", topic=f"t{n % topics}") for n in range(4_000))
        with pytest.raises(RequestRefused, match=told) as caught:
            alter_group_rules(HELD, AlterGroupRulesCommand(many), 7, NOW_MS)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    def test_one_topic_does_not_fill_the_record_for_all_others(self) -> None:
        """By a user who may alter that topic alone: with names as long as they may be, one request after the other."""
        record = HELD
        for n in range(2_000):
            try:
                command = AlterGroupRulesCommand((rule("require", f"{n}-{'x' * 490}", topic="mine"),))
                record = alter_group_rules(record, command, 7, NOW_MS)
            except RequestRefused:
                break
        added = rule("require", "billing", topic="theirs")
        after = alter_group_rules(record, AlterGroupRulesCommand((added,)), 7, NOW_MS)
        assert added in after.rules
        assert len(after.to_json()) < MAX_RECORD_BYTES / 10

    def test_rules_can_be_removed_whatever_room_the_others_take(self) -> None:
        many = tuple(rule("require", f"{n}-{'x' * 30_000}") for n in range(40))
        record = replace(HELD, rules=many)
        after = alter_group_rules(record, AlterGroupRulesCommand(remove=(many[0].key,)), 7, NOW_MS)
        assert after.rules == many[1:]

    def test_others_that_have_expired_make_room(self) -> None:
        assert SECOND.expires_ms is not None
        added = rule("require", "billing")
        for now_ms, kept in ((SECOND.expires_ms - 1, (FIRST, SECOND, added)), (SECOND.expires_ms, (FIRST, added))):
            assert alter_group_rules(HELD, AlterGroupRulesCommand((added,)), 7, now_ms).rules == kept
        again = AlterGroupRulesCommand((FIRST,), (SECOND.key,))
        assert alter_group_rules(HELD, again, 7, LATER_MS).rules == (FIRST,), "an expired one can be removed by its key"


def test_rules_are_matched_once_a_group_not_once_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    matches = GroupRule.matches
    monkeypatch.setattr(GroupRule, "matches", lambda rule, name: matched.append(name) or matches(rule, name))
    rules = [rule("require", "a*"), rule("waive", "z*", reason="moved"), rule("waive", "b", reason="moved")]
    logs = {p: log(10) for p in range(100)}
    seen = facts(100, logs, {"a": group(dict.fromkeys(logs, 10)), "b": group()})
    requirement = required_of((), seen, rules, (), LATER_MS)
    matched.clear()
    found = [check_drain(p, 10, None, logs[p], seen, requirement) for p in logs]
    assert all(drain.waived == {"b": "moved"} for drain in found)
    assert len(matched) <= 2 * len(rules)


@pytest.mark.parametrize(
    ("committed", "notes", "reason"),
    [
        (7, {}, reasons.GROUP_LAG),
        (7, {0: Note.GIVEN}, reasons.GROUP_UNCOMMITTED),
        (7, {1: Note.GIVEN}, reasons.GROUP_LAG),
        (10, {0: Note.GIVEN}, None),
    ],
)
def test_application_that_has_not_committed_what_it_was_given_is_named_as_such(
    committed: int, notes: dict[int, Note], reason: str | None
) -> None:
    found = facts(1, {0: log(10)}, {"g": group({0: committed}, members=True, notes=notes)})
    drain = check_drain(0, 10, None, found.partitions[0], found, Requirement(groups=("g",)))
    assert drain.reason == (None if reason is None else reasons.of_group(reason, "g"))

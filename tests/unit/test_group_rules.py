"""The operator's rules about groups: their record, changing them, and the controller that keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.errors import ErrorCode, RecordError, RequestRefused
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.lifecycle.group_rules import LATEST_MS, alter_group_rules
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.replay import fold
from tests.support.lifecycle import NOW_MS, TOPIC, rule

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
            HELD.to_json().replace(b'"min_reader":1', b'"min_reader":3'),
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

    def test_rule_written_by_0_2_0_is_read_as_0_2_0_read_it(self) -> None:
        fields = {"kind": "waive", "topic": TOPIC, "reason": "r", "created_ms": 1}
        assert GroupRule.from_dict({**fields, "group": "reports[1]"}).matches("reports1")
        assert not GroupRule.from_dict({**fields, "group": "reports"}).glob

    def test_record_stays_as_0_2_0_wrote_it_unless_a_literal_name_looks_like_a_glob(self) -> None:
        assert b'"min_reader":1' in HELD.to_json()
        assert b"literal" not in HELD.to_json()
        literal = replace(HELD, rules=(*HELD.rules, rule("waive", "reports[1]", glob=False)))
        assert b'"min_reader":2' in literal.to_json(), "0.2.0 would take it for a glob, and gives up reports1"


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
        after = alter_group_rules(HELD, AlterGroupRulesCommand((again, closed), (FIRST.key,)), 7)
        assert after == GroupRulesRecord((again, closed), 7, 5)

    def test_the_same_again_changes_nothing(self) -> None:
        assert alter_group_rules(HELD, AlterGroupRulesCommand((FIRST,)), 7) is HELD

    @pytest.mark.parametrize(
        "added",
        [
            rule("demand", "g"),
            rule("require", ""),
            rule("waive", "g", reason=" "),
            rule("closed", reason=""),
            rule("closed", "g"),
            rule("waive", "g", topic=""),
            rule("waive", "g", expires_ms=NOW_MS),
            rule("waive", "g", expires_ms=LATEST_MS + 1),
        ],
        ids=[
            "kind",
            "group",
            "reason",
            "closed without a reason",
            "closed with a group",
            "topic",
            "expired",
            "too late",
        ],
    )
    def test_bad_rules_are_refused(self, added: GroupRule) -> None:
        with pytest.raises(RequestRefused) as caught:
            alter_group_rules(HELD, AlterGroupRulesCommand((FIRST, added)), 7)
        assert caught.value.code is ErrorCode.INVALID_REQUEST

    def test_name_is_refused_while_a_glob_of_the_same_text_is_in_force(self) -> None:
        for held, added in ((True, False), (False, True)):
            record = GroupRulesRecord((rule("waive", "reports[1]", glob=held),), 3, 4)
            command = AlterGroupRulesCommand((rule("waive", "reports[1]", glob=added),))
            with pytest.raises(RequestRefused, match="forget waive") as caught:
                alter_group_rules(record, command, 7)
            assert caught.value.code is ErrorCode.INVALID_REQUEST
            removed = alter_group_rules(record, replace(command, remove=(command.add[0].key,)), 7)
            assert removed.rules == command.add

    def test_glob_without_a_character_of_one_is_refused(self) -> None:
        with pytest.raises(RequestRefused, match="is no glob"):
            alter_group_rules(HELD, AlterGroupRulesCommand((rule("waive", "reports", glob=True),)), 7)

    def test_removing_what_is_not_there_is_refused(self) -> None:
        with pytest.raises(RequestRefused, match="no rule 'waive' for group 'g'"):
            alter_group_rules(HELD, AlterGroupRulesCommand(remove=(("waive", "g", "*"),)), 7)

    def test_more_than_fit_the_log_are_refused(self) -> None:
        many = tuple(rule("require", f"group-{n}-{'x' * 200}") for n in range(4_000))
        with pytest.raises(RequestRefused) as caught:
            alter_group_rules(HELD, AlterGroupRulesCommand(many), 7)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

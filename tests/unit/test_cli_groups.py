"""``modeaware groups``: its options, what it prints, and what it refuses before anybody is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware import cli
from modeaware.cli import groups, progress
from modeaware.cli.groups import expiry
from modeaware.cluster.cluster import LogOffsets
from modeaware.cluster.group_listing import ListedGroup
from modeaware.cluster.groups import GroupsFound
from modeaware.config import ClientConfig
from modeaware.lifecycle.commands import AlterGroupRulesCommand
from modeaware.modelog.group_rules import GroupRule
from modeaware.modelog.records import Replacement
from modeaware.reports.groups import GroupSituation, GroupsReport
from modeaware.reports.serialise import json_help, to_json
from tests.unit.test_report_groups import FACTS, IGNORED, NOW, RECORD

SERVER = ("--bootstrap-server", "127.0.0.1:1")
DAY_MS = 86_400_000
OLD = GroupRule("waive", "old", "orders", "the team is gone", 0, NOW + DAY_MS)
EXPIRED = GroupRule("require", "spark", "o*", "", 0, 1)


def situation(*rules: GroupRule) -> GroupSituation:
    return GroupSituation(rules, ((RECORD, FACTS),), IGNORED, NOW, None)


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> list[AlterGroupRulesCommand]:
    """What would reach a controller; the topic ``orders`` is in a change, with the rule OLD."""
    commands: list[AlterGroupRulesCommand] = []
    listed = {"audit": None, "old-2": None, "payment-audit": None}
    monkeypatch.setattr(groups, "list_groups", lambda _: SimpleNamespace(groups=listed))
    session = SimpleNamespace(cluster=SimpleNamespace(brokers=None, topic_names=lambda: ["orders", "t"]))
    monkeypatch.setattr(groups, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(groups, "take_group_snapshot", lambda *_: situation(OLD))
    monkeypatch.setattr(groups, "alter_group_rules", lambda *arguments: commands.append(arguments[-1]))
    return commands


def _made(altered: list[AlterGroupRulesCommand], arguments: str) -> AlterGroupRulesCommand:
    assert cli.main(["groups", *arguments.split(), "--yes", *SERVER]) == 0
    return altered.pop()


def test_options_make_the_rule(altered: list[AlterGroupRulesCommand]) -> None:
    (rule,) = _made(altered, "require spark --topic o*").add
    assert (rule.kind, rule.group, rule.topic, rule.reason, rule.expires_ms) == ("require", "spark", "o*", "", None)
    (rule,) = _made(altered, "waive a* --topic t --reason r --expires 7d --uncommitted-only").add
    assert (rule.kind, rule.group, rule.reason, rule.uncommitted_only) == ("waive", "a*", "r", True)
    assert rule.expires_ms == rule.created_ms + 7 * DAY_MS
    assert not rule.glob, "a name is literal without --glob"
    for action in ("waive --forever --reason r", "require"):
        assert _made(altered, f"{action} a* --glob --topic t").add[0].glob
    (rule,) = _made(altered, "waive a --topic t --reason r --forever").add
    assert (rule.expires_ms, rule.uncommitted_only) == (None, False)
    (rule,) = _made(altered, "closed --topic t --reason r").add
    assert (rule.kind, rule.group) == ("closed", "")
    assert _made(altered, "forget waive old --topic orders").remove == (OLD.key,)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("waive payment-adit --topic t", "no such group 'payment-adit'; did you mean 'payment-audit'?"),
        ("waive gon --topic t", "no such group 'gon'; did you mean 'gone'?"),
        ("waive audit --topic order", "no such topic 'order'; did you mean 'orders'?"),
        ("forget waive odl --topic orders", "no rule 'waive' for group 'odl' and topic 'orders'; did you mean 'old'?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(
    altered: list[AlterGroupRulesCommand], capsys: pytest.CaptureFixture[str], arguments: str, told: str
) -> None:
    more = ["--forever", "--reason", "r"] if arguments.startswith("waive") else []
    assert cli.main(["groups", *arguments.split(), *more, "--yes", *SERVER]) == 1
    assert told in capsys.readouterr().err
    assert altered == []


def test_a_waiver_of_a_name_that_is_somewhat_like_another_is_accepted_with_a_warning(
    altered: list[AlterGroupRulesCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    (rule,) = _made(altered, "waive billing-audit --topic t --forever --reason r").add
    assert rule.group == "billing-audit"
    assert "WARNING: no such group 'billing-audit'; did you mean 'billing'?" in capsys.readouterr().err


def test_a_rule_to_forget_is_compared_with_those_of_its_topic_alone(
    altered: list[AlterGroupRulesCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["groups", "forget", "waive", "odl", "--topic", "t", "--yes", *SERVER]) == 1
    told = capsys.readouterr().err
    assert "no rule 'waive' for group 'odl' and topic 't'" in told
    assert "did you mean" not in told
    assert altered == []


def test_a_requirement_may_come_before_its_group(
    altered: list[AlterGroupRulesCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    (rule,) = _made(altered, "require audti --topic t").add
    assert rule.group == "audti"
    assert "WARNING: no such group 'audti'; did you mean 'audit'?" in capsys.readouterr().err
    _made(altered, "require quite-another --topic t")
    _made(altered, "require audti* --glob --topic ordres*")
    assert "did you mean" not in capsys.readouterr().err


def test_the_list_as_json_has_the_documented_fields_and_no_others() -> None:
    shown = to_json(GroupsReport.of(situation(OLD, EXPIRED).topics(), (OLD, EXPIRED), NOW))
    assert json.loads(json.dumps(shown)) == shown
    (topic,) = shown["topics"]
    gone = next(group for group in topic["groups"] if group["group"] == "gone")
    assert gone == {
        "group": "gone",
        "kind": None,
        "has_members": False,
        "members": {"aware": 0, "unknown": 0, "holding": 0},
        "stateful": False,
        "state_loss_accepted": False,
        "required": True,
        "evacuates": False,
        "because": ["noted"],
        "unread": {"2": 8, "3": 20},
        "held_up": {"2": "group-gone:gone", "3": "group-gone:gone"},
        "waived": {},
        "is_waived": False,
        "moved": None,
        "must_move": False,
        "to_do": None,
        "gate_open": None,
        "gate": None,
    }
    assert [rule["expired"] for rule in shown["rules"]] == [False, True]
    for fields in (shown, topic, gone, shown["rules"][0]):
        for field in fields:
            assert re.search(rf"^ +{field}\b", json_help(GroupsReport), re.MULTILINE), "document it in --help"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW + 90_000),
        ("12h", NOW + DAY_MS // 2),
        (" 7d ", NOW + 7 * DAY_MS),
        ("2030-01-31T18:00:00Z", int(datetime(2030, 1, 31, 18, tzinfo=UTC).timestamp() * 1000)),
        ("2030-01-31T20:00:00+02:00", int(datetime(2030, 1, 31, 18, tzinfo=UTC).timestamp() * 1000)),
        ("2030-01-31", int(datetime(2030, 1, 31, tzinfo=UTC).timestamp() * 1000)),
    ],
)
def test_when_a_rule_ends(text: str, expected: int) -> None:
    with pytest.raises(ValueError, match="beyond the year 9999"):
        expiry("5000000d", NOW)
    assert expiry(text, NOW) == expected


@pytest.mark.parametrize(
    ("held", "expires", "asks"),
    [(None, "1h", True), (NOW + DAY_MS, "1h", True), (NOW + DAY_MS, None, False), (1, "1h", False)],
)
def test_a_requirement_that_would_end_earlier_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
    altered: list[AlterGroupRulesCommand],
    held: int | None,
    expires: str | None,
    asks: bool,
) -> None:
    far = 10**15 if held == NOW + DAY_MS else held  # beyond any clock of today
    monkeypatch.setattr(groups, "take_group_snapshot", lambda *_: situation(GroupRule("require", "g", "t", "", 0, far)))
    asked: list[object] = []
    monkeypatch.setattr(progress, "confirmed", lambda *, yes: bool(asked.append(yes)))
    end = ["--expires", expires] if expires else []
    assert cli.main(["groups", "require", "g", "--topic", "t", *end, *SERVER]) == (1 if asks else 0)
    assert bool(asked) is asks
    assert bool(altered) is not asks


@pytest.mark.parametrize("action", [("waive", "g", "--forever"), ("closed",)])
def test_rule_that_may_lose_records_needs_a_yes(
    altered: list[AlterGroupRulesCommand], action: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("groups", *action, "--topic", "t", "--reason", "r", *SERVER)
    assert cli.main(list(arguments)) == 1
    assert "pass --yes" in capsys.readouterr().err
    assert cli.main([*arguments, "--dry-run"]) == 0
    assert altered == []


@pytest.mark.parametrize(
    ("action", "looked_at"),
    [
        ("waive g --topic t[12] --reason r --forever", ["t1", "t2"]),
        ("require g --topic t1", []),
        ("closed --topic * --reason r", []),
        ("forget waive old --topic orders", []),
        ("forget require spark --topic t[12]", ["t1", "t2"]),
    ],
)
def test_only_topics_that_a_waiver_can_match_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, altered: list[AlterGroupRulesCommand], action: str, looked_at: list[str]
) -> None:
    filters: list[Callable[[str], bool]] = []
    rules = (OLD, replace(EXPIRED, topic="t[12]"))
    monkeypatch.setattr(groups, "take_group_snapshot", lambda *given: filters.append(given[-1]) or situation(*rules))
    _made(altered, action)
    (wanted,) = filters
    assert [topic for topic in ("t1", "t2", "t3", "orders") if wanted(topic)] == looked_at


def test_group_that_a_change_has_noted_stays_required_when_its_rule_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, altered: list[AlterGroupRulesCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [GroupRule("require", name, "orders", "", 0, glob="*" in name) for name in ("gone", "b*", "spark")]
    monkeypatch.setattr(groups, "take_group_snapshot", lambda *_: situation(*rules))
    for rule, noted in zip(rules, ("gone", "billing", None), strict=True):
        _made(altered, f"forget require {rule.group} --topic orders")
        told = capsys.readouterr().err
        assert ("stays required" in told) is (noted is not None)
        assert noted is None or f"orders: group {noted!r} was noted when the change in progress began" in told


def test_a_share_group_that_uses_neither_topic_now_is_prepared_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was required when the change began, and its offsets have expired: its kind, only the list of groups has."""
    replacement = Replacement("orders-v2", 1, 5, new_topic_id="id-2")
    old = replace(RECORD, required_groups=("g",), replacement=replacement)
    kinds: list[str] = []

    def commits(_cluster: object, _group: str, _topic: str, _partitions: object, kind: str) -> dict[int, int]:
        kinds.append(kind)
        return {0: 0}

    def found(_cluster: object, counts: dict[str, object], *, mode_log: str) -> dict[str, GroupsFound]:
        assert mode_log == "modes", "the election's group is named after it"
        return dict.fromkeys(counts, GroupsFound())

    session: Any = SimpleNamespace(
        read_log=lambda: SimpleNamespace(replaced=[old]),
        config=ClientConfig(mode_log_topic="modes"),
        shape=lambda _: SimpleNamespace(topic_id="id-2", partition_count=1),
        cluster=SimpleNamespace(brokers=None, offsets=lambda _: {("orders-v2", 0): LogOffsets(0, 0, 0, 1)}),
    )
    share = ListedGroup("g", "share", "Empty", "share", 1)
    monkeypatch.setattr(groups, "open_session", lambda *_: nullcontext(session))
    monkeypatch.setattr(groups, "find_groups", found)
    monkeypatch.setattr(groups, "list_groups", lambda _: SimpleNamespace(groups={"g": share}))
    monkeypatch.setattr(groups, "group_commits", commits)
    assert cli.main(["groups", "prepare", "g", "--topic", "orders-v2", "--yes", *SERVER]) == 0
    assert kinds == ["share"]

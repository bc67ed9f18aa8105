"""What ``topics --describe`` shows of the groups that hold partitions up, by the mode log and the brokers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modeaware.cluster.cluster import LogOffsets, TopicShape
from modeaware.cluster.groups import GroupsFound
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.lifecycle.facts import GroupsDoubt
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.replay import fold
from modeaware.reports import describe
from modeaware.reports.describe import TopicDescription, describe_text, describe_topics
from modeaware.reports.session import ModeLog
from tests.support.lifecycle import LATER_MS, TOPIC, TOPIC_ID, admitted, after, group, log, shrink
from tests.support.lifecycle import facts as seen
from tests.support.simulated import SimClock

AT_END = dict.fromkeys(range(12), 10)
GROUPS = {
    "audit": group(AT_END | {10: 4, 11: 4}),
    "billing": group(AT_END | {11: 8}),
    "old": group(AT_END | {11: 1}),
}


def described(
    monkeypatch: pytest.MonkeyPatch, *rules: GroupRule, unclear: dict[str, GroupsDoubt] | None = None
) -> TopicDescription:
    """A topic of which 10 and 11 drain; ``gone`` was noted, and no broker lists it."""
    facts = seen(logs={p: log(10) for p in range(12)}, groups=GROUPS | {"gone": group({11: 0})})
    record = after(admitted(shrink(10), seen=facts), facts, LATER_MS, passes=2)
    found = ModeLog("modes", fold([(TOPIC_ID, record.to_json()), (GROUP_RULES_KEY, GroupRulesRecord(rules).to_json())]))
    offsets = {(TOPIC, p): LogOffsets(0, 10, 10, 3) for p in range(12)}
    session = SimpleNamespace(
        read_log=lambda: found,
        records=lambda *_, **__: [(TOPIC, TopicShape(TOPIC_ID, False, 12), record)],
        cluster=SimpleNamespace(offsets=lambda _: offsets),
        config=ClientConfig(),
        controller=ControllerConfig(),
        clock=SimClock(),
    )
    monkeypatch.setattr(describe, "find_groups", lambda *_, **__: {TOPIC: GroupsFound(GROUPS, unclear=unclear or {})})
    (topic,) = describe_topics(session, [TOPIC])
    assert "(and " in describe_text([topic], expand=False)
    return topic


def test_lag_is_of_groups_that_are_waited_for_and_texts_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    waiver = GroupRule("waive", "old", TOPIC, "it is retired", 0)
    shown = described(monkeypatch, waiver).partitions
    assert [(shown[p].lag, shown[p].lagging_group, shown[p].lagging_groups) for p in (9, 10, 11)] == [
        (0, None, 0), (6, "audit", 2), (6, "audit", 3),
    ]  # fmt: skip
    assert (shown[11].waits_for or "").startswith("group 'audit' (and 2 more) has not consumed it to the seal")
    unwaived = described(monkeypatch).partitions
    assert (unwaived[11].lag, unwaived[11].lagging_group, unwaived[11].lagging_groups) == (9, "old", 4)


def test_a_doubt_about_a_waived_group_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    unclear = {"late": GroupsDoubt("group 'late' is in a rebalance", settling="late")}
    waiver = GroupRule("waive", "late", TOPIC, "it is retired", 0)
    assert described(monkeypatch, unclear=unclear).groups_doubt == "group 'late' is in a rebalance"
    assert described(monkeypatch, waiver, unclear=unclear).groups_doubt is None

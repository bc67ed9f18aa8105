"""Which groups have moved to the new topic of a replacement, and what each has still to read: every report and the
controller say the same, of the same record, facts and rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from modeaware.cluster import commits
from modeaware.cluster.cluster import LogOffsets, TopicShape
from modeaware.cluster.commits import Gap
from modeaware.cluster.metadata import Partition
from modeaware.config import ClientConfig, ControllerConfig
from modeaware.controller.status import Role, Snapshot, TopicSeen
from modeaware.lifecycle.drain import requirement_of
from modeaware.lifecycle.facts import GroupFacts, TopicFacts
from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.records import (
    DeleteTopicPartitions,
    OpeningPartition,
    Replacement,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modes import PartitionMode, ReplicaState
from modeaware.monitoring.status_json import topic_status
from modeaware.reports.certificate import Evidence, certificate
from modeaware.reports.describe import TopicDescription, describe_text, describe_topics
from modeaware.reports.groups import report_groups, take_group_snapshot
from modeaware.reports.session import ModeLog, Session
from tests.support.fake_brokers import FakeBrokers, FakeGroup
from tests.support.lifecycle import (
    EPOCH,
    LATER_MS,
    NONE,
    NOW_MS,
    RO,
    RW,
    TOPIC,
    TOPIC_ID,
    admitted,
    after,
    facts,
    group,
    log,
    rule,
    shrink,
)
from tests.support.modelog import fold
from tests.support.simulated import SimClock

NEW = "orders-v2"
SWITCHED = Replacement(NEW, 2, 1, new_topic_id="id-2", announced_ms=2, switched_ms=3, own_configs={}, fenced_ms=4)
LET_GO = replace(SWITCHED, released_ms=5)


def replaced(
    now: Replacement = SWITCHED, modes: tuple[PartitionMode, ...] = (RO, RO), groups: tuple[str, ...] = ("billing",)
) -> TopicRecord:
    """A topic of two partitions, sealed at 10, that is replaced by one of two."""
    sealed = RetiredPartition(seal_offset=10, seal_leader_epoch=3, read_up_to=10)
    retired = {p: sealed for p, mode in enumerate(modes) if mode is not RW}
    deletion = DeleteTopicPartitions(1, 0, False, 0, 2) if RW in modes else None
    return TopicRecord(TOPIC, TOPIC_ID, 5, EPOCH, modes, deletion, retired, required_groups=groups, replacement=now)


def looked(old: dict[str, GroupFacts], new: dict[str, GroupFacts], new_count: int = 2) -> TopicFacts:
    logs = {p: log(10, log_end=10) for p in (0, 1)}
    return facts(2, logs, old, new_topic=TopicFacts(NEW, "id-2", new_count, groups=new))


def described(
    record: TopicRecord, seen: TopicFacts, rules: tuple[GroupRule, ...], monkeypatch: pytest.MonkeyPatch
) -> TopicDescription:
    session = session_of([record], rules, SimpleNamespace(), monkeypatch)
    monkeypatch.setattr(session, "snapshot", lambda *_, **__: [(record, seen)])
    (topic,) = describe_topics(session, [TOPIC])
    return topic


def session_of(
    records: Sequence[TopicRecord], rules: Sequence[GroupRule], cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> Session:
    written = [*((r.topic_id, r.to_json()) for r in records), (GROUP_RULES_KEY, GroupRulesRecord(rules).to_json())]
    session = Session({}, ClientConfig(), ControllerConfig(), cluster, SimClock())
    monkeypatch.setattr(session, "read_log", lambda: ModeLog("modes", fold(written)))
    return session


def in_status(record: TopicRecord, seen: TopicFacts, rules: tuple[GroupRule, ...]) -> dict[str, Any]:
    topic = TopicSeen(record, seen, NOW_MS)
    return topic_status(topic, Snapshot(NOW_MS, "id", Role.ACTIVE, topics=(topic,), rules=rules))


STOCK = {0: 10, 1: 10}
UNCOMMITTED = rule("waive", "stock", uncommitted_only=True)


@pytest.mark.parametrize(
    ("record", "seen", "rules", "left"),
    [
        pytest.param(replaced(), looked({"billing": group(STOCK)}, {"billing": group({0: 0})}), (), ["billing"],
                     id="has no offset on a partition of the new topic"),
        pytest.param(replaced(), looked({"billing": group(STOCK)}, {"billing": group({0: 0, 1: 0})}, 3), (), [],
                     id="another tool has added a partition to the new topic"),
        pytest.param(replaced(), looked({"billing": group(STOCK)}, {}), (rule("waive", "billing"),), [], id="waived"),
        pytest.param(replaced(groups=("stock",)), looked({"stock": group({1: 10}, caught_up=(0,))}, {}), (UNCOMMITTED,),
                     ["stock"], id="waived where it has never committed, and has on the second partition"),
        pytest.param(replaced(groups=("stock",)), looked({}, {}), (UNCOMMITTED,), ["stock"],
                     id="waived where it has never committed, and may have"),
        pytest.param(replaced(), looked({"billing": group(STOCK), "late": group(STOCK)}, {"billing": group(STOCK)}), (),
                     ["late"], id="has come after the switch"),
        pytest.param(replaced(groups=()), looked({}, {}), (rule("require", "spark"),), ["spark"], id="is registered"),
        pytest.param(replaced(replace(SWITCHED, announced_ms=2, switched_ms=None), (RW, RO)),
                     looked({"billing": group(STOCK)}, {}), (), [], id="the new topic is not to be read yet"),
        pytest.param(replaced(LET_GO), looked({"late": group(STOCK)}, {"billing": group(STOCK)}), (), ["late"],
                     id="has come after the release: the deletion waits for it"),
        pytest.param(replaced(LET_GO), looked({}, {"billing": group(STOCK)}), (), [],
                     id="its offsets on the old topic have expired since the release"),
    ],
)  # fmt: skip
def test_every_report_has_the_same_groups_that_have_not_moved(
    record: TopicRecord,
    seen: TopicFacts,
    rules: tuple[GroupRule, ...],
    left: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = in_status(record, seen, rules)["groups"]
    listed = report_groups(record, seen, rules, (), NOW_MS).groups
    topic = described(record, seen, rules, monkeypatch)
    requirement = requirement_of(record, seen, rules, (), NOW_MS)
    shown = Evidence(record, seen, requirement, "cluster", "host:9092", NOW_MS, rules)
    proof = certificate(shown, list(record.retired))
    found = {
        "status": [each["group"] for each in told if each["moved"] is False and not each["waived"]],
        "groups": [each.group for each in listed if each.to_do is not None],
        "describe": list(topic.replacement.not_moved),
        "certificate": list(proof.replacement.not_moved),
    }
    assert found == dict.fromkeys(found, left)


@pytest.mark.parametrize(("switched_ms", "is_checked"), [(None, False), (3, True)])
def test_certificate_checks_the_fence_of_a_replaced_topic_from_the_switch_on(
    switched_ms: int | None, is_checked: bool
) -> None:
    record = replaced(replace(SWITCHED, switched_ms=switched_ms), (RW, RO))
    seen = looked({"billing": group(STOCK)}, {})
    requirement = requirement_of(record, seen, (), (), NOW_MS)
    shown = certificate(Evidence(record, seen, requirement, "cluster", "host:9092", NOW_MS), [1])
    assert ("brokers refuse data for the topic" in {each.what for each in shown.check_with}) is is_checked


def test_certificate_of_a_released_topic_does_not_wait_for_offsets_that_have_expired() -> None:
    for record, verdict in (replaced(), "not drained"), (replaced(LET_GO), "drained"):
        seen = looked({}, {"billing": group(STOCK)})
        requirement = requirement_of(record, seen, (), (), NOW_MS)
        shown = certificate(Evidence(record, seen, requirement, "cluster", "host:9092", NOW_MS), [0, 1])
        assert {each.verdict.partition(":")[0] for each in shown.partitions} == {verdict}


def reclaimed() -> tuple[TopicRecord, TopicFacts]:
    """A shrink to 1 of which partition 1 is drained, and a group that was set back there since."""
    drained = RetiredPartition(replica_state=ReplicaState.DELETION_STARTED, seal_offset=10, drained_by=1)
    deletion = DeleteTopicPartitions(1, 0, False, 0, 2)
    record = TopicRecord(TOPIC, TOPIC_ID, 5, EPOCH, (RW, NONE), deletion, {1: drained}, required_groups=("billing",))
    return record, facts(2, {1: log(10)}, {"billing": group({0: 0, 1: 3})})


def opened() -> tuple[TopicRecord, TopicFacts]:
    """A growth to 2, whose new partition holds a record."""
    opening = {1: OpeningPartition()}
    record = TopicRecord(TOPIC, TOPIC_ID, 5, EPOCH, (RW, RO), required_groups=("billing",), opening=opening)
    return record, facts(2, {1: log(1)}, {"billing": group({0: 0})})


@pytest.mark.parametrize(
    ("state", "rules", "left"),
    [
        pytest.param((replaced(), looked({"billing": group({0: 10, 1: 7})}, {})), (), {1: 3}, id="drains"),
        pytest.param((replaced(), looked({}, {})), (), {0: 10, 1: 10}, id="a required group that is not listed"),
        pytest.param((replaced(), looked({"billing": group({0: 10, 1: 7})}, {})), (rule("waive", "billing"),), {},
                     id="waived"),
        pytest.param(reclaimed(), (), {}, id="no consumer reads a partition in mode None"),
        pytest.param(opened(), (), {}, id="a partition that is being opened is not retired"),
        pytest.param((replaced(LET_GO), looked({}, {"billing": group(STOCK)})), (), {},
                     id="its offsets have expired since the release"),
    ],
)  # fmt: skip
def test_every_report_has_the_same_offsets_to_read(
    state: tuple[TopicRecord, TopicFacts],
    rules: tuple[GroupRule, ...],
    left: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record, seen = state
    (told,) = in_status(record, seen, rules)["groups"]
    (listed,) = report_groups(record, seen, rules, (), NOW_MS).groups
    topic = described(record, seen, rules, monkeypatch)
    assert told["unread"] == sum(left.values())
    assert {p: n for p, n in listed.unread.items() if n and p not in listed.waivers} == left
    assert set(listed.held_up) == set(left)
    assert {p.partition: p.lagging_groups for p in topic.partitions if p.lagging_groups} == dict.fromkeys(left, 1)


def test_lag_is_of_groups_that_are_waited_for_and_texts_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    at_end = dict.fromkeys(range(12), 10)
    groups = {
        "audit": group(at_end | {10: 4, 11: 4}),
        "billing": group(at_end | {11: 8}),
        "old": group(at_end | {11: 1}),
    }
    seen = facts(logs={p: log(10) for p in range(12)}, groups=groups | {"gone": group({11: 0})})
    record = after(admitted(shrink(10), seen=seen), seen, LATER_MS, passes=2)
    seen = replace(seen, groups=groups)  # "gone" was noted, and no broker lists it
    topic = described(record, seen, (rule("waive", "old"),), monkeypatch)
    assert [(p.lag, p.lagging_group, p.lagging_groups) for p in topic.partitions[9:]] == [
        (0, None, 0), (6, "audit", 2), (6, "audit", 3),
    ]  # fmt: skip
    text = "group 'audit' (and 2 more) has not read to the seal"
    assert (topic.partitions[11].waits_for or "").startswith(text)
    assert text in describe_text([topic], expand=False)
    (unwaived,) = described(record, seen, (), monkeypatch).partitions[11:]
    assert (unwaived.lag, unwaived.lagging_group, unwaived.lagging_groups) == (9, "old", 4)


def test_texts_of_status_and_describe_count_the_same_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group that a reason names has read to the end, and beyond."""
    beyond = RetiredPartition(seal_offset=10, reason="group-beyond-end:billing")
    record = replace(replaced(groups=("audit", "billing")), retired={0: beyond, 1: beyond})
    seen = looked({"audit": group({0: 7, 1: 7}), "billing": group({0: 12, 1: 12})}, {})
    (told,) = in_status(record, seen, ())["blocked"]
    assert told["text"].startswith("group 'billing' (and 1 more) committed an offset beyond the end")
    assert {p.waits_for for p in described(record, seen, (), monkeypatch).partitions} == {told["text"]}


class Brokers(FakeBrokers):
    """Two topics, and ``others``, of two partitions; their logs end at 10 under leader epoch 3.

    Attributes:
        unlisted: groups that no broker lists.
        epoch_ends: leader epoch -> where the logs end for it; the leaders answer about no other epoch.
    """

    def __init__(self, *others: str) -> None:
        super().__init__()
        self.ends = {0: 10, 1: 10}
        self.ids = {TOPIC: TOPIC_ID, NEW: "id-2"} | {topic: f"id-of-{topic}" for topic in others}
        self.unlisted: tuple[str, ...] = ()
        self.epoch_ends: dict[int, int] = {}

    def describe(self, topics: Iterable[str]) -> dict[str, TopicShape]:
        return {topic: TopicShape(self.ids[topic], False, 2, {0: (1, 3), 1: (1, 3)}) for topic in topics}

    def offsets(self, partitions: Iterable[Partition], _: object) -> dict[Partition, LogOffsets]:
        return {key: LogOffsets(0, 10, 10, 3) for key in partitions}

    def on_list_groups(self, node: int, request: Any) -> Any:
        answer = super().on_list_groups(node, request)
        return answer | {"groups": [listed for listed in answer["groups"] if listed["group_id"] not in self.unlisted]}

    def on_offset_for_leader_epoch(self, node: int, request: Any) -> Any:
        def end(asked: Any) -> dict[str, int]:
            known = self.epoch_ends.get(asked.leader_epoch)
            return {"partition": asked.partition, "error_code": 6 * (known is None), "end_offset": known or 0}

        return {"topics": [{"topic": t.topic, "partitions": list(map(end, t.partitions))} for t in request.topics]}


END_UNKNOWN = "gate closed: the end of the old topic is not known yet"
UNNOTED = (
    "gate closed: all records of partitions 0-1 are committed, but no client has confirmed that the records were "
    "handled"
)
TRUNCATED = (
    "gate closed: its commits on partitions 0-1 lie beyond the end of the log, or on a part that was truncated: reset "
    "them"
)
NEITHER = {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("commit", "fields", "clear", "unread", "gate"),
    [
        pytest.param((9, 3), {"read_up_to": None}, True, NEITHER, END_UNKNOWN, id="control records are left"),
        pytest.param((9, 3), {"read_up_to": None}, False, {0: 1, 1: 1}, END_UNKNOWN, id="a record is left"),
        pytest.param((10, 3), {}, False, NEITHER, UNNOTED, id="at the end"),
        pytest.param((10, 2), {}, False, NEITHER, TRUNCATED, id="on a part of the log that was truncated"),
        pytest.param((10, 1), {}, False, {}, TRUNCATED, id="of an epoch of which the leader does not answer"),
        pytest.param((10, 3), {"seal_leader_epoch": 1}, False, {}, UNNOTED,
                     id="the seal is of an epoch of which the leader does not answer"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("unlisted", [(), ("billing",)])
def test_describe_and_groups_list_show_the_same_progress_of_the_same_brokers(
    commit: tuple[int, int],
    fields: dict[str, Any],
    clear: bool,
    unread: dict[int, int],
    gate: str,
    unlisted: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = replaced()
    record = replace(record, retired={p: replace(retired, **fields) for p, retired in record.retired.items()})
    brokers = Brokers()
    brokers.add(FakeGroup("billing")).committed[TOPIC] = {0: commit, 1: commit}
    brokers.unlisted, brokers.epoch_ends = unlisted, {2: 8}
    monkeypatch.setattr(commits, "without_records", lambda _, gaps, __: frozenset(gaps if clear else ()))
    session = session_of([record], [rule("require", "billing")], brokers, monkeypatch)
    (topic,), (listed,) = describe_topics(session, [TOPIC]), take_group_snapshot(session, TOPIC).topics()
    for groups in topic.groups, listed.groups:
        assert [(each.group, each.kind, each.unread, each.gate) for each in groups] == [
            ("billing", "classic", unread, gate)
        ]


def test_requests_of_a_report_do_not_grow_with_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [f"other-{n}" for n in range(20)]
    brokers = Brokers(*others)
    group = brokers.add(FakeGroup("billing"))
    group.committed = {topic: {0: (10, 2), 1: (9, 2)} for topic in brokers.ids}
    brokers.epoch_ends = {2: 10}
    gaps: list[set[Gap]] = []
    monkeypatch.setattr(commits, "without_records", lambda _, some, __: gaps.append(set(some)) or frozenset())
    records = [replace(replaced(), topic=topic, topic_id=brokers.ids[topic]) for topic in (TOPIC, *others)]
    session = session_of(records, (), brokers, monkeypatch)
    asked = []
    for take in (
        lambda: describe_topics(session, [TOPIC]),
        lambda: describe_topics(session),
        lambda: take_group_snapshot(session, TOPIC).topics(),
        lambda: take_group_snapshot(session, None).topics(),
    ):
        take()
        asked.append(brokers.asked)
        brokers.asked = []
    assert asked == [asked[0]] * 4
    assert [len(some) for some in gaps] == [1, len(records)] * 2


def test_a_topic_of_a_chain_keeps_its_own_facts_and_has_those_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers("orders-v3")
    brokers.add(FakeGroup("billing")).committed = {TOPIC: {0: (9, 3)}, NEW: {0: (9, 3), 1: (9, 3)}, "orders-v3": {}}
    monkeypatch.setattr(commits, "without_records", lambda _, gaps, __: frozenset(gaps))
    first = replaced()
    second = replace(first, topic=NEW, topic_id="id-2", replacement=replace(SWITCHED, new_topic="orders-v3"))
    session = session_of([first, second], (), brokers, monkeypatch)
    found = [seen for _, seen in session.snapshot(session.read_log(), [TOPIC, NEW], (), named=True)]
    assert [seen.new_topic.topic for seen in found if seen.new_topic is not None] == [NEW, "orders-v3"]
    assert [dict(seen.groups["billing"].committed) for seen in found] == [{0: 9}, {0: 9, 1: 9}]
    assert all(seen.groups["billing"].caught_up == {0, 1} for seen in found)
    assert "billing" in found[0].new_topic.groups
    assert "billing" not in found[1].new_topic.groups


def test_topic_that_was_never_changed_has_all_its_groups_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    brokers.add(FakeGroup("billing")).committed[TOPIC] = {0: (7, 3)}
    session = session_of([], (), brokers, monkeypatch)
    (topic,) = describe_topics(session, [TOPIC])
    assert [(p.log_end, p.lag, p.lagging_group) for p in topic.partitions] == [(10, 3, "billing"), (10, 10, "billing")]
    (listed,) = take_group_snapshot(session, TOPIC).topics()
    assert [(each.group, each.because) for each in listed.groups] == [("billing", ("using",))]

"""The promise about the mode log's format: logs of 0.1.0 are read, and what is written now 0.1.0 can read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRulesRecord
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    READER_VERSION,
    ClaimRecord,
    DeleteTopicPartitions,
    ObservedBrokersRecord,
    RetiredPartition,
    TopicRecord,
)
from modeaware.modelog.replay import Replay, fold
from modeaware.modes import ReplicaState
from tests.support.modelog import NONE, RO, topic_record
from tests.support.old_release import Release, old_release
from tests.support.recorded_log import Entry, recorded

# What a release makes of a log, record by record. Runs with either one: every name in it is as old as 0.1.0.
VIEWS = """
from modeaware.modelog.replay import Replay
replay, told = Replay(), []
for key, value in json.load(sys.stdin):
    replay.apply(key, None if value is None else value.encode())
    views = [replay.view(topic) for topic in sorted(replay.topics)]
    told.append({
        "views": [
            [v.topic, v.version, [int(m) for m in v.modes], sorted(v.resume_offsets.items()), sorted(v.reclaimed)]
            for v in views
        ],
        "rejected": replay.rejected,
        "claimed": replay.claim and replay.claim.controller_epoch,
        "rules": replay.group_rules and [rule.group for rule in replay.group_rules.rules],
    })
print(json.dumps(told))
"""

# What a controller of that release writes of each topic when it has something to write of it.
REWRITTEN = """
from modeaware.modelog.replay import Replay
replay = Replay()
for key, value in json.load(sys.stdin):
    replay.apply(key, None if value is None else value.encode())
print(json.dumps([[key, record.to_json().decode()] for key, record in replay.records.items()]))
"""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return old_release(tmp_path_factory.mktemp("old") / "0.1.0")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Rubbish is no news here."""
    log = logging.getLogger("modeaware.modelog.replay")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


def views(log: list[Entry]) -> Any:
    """What this release makes of a log, in the form of VIEWS."""
    replay, told = Replay(), []
    for key, value in log:
        replay.apply(key, None if value is None else value.encode())
        listed = [replay.view(topic) for topic in sorted(replay.topics)]
        told.append(
            {
                "views": [
                    [
                        v.topic,
                        v.version,
                        [int(m) for m in v.modes],
                        sorted(v.resume_offsets.items()),
                        sorted(v.reclaimed),
                    ]
                    for v in listed
                ],
                "rejected": replay.rejected,
                "claimed": replay.claim and replay.claim.controller_epoch,
                "rules": replay.group_rules and [rule.group for rule in replay.group_rules.rules],
            }
        )
    return json.loads(json.dumps(told))


def replayed(log: list[Entry]) -> Replay:
    return fold((key, None if value is None else value.encode()) for key, value in log)


NEW_DELETION = DeleteTopicPartitions(
    *(4, 0, False, 1_000, 12),
    accept_state_loss=("streams",),
    earlier_counts=(16, 24),
    revived_ms=5_000,
    evacuate=True,
    evacuation_epoch=3,
)


def new_records() -> list[TopicRecord]:
    """Records with all that 0.1.0 does not know."""
    retired = {
        4: RetiredPartition(seal_offset=7, drained={"g": 7}, evacuated_to=5, switch_offset=3),
        5: RetiredPartition(
            replica_state=ReplicaState.DELETION_INELIGIBLE, seal_offset=9, reason="compacted", evacuated=True
        ),
    }
    record = topic_record("new", count=6, deletion=NEW_DELETION, handed_over=(0, 1, 5), handover_offsets={2: 640})
    modes = (*record.modes[:4], RO, NONE)
    return [replace(record, retired=retired, modes=modes), topic_record("plain", rest=NONE)]


def new_log() -> list[Entry]:
    """What a controller of now writes after one of 0.1.0, with every kind of record there is."""
    observed = ObservedBrokersRecord(brokers={1: "a", 2: None}, controller_epoch=3, epoch=0)
    log = recorded()
    taken_over = max(json.loads(value)["controller_epoch"] for _, value in log if value is not None) + 1
    log.append((CLAIM_KEY, ClaimRecord(taken_over, "host:1", "c").to_json().decode()))
    log.append((OBSERVED_BROKERS_KEY, replace(observed, controller_epoch=taken_over).to_json().decode()))
    records = [*replayed(log).records.values(), *new_records()]
    log += [(r.topic_id, r.stamped(taken_over, 9_000).to_json().decode()) for r in records]
    return log


def test_the_recorded_log_has_all_that_0_1_0_wrote() -> None:
    log = recorded()
    topics = [json.loads(value) for key, value in log if value is not None and "topic_id" in value]
    assert {CLAIM_KEY, GROUP_RULES_KEY} < {key for key, _ in log}
    assert {mode for record in topics for *_, mode in record["modes"]} == {0, 1, -1}
    policies = {DeleteTopicPartitions.from_dict(record.get("deletion")) for record in topics}
    assert {deletion.policy for deletion in policies if deletion} == {"retention", "drained", "immediate"}
    retired = [partition for record in topics for partition in record["retired"].values()]
    assert all(any(name in each for each in retired) for name in ("drained", "straggler", "opening", "reason"))
    assert any(value is None for _, value in log), "a topic was deleted"
    assert {json.loads(value)["controller_epoch"] for _, value in log if value is not None} == {1, 2}


def test_a_log_of_0_1_0_says_now_what_it_said_then(old: Release) -> None:
    log = recorded()
    assert views(log) == old.evaluate(VIEWS, log)
    assert replayed(log).rejected == 0


def test_what_0_1_0_wrote_is_written_again_as_it_was() -> None:
    for key, value in recorded():
        if value is not None:
            kind = {CLAIM_KEY: ClaimRecord, GROUP_RULES_KEY: GroupRulesRecord}.get(key, TopicRecord)
            assert kind.from_json(value.encode()).to_json().decode() == value


def test_what_is_written_now_0_1_0_reads(old: Release) -> None:
    log = new_log()
    then: Any = old.evaluate(VIEWS, log)
    now = views(log)
    assert [each["views"] for each in then] == [each["views"] for each in now]
    assert [each["claimed"] for each in then] == [each["claimed"] for each in now]
    assert then[-1]["rejected"] == 1, "the observed brokers, a key that it passes over, and nothing else"
    assert now[-1]["rejected"] == 0


def test_what_a_controller_of_0_1_0_drops_when_it_takes_over_is_what_the_document_says(old: Release) -> None:
    """The list stands in docs/mode-log.md; nothing in it lets a record be deleted that would not have been."""
    log = new_log()
    answer: Any = old.evaluate(REWRITTEN, log)
    after = {key: TopicRecord.from_json(value.encode()) for key, value in answer}
    before = replayed(log).records
    assert after.keys() == before.keys()
    for key, record in before.items():
        kept = {
            p: replace(retired, evacuated=False, evacuated_to=None, switch_offset=None)
            for p, retired in record.retired.items()
        }
        deletion = record.deletion and replace(
            record.deletion, handed_over=True, earlier_counts=(), revived_ms=None, evacuate=False, evacuation_epoch=-1
        )
        expected = replace(record, retired=kept, deletion=deletion, handed_over=(), handover_offsets={})
        assert after[key] == expected


names = st.text("abcdefgh_", min_size=1, max_size=8).map(lambda name: f"later_{name}")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
unknown = st.dictionaries(names, anything, max_size=4)


@given(unknown, unknown, unknown, unknown, st.integers(1, 99))
def test_fields_that_are_not_known_are_ignored_at_every_level(
    top: dict[str, Any], deletion: dict[str, Any], retired: dict[str, Any], straggler: dict[str, Any], version: int
) -> None:
    for key, value in recorded():
        if value is None:
            continue
        fields = {**top, **json.loads(value), "version": version}
        if "deletion" in fields:
            fields["deletion"] |= deletion
        for partition in fields.get("retired", {}).values():
            partition |= retired
            if "straggler" in partition:
                partition["straggler"] |= straggler
        kind = {CLAIM_KEY: ClaimRecord, GROUP_RULES_KEY: GroupRulesRecord}.get(key, TopicRecord)
        assert kind.from_json(json.dumps(fields).encode()) == kind.from_json(value.encode())


@given(st.integers(READER_VERSION + 1, 9), unknown)
def test_a_record_for_newer_readers_leaves_the_last_view_in_force(min_reader: int, fields: dict[str, Any]) -> None:
    held = topic_record("orders", 1)
    later = json.loads(topic_record("orders", 2, writable=2).to_json()) | {"min_reader": min_reader} | fields
    replay = fold([(held.topic_id, held.to_json()), (held.topic_id, json.dumps(later).encode())])
    assert replay.view("orders") == held.view()
    assert (replay.rejected, replay.newer, replay.unreadable) == (1, {held.topic_id}, ["orders"])
    again = held.stamped(1, 0).stamped(1, 0).stamped(1, 0)
    replay.apply(held.topic_id, again.to_json())
    assert replay.view("orders") == again.view(), "one that can be read again is"
    assert not replay.newer


@given(st.text("abcdefgh-", min_size=1).map(lambda key: f"later-{key}"), unknown)
def test_a_key_that_is_not_known_is_passed_over(key: str, fields: dict[str, Any]) -> None:
    held = topic_record("orders", 1)
    replay = fold(
        [(held.topic_id, held.to_json()), (key, json.dumps({"version": 1, "min_reader": 1, **fields}).encode())]
    )
    assert replay.view("orders") == held.view()
    assert list(replay.topics) == ["orders"]


def test_0_1_0_refuses_what_it_is_told_to_refuse_and_ignores_what_it_does_not_know(old: Release) -> None:
    held = topic_record("orders", 1)
    known = json.loads(held.to_json())
    more = known | {"version": 7, "later": [1], "epoch": 2}
    newer = known | {"version": 7, "min_reader": 2, "epoch": 3}
    told: Any = old.evaluate(VIEWS, [(held.topic_id, json.dumps(fields)) for fields in (known, more, newer)])
    assert [each["views"][0][1] for each in told] == [[1, 1], [1, 2], [1, 2]]
    assert [each["rejected"] for each in told] == [0, 0, 1]

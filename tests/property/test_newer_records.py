"""Records that a later version could write, and what this one makes of them: the promise of docs/mode-log.md."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modeaware.modelog.group_rules import GROUP_RULES_KEY, GroupRule, GroupRulesRecord
from modeaware.modelog.json_form import JsonRecord
from modeaware.modelog.moved import MovedRecord, moved_key
from modeaware.modelog.records import (
    CLAIM_KEY,
    OBSERVED_BROKERS_KEY,
    ClaimRecord,
    DeleteTopicPartitions,
    ObservedBrokersRecord,
    Replacement,
    Straggler,
)
from modeaware.modelog.replay import Replay
from tests.support.modelog import fold, for_newer_readers, topic_record

SHRUNK = topic_record(deletion=DeleteTopicPartitions(4, 0, False, 1_000, 12))
STRAGGLED = replace(SHRUNK.retired[4], stragglers=1, straggler=Straggler(7))
TOPIC = replace(
    SHRUNK,
    retired={**SHRUNK.retired, 4: STRAGGLED},
    replacement=Replacement("orders-v2", 4, 1_000, new_topic_id="id-of-v2"),
)
CLAIM = ClaimRecord(1, "host:1", "c")
RULES = GroupRulesRecord((GroupRule("waive", "audit", "orders", "OPS-1", 1_000),), 1, 0)
MOVED = MovedRecord(TOPIC.topic_id, ("billing",), False, 1, 0, 1_000)
BROKERS = ObservedBrokersRecord(brokers={1: "a", 2: None}, controller_epoch=1, epoch=0)
RECORDS: dict[str, JsonRecord] = {
    TOPIC.topic_id: TOPIC,
    moved_key(TOPIC.topic_id): MOVED,
    CLAIM_KEY: CLAIM,
    GROUP_RULES_KEY: RULES,
    OBSERVED_BROKERS_KEY: BROKERS,
}

names = st.text("abcdefgh_", min_size=1, max_size=8).map(lambda name: f"later_{name}")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
unknown = st.dictionaries(names, anything, min_size=1, max_size=4)


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of examples of rejected records are no news."""
    with patch.object(logging.getLogger("modeaware.modelog.replay"), "disabled", True):
        yield


def with_fields(found: Any, more: dict[str, Any]) -> Any:
    """``found``, with ``more`` in each of its objects whose keys are names of fields."""
    if isinstance(found, list):
        return [with_fields(each, more) for each in found]
    if not isinstance(found, dict):
        return found
    within = {key: with_fields(each, more) for key, each in found.items()}
    is_keyed = found.keys() and all(key.isdigit() for key in found)  # by partition
    return within if is_keyed else {**within, **more}


def state(replay: Replay) -> object:
    views = [replay.view_of(record) for record in replay.records_of("orders")]
    return replay.records, replay.moved, replay.claim, replay.group_rules, replay.observed_brokers, views


def known() -> Replay:
    return fold((key, record.to_json()) for key, record in RECORDS.items())


def test_records_of_every_kind_are_read() -> None:
    replay = known()
    assert (replay.records, replay.claim, replay.rejected) == ({TOPIC.topic_id: TOPIC}, CLAIM, 0)
    assert (replay.group_rules, replay.observed_brokers) == (RULES, BROKERS)


@given(unknown, st.integers(2, 99))
def test_unknown_fields_at_every_level_and_a_higher_version_are_ignored(more: dict[str, Any], version: int) -> None:
    for record in RECORDS.values():
        fields = with_fields(json.loads(record.to_json()), more) | {"version": version}
        if record is TOPIC:
            assert more.items() <= fields["retired"].items()
            assert more.items() <= fields["retired"]["straggler"][0].items()
        assert type(record).from_json(json.dumps(fields).encode()) == record


@pytest.mark.parametrize("key", RECORDS)
def test_record_for_newer_readers_is_counted_and_changes_nothing(key: str) -> None:
    replay = known()
    before = state(replay)
    assert replay.apply(key, for_newer_readers(RECORDS[key])) == frozenset()
    assert (state(replay), replay.rejected, replay.newer) == (before, 1, {key})
    assert replay.is_unreadable(key)
    replay.apply(key, RECORDS[key].to_json())
    assert (state(replay), replay.newer) == (before, set())


@pytest.mark.parametrize("value", [b'{"version": 2, "min_reader": 1, "later": []}', b'{"min_reader": 2}', b"\xff"])
def test_record_under_an_unknown_key_is_counted_and_changes_nothing(value: bytes) -> None:
    replay = known()
    before = state(replay)
    assert replay.apply("later-key", value) == frozenset()
    assert (state(replay), replay.rejected) == (before, 1)
    replay.apply(TOPIC.topic_id, replace(TOPIC, epoch=2).to_json())
    assert replay.view_of(replay.record("orders")).version == (1, 2)

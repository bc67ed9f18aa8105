"""Aliases: which are there, how one is forgotten, and what becomes of a topic that is adopted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.clients.gate import read_topics
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle.admission import admit_of_alias
from modeaware.lifecycle.commands import FenceTopic, ReplaceTopicCommand
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.intent import effects_to_come
from modeaware.lifecycle.state import topic_phase
from modeaware.modelog.records import Replacement, TopicRecord
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView
from tests.support.lifecycle import EPOCH, NOW_MS, RO, TOPIC, TOPIC_ID, facts, log

NAME, ID = "orders-v2", "id-of-the-successor"
LED = Replacement(NAME, 2, 0, delay_ms=5, successor_id=ID, announced_ms=1, switched_ms=2, let_go_ms=3, gone_ms=4)
ALIAS = TopicRecord(
    TOPIC, "id-of-the-first", 9, EPOCH, (RO,) * 2, replacement=LED, required_groups=("billing",), min_reader=2
)
FORGET = ReplaceTopicCommand(TOPIC, NAME, 2, forget=True)
ADOPT = replace(FORGET, forget=False, adopt_id=TOPIC_ID)
ABSENT = TopicFacts(TOPIC, None)
TAKEN = facts(3, {p: log(4) for p in range(3)})


def test_alias_is_forgotten() -> None:
    admission = admit_of_alias(FORGET, ABSENT, [ALIAS], EPOCH, NOW_MS)
    assert (admission.record, admission.removed) == (None, (ALIAS.topic_id,))
    checked = admit_of_alias(replace(FORGET, validate_only=True), ABSENT, [ALIAS], EPOCH, NOW_MS)
    assert (checked.record, checked.removed) == (None, ())


@pytest.mark.parametrize(
    ("command", "found", "records", "code"),
    [
        (FORGET, ABSENT, [], ErrorCode.INVALID_REQUEST),
        (FORGET, ABSENT, [replace(ALIAS, replacement=replace(LED, gone_ms=None))], ErrorCode.INVALID_REQUEST),
        (replace(FORGET, successor="other"), ABSENT, [ALIAS], ErrorCode.INVALID_REQUEST),
        (ADOPT, ABSENT, [ALIAS], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replace(ADOPT, adopt_id="another"), TAKEN, [ALIAS], ErrorCode.UNKNOWN_TOPIC_ID),
        (ADOPT, replace(TAKEN, cleanup_policy="compact"), [ALIAS], ErrorCode.POLICY_VIOLATION),
    ],
)
def test_what_is_no_alias_or_cannot_be_adopted_is_refused(
    command: ReplaceTopicCommand, found: TopicFacts, records: list[TopicRecord], code: ErrorCode
) -> None:
    with pytest.raises(RequestRefused) as refused:
        admit_of_alias(command, found, records, EPOCH, NOW_MS)
    assert refused.value.code is code


def test_adopted_topic_is_a_predecessor_whose_name_leads_on_and_which_groups_read_from_its_start() -> None:
    admission = admit_of_alias(ADOPT, TAKEN, [ALIAS], EPOCH, NOW_MS)
    record, removed = admission.record, admission.removed
    assert record is not None
    assert removed == (ALIAS.topic_id,), "in the same append: the name has one record"
    assert (record.topic_id, set(record.modes)) == (TOPIC_ID, {PartitionMode.READ_ONLY})
    assert (topic_phase(record), record.required_groups, record.groups_complete) == ("seal", ("billing",), False)
    view = record.view()
    assert view.resume_offsets == {0: 0, 1: 0, 2: 0}
    assert view.successor is not None
    assert (view.successor.topic_id, view.successor.switched, view.successor.let_go) == (ID, True, False)
    views = {TOPIC: view, NAME: TopicView(NAME, ID)}
    assert read_topics(TOPIC, views.__getitem__, lambda view: True) == [TOPIC, NAME]


def test_adopted_topic_leads_to_the_end_of_the_chain() -> None:
    """The successor of the alias was replaced meanwhile: what is adopted is read before the topic that is written."""
    second = Replacement("orders-v3", 7, 0, successor_id="id-3", announced_ms=1, switched_ms=2)
    following = TopicRecord(NAME, ID, 3, EPOCH, (RO,), replacement=second, min_reader=2)
    record = admit_of_alias(ADOPT, TAKEN, [ALIAS, following], EPOCH, NOW_MS).record
    assert record is not None
    assert record.replacement is not None
    assert (record.replacement.successor, record.replacement.successor_id) == ("orders-v3", "id-3")
    assert record.replacement.num_partitions == 7


def test_fence_of_a_topic_that_is_adopted_is_validated_and_nothing_is_created() -> None:
    assert [type(effect) for effect in effects_to_come(ADOPT, TOPIC_ID)] == [FenceTopic]

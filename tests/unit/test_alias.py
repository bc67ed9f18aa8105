"""Aliases: which are there, how one is forgotten, and where names point that are used again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modeaware.chain import old_topics, read_topics, written_topic
from modeaware.clients.following import ClientErrors
from modeaware.clients.routes import Routes
from modeaware.config import ClientConfig
from modeaware.errors import ErrorCode, RequestRefused
from modeaware.lifecycle import reasons
from modeaware.lifecycle.admission import forget_alias
from modeaware.lifecycle.alias import EPOCHS_FORGOTTEN_MS, FORGOTTEN_MS, advance_gone, ended_by, facts_for_alias, relink
from modeaware.lifecycle.commands import (
    CreatePartitionsCommand,
    ReplaceTopicCommand,
    TopicCommand,
)
from modeaware.lifecycle.facts import TopicFacts
from modeaware.lifecycle.passes import Advance, pass_over
from modeaware.lifecycle.topic_deletion import CHECK_AGAIN_MS
from modeaware.modelog.records import Replaced, Replacement, TopicRecord
from modeaware.topic_view import TopicView
from tests.support.fake_views import FakeViews
from tests.support.lifecycle import CONFIG, EPOCH, NOW_MS, RO, TOPIC, group, refuse_alias

NAME, ID = "orders-v2", "id-of-the-new-topic"
LED = Replacement(NAME, 2, 0, delay_ms=5, new_topic_id=ID, announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4)
ALIAS = TopicRecord(TOPIC, "id-of-the-first", 9, EPOCH, (RO,) * 2, replacement=LED, required_groups=("billing",))
FORGET = ReplaceTopicCommand(TOPIC, NAME, 2, forget=True)
ABSENT = TopicFacts(TOPIC, None)


def test_alias_is_forgotten() -> None:
    admission = forget_alias(FORGET, ABSENT, [ALIAS])
    assert (admission.record, admission.removed) == (None, (ALIAS.topic_id,))
    checked = forget_alias(replace(FORGET, validate_only=True), ABSENT, [ALIAS])
    assert (checked.record, checked.removed) == (None, ())


def test_topic_whose_deletion_is_not_noted_yet_is_no_alias_until_a_controller_has_run() -> None:
    switched = replace(ALIAS, replacement=replace(LED, gone_ms=None))
    announced = replace(ALIAS, replacement=replace(LED, gone_ms=None, released_ms=None, switched_ms=None))
    there = TopicFacts(TOPIC, ALIAS.topic_id)
    for record, found, yet in ((switched, ABSENT, True), (switched, there, False), (announced, ABSENT, False)):
        with pytest.raises(RequestRefused) as refused:
            forget_alias(FORGET, found, [record])
        assert ("no controller has recorded that the topic was deleted" in str(refused.value)) is yet


@pytest.mark.parametrize(
    ("command", "found", "records", "code"),
    [
        (FORGET, ABSENT, [], ErrorCode.INVALID_REQUEST),
        (FORGET, ABSENT, [replace(ALIAS, replacement=replace(LED, gone_ms=None))], ErrorCode.INVALID_REQUEST),
        (replace(FORGET, new_topic="other"), ABSENT, [ALIAS], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_alias_is_not_forgotten(
    command: ReplaceTopicCommand, found: TopicFacts, records: list[TopicRecord], code: ErrorCode
) -> None:
    with pytest.raises(RequestRefused) as refused:
        forget_alias(command, found, records)
    assert refused.value.code is code


# The way back


def back(count: int = 2, **more: object) -> ReplaceTopicCommand:
    return replace(ReplaceTopicCommand(NAME, TOPIC, count), **more)  # type: ignore[arg-type]  # by name


def test_topic_may_be_replaced_under_the_name_of_an_alias_that_points_to_it_and_under_no_other() -> None:
    now_ms = (LED.gone_ms or 0) + FORGOTTEN_MS
    refuse_alias(back(), TopicFacts("", ID), [ALIAS], now_ms)
    refuse_alias(back(9), TopicFacts("", ID), [ALIAS], now_ms)
    with pytest.raises(RequestRefused) as refused:
        refuse_alias(back(9), TopicFacts("", ID), [ALIAS], now_ms - 1)
    assert (refused.value.code, "or request no more partitions than it had (2)" in str(refused.value)) == (
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        True,
    )
    forgotten_ms = (LED.gone_ms or 0) + EPOCHS_FORGOTTEN_MS
    refuse_alias(back(), TopicFacts("", ID), [ALIAS], forgotten_ms)
    with pytest.raises(RequestRefused, match="the metadata of the deleted topic of this name: wait 1 s") as refused:
        refuse_alias(back(), TopicFacts("", ID), [ALIAS], forgotten_ms - 1)
    assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    used = TopicFacts(TOPIC, None, groups={"stock": replace(group({}), subscribed=True)})
    with pytest.raises(RequestRefused, match="groups with stock clients use this name: stock") as refused:
        refuse_alias(back(), TopicFacts(NAME, ID, new_topic=used), [ALIAS], now_ms)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    living = replace(ALIAS, replacement=replace(LED, gone_ms=None))
    for records, topic_id in (([ALIAS], "another"), ([living], ID)):
        with pytest.raises(RequestRefused, match="points to 'orders-v2'"):
            refuse_alias(back(), TopicFacts("", topic_id), records, now_ms)


def test_chain_of_aliases_leads_back_to_its_first_name() -> None:
    second = Replacement(
        "orders-v3", 2, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4
    )
    records = [ALIAS, TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=second)]
    refuse_alias(ReplaceTopicCommand("orders-v3", TOPIC, 2), TopicFacts("", "id-3"), records, NOW_MS)
    refuse_alias(ReplaceTopicCommand("orders-v3", NAME, 2), TopicFacts("", "id-3"), records, NOW_MS)


RETURNED = Replacement(TOPIC, 2, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2)
GROW, ONWARD, AGAIN = (
    CreatePartitionsCommand(TOPIC, 9),
    ReplaceTopicCommand(TOPIC, "orders-v3", 2),
    ReplaceTopicCommand(TOPIC, NAME, 2),
)


def refusal(command: TopicCommand, topic_id: str, *records: TopicRecord) -> str:
    with pytest.raises(RequestRefused) as refused:
        refuse_alias(command, TopicFacts(command.topic, topic_id), records, NOW_MS)
    return str(refused.value)


@pytest.mark.parametrize("command", [GROW, ONWARD, AGAIN], ids=["grow", "onward", "again"])
def test_topic_that_has_come_back_is_changed_once_its_old_topic_is_gone(command: TopicCommand) -> None:
    """Until then its name is an alias as well, and a record of it would take the alias's place."""
    replaces = "topic 'orders': it replaces 'orders-v2': wait until "
    moving = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=RETURNED)
    assert replaces + "its groups have moved" in refusal(command, "id-3", ALIAS, moving)
    released = replace(moving, replacement=replace(RETURNED, released_ms=3))
    assert replaces + "'orders-v2' is deleted" in refusal(command, "id-3", ALIAS, released)
    for record in (moving, released):
        assert "clients use no other topic of this name" in refusal(command, "other", ALIAS, record)
    gone = replace(released, replacement=replace(RETURNED, released_ms=3, gone_ms=4))
    if command is not AGAIN:
        refuse_alias(command, TopicFacts(TOPIC, "id-3"), [gone], NOW_MS)


def test_rename_back_keeps_the_alias_until_the_topic_in_between_is_gone() -> None:
    """Clients of the name would be led past what that topic has for them."""
    for now in (replace(RETURNED, switched_ms=None), RETURNED, replace(RETURNED, released_ms=3)):
        moving = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=now)
        with pytest.raises(RequestRefused, match=r"of this name: wait until '[^']*' is deleted") as refused:
            forget_alias(FORGET, TopicFacts(TOPIC, "id-3"), [ALIAS, moving])
        assert refused.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_second_old_topic_of_a_new_topic_waits_until_the_first_is_gone() -> None:
    first = replace(ALIAS, replacement=replace(LED, gone_ms=None))
    assert "replaces 'orders': wait until 'orders' is deleted" in refusal(ReplaceTopicCommand("x", NAME, 2), "x", first)


def test_another_topic_under_an_alias_within_a_chain_is_not_changed() -> None:
    onward = Replacement(
        "orders-v3", 2, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4
    )
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=onward)
    assert "points to 'orders-v3'" in refusal(CreatePartitionsCommand(NAME, 9), "other", ALIAS, second)


def test_alias_ends_when_the_topic_it_points_to_is_gone_and_its_name_has_a_topic_again() -> None:
    returned = Replacement(TOPIC, 2, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2, released_ms=3)
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=returned)
    assert ended_by(second, [ALIAS, second]) == []
    gone = replace(second, replacement=replace(returned, gone_ms=4))
    assert ended_by(gone, [ALIAS, gone]) == [ALIAS.topic_id]


def test_alias_whose_topic_was_deleted_raises_one_alarm() -> None:
    """Whichever of the two is confirmed to be gone at that look."""
    missing = replace(ABSENT, new_topic=TopicFacts(NAME, None))
    assert gone(ALIAS, missing) == Advance(due_ms=NOW_MS + CHECK_AGAIN_MS), "not confirmed yet"
    deleted = replace(ABSENT, new_topic=TopicFacts(NAME, None, gone=True))
    found = gone(ALIAS, deleted)
    assert found.record is not None
    assert reason_of(found) == reasons.POINTS_NOWHERE
    (alarm,) = found.alarms
    assert "the topic that the alias points to was deleted" in alarm
    taken = replace(deleted, topic_id="another", gone=True)
    for unchanged in (
        deleted,
        missing,
        replace(missing, gone=True),
        taken,
        replace(taken, new_topic=missing.new_topic),
    ):
        assert gone(found.record, unchanged) == Advance()
    back = gone(found.record, replace(missing, new_topic=TopicFacts(NAME, ID)))
    assert (reason_of(back), back.alarms) == (None, ())


def test_another_topic_under_an_alias_is_noted_until_it_is_known_to_be_gone() -> None:
    present = replace(ABSENT, new_topic=TopicFacts(NAME, ID))
    taken = gone(ALIAS, replace(present, topic_id="another"))
    assert taken.record is not None
    assert (reason_of(taken), len(taken.alarms)) == (reasons.NAME_TAKEN, 1)
    assert gone(taken.record, present) == Advance(), "one broker's answer"
    assert reason_of(gone(taken.record, replace(present, gone=True))) is None
    assert gone(ALIAS, replace(present, topic_id=ALIAS.topic_id)) == Advance(), "an old answer"


def test_alias_leads_further_on_where_its_topic_was_replaced() -> None:
    deleted = replace(ABSENT, gone=True, new_topic=TopicFacts(NAME, None, gone=True))
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=replace(LED, new_topic_id="id-3"))
    announced = replace(second, replacement=replace(LED, new_topic_id="id-3", switched_ms=None, gone_ms=None))
    for following in (second, announced):  # the latter's own look tells what becomes of it
        assert facts_for_alias(ALIAS, deleted, {ID: following}).new_topic is None
    for records in ({}, {ID: replace(second, replacement=None)}):
        assert facts_for_alias(ALIAS, deleted, records) == deleted


def test_topic_that_gets_back_the_name_of_an_alias_is_no_other_topic_under_it() -> None:
    """Also before its id is on the record: a controller may have stopped right after the creation."""
    back = replace(LED, new_topic=TOPIC, new_topic_id="id-3", gone_ms=None)
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=back)
    begun = replace(second, replacement=replace(back, new_topic_id=None, announced_ms=None, switched_ms=None))
    returned = replace(ABSENT, topic_id="id-3")
    for record in (second, begun):
        assert facts_for_alias(ALIAS, returned, {ID: record}).topic_id is None
    for record in (ALIAS, replace(begun, replacement=replace(back, new_topic="other", new_topic_id=None))):
        assert facts_for_alias(ALIAS, returned, {ID: record}).topic_id == "id-3"


def gone(record: TopicRecord, facts: TopicFacts) -> Advance:
    return advance_gone(Replaced(record, record.replacing), pass_over(record, facts, (), CONFIG, NOW_MS))


def reason_of(step: Advance) -> str | None:
    """What the record that a pass has made says of the replacement."""
    assert step.record is not None
    assert step.record.replacement is not None
    return step.record.replacement.reason


def test_clients_follow_a_chain_that_leads_back_to_its_name() -> None:
    """A producer of the first name writes to the new topic of that name, and a group reads the one before it first."""
    returned = Replacement(TOPIC, 2, 0, new_topic_id="id-3", announced_ms=1)
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=returned)
    for switched_ms, written in ((None, (NAME, ID)), (2, (TOPIC, "id-3"))):
        record = replace(second, replacement=replace(returned, switched_ms=switched_ms))
        views = {TOPIC: ALIAS.view(), NAME: record.view()}
        found = written_topic(TOPIC, views.__getitem__)
        assert (found.topic, found.topic_id) == written
        assert read_topics(TOPIC, views.__getitem__, lambda view: not (view.replaced_by and view.replaced_by.gone)) == [
            NAME,
            TOPIC,
        ]
        assert {name: view.topic_id for name, view in old_topics(views).items()} == {
            NAME: ALIAS.topic_id,
            TOPIC: ID,
        }


def test_routes_of_a_name_that_a_chain_leads_back_to_are_those_of_the_new_topic() -> None:
    """Not of the topic of that name that is gone, and which no record may go to."""
    returned = Replacement(TOPIC, 2, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2)
    second = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=returned)
    views, requested = FakeViews(), list[str]()
    routes = Routes(views, ClientConfig(), ClientErrors(), renew_metadata=requested.append)
    for record in (ALIAS, second):
        views.put(record.view())
    routes.follow(views.views())
    routes.follow(views.views())
    assert requested == [TOPIC], "the client library has the partitions of the topic that is gone"
    for name in (TOPIC, NAME):
        route = routes._by_name(name)  # what the tables of all flavours are made of
        assert route is not None
        assert (route.passes, route.view.topic, route.view.topic_id) == (True, TOPIC, "id-3")
        assert routes._names.returning(name, views.view) == (TOPIC, "id-3")


# Chains of aliases

GONE = Replacement("orders-v3", 7, 0, new_topic_id="id-3", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4)
SECOND = TopicRecord(NAME, ID, 3, EPOCH, (RO,) * 2, replacement=GONE)


def led(records: list[TopicRecord]) -> list[tuple[str, str, str | None, int]]:
    found = [(record.topic, record.replacement) for record in records]
    return [(name, now.new_topic, now.new_topic_id, now.num_partitions) for name, now in found if now is not None]


def test_alias_does_not_end_the_alias_that_it_points_to() -> None:
    """Its record is appended again when another topic comes up under its name, say."""
    assert ended_by(ALIAS, [ALIAS, SECOND]) == []


def test_alias_leads_on_when_the_one_that_it_points_to_is_forgotten() -> None:
    after = relink([ID], [], [ALIAS, SECOND])
    assert led(after) == [(TOPIC, "orders-v3", "id-3", 7)]
    assert (after[0].topic_id, after[0].view().topic) == (ALIAS.topic_id, TOPIC)
    assert relink([ALIAS.topic_id], [], [ALIAS, SECOND]) == []


def test_alias_stays_as_it_is_when_the_topic_that_it_points_to_is_deleted() -> None:
    """Also where that topic has a record of its own: of a shrink, or of a replacement that it was not switched to."""
    assert SECOND.replacement is not None
    began = replace(SECOND.replacement, switched_ms=None, released_ms=None, gone_ms=None)
    for record in (replace(SECOND, replacement=None), replace(SECOND, replacement=began)):
        assert relink([ID], [], [ALIAS, record]) == []


def test_alias_points_to_the_new_topic_when_the_name_that_it_points_to_is_used_again() -> None:
    returned = Replacement(NAME, 5, 0, new_topic_id="id-4", announced_ms=1, switched_ms=2, released_ms=3, gone_ms=4)
    third = TopicRecord("orders-v3", "id-3", 3, EPOCH, (RO,) * 7, replacement=returned)
    records = [ALIAS, SECOND, third]
    assert ended_by(third, records) == [ID]
    after = relink([ID], [third], records)
    assert led(after) == [(TOPIC, NAME, "id-4", 5)]
    fourth = replace(returned, new_topic="orders-v5", new_topic_id="id-5", gone_ms=None)
    views = {
        view.topic: view for view in (after[0].view(), replace(SECOND, topic_id="id-4", replacement=fourth).view())
    }
    found = written_topic(TOPIC, lambda name: views.get(name, TopicView.unlisted(name)))
    assert (found.topic, found.topic_id) == ("orders-v5", "id-5")


def test_group_subscribes_to_the_last_topic_of_a_chain_and_those_that_it_needs() -> None:
    living = replace(ALIAS, replacement=replace(LED, gone_ms=None)).view()
    views = {TOPIC: living, NAME: replace(SECOND, replacement=replace(GONE, gone_ms=None)).view()}
    found = read_topics(TOPIC, lambda name: views.get(name, TopicView.unlisted(name)), lambda view: view is living)
    assert found == [TOPIC, "orders-v3"]
    found = read_topics(TOPIC, lambda name: views.get(name, TopicView.unlisted(name)), lambda view: view is not living)
    assert found == [NAME, "orders-v3"]

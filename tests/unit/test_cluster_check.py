"""What is asked right before each request of an effect goes out."""

from __future__ import annotations

import uuid

import pytest

from modeaware.cluster.partition_leaders import base64_id
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, DeleteRecords, Effect
from tests.support.fake_topic import TOPIC, OverFakes, TopicBrokers

TOPIC_ID = base64_id(uuid.UUID(int=5))


class Expired(Exception):
    """The lease is over."""


@pytest.mark.parametrize(
    ("effect", "name", "moved"),
    [
        (
            DeleteRecords(TOPIC, TOPIC_ID, {0: 9, 1: 7}, {0: 4, 1: 6}),
            "DeleteRecords",
            KafkaError.NOT_LEADER_FOR_PARTITION,
        ),
        (CreatePartitions(TOPIC, TOPIC_ID, 4, ((1,), (2,))), "CreatePartitions", KafkaError.NOT_CONTROLLER),
        (CommitOffsets(TOPIC, TOPIC_ID, "readers", {0: 3, 1: 7}), "OffsetCommit", KafkaError.NOT_COORDINATOR),
    ],
    ids=["delete", "create", "commit"],
)
def test_lease_is_checked_right_before_each_request(effect: Effect, name: str, moved: int) -> None:
    """After everything else that is sent, again before a second try; an expired lease sends nothing."""
    fakes, seen = TopicBrokers(), []
    OverFakes(fakes).perform(effect, lambda: seen.append([sent for _, sent in fakes.asked]))
    names = [sent for _, sent in fakes.asked]
    assert {tuple(before) for before in seen} == {tuple(names[: names.index(name)])}
    for tries in (0, 1):
        fakes = TopicBrokers()
        fakes.controller = 2
        for node in fakes.nodes:
            fakes.codes[node, name] = [moved]

        def check(fakes: TopicBrokers = fakes, tries: int = tries) -> None:
            if len(fakes.asked_for(name)) >= tries:
                raise Expired

        with pytest.raises(Expired):
            OverFakes(fakes).perform(effect, check)
        assert bool(fakes.asked_for(name)) is bool(tries)

"""What is asked right before each request of an effect goes out."""

from __future__ import annotations

import uuid

import pytest

from modeaware.cluster.partition_leaders import base64_id
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.effects import CommitOffsets, CreatePartitions, DeleteRecords
from tests.support.fake_topic import TOPIC, OverFakes, TopicBrokers

TOPIC_ID = base64_id(uuid.UUID(int=5))


@pytest.fixture
def fakes() -> TopicBrokers:
    return TopicBrokers()


@pytest.fixture
def cluster(fakes: TopicBrokers) -> OverFakes:
    return OverFakes(fakes)


class Expired(Exception):
    """The lease is over."""


@pytest.mark.parametrize(
    ("effect", "request_name"),
    [
        (DeleteRecords(TOPIC, TOPIC_ID, {0: 9, 1: 7}, {0: 4, 1: 6}), "DeleteRecords"),
        (CreatePartitions(TOPIC, TOPIC_ID, 4, ((1,), (2,))), "CreatePartitions"),
        (CommitOffsets(TOPIC, TOPIC_ID, "readers", {0: 3, 1: 7}), "OffsetCommit"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
class TestCheck:
    def test_right_before_the_request_and_after_all_others(
        self,
        fakes: TopicBrokers,
        cluster: OverFakes,
        effect: DeleteRecords | CreatePartitions | CommitOffsets,
        request_name: str,
    ) -> None:
        asked: list[list[str]] = []
        cluster.perform(effect, lambda: asked.append([name for _, name in fakes.asked]))
        names = [name for _, name in fakes.asked]
        assert asked, "it was called"
        assert asked[-1] == names[: names.index(request_name)]
        assert not any(request_name in before for before in asked)

    def test_what_it_raises_keeps_the_request_from_being_sent(
        self,
        fakes: TopicBrokers,
        cluster: OverFakes,
        effect: DeleteRecords | CreatePartitions | CommitOffsets,
        request_name: str,
    ) -> None:
        def check() -> None:
            raise Expired

        with pytest.raises(Expired):
            cluster.perform(effect, check)
        assert fakes.asked_for(request_name) == []

    def test_a_second_try_is_checked_again(
        self,
        fakes: TopicBrokers,
        cluster: OverFakes,
        effect: DeleteRecords | CreatePartitions | CommitOffsets,
        request_name: str,
    ) -> None:
        moved = {
            "DeleteRecords": KafkaError.NOT_LEADER_FOR_PARTITION,
            "CreatePartitions": KafkaError.NOT_CONTROLLER,
            "OffsetCommit": KafkaError.NOT_COORDINATOR,
        }[request_name]
        fakes.controller = 2
        for node in fakes.nodes:
            fakes.codes[node, request_name] = [moved]

        def check() -> None:
            if fakes.asked_for(request_name):
                raise Expired

        with pytest.raises(Expired):
            cluster.perform(effect, check)

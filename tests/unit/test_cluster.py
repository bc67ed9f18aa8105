"""What the controller asks of the brokers: who is asked, who is asked again, what becomes of errors, and the lease."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from modeaware.cluster import effects as effects_module
from modeaware.cluster.cluster import Cluster, LogOffsets, describe_all
from modeaware.cluster.metadata import epoch_ends
from modeaware.errors import ClusterError, ErrorCode
from modeaware.librdkafka import KafkaError
from modeaware.lifecycle.commands import (
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteOldTopic,
    DeleteRecords,
    DeleteTopic,
    Effect,
    FenceTopic,
    RemoveConfigs,
)
from modeaware.lifecycle.facts import FenceFacts
from modeaware.lifecycle.replacement import FENCE_CONFIGS
from modeaware.topic_view import base64_id
from modeaware.wire import requests
from tests.support.fake_brokers import FakeBrokers
from tests.support.source_tree import modules

TOPIC = "orders"


class OverFakes(Cluster):
    """A real Cluster whose brokers are fakes."""

    def __init__(self, fakes: FakeBrokers) -> None:
        self.fakes = fakes

    @property
    def brokers(self) -> Any:
        return self.fakes


class TopicBrokers(FakeBrokers):
    """Knows ``TOPIC``: ``logs`` are (start, last stable offset, end), ``led`` is who truly leads under which epoch.

    ``told`` is what metadata say, one answer after the other, the truth after the last. ``codes`` are answers' error
    codes: (node, request) -> the codes to give in turn, then none. ``requests`` are all that were answered.
    """

    def __init__(self, nodes: Iterable[int] = (1, 2)) -> None:
        super().__init__(nodes)
        self.topic_id: uuid.UUID | None = uuid.UUID(int=5)
        self.all_topics: list[str] = []
        self.topic_error = 0
        self.logs = {0: (2, 9, 10), 1: (0, 7, 7)}
        self.led = {0: (1, 4), 1: (2, 6)}
        self.told: list[dict[int, tuple[int, int]]] = []
        self.codes: dict[tuple[int, str], list[int]] = {}
        self.deleted: dict[int, int] = {}
        self.low: int | None = None
        self.controller = 1
        self.messages: dict[int, str] = {}
        self.requests: list[tuple[int, Any]] = []
        self.configs = {"cleanup.policy": "compact,delete"}
        self.before = lambda node, request: self.requests.append((node, request))

    def asked_for(self, name: str) -> list[int]:
        return [node for node, asked in self.asked if asked == name]

    def sent(self, name: str) -> list[Any]:
        return [request for _, request in self.requests if type(request).__name__ == f"{name}Request"]

    def _code(self, node: int, name: str) -> int:
        codes = self.codes.get((node, name), [])
        return codes.pop(0) if codes else 0

    def on_metadata(self, node: int, request: Any) -> Any:
        led = self.told.pop(0) if self.told and request.topics else self.led
        partitions = [
            {"partition_index": p, "leader_id": n, "leader_epoch": e, "replica_nodes": [n]} for p, (n, e) in led.items()
        ]
        fields = {"topic_id": self.topic_id, "is_internal": False, "partitions": partitions}
        codes = {TOPIC: self.topic_error}
        topics = [
            {"name": topic.name, "error_code": codes.get(topic.name, KafkaError.UNKNOWN_TOPIC_OR_PART), **fields}
            for topic in (
                [SimpleNamespace(name=name) for name in self.all_topics] if request.topics is None else request.topics
            )
        ]
        return {"topics": topics, "controller_id": self.controller}

    def on_list_offsets(self, node: int, request: Any) -> Any:
        return self._by_partition(node, request, "ListOffsets", self._offset)

    def _offset(self, request: Any, partition: Any) -> dict[str, Any]:
        start, stable, end = self.logs[partition.partition_index]
        offset = start if partition.timestamp == -2 else stable if request.isolation_level else end
        return {"offset": offset, "leader_epoch": self.led[partition.partition_index][1]}

    def on_delete_records(self, node: int, request: Any) -> Any:
        return self._by_partition(node, request, "DeleteRecords", self._delete)

    def _delete(self, _request: Any, partition: Any) -> dict[str, Any]:
        self.deleted[partition.partition_index] = partition.offset
        return {"low_watermark": partition.offset if self.low is None else self.low}

    def _by_partition(self, node: int, request: Any, name: str, carry_out: Any) -> Any:
        entries = []
        (topic,) = request.topics
        for partition in topic.partitions:
            index = partition.partition_index
            code = self._code(node, name) or (0 if self.led[index][0] == node else KafkaError.NOT_LEADER_FOR_PARTITION)
            entry = {"partition_index": index, "error_code": code}
            entries.append({**entry, **({} if code else carry_out(request, partition))})
        return {"topics": [{"name": topic.name, "partitions": entries}]}

    def on_offset_for_leader_epoch(self, node: int, request: Any) -> Any:
        entries = [
            {"partition": p.partition, "error_code": 0, "end_offset": 10 * p.leader_epoch}
            for p in request.topics[0].partitions
        ]
        return {"topics": [{"topic": request.topics[0].topic, "partitions": entries}]}

    def on_create_partitions(self, node: int, request: Any) -> Any:
        return {"results": [{**self._result(node, "CreatePartitions"), "name": topic.name} for topic in request.topics]}

    def on_create_topics(self, node: int, request: Any) -> Any:
        return {"topics": [{**self._result(node, "CreateTopics"), "name": topic.name} for topic in request.topics]}

    def on_incremental_alter_configs(self, node: int, request: Any) -> Any:
        named = (resource.resource_name for resource in request.resources)
        return {"responses": [{**self._result(node, "IncrementalAlterConfigs"), "resource_name": n} for n in named]}

    def on_describe_configs(self, node: int, request: Any) -> Any:
        configs = [{"name": name, "value": value} for name, value in self.configs.items()]
        return {"results": [{**self._result(node, "DescribeConfigs"), "configs": configs}]}

    def _result(self, node: int, name: str) -> dict[str, Any]:
        code = self._code(node, name)
        return {"error_code": code, "error_message": self.messages.get(code)}

    def on_delete_topics(self, node: int, request: Any) -> Any:
        result = self._result(node, "DeleteTopics")
        return {"responses": [{**result, "topic_id": topic.topic_id} for topic in request.topics]}

    def on_find_coordinator(self, node: int, request: Any) -> Any:
        code = self._code(node, "FindCoordinator")
        (group,) = request.coordinator_keys
        node_id = -1 if code else self.coordinator(group)
        return {"coordinators": [{"key": group, "error_code": code, "node_id": node_id}]}

    def on_offset_commit(self, node: int, request: Any) -> Any:
        (topic,) = request.topics
        codes = [(p.partition_index, self._code(node, "OffsetCommit")) for p in topic.partitions]
        return {"topics": [{"partitions": [{"partition_index": p, "error_code": code} for p, code in codes]}]}


TOPIC_ID = base64_id(uuid.UUID(int=5))
BOTH = {(TOPIC, 0): LogOffsets(2, 10, 9, 4), (TOPIC, 1): LogOffsets(0, 7, 7, 6)}
MOVED = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
]


@pytest.fixture
def fakes() -> TopicBrokers:
    return TopicBrokers()


@pytest.fixture
def cluster(fakes: TopicBrokers) -> OverFakes:
    return OverFakes(fakes)


def refused(cluster: OverFakes, effect: Effect) -> ClusterError:
    (failure,) = cluster.perform([effect])
    assert failure is not None
    return failure


@pytest.mark.parametrize("zero", [None, uuid.UUID(int=0)], ids=["as decoded", "as sent"])
def test_a_topic_without_an_id_is_not_described(cluster: OverFakes, zero: uuid.UUID | None) -> None:
    """All topics without an id would share the key of one record."""
    cluster.fakes.topic_id = zero
    described = cluster.describe([TOPIC])[TOPIC]
    assert isinstance(described, ClusterError)
    assert (described.code, described.topic) == (ErrorCode.UNSUPPORTED_VERSION, TOPIC)
    assert "inter.broker.protocol.version" in str(described)
    with pytest.raises(ClusterError, match=r"inter\.broker\.protocol\.version"):
        cluster.shape(TOPIC)
    cluster.fakes.all_topics = [TOPIC]
    with pytest.raises(ClusterError, match=r"inter\.broker\.protocol\.version"):
        describe_all(cluster.brokers)
    cluster.fakes.topic_error = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert describe_all(cluster.brokers) == {}


class TestOffsets:
    def test_each_leader_is_asked_and_the_last_stable_offset_comes_first(self, cluster: OverFakes) -> None:
        assert cluster.offsets([(TOPIC, 0), (TOPIC, 1)]) == BOTH
        assert cluster.fakes.asked_for("ListOffsets") == [*[1, 2] * 3, 1], "where a transaction may be open: once more"
        sent = cluster.fakes.sent("ListOffsets")
        assert [(r.isolation_level, r.topics[0].partitions[0].timestamp) for r in sent[::2]] == [
            (1, -1),
            (0, -2),
            (0, -1),
            (1, -1),
        ]
        assert [p.current_leader_epoch for r in sent[:2] for p in r.topics[0].partitions] == [4, 6]
        assert len(cluster.fakes.asked_for("Metadata")) == 1
        assert cluster.offsets([]) == {}

    @pytest.mark.parametrize("code", MOVED)
    def test_a_leader_that_moved_is_looked_for_once_more(self, cluster: OverFakes, code: int) -> None:
        cluster.fakes.codes[1, "ListOffsets"] = [code]
        assert cluster.offsets([(TOPIC, 0), (TOPIC, 1)]) == BOTH
        assert len(cluster.fakes.asked_for("Metadata")) == 2
        assert cluster.fakes.asked_for("ListOffsets") == [1, 2, 1, 1, 2, 1, 2, 1]

    def test_markers_that_come_in_between_are_no_open_transaction(
        self, cluster: OverFakes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stable = iter([9, 12])

        def moving(request: Any, _partition: Any) -> dict[str, Any]:
            return {"offset": next(stable) if request.isolation_level else 10, "leader_epoch": 4}

        monkeypatch.setattr(cluster.fakes, "_offset", moving)
        assert cluster.offsets([(TOPIC, 0)]) == {(TOPIC, 0): LogOffsets(10, 10, 10, 4)}

    @pytest.mark.parametrize("code", [*MOVED, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.OFFSET_NOT_AVAILABLE])
    def test_a_partition_that_is_not_answered_for_is_missing(self, cluster: OverFakes, code: int) -> None:
        cluster.fakes.codes[1, "ListOffsets"] = [code] * 10
        assert cluster.offsets([(TOPIC, 0), (TOPIC, 1), (TOPIC, 5)]) == {(TOPIC, 1): BOTH[TOPIC, 1]}
        assert cluster.fakes.asked_for("ListOffsets").count(1) == (2 if code in MOVED else 1), (
            "and is not asked for the rest"
        )


class TestDeleteRecords:
    EFFECT = DeleteRecords(TOPIC, TOPIC_ID, {0: 9, 1: 7}, {0: 4, 1: 6})

    def test_a_leader_that_moved(self, cluster: OverFakes) -> None:
        cluster.fakes.told = [
            cluster.fakes.led,
            cluster.fakes.led,
            {0: (2, 4), 1: (1, 6)},
        ]  # two for the check of the id
        assert cluster.perform([self.EFFECT]) == [None]
        assert cluster.fakes.deleted == {0: 9, 1: 7}

    @pytest.mark.parametrize("epochs", [{0: 4, 1: 5}, {0: 4, 1: 7}, {0: 4}])
    def test_a_leader_of_another_epoch_gets_no_request(self, cluster: OverFakes, epochs: dict[int, int]) -> None:
        """It may have other records there than those that were looked at."""
        error = refused(cluster, replace(self.EFFECT, leader_epochs=epochs))
        assert (error.topic, error.partition) == (TOPIC, 1)
        assert "its leader epoch 6 is not the one" in str(error)
        assert (cluster.fakes.deleted, cluster.fakes.asked_for("DeleteRecords")) == ({0: 9}, [1])

    @pytest.mark.parametrize(
        ("number", "code"),
        [
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (KafkaError.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
            (KafkaError.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
            (KafkaError.OFFSET_OUT_OF_RANGE, None),
            (KafkaError.NOT_LEADER_FOR_PARTITION, None),
        ],
    )
    def test_a_refusal_names_the_partition(self, cluster: OverFakes, number: int, code: ErrorCode | None) -> None:
        cluster.fakes.codes[2, "DeleteRecords"] = [number] * 5
        error = refused(cluster, self.EFFECT)
        assert (error.code, error.topic, error.partition) == (code, TOPIC, 1)
        assert f"cannot delete the records of {TOPIC}-1: " in str(error)
        assert cluster.fakes.deleted == {0: 9}

    def test_a_low_watermark_that_stays_below(self, cluster: OverFakes) -> None:
        cluster.fakes.low = 3
        assert "records below 9 were to be deleted, but the log starts at 3" in str(refused(cluster, self.EFFECT))

    def test_another_topic_of_that_name(self, cluster: OverFakes) -> None:
        cluster.fakes.topic_id = uuid.UUID(int=6)
        for effect in (
            self.EFFECT,
            CreatePartitions(TOPIC, TOPIC_ID, 3, None),
            CommitOffsets(TOPIC, TOPIC_ID, "g", {0: 1}),
        ):
            assert refused(cluster, effect).code is ErrorCode.UNKNOWN_TOPIC_ID
        assert {name for _, name in cluster.fakes.asked} == {"Metadata", "FindCoordinator"}

    def test_the_id_is_every_brokers_word_right_before_each_request(self, cluster: OverFakes) -> None:
        for effect, last in (
            (self.EFFECT, "DeleteRecords"),
            (CreatePartitions(TOPIC, TOPIC_ID, 3, None), "CreatePartitions"),
            (CommitOffsets(TOPIC, TOPIC_ID, "g", {0: 1}), "OffsetCommit"),
        ):
            cluster.fakes.asked.clear()
            assert cluster.perform([effect]) == [None]
            names = [name for _, name in cluster.fakes.asked]
            assert cluster.fakes.asked[names.index(last) - 2 : names.index(last)] == [(1, "Metadata"), (2, "Metadata")]


class TestCreatePartitions:
    EFFECT = CreatePartitions(TOPIC, TOPIC_ID, 4, ((1,), (2,)))

    def test_no_answer_is_not_asked_for_elsewhere(self, cluster: OverFakes) -> None:
        """Who did not answer may have done it: another one would call it a mistake."""
        cluster.fakes.before = lambda node, request: (
            cluster.fakes.silent.add(1) if type(request).__name__ == "CreatePartitionsRequest" else None
        )
        assert refused(cluster, self.EFFECT).code is ErrorCode.REQUEST_TIMED_OUT
        assert cluster.fakes.asked_for("CreatePartitions") == [1]


class TestDeleteTopic:
    def test_a_new_topic_that_has_records_by_now_stays(self, cluster: OverFakes) -> None:
        effect = DeleteTopic(TOPIC, TOPIC_ID, TOPIC, TOPIC_ID)
        assert "it has records" in str(refused(cluster, effect))
        cluster.fakes.logs = {0: (0, 0, 0), 1: (0, 0, 0)}
        cluster.fakes.silent = {2}
        assert "not every leader" in str(refused(cluster, effect))
        unknown = replace(effect, new_topic="orders-unknown")
        assert refused(cluster, unknown).code is ErrorCode.UNKNOWN_TOPIC_ID, "a broker that lags behind proves nothing"
        assert cluster.fakes.sent("DeleteTopics") == []
        cluster.fakes.silent = set()
        assert cluster.perform([effect]) == [None]
        (request,) = cluster.fakes.sent("DeleteTopics")
        assert [topic.topic_id for topic in request.topics] == [cluster.fakes.topic_id]


@pytest.mark.parametrize("code", [KafkaError.INVALID_REQUEST, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
def test_brokers_that_delete_topics_are_found_by_a_deletion_without_a_name(code: int, cluster: OverFakes) -> None:
    effects = [DeleteOldTopic(TOPIC, TOPIC_ID, {}), DeleteTopic("t1", "id", "t1-v2", "")]
    for answer, expected in ((code, None), (73, ErrorCode.TOPIC_DELETION_DISABLED)):
        cluster.fakes.codes = {(1, "DeleteTopics"): [answer] * 2}
        found = cluster.validate(effects)
        assert [error and error.code for error in found] == [expected] * 2
    assert [error and error.topic for error in found] == [TOPIC, "t1"]
    assert "--fence none" in str(found[0])
    assert "deletes 't1-v2'" in str(found[1])
    named = [(topic.name, topic.topic_id.int) for sent in cluster.fakes.sent("DeleteTopics") for topic in sent.topics]
    assert named == [(None, 0)] * 4


@pytest.mark.parametrize("codes", [[], [42, 73]])
def test_a_broker_may_answer_a_deletion_without_a_name_by_any_number_of_results(
    monkeypatch: pytest.MonkeyPatch, codes: list[int]
) -> None:
    monkeypatch.setattr(effects_module, "_ask_controller", lambda *_: [SimpleNamespace(error_code=c) for c in codes])
    anything: Any = None
    (error,) = effects_module.check_deletions(anything, [DeleteOldTopic(TOPIC, TOPIC_ID, {})])
    assert (error and error.code) == (ErrorCode.TOPIC_DELETION_DISABLED if codes else None)


class TestDeleteOldTopic:
    EFFECT = DeleteOldTopic(TOPIC, TOPIC_ID, {0: 10, 1: 7})
    FENCE = FenceFacts(FENCE_CONFIGS, {0: 4, 1: 6}, frozenset({0, 1}))

    @pytest.fixture(autouse=True)
    def _fenced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, FenceFacts] = {TOPIC: self.FENCE}
        monkeypatch.setattr("modeaware.cluster.fence.fences", lambda *_: self.found)

    def test_it_is_deleted_by_its_id(self, cluster: OverFakes) -> None:
        assert cluster.perform([self.EFFECT]) == [None]
        (request,) = cluster.fakes.sent("DeleteTopics")
        assert [topic.topic_id for topic in request.topics] == [cluster.fakes.topic_id]

    @pytest.mark.parametrize(
        ("found", "seals", "says"),
        [
            ({}, {0: 10, 1: 7}, "its partitions are not known"),
            ({TOPIC: FENCE}, {0: 10}, "its partitions are not known"),
            ({TOPIC: FENCE}, {0: 9, 1: 7}, f"{TOPIC}-0: the log ends at 10, not at its seal 9"),
            ({TOPIC: FENCE}, {0: 11, 1: 7}, f"{TOPIC}-0: the log ends at 10, not at its seal 11"),
            ({TOPIC: replace(FENCE, proved={0: 4})}, {0: 10, 1: 7}, f"{TOPIC}-1: its leader does not refuse data"),
            ({TOPIC: replace(FENCE, proved={0: 3, 1: 6})}, {0: 10, 1: 7}, f"{TOPIC}-0: its leader does not refuse"),
            ({TOPIC: replace(FENCE, failure=ClusterError("denied"))}, {0: 10, 1: 7}, "denied"),
        ],
    )
    def test_a_log_that_has_grown_or_a_leader_that_takes_data_keeps_the_topic(
        self, cluster: OverFakes, found: dict[str, FenceFacts], seals: dict[int, int], says: str
    ) -> None:
        self.found = found
        assert says in str(refused(cluster, replace(self.EFFECT, seal_offsets=seals)))
        assert cluster.fakes.sent("DeleteTopics") == []

    def test_another_topic_of_the_name_is_not_deleted(self, cluster: OverFakes) -> None:
        cluster.fakes.topic_id = uuid.UUID(int=6)
        assert refused(cluster, self.EFFECT).code is ErrorCode.UNKNOWN_TOPIC_ID
        assert cluster.fakes.sent("DeleteTopics") == []

    def test_nothing_is_sent_once_the_lease_is_over(self, cluster: OverFakes) -> None:
        asked: list[int] = []

        def check() -> None:
            asked.append(len(cluster.fakes.asked))
            if len(asked) > 1:
                raise ClusterError("the lease is over", code=ErrorCode.REQUEST_TIMED_OUT)

        (error,) = cluster.perform([self.EFFECT], check)
        assert "the lease is over" in str(error)
        assert asked[0] == 0, "first of all"
        assert asked[1] == len(cluster.fakes.asked), "and last of all"
        assert cluster.fakes.sent("DeleteTopics") == []


class TestCommitOffsets:
    EFFECT = CommitOffsets(TOPIC, TOPIC_ID, "readers", {0: 3, 1: 7})

    def test_the_coordinator_takes_it_from_nobody_s_member(self, cluster: OverFakes) -> None:
        assert cluster.perform([self.EFFECT]) == [None]
        assert cluster.fakes.asked_for("OffsetCommit") == [cluster.fakes.coordinator("readers")]
        (sent,) = cluster.fakes.sent("OffsetCommit")
        assert (sent.group_id, sent.member_id, sent.generation_id_or_member_epoch) == ("readers", "", -1)
        assert [(p.partition_index, p.committed_offset) for p in sent.topics[0].partitions] == [(0, 3), (1, 7)]

    def test_a_partition_that_is_refused(self, cluster: OverFakes) -> None:
        """A group with members takes no commits from outside."""
        node = cluster.fakes.coordinator("readers")
        cluster.fakes.codes[node, "OffsetCommit"] = [0, KafkaError.UNKNOWN_MEMBER_ID]
        assert f"commit the offset of group 'readers' on {TOPIC}-1" in str(refused(cluster, self.EFFECT))
        cluster.fakes.codes[1, "FindCoordinator"] = [KafkaError.COORDINATOR_NOT_AVAILABLE] * 2
        assert f"commit the offset of group 'readers' on topic {TOPIC!r}" in str(refused(cluster, self.EFFECT))
        assert len(cluster.fakes.asked_for("OffsetCommit")) == 1


def test_groups_are_never_looked_up_through_librdkafkas_admin_client() -> None:
    """librdkafka aborts the process when such a request times out while the coordinator is away."""
    deadly = re.compile(
        r"\.(alter_consumer_group_offsets|(delete|describe|list)_consumer_groups|list_consumer_group_offsets)\b"
    )
    assert [name for name, path in modules().items() if deadly.search(path.read_text(encoding="utf-8"))] == []


def test_broker_that_is_not_the_controller_is_followed_by_the_one_that_is(cluster: OverFakes) -> None:
    cluster.fakes.controller = 2
    cluster.fakes.codes[1, "CreatePartitions"] = [KafkaError.NOT_CONTROLLER]
    assert cluster.perform([CreatePartitions(TOPIC, TOPIC_ID, 4, None)]) == [None]
    assert cluster.fakes.asked_for("CreatePartitions") == [1, 2]


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
        (CreateTopic(TOPIC, TOPIC_ID, "orders-v2", 4, -1), "CreateTopics", KafkaError.NOT_CONTROLLER),
        (FenceTopic(TOPIC, TOPIC_ID, FENCE_CONFIGS), "IncrementalAlterConfigs", KafkaError.NOT_CONTROLLER),
        (CommitOffsets(TOPIC, TOPIC_ID, "readers", {0: 3, 1: 7}), "OffsetCommit", KafkaError.NOT_COORDINATOR),
    ],
    ids=["delete", "create", "succeed", "fence", "commit"],
)
def test_lease_is_checked_right_before_each_request(effect: Effect, name: str, moved: int) -> None:
    """After everything else that is sent, again before a second try; an expired lease sends nothing."""
    fakes, seen = TopicBrokers(), []
    OverFakes(fakes).perform([effect], lambda: seen.append([sent for _, sent in fakes.asked]))
    names = [sent for _, sent in fakes.asked]
    assert seen[-1] == names[: names.index(name)]
    assert not any(name in before for before in seen)
    for tries in (0, 1):
        fakes = TopicBrokers()
        fakes.controller = 2
        for node in fakes.nodes:
            fakes.codes[node, name] = [moved]

        def check(fakes: TopicBrokers = fakes, tries: int = tries) -> None:
            if len(fakes.asked_for(name)) >= tries:
                raise Expired

        with pytest.raises(Expired):
            OverFakes(fakes).perform([effect], check)
        assert bool(fakes.asked_for(name)) is bool(tries)


def test_after_the_lease_nothing_is_asked_for_commits(cluster: OverFakes) -> None:
    """Each would take three requests, and the election waits for all."""
    late = ClusterError("put off", code=ErrorCode.REQUEST_TIMED_OUT)

    def check() -> None:
        raise late

    assert cluster.perform([CommitOffsets(TOPIC, TOPIC_ID, f"g{n}", {0: 1}) for n in range(3)], check) == [late] * 3
    assert cluster.fakes.asked == []


def test_growths_are_requested_together_up_to_what_a_controller_takes(
    cluster: OverFakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "RECORDS_A_REQUEST", 10)
    growths = [CreatePartitions(f"t{n}", TOPIC_ID, count, None) for n, count in enumerate((4, 6, 1, 99, 2))]
    assert cluster.validate(growths) == [None] * 5
    assert [[topic.name for topic in sent.topics] for sent in cluster.fakes.sent("CreatePartitions")] == [
        ["t0", "t1"],
        ["t2"],
        ["t3"],
        ["t4"],
    ]


def test_new_topics_and_fences_of_many_topics_take_one_request_each(cluster: OverFakes) -> None:
    """One that is refused fails alone; so does one whose topic is another one by now."""
    exists, denied = KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.fakes.codes = {(1, "CreateTopics"): [exists], (1, "IncrementalAlterConfigs"): [denied]}
    creations: list[Effect] = [CreateTopic(TOPIC, TOPIC_ID, "orders-v2", 1, -1), CreateTopic("t1", "id", "t1-v2", 2, 3)]
    fences: list[Effect] = [FenceTopic("t1", "id", FENCE_CONFIGS), FenceTopic(TOPIC, TOPIC_ID, FENCE_CONFIGS)]
    found = cluster.perform([*creations, *fences])
    assert [None if error is None else (error.code, error.topic) for error in found] == [
        (exists, TOPIC),
        (ErrorCode.UNKNOWN_TOPIC_ID, "t1"),
        (ErrorCode.UNKNOWN_TOPIC_ID, "t1"),
        (denied, TOPIC),
    ]
    assert [[topic.name for topic in sent.topics] for sent in cluster.fakes.sent("CreateTopics")] == [["orders-v2"]]
    (fence,) = cluster.fakes.sent("IncrementalAlterConfigs")
    assert [resource.resource_name for resource in fence.resources] == [TOPIC]
    assert cluster.validate(creations) == [None, None]
    assert [topic.name for topic in cluster.fakes.sent("CreateTopics")[1].topics] == ["orders-v2", "t1-v2"]


def test_configs_are_removed_within_the_lease_in_one_request_for_all(cluster: OverFakes) -> None:
    names = tuple(FENCE_CONFIGS)
    effects: list[Effect] = [
        RemoveConfigs(TOPIC, TOPIC_ID, names, "old"),
        RemoveConfigs("t1", "another", names[:1], "older"),
    ]
    checks: list[int] = []
    done, replaced = cluster.perform(effects, lambda: checks.append(len(cluster.fakes.asked)))
    assert done is None
    assert replaced.code is ErrorCode.UNKNOWN_TOPIC_ID
    (sent,) = cluster.fakes.sent("IncrementalAlterConfigs")
    assert [(r.resource_name, [(c.name, c.value) for c in r.configs]) for r in sent.resources] == [
        (TOPIC, [(name, None) for name in names])
    ]
    assert len(checks) == 1


def test_a_leader_that_does_not_answer_is_waited_for_once_whatever_the_number_of_epochs(fakes: TopicBrokers) -> None:
    fakes.silent = {2}
    wanted = {(TOPIC, partition): range(1, 9) for partition in fakes.led}
    assert epoch_ends(cast(Any, fakes), wanted) == {(TOPIC, 0, epoch): 10 * epoch for epoch in range(1, 9)}
    assert fakes.asked_for("OffsetForLeaderEpoch").count(2) == 1

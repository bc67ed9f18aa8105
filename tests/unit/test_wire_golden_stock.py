"""Messages whose api Kafka has as well, in every version, byte for byte: ApiVersions, CreatePartitions and Metadata,
whose version 10 is KIP-694's. The expected bytes are put together by hand, line by line of the layout: the KIP's, and
that of Kafka's protocol guide. Both ways: encoded, and decoded again.
"""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.wire import codec, kip694, stock
from tests.support.golden import check_request, check_response
from tests.support.wire_bytes import VersionedWire, Wire, request_header, response_header

# Kafka's, of which the endpoint is the server.


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_request(version: int) -> None:
    topic = codec.CreatePartitionsRequest.CreatePartitionsTopic
    assignment = topic.CreatePartitionsAssignment
    message = codec.CreatePartitionsRequest(
        topics=[
            topic(name="a", count=6, assignments=[assignment(broker_ids=[0, 1]), assignment(broker_ids=[])]),
            topic(name="b", count=3, assignments=None),
        ],
        timeout_ms=10,
        validate_only=True,
    )
    expected = request_header(37, version, flexible=version >= 2)
    expected.array(2)  # topics => name count [assignments]
    expected.text("a").INT32(6).array(2).int32s(0, 1).tags().int32s().tags().tags()
    expected.text("b").INT32(3).array(None).tags()
    expected.INT32(10).BOOLEAN(True).tags()  # timeout_ms, validate_only
    decoded = check_request(message, version, expected)
    assert [t.assignments and [a.broker_ids for a in t.assignments] for t in decoded.topics] == [[[0, 1], []], None]


@pytest.mark.parametrize("version", range(4))
def test_create_partitions_response(version: int) -> None:
    message = codec.CreatePartitionsResponse(throttle_time_ms=1, results=[("a", 0, None), ("b", 37, "fewer")])
    expected = response_header(flexible=version >= 2)
    expected.INT32(1).array(2).text("a").INT16(0).text(None).tags().text("b").INT16(37).text("fewer").tags().tags()
    check_response(message, version, expected)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_request(version: int) -> None:
    message = stock.ApiVersionsRequest(client_software_name="modeaware", client_software_version="1.0")
    expected = request_header(18, version, flexible=version >= 3)
    if version >= 3:
        expected.COMPACT_STRING("modeaware").COMPACT_STRING("1.0").TAG_BUFFER()
    check_request(message, version, expected)


@pytest.mark.parametrize("version", range(5))
def test_api_versions_response(version: int) -> None:
    response = stock.ApiVersionsResponse
    message = response(
        error_code=0,
        api_keys=[(3, 0, 9), (18, 0, 4)],
        throttle_time_ms=2,
        supported_features=[(kip694.FEATURE, 1, 1)],
        finalized_features_epoch=9,
        finalized_features=[("metadata.version", 29, 1)],
    )
    expected = response_header(flexible=version >= 3, tags=False)  # KIP-511: the header never has tags
    expected.INT16(0).array(2).INT16(3).INT16(0).INT16(9).tags().INT16(18).INT16(0).INT16(4).tags()
    if version >= 1:
        expected.INT32(2)
    expected.tags(
        _0=Wire().COMPACT_ARRAY(1).COMPACT_STRING("partition.mode").INT16(1).INT16(1).TAG_BUFFER(),
        _1=Wire().INT64(9),
        _2=Wire().COMPACT_ARRAY(1).COMPACT_STRING("metadata.version").INT16(29).INT16(1).TAG_BUFFER(),
    )
    decoded = check_response(message, version, expected)
    if version >= 3:
        assert [(f.name, f.min_version, f.max_version) for f in decoded.supported_features] == [
            ("partition.mode", 1, 1)
        ]
        assert decoded.finalized_features_epoch == 9


# Metadata: KIP-694 "MetaData API" is version 10, Kafka's protocol guide has 0 to 9.


@pytest.mark.parametrize("topics", [("orders", "b"), (), None], ids=["two", "none", "all"])
@pytest.mark.parametrize("version", range(11))
def test_metadata_request(version: int, topics: tuple[str, ...] | None) -> None:
    if topics is None and version == 0:
        topics = ()
    request = stock.MetadataRequest
    message = request(
        topics=None if topics is None else [request.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    expected = request_header(3, version, flexible=version >= 9)
    expected.array(None if topics is None else len(topics))  # [topics]
    for name in topics or ():
        expected.text(name).tags()  # topics => name TAG_BUFFER
    if version >= 4:
        expected.BOOLEAN(False)  # allow_auto_topic_creation => BOOLEAN
    if version >= 8:
        expected.BOOLEAN(False)  # include_cluster_authorized_operations => BOOLEAN
        expected.BOOLEAN(True)  # include_topic_authorized_operations => BOOLEAN
    expected.tags()
    decoded = check_request(message, version, expected)
    assert (None if decoded.topics is None else tuple(t.name for t in decoded.topics)) == topics


def test_metadata_request_10_with_the_fields_of_ours() -> None:
    message = kip694.ModesRequest(topics=None, modes_only=True, fresh=True)
    expected = request_header(3, 10, flexible=True)
    expected.COMPACT_ARRAY(None).BOOLEAN(True).BOOLEAN(False).BOOLEAN(False)
    expected.TAG_BUFFER(_0=Wire().BOOLEAN(True), _1=Wire().BOOLEAN(True))
    check_request(message, 10, expected)
    assert kip694.encode_modes_request(message, 7, "me") == expected.made
    header, decoded = kip694.decode_modes_request(expected.made)
    assert (header.api_version, decoded.modes_only, decoded.fresh) == (10, True, True)


def test_metadata_request_10_that_asks_what_became_of_topics() -> None:
    topic = kip694.ModesRequest.MetadataRequestTopic
    message = kip694.ModesRequest(topics=[topic(name="t")], fresh=True, held_topic_ids=["ASNFZ4mrze8BI0VniavN7w"])
    expected = request_header(3, 10, flexible=True)
    expected.COMPACT_ARRAY(1).COMPACT_STRING("t").tags().BOOLEAN(True).BOOLEAN(False).BOOLEAN(False)
    held = Wire().COMPACT_ARRAY(1).COMPACT_STRING("ASNFZ4mrze8BI0VniavN7w")
    expected.TAG_BUFFER(_1=Wire().BOOLEAN(True), _2=held)
    decoded = check_request(message, 10, expected)
    assert decoded.held_topic_ids == ["ASNFZ4mrze8BI0VniavN7w"]


def metadata_response(**of_ours: Any) -> Any:
    response = stock.MetadataResponse
    topic, broker = response.MetadataResponseTopic, response.MetadataResponseBroker
    partition = topic.MetadataResponsePartition
    node = {
        "leader_id": 1,
        "leader_epoch": 12,
        "replica_nodes": [1, 2, 3],
        "isr_nodes": [1, 2],
        "offline_replicas": [3],
    }
    return response(
        throttle_time_ms=3,
        brokers=[
            broker(node_id=1, host="one.example.com", port=9092, rack="r1"),
            broker(node_id=2, host="two.example.com", port=9093, rack=None),
        ],
        cluster_id="the-cluster",
        controller_id=2,
        topics=[
            topic(
                error_code=0,
                name="orders",
                is_internal=True,
                partitions=[
                    partition(error_code=0, partition_index=0, mode=0, **node),
                    partition(error_code=5, partition_index=1, mode=1, **node),
                    partition(error_code=0, partition_index=2, mode=-1, **node),
                ],
                topic_authorized_operations=0b1100,
                **of_ours,
            ),
            topic(error_code=3, name="none", is_internal=False, partitions=[]),
        ],
        cluster_authorized_operations=0b1000,
    )


def metadata_response_bytes(version: int) -> VersionedWire:
    expected = response_header(flexible=version >= 9)
    if version >= 3:
        expected.INT32(3)  # throttle_time_ms => INT32
    expected.array(2)  # brokers => node_id host port rack TAG_BUFFER
    for node_id, host, port, rack in ((1, "one.example.com", 9092, "r1"), (2, "two.example.com", 9093, None)):
        expected.INT32(node_id).text(host).INT32(port)
        if version >= 1:
            expected.text(rack)
        expected.tags()
    if version >= 2:
        expected.text("the-cluster")  # cluster_id
    if version >= 1:
        expected.INT32(2)  # controller_id => INT32
    expected.array(2)  # topics => error_code name is_internal [partitions] topic_authorized_operations TAG_BUFFER
    for error_code, name, is_internal, partitions in (
        (0, "orders", True, ((0, 0), (5, 1), (0, -1))),
        (3, "none", False, ()),
    ):
        expected.INT16(error_code)  # error_code => INT16
        expected.text(name)  # name => COMPACT_STRING
        if version >= 1:
            expected.BOOLEAN(is_internal)  # is_internal => BOOLEAN
        expected.array(len(partitions))
        for index, (partition_error, mode) in enumerate(partitions):
            expected.INT16(partition_error)  # error_code => INT16
            expected.INT32(index)  # partition_index => INT32
            expected.INT32(1)  # leader_id => INT32
            if version >= 7:
                expected.INT32(12)  # leader_epoch => INT32
            expected.int32s(1, 2, 3)  # [replica_nodes]
            expected.int32s(1, 2)  # [isr_nodes]
            if version >= 5:
                expected.int32s(3)  # [offline_replicas]
            if version >= 10:
                expected.INT8(mode)  # mode => INT8
            expected.tags()
        if version >= 8:
            expected.INT32(0b1100 if name == "orders" else -(2**31))  # topic_authorized_operations => INT32
        expected.tags()
    if version >= 8:
        expected.INT32(0b1000)  # cluster_authorized_operations => INT32
    return expected.tags()


@pytest.mark.parametrize("version", range(11))
def test_metadata_response(version: int) -> None:
    decoded = check_response(metadata_response(), version, metadata_response_bytes(version))
    orders, none = decoded.topics
    assert [p.mode for p in orders.partitions] == ([0, 1, -1] if version == 10 else [0, 0, 0])
    assert (none.name, none.error_code, none.partitions) == ("none", 3, [])


def test_kafkas_version_9_becomes_kip_694s_version_10() -> None:
    _, message = stock.decode_response(metadata_response_bytes(9).made, 3, 9)
    for partition, mode in zip(message.topics[0].partitions, (0, 1, -1), strict=True):
        partition.mode = mode
    assert kip694.encode_modes_response(message, 7) == metadata_response_bytes(10).made


def test_metadata_response_10_with_the_fields_of_ours() -> None:
    response = kip694.ModesResponse
    topic = response.MetadataResponseTopic
    partition = topic.MetadataResponsePartition
    message = response(
        throttle_time_ms=0,
        brokers=[],
        cluster_id=None,
        controller_id=kip694.ENDPOINT_NODE_ID,
        topics=[
            topic(
                error_code=0,
                name="t",
                is_internal=False,
                partitions=[
                    partition(
                        error_code=5,
                        partition_index=0,
                        leader_id=-1,
                        leader_epoch=-1,
                        replica_nodes=[],
                        isr_nodes=[],
                        offline_replicas=[],
                        mode=-1,
                        resume_offset=2**40,
                        reclaimed=True,
                        handed_over=True,
                    )
                ],
                topic_id="ASNFZ4mrze8BI0VniavN7w",
                controller_epoch=3,
                mode_epoch=2**33,
                previous_counts=[12, 2**20],
            )
        ],
        controller_name="c-1",
        removed_topic_ids=["Q2ZXPTAxMjM0NTY3ODlhYg"],
    )
    expected = response_header(flexible=True).INT32(0).COMPACT_ARRAY(0).COMPACT_STRING(None).INT32(694_694_694)
    expected.COMPACT_ARRAY(1).INT16(0).COMPACT_STRING("t").BOOLEAN(False)
    expected.COMPACT_ARRAY(1).INT16(5).INT32(0).INT32(-1).INT32(-1)
    expected.COMPACT_ARRAY(0).COMPACT_ARRAY(0).COMPACT_ARRAY(0).INT8(-1)
    expected.TAG_BUFFER(_0=Wire().INT64(2**40), _1=Wire().BOOLEAN(True), _2=Wire().BOOLEAN(True))
    expected.INT32(-(2**31))
    topic_id, counts = Wire().COMPACT_STRING("ASNFZ4mrze8BI0VniavN7w"), Wire().COMPACT_ARRAY(2).INT32(12).INT32(2**20)
    expected.TAG_BUFFER(_0=topic_id, _1=Wire().INT64(3), _2=Wire().INT64(2**33), _3=counts)
    expected.INT32(-(2**31)).TAG_BUFFER(
        _0=Wire().COMPACT_STRING("c-1"), _1=Wire().COMPACT_ARRAY(1).COMPACT_STRING("Q2ZXPTAxMjM0NTY3ODlhYg")
    )
    decoded = check_response(message, 10, expected)
    (one,) = kip694.decode_modes_response(expected.made)[1].topics[0].partitions
    assert (one.mode, one.resume_offset, one.reclaimed, one.handed_over) == (-1, 2**40, True, True)
    told = decoded.topics[0]
    assert (decoded.controller_name, told.mode_epoch, told.previous_counts) == ("c-1", 2**33, [12, 2**20])
    assert decoded.removed_topic_ids == ["Q2ZXPTAxMjM0NTY3ODlhYg"]


def test_a_peer_that_knows_no_tags_of_ours_gives_their_defaults() -> None:
    """A broker that implements KIP-694 answers so."""
    _, message = kip694.decode_modes_response(metadata_response_bytes(10).made)
    topic = message.topics[0]
    assert (topic.topic_id, topic.controller_epoch, topic.mode_epoch, message.controller_name) == (None, -1, -1, None)
    assert (message.removed_topic_ids, topic.previous_counts) == ([], [])
    assert [(p.resume_offset, p.reclaimed, p.handed_over) for p in topic.partitions] == [(-1, False, False)] * 3

"""Messages that are ours or KIP-694's alone, byte for byte. The expected bytes are put together by hand, line by line
of the KIP's layout where it has one. Both ways: encoded, and decoded again.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from modeaware.wire import codec, kip694
from tests.support.golden import check_request, check_response
from tests.support.wire_bytes import Wire, request_header, response_header

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")


# KIP-694 "DeletePartitions API". Where the KIP contradicts itself, the schema says what it is taken to mean.


def test_delete_partitions_request_0() -> None:
    topic = codec.DeletePartitionsRequest.DeletePartitionsTopic
    message = codec.DeletePartitionsRequest(
        timeout_ms=30_000,
        immediate_delete=True,
        delete_partitions_delay=86_400_000,
        topics=[
            topic(name="orders", partitions=4),
            topic(name="ü", partitions=1, accept_state_loss=["app", "b"], evacuate=True),
        ],
    )
    expected = request_header(694, 0, flexible=True)
    expected.INT32(30_000)  # timeout_ms => INT32
    expected.BOOLEAN(True)  # immediate_delete
    expected.INT64(86_400_000)  # delete_partitions_delay => LONG
    expected.COMPACT_ARRAY(2)  # topics => name [partitions] TAG_BUFFER
    expected.COMPACT_STRING("orders").INT32(4).TAG_BUFFER()
    expected.COMPACT_STRING("ü").INT32(1)
    accepted = Wire().COMPACT_ARRAY(2).COMPACT_STRING("app").COMPACT_STRING("b")
    expected.TAG_BUFFER(_0=accepted, _1=Wire().BOOLEAN(True))  # ours
    expected.TAG_BUFFER()
    decoded = check_request(message, 0, expected)
    assert (decoded.timeout_ms, decoded.immediate_delete, decoded.delete_partitions_delay) == (30_000, True, 86_400_000)
    assert [(t.name, t.partitions, t.accept_state_loss, t.evacuate) for t in decoded.topics] == [
        ("orders", 4, [], False),
        ("ü", 1, ["app", "b"], True),
    ]


def test_delete_partitions_response_0() -> None:
    topic = codec.DeletePartitionsResponse.DeletePartitionsTopicResult
    partition = topic.DeletePartitionsPartitionResult
    message = codec.DeletePartitionsResponse(
        throttle_time_ms=5,
        error_code=41,
        error_message="not the controller",
        responses=[
            topic(
                name="orders",
                partitions=[
                    partition(partition_index=4, status_code=1, error_code=0, error_message=None),
                    partition(partition_index=5, status_code=-1, error_code=87, error_message="no"),
                ],
            )
        ],
    )
    expected = response_header(flexible=True)
    expected.INT32(5)  # throttle_time_ms => INT32
    expected.INT16(41)  # error_code => INT16
    expected.COMPACT_STRING("not the controller")  # error_message
    expected.COMPACT_ARRAY(1)  # responses => name [partitions] TAG_BUFFER
    expected.COMPACT_STRING("orders")  # name => COMPACT_STRING
    expected.COMPACT_ARRAY(2)  # partitions => partition_index status_code error_code error_message TAG_BUFFER
    expected.INT32(4).INT8(1).INT16(0).COMPACT_STRING(None).TAG_BUFFER()
    expected.INT32(5).INT8(-1).INT16(87).COMPACT_STRING("no").TAG_BUFFER()
    expected.TAG_BUFFER()
    expected.TAG_BUFFER()
    decoded = check_response(message, 0, expected)
    assert (decoded.throttle_time_ms, decoded.error_code, decoded.error_message) == (5, 41, "not the controller")
    assert [(p.partition_index, p.status_code, p.error_code) for p in decoded.responses[0].partitions] == [
        (4, 1, 0),
        (5, -1, 87),
    ]


# Ours alone.


def test_alter_group_rules_request_0() -> None:
    request = codec.AlterGroupRulesRequest
    message = request(
        timeout_ms=1000,
        add=[
            request.GroupRuleToAdd(
                kind="waive",
                group="tmp-*",
                topic="orders",
                reason="a test",
                created_ms=1_700_000_000_000,
                expires_ms=-1,
                uncommitted_only=True,
            )
        ],
        remove=[request.GroupRuleToRemove(kind="closed", group="", topic="*")],
    )
    expected = request_header(695, 0, flexible=True, client_id=None)
    expected.INT32(1000)
    expected.COMPACT_ARRAY(1).COMPACT_STRING("waive").COMPACT_STRING("tmp-*").COMPACT_STRING("orders")
    expected.COMPACT_STRING("a test").INT64(1_700_000_000_000).INT64(-1).BOOLEAN(True).TAG_BUFFER()
    expected.COMPACT_ARRAY(1).COMPACT_STRING("closed").COMPACT_STRING("").COMPACT_STRING("*").TAG_BUFFER()
    expected.TAG_BUFFER()
    check_request(message, 0, expected, client_id=None)


def test_alter_group_rules_response_0() -> None:
    message = codec.AlterGroupRulesResponse(throttle_time_ms=0, error_code=42, error_message="no such rule")
    expected = response_header(flexible=True).INT32(0).INT16(42).COMPACT_STRING("no such rule").TAG_BUFFER()
    check_response(message, 0, expected)


# KIP-694 "UpdateMeta API".


def test_update_metadata_request_7() -> None:
    request = kip694.UpdateMetadataRequest
    topic, broker = request.UpdateMetadataTopicState, request.UpdateMetadataBroker
    message = request(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=2**35,
        topic_states=[
            topic(
                topic_name="orders",
                partition_states=[
                    topic.UpdateMetadataPartitionState(
                        partition_index=4,
                        controller_epoch=2,
                        leader=1,
                        leader_epoch=9,
                        isr=[1, 2],
                        zk_version=11,
                        replicas=[1, 2, 3],
                        offline_replicas=[3],
                        mode=1,
                    )
                ],
            )
        ],
        live_brokers=[
            broker(
                id=1,
                endpoints=[broker.UpdateMetadataEndpoint(port=9092, host="h", listener="PLAIN", security_protocol=0)],
                rack=None,
            )
        ],
    )
    expected = request_header(6, 7, flexible=True)
    expected.INT32(1)  # controller_id => INT32
    expected.INT32(2)  # controller_epoch => INT32
    expected.INT64(2**35)  # broker_epoch => INT64
    expected.COMPACT_ARRAY(1)  # topic_states => topic_name [partition_states] TAG_BUFFER
    expected.COMPACT_STRING("orders")  # topic_name => COMPACT_STRING
    expected.COMPACT_ARRAY(1)
    expected.INT32(4)  # partition_index => INT32
    expected.INT32(2)  # controller_epoch => INT32
    expected.INT32(1)  # leader => INT32
    expected.INT32(9)  # leader_epoch => INT32
    expected.int32s(1, 2)  # [isr]
    expected.INT32(11)  # zk_version => INT32
    expected.int32s(1, 2, 3)  # [replicas]
    expected.int32s(3)  # [offline_replicas]
    expected.INT8(1)  # mode => INT8
    expected.TAG_BUFFER()
    expected.TAG_BUFFER()
    expected.COMPACT_ARRAY(1)  # live_brokers => id [endpoints] rack TAG_BUFFER
    expected.INT32(1)  # id => INT32
    expected.COMPACT_ARRAY(1)  # endpoints => port host listener security_protocol TAG_BUFFER
    expected.INT32(9092)  # port => INT32
    expected.COMPACT_STRING("h")  # host => COMPACT_STRING
    expected.COMPACT_STRING("PLAIN")  # listener => COMPACT_STRING
    expected.INT16(0)  # security_protocol => INT16
    expected.TAG_BUFFER()
    expected.COMPACT_STRING(None)  # rack
    expected.TAG_BUFFER()
    expected.TAG_BUFFER()
    decoded = check_request(message, 7, expected)
    assert decoded.topic_states[0].partition_states[0].mode == 1
    assert kip694.UPDATE_METADATA.decode_request(expected.made)[0].api_version == 7


def test_update_metadata_response_7() -> None:
    expected = response_header(flexible=True).INT16(11).TAG_BUFFER()
    assert check_response(kip694.UpdateMetadataResponse(error_code=11), 7, expected).error_code == 11


# KIP-694 "Metadata Changes". The KIP gives these records no flexible versions: plain arrays, no tags.


@pytest.mark.parametrize("moving", [(None, None), ([3], [4, 5])])
def test_partition_record(moving: tuple[list[int] | None, list[int] | None]) -> None:
    removing, adding = moving
    record = kip694.PartitionRecord(
        partition_id=4,
        topic_id=TOPIC_ID,
        replicas=[1, 2, 3],
        isr=[1],
        removing_replicas=removing,
        adding_replicas=adding,
        leader=1,
        leader_epoch=8,
        mode=-1,
    )
    expected = Wire()
    expected.INT32(4)  # PartitionId int32
    expected.UUID(TOPIC_ID)  # TopicId uuid
    expected.INT32S([1, 2, 3], compact=False)  # Replicas []int32
    expected.INT32S([1], compact=False)  # Isr []int32
    for nodes in moving:  # RemovingReplicas []int32, AddingReplicas []int32: nullable
        expected.ARRAY(None) if nodes is None else expected.INT32S(nodes, compact=False)
    expected.INT32(1)  # Leader int32
    expected.INT32(8)  # LeaderEpoch int32
    expected.INT32(-1)  # Mode int32
    assert kip694.encode_record(record) == expected.made
    decoded = kip694.decode_record(kip694.PartitionRecord, expected.made)
    assert (decoded.topic_id, decoded.mode, decoded.removing_replicas) == (TOPIC_ID, -1, removing)
    assert kip694.encode_record(decoded) == expected.made


def test_a_partition_record_says_nothing_of_its_mode_and_is_read_write() -> None:
    assert kip694.encode_record(kip694.PartitionRecord(version=0, topic_id=TOPIC_ID)).endswith(Wire().INT32(0).made)


def test_delete_topic_partitions_record() -> None:
    record = kip694.DeleteTopicPartitionsRecord(
        topic_id=TOPIC_ID,
        delete_partitions=4,
        delete_partitions_delay_timestamp=1_700_000_086_400,
        create_timestamp=1_700_000_000_000,
    )
    expected = Wire()
    expected.UUID(TOPIC_ID)  # TopicId uuid
    expected.INT32(4)  # DeletePartitions int32
    expected.INT64(1_700_000_086_400)  # DeletePartitionsDelayTimestamp: the KIP's bool holds no timestamp
    expected.INT64(1_700_000_000_000)  # CreateTimestamp int64
    assert kip694.encode_record(record) == expected.made
    decoded = kip694.decode_record(kip694.DeleteTopicPartitionsRecord, expected.made)
    assert (decoded.topic_id, decoded.delete_partitions) == (TOPIC_ID, 4)
    assert kip694.encode_record(decoded) == expected.made

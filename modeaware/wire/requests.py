"""The requests to brokers (:mod:`modeaware.wire.brokers`): kafka-python's, and ours where kafka-python has no schema.

Message objects have the schema's fields as snake_case attributes. A response class registers itself by api key for the
whole process. Ours have api keys that kafka-python does not use, so none of its classes is replaced (a test checks it).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from modeaware.wire.codec import define_message

# isort: split
# After the codec, which raises an ImportError that explains how to install kafka-python.
from kafka.protocol.admin.acl import DescribeAclsRequest
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.admin.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.group import HeartbeatRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest

ConsumerGroupDescribeRequest = define_message("ConsumerGroupDescribeRequest")  # KIP-848
ConsumerGroupDescribeResponse = define_message("ConsumerGroupDescribeResponse", registered=True)
ShareGroupDescribeRequest = define_message("ShareGroupDescribeRequest")  # KIP-932
ShareGroupDescribeResponse = define_message("ShareGroupDescribeResponse", registered=True)
StreamsGroupDescribeRequest = define_message("StreamsGroupDescribeRequest")  # KIP-1071
StreamsGroupDescribeResponse = define_message("StreamsGroupDescribeResponse", registered=True)
# In its response, all records before a partition's ``start_offset`` are acknowledged.
DescribeShareGroupOffsetsRequest = define_message("DescribeShareGroupOffsetsRequest")  # KIP-932
DescribeShareGroupOffsetsResponse = define_message("DescribeShareGroupOffsetsResponse", registered=True)
AlterShareGroupOffsetsRequest = define_message("AlterShareGroupOffsetsRequest")  # KIP-932
AlterShareGroupOffsetsResponse = define_message("AlterShareGroupOffsetsResponse", registered=True)

RECORDS_A_REQUEST = 5_000
"""A request's limit for :func:`in_requests`: KRaft refuses one that would need more than 10 000 metadata records."""
_T = TypeVar("_T")


def in_requests(changes: Iterable[_T], records: Callable[[_T], int]) -> Iterator[list[_T]]:
    """Yield the changes in order, in lists that each fit into one request.

    A change above the limit is alone in its list.

    Args:
        records: returns how many records a change needs in the brokers' metadata.
    """
    some: list[_T] = []
    count = 0
    for change in changes:
        count += records(change)
        if some and count > RECORDS_A_REQUEST:
            yield some
            some, count = [], records(change)
        some.append(change)
    if some:
        yield some


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics in a classic group's member metadata (Kafka's ConsumerProtocolSubscription); none for b""."""
    return frozenset(_decoded(ConsumerProtocolSubscription, metadata).topics) if metadata else frozenset()


def assigned_partitions(assignment: bytes) -> frozenset[tuple[str, int]]:
    """Return the partitions in a classic member's assignment (Kafka's ConsumerProtocolAssignment); none for b""."""
    if not assignment:
        return frozenset()
    decoded = _decoded(ConsumerProtocolAssignment, assignment)
    return frozenset(
        (topic.topic, partition) for topic in decoded.assigned_partitions for partition in topic.partitions
    )


def _decoded(schema: Any, data: bytes) -> Any:
    # The bytes are a version, then the fields. Newer versions add fields at the end. The added fields are not decoded:
    # some clients send a version number without the fields that this version added.
    if len(data) < 2 or data[0] > 127:
        raise ValueError(f"not a {schema.__name__}: {len(data)} bytes that begin with no version")
    try:
        return schema.decode(b"\0\0" + data[2:])
    except (ValueError, TypeError, IndexError, AssertionError, OverflowError, struct.error) as error:
        raise ValueError(f"not a {schema.__name__}: {error}") from error

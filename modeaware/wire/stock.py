"""Kafka's own messages that the endpoint reads and changes on their way, in the versions it offers.

ApiVersions 0 to 4, Metadata 0 to 9 (its classes are those of :mod:`~modeaware.wire.kip694`, which add a version) and
CreatePartitions 0 to 3; and Metadata 10, which is only sent to brokers, because it returns topic ids. Tagged fields
that are not known are passed over when decoding, so they are gone when the message is encoded again. Importing this
needs kafka-python. All functions may be called from any thread.

In Metadata 0, an empty ``topics`` means all topics; from 1 on null does, and an empty one means none.
"""

from __future__ import annotations

from collections.abc import Iterable

from modeaware.wire.codec import (
    API_VERSIONS_KEY,
    CREATE_PARTITIONS_KEY,
    MESSAGES,
    METADATA_KEY,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    KafkaMetadataRequest,
    MetadataRequest,
    MetadataResponse,
)
from modeaware.wire.dialect import Dialect, Header, peek_header

__all__ = [
    "API_VERSIONS_KEY",
    "CREATE_PARTITIONS_KEY",
    "METADATA_KEY",
    "METADATA_WITHOUT_IDS",
    "METADATA_WITH_IDS",
    "SASL_AUTHENTICATE_KEY",
    "SASL_HANDSHAKE_KEY",
    "SUPPORTED_VERSIONS",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "Header",
    "MetadataRequest",
    "MetadataResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "is_supported",
    "metadata_question",
    "peek_header",
]

SASL_HANDSHAKE_KEY = 17
SASL_AUTHENTICATE_KEY = 36
"""Never decoded past the header."""
SUPPORTED_VERSIONS = {METADATA_KEY: (0, 9), API_VERSIONS_KEY: (0, 4), CREATE_PARTITIONS_KEY: (0, 3)}
"""api key -> (lowest, highest version)."""

_STOCK = Dialect(MESSAGES, SUPPORTED_VERSIONS)
is_supported = _STOCK.is_supported
encode_request = _STOCK.encode_request
decode_request = _STOCK.decode_request
encode_response = _STOCK.encode_response
decode_response = _STOCK.decode_response

METADATA_WITH_IDS = 10
"""The version of Kafka's Metadata that returns topic ids. Kafka 2.8 and later have it."""
METADATA_WITHOUT_IDS = METADATA_WITH_IDS - 1
_QUESTIONS = Dialect({METADATA_KEY: (KafkaMetadataRequest, None)}, {METADATA_KEY: (1, METADATA_WITH_IDS)})


def metadata_question(
    version: int,
    correlation_id: int,
    client_id: str | None,
    topics: Iterable[str] | None,
    *,
    creation: bool = False,
    cluster_operations: bool = False,
    topic_operations: bool = False,
) -> bytes:
    """A Metadata request's frame payload.

    Args:
        version: 1 to 10.
        topics: None for all.
        creation: the broker may create a missing topic.
        cluster_operations, topic_operations: the answer includes what the user may do (from version 8 on).
    """
    request = KafkaMetadataRequest(
        topics=None if topics is None else [KafkaMetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=creation,
        include_cluster_authorized_operations=cluster_operations,
        include_topic_authorized_operations=topic_operations,
    )
    return _QUESTIONS.encode_request(request, version, correlation_id, client_id)

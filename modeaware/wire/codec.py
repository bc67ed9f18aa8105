"""Kafka's messages as bytes and back: the codec of every transport, without IO.

A message travels as the payload of a frame (:mod:`modeaware.wire.frames`): a header, then the fields of its schema.
Message objects have these fields as snake_case attributes. The schemas of our own messages are in
``modeaware/wire/schemas``; those of CreatePartitions and ApiVersions are kafka-python's. Decoding is strict and bounded
(:mod:`modeaware.wire.strict`). All functions may be called from any thread.

Metadata has two forms of version 10. KIP-694's form is Kafka's version 9 with a mode at the end of each partition. Only
peers that have announced this form get it: a server by the feature ``partition.mode`` in ApiVersions, a client by its
software name. KIP-694's form is encoded and decoded here, with one class for all versions: a message decoded from
version 9 can get modes and be encoded as 10. Kafka's own version 10, with topic ids, is exchanged only with brokers
(:func:`metadata_question`). In Metadata 0, an empty ``topics`` means all topics; from version 1 on, null means all, and
an empty list means none.

Unknown tagged fields are skipped when decoding, so they are missing when the message is encoded again. This module and
:mod:`~modeaware.wire.requests` import kafka-python's schemas; kafka-python's own clients in the same process are not
affected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import new_class
from typing import Any, NamedTuple

from modeaware.errors import ModeAwareError
from modeaware.wire import schemas, strict
from modeaware.wire.frames import INT32, MAX_RESPONSE_BYTES, Header, MalformedFrame, TooManyParts, peek_header


class MissingExtra(ModeAwareError, ImportError):
    """An optional dependency is not installed."""


try:
    from kafka.protocol.admin.topics import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.metadata import MetadataRequest, MetadataResponse
    from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
except ImportError as error:
    raise MissingExtra(
        f"this needs kafka-python's protocol codec ({error}): install modeaware[controller] or modeaware[kafka-python]"
    ) from error

DELETE_PARTITIONS_KEY = 694
"""The api key of DeletePartitions: our choice, because KIP-694 leaves it open (``xxx``). The schema has it, too."""
ALTER_GROUP_RULES_KEY = 695
"""The api key of AlterGroupRules, a request of modeaware alone. The schema has it, too."""
REPLACE_TOPICS_KEY = 696
"""The api key of ReplaceTopics, a request of modeaware alone. The schema has it, too."""
METADATA_KEY, SASL_HANDSHAKE_KEY, API_VERSIONS_KEY, SASL_AUTHENTICATE_KEY, CREATE_PARTITIONS_KEY = 3, 17, 18, 36, 37
MODES_VERSION = 10
"""The version of KIP-694's Metadata."""
METADATA_WITH_IDS = 10
"""The version of Kafka's Metadata that returns topic ids. Kafka 2.8 and later have it."""
METADATA_WITHOUT_IDS = METADATA_WITH_IDS - 1
CREATE_TOPICS_KEY = 19
CREATION_VERSION = 5
"""The version of CreateTopics that is sent (:func:`creation_question`). Kafka 2.4 and later have it."""
CREATION_TIMEOUT_MS = 10_000
ENDPOINT_NODE_ID = 694_694_694
"""The broker id that stands, in a Metadata response, for the endpoint that made the response."""
ACTIVE_NODE_ID = 694_694_695
"""The broker id that stands for the active controller's endpoint, if another endpoint made the response."""


def define_message(name: str, *, registered: bool = False) -> Any:
    """Return the class of the messages of ``modeaware/wire/schemas/{name}.json``.

    Args:
        registered: whether the new class stays registered for its api key, so that kafka-python's clients in the whole
            process decode responses by it. By default kafka-python's own class, if any, is registered again.
    """
    registry = ResponseClassRegistry._response_class_registry
    before = dict(registry)
    defined: Any = new_class(name, (ApiMessage,), {"load_json": schemas})
    if not registered and defined.API_KEY in before:
        registry[defined.API_KEY] = before[defined.API_KEY]
    elif not registered:
        registry.pop(defined.API_KEY, None)
    return defined


DeletePartitionsRequest = define_message("DeletePartitionsRequest")
DeletePartitionsResponse = define_message("DeletePartitionsResponse")
AlterGroupRulesRequest = define_message("AlterGroupRulesRequest")
AlterGroupRulesResponse = define_message("AlterGroupRulesResponse")
ReplaceTopicsRequest = define_message("ReplaceTopicsRequest")
ReplaceTopicsResponse = define_message("ReplaceTopicsResponse")
ModesMetadataRequest = define_message("ModesMetadataRequest")
ModesMetadataResponse = define_message("ModesMetadataResponse")

MESSAGES: dict[int, tuple[Any, Any]] = {
    METADATA_KEY: (ModesMetadataRequest, ModesMetadataResponse),
    API_VERSIONS_KEY: (ApiVersionsRequest, ApiVersionsResponse),
    CREATE_PARTITIONS_KEY: (CreatePartitionsRequest, CreatePartitionsResponse),
    DELETE_PARTITIONS_KEY: (DeletePartitionsRequest, DeletePartitionsResponse),
    ALTER_GROUP_RULES_KEY: (AlterGroupRulesRequest, AlterGroupRulesResponse),
    REPLACE_TOPICS_KEY: (ReplaceTopicsRequest, ReplaceTopicsResponse),
}
"""api key -> (request class, response class)."""
VERSIONS = {
    METADATA_KEY: (0, MODES_VERSION),
    API_VERSIONS_KEY: (0, 4),
    CREATE_PARTITIONS_KEY: (0, 3),
    DELETE_PARTITIONS_KEY: (0, 0),
    ALTER_GROUP_RULES_KEY: (0, 0),
    REPLACE_TOPICS_KEY: (0, 0),
}
"""The versions that are encoded and decoded here: api key -> (lowest, highest)."""


class NewTopic(NamedTuple):
    """A topic for a CreateTopics request that is only validated."""

    name: str
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


REQUEST_LIMITS = strict.Budget(objects=4_096, string_bytes=32_767)
"""The limits of a request: any peer may send one, and each object takes some 10 us of time that all clients share. The
limits allow a thousand topics, or the assignments of two thousand new partitions. 32 767 is Kafka's own limit for a
string."""
METADATA_LIMITS = strict.Budget(objects=32_768, string_bytes=32_767)
"""The limits of a Metadata request: they allow eight thousand topics by name, and the ids of as many held topics."""
RESPONSE_LIMITS = strict.Budget(objects=16_777_216, string_bytes=MAX_RESPONSE_BYTES)
"""The limits of a response of a broker or controller: they allow Metadata of a million partitions."""


def is_supported(header: Header) -> bool:
    """Return whether a request with this header can be decoded here."""
    return _is_supported(header.api_key, header.api_version)


def encode_request(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return a request's frame payload."""
    return _encode(message, version, correlation_id=correlation_id, client_id=client_id)


def decode_request(payload: bytes) -> tuple[Header, Any]:
    """Return a supported request's header and message.

    Raises:
        MalformedFrame: the bytes are no supported request.
        TooManyParts: the request has more objects than :data:`REQUEST_LIMITS` or, for Metadata,
            :data:`METADATA_LIMITS` allows. A MalformedFrame, too.
    """
    header = peek_header(payload)
    if not is_supported(header):
        raise MalformedFrame(f"api key {header.api_key} version {header.api_version} is not supported")
    message_class, version = MESSAGES[header.api_key][0], header.api_version
    budget = replace(METADATA_LIMITS if header.api_key == METADATA_KEY else REQUEST_LIMITS)
    with _malformed(f"a request of api key {header.api_key} version {version}"):
        client_id, position = strict.read_nullable_string(payload, 8, budget)
        if message_class.flexible_version_q(version):
            position = strict.skip_tagged_fields(payload, position, budget)
        message = _read_to_end(message_class, payload, position, version, budget)
    return Header(header.api_key, version, header.correlation_id, client_id), message


def encode_response(message: Any, version: int, correlation_id: int) -> bytes:
    """Return a response's frame payload."""
    return _encode(message, version, correlation_id=correlation_id)


def decode_response(payload: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """Return a response's correlation id and message.

    An ApiVersions response with an error is read as version 0, in which brokers return UNSUPPORTED_VERSION;
    ``message.version`` is then 0. The header of an ApiVersions response has no tagged fields in any version (KIP-511).
    """
    if api_key == API_VERSIONS_KEY and payload[4:6] != b"\0\0":
        version = 0
    if not _is_supported(api_key, version):
        raise MalformedFrame(f"a response of api key {api_key} version {version} is not supported")
    return _decode_response(MESSAGES[api_key][1], payload, version)


def decode_metadata(payload: bytes, version: int) -> Any:
    """Return the message of a broker's response to Kafka's own Metadata, up to version 10."""
    return _decode_response(MetadataResponse, payload, version)[1]


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
    """Return the frame payload of a request of Kafka's own Metadata.

    Args:
        version: 1 to 10.
        topics: names of topics; None for all topics.
        creation: whether the broker may create a missing topic.
        cluster_operations, topic_operations: whether the answer is to include the operations for which the user is
            authorized on the cluster, or on each topic (from version 8 on).
    """
    request = MetadataRequest(
        topics=None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=creation,
        include_cluster_authorized_operations=cluster_operations,
        include_topic_authorized_operations=topic_operations,
    )
    return encode_request(request, version, correlation_id, client_id)


def creation_question(correlation_id: int, client_id: str | None, topics: Iterable[NewTopic]) -> bytes:
    """Return the frame payload of a CreateTopics request that is only validated: nothing is created."""
    topic = CreateTopicsRequest.CreatableTopic
    request = CreateTopicsRequest(
        topics=[
            topic(
                name=new.name,
                num_partitions=new.num_partitions,
                replication_factor=new.replication_factor,
                assignments=[],
                configs=[topic.CreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()],
            )
            for new in topics
        ],
        timeout_ms=CREATION_TIMEOUT_MS,
        validate_only=True,
    )
    return _encoded(request, CREATION_VERSION, correlation_id=correlation_id, client_id=client_id)


def decode_creation(payload: bytes) -> Any:
    """Return the message of a broker's response to :func:`creation_question`."""
    return _decode_response(CreateTopicsResponse, payload, CREATION_VERSION)[1]


def _is_supported(api_key: int, version: int) -> bool:
    lowest, highest = VERSIONS.get(api_key, (0, -1))
    return lowest <= version <= highest


def _encode(message: Any, version: int, **header: Any) -> bytes:
    if not _is_supported(message.API_KEY, version):
        raise ValueError(f"api key {message.API_KEY} version {version} is not supported")
    return _encoded(message, version, **header)


def _encoded(message: Any, version: int, **header: Any) -> bytes:
    message._header = None  # kafka-python would set the version in an earlier header; a response's header has none
    message.API_VERSION = version
    message.with_header(**header)
    return bytes(message.encode(header=True))


def _decode_response(message_class: Any, payload: bytes, version: int) -> tuple[int, Any]:
    budget = replace(RESPONSE_LIMITS)
    with _malformed(f"a response of api key {message_class.API_KEY} version {version}"):
        (correlation_id,) = INT32.unpack_from(payload)
        position = INT32.size
        if message_class.API_KEY != API_VERSIONS_KEY and message_class.flexible_version_q(version):
            position = strict.skip_tagged_fields(payload, position, budget)
        return correlation_id, _read_to_end(message_class, payload, position, version, budget)


def _read_to_end(message_class: Any, data: bytes, position: int, version: int, budget: strict.Budget) -> Any:
    message, position = strict.read_message(message_class, data, position, version, budget)
    if rest := len(data) - position:
        raise ValueError(f"{rest} bytes too many")
    return message


@contextmanager
def _malformed(what: str) -> Iterator[None]:
    """Turn errors of reading ``what`` into MalformedFrame."""
    try:
        yield
    except IndexError as error:
        raise MalformedFrame(f"{what} cannot be decoded: it ends too early") from error
    except (ValueError, struct.error) as error:
        kind = TooManyParts if isinstance(error, strict.OverBudget) else MalformedFrame
        raise kind(f"{what} cannot be decoded: {error}") from error

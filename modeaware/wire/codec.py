"""Messages of Kafka's protocol as bytes: the one place that imports kafka-python, and only its codec.

Our own messages are built from the schemas in ``modeaware/wire/schemas``; CreatePartitions and ApiVersions are
kafka-python's. Its own clients in the same process are not affected. Message objects have the schema's fields as
snake_case attributes. All functions may be called from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from modeaware.errors import ModeAwareError
from modeaware.wire import schemas
from modeaware.wire.frames import MalformedFrame


class MissingExtra(ModeAwareError, ImportError):
    """An optional dependency is not installed."""


try:
    from kafka.protocol.admin.topics import CreatePartitionsRequest, CreatePartitionsResponse
    from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.metadata.api_versions import ApiVersionsRequest, ApiVersionsResponse
except ImportError as error:
    raise MissingExtra(
        f"talking to the controller needs kafka-python's protocol codec ({error}): pip install 'modeaware[controller]'"
    ) from error

__all__ = [
    "ALTER_GROUP_RULES_KEY",
    "API_VERSIONS_KEY",
    "CREATE_PARTITIONS_KEY",
    "DELETE_PARTITIONS_KEY",
    "SUPPORTED_VERSIONS",
    "AlterGroupRulesRequest",
    "AlterGroupRulesResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "DeletePartitionsRequest",
    "DeletePartitionsResponse",
    "Header",
    "MissingExtra",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "is_supported",
    "peek_header",
]

DELETE_PARTITIONS_KEY = 694
"""The api key of DeletePartitions, which KIP-694 leaves open (``xxx``). The schemas carry the same number."""
ALTER_GROUP_RULES_KEY = 695
"""The api key of AlterGroupRules, which is ours alone. The schemas carry the same number."""
CREATE_PARTITIONS_KEY: int = CreatePartitionsRequest.API_KEY
API_VERSIONS_KEY: int = ApiVersionsRequest.API_KEY


@contextmanager
def _stock_response_class(api_key: int) -> Iterator[None]:
    """Define a response class without taking the place of kafka-python's own.

    A response class registers itself by api key for the whole process when it is defined, and kafka-python's clients
    decode every response by that registry.
    """
    registry = ResponseClassRegistry._response_class_registry
    stock = registry.get(api_key)
    try:
        yield
    finally:
        if stock is None:
            registry.pop(api_key, None)
        else:
            registry[api_key] = stock


class DeletePartitionsRequest(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
    """KIP-694's request: ``timeout_ms``, ``immediate_delete``, ``delete_partitions_delay``, ``topics``."""


with _stock_response_class(DELETE_PARTITIONS_KEY):

    class DeletePartitionsResponse(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
        """KIP-694's response: ``throttle_time_ms``, ``error_code``, ``error_message``, ``responses``."""


class AlterGroupRulesRequest(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
    """``timeout_ms``, ``add``, ``remove``."""


with _stock_response_class(ALTER_GROUP_RULES_KEY):

    class AlterGroupRulesResponse(ApiMessage, load_json=schemas):  # type: ignore[misc,call-arg,unused-ignore]  # untyped
        """``throttle_time_ms``, ``error_code``, ``error_message``."""


@dataclass(frozen=True)
class Header:
    """A request's header: which api in which version, whose answer goes to ``correlation_id``."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


_PREFIX = struct.Struct(">hhi")
_REQUESTS = {
    ALTER_GROUP_RULES_KEY: AlterGroupRulesRequest,
    API_VERSIONS_KEY: ApiVersionsRequest,
    CREATE_PARTITIONS_KEY: CreatePartitionsRequest,
    DELETE_PARTITIONS_KEY: DeletePartitionsRequest,
}
_RESPONSES = {
    ALTER_GROUP_RULES_KEY: AlterGroupRulesResponse,
    API_VERSIONS_KEY: ApiVersionsResponse,
    CREATE_PARTITIONS_KEY: CreatePartitionsResponse,
    DELETE_PARTITIONS_KEY: DeletePartitionsResponse,
}
SUPPORTED_VERSIONS = {key: (0, int(request.max_version)) for key, request in _REQUESTS.items()}
"""The versions spoken here: api key -> (lowest, highest)."""


def is_supported(header: Header) -> bool:
    """Whether a request with this header can be decoded here."""
    lowest, highest = SUPPORTED_VERSIONS.get(header.api_key, (0, -1))
    return lowest <= header.api_version <= highest


def peek_header(payload: bytes) -> Header:
    """The first fields of a request's header, which every version of every api has (no ``client_id``).

    Raises:
        MalformedFrame: the frame is too short to be a request.
    """
    if len(payload) < _PREFIX.size:
        raise MalformedFrame(f"a frame of {len(payload)} bytes is no request")
    return Header(*_PREFIX.unpack_from(payload))


def encode_request(message: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request's frame payload (without the length)."""
    message.API_VERSION = version
    message.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(message.encode(header=True))


def decode_request(payload: bytes) -> tuple[Header, Any]:
    """A supported request's header and message.

    Raises:
        MalformedFrame: the api or version is not supported, or the bytes do not follow its layout to the last one.
    """
    header = peek_header(payload)
    if not is_supported(header):
        raise MalformedFrame(f"api key {header.api_key} version {header.api_version} is not spoken here")
    message_class = _REQUESTS[header.api_key]
    with _malformed(f"a request of api key {header.api_key} version {header.api_version}"):
        data = _Exactly(payload)
        full = RequestHeader.decode(data, flexible=message_class.flexible_version_q(header.api_version))
        message = _decode_body(message_class, data, header.api_version)
    return Header(header.api_key, header.api_version, header.correlation_id, full.client_id), message


def encode_response(message: Any, version: int, correlation_id: int) -> bytes:
    """A response's frame payload (without the length)."""
    message.API_VERSION = version
    message.with_header(correlation_id=correlation_id)
    return bytes(message.encode(header=True))


def decode_response(payload: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """A response's correlation id and message.

    An ApiVersions response with an error is read as version 0, as Kafka has it.

    Raises:
        MalformedFrame: the bytes do not follow the response's layout to the last one.
    """
    message_class = _RESPONSES[api_key]
    with _malformed(f"a response of api key {api_key} version {version}"):
        data = _Exactly(payload)
        header = message_class.parse_header(data, version=version)
        if api_key == API_VERSIONS_KEY and payload[data.tell() : data.tell() + 2] != b"\0\0":
            version = 0
        return header.correlation_id, _decode_body(message_class, data, version)


class _Exactly(BytesIO):
    """Bytes that end is an error: kafka-python's tagged fields take what is left, however little it is."""

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is not None and len(data) < size:
            raise ValueError(f"{size} bytes are announced, {len(data)} are left")
        return data


def _decode_body(message_class: Any, data: BytesIO, version: int) -> Any:
    # Not ApiMessage.decode, whose generated code takes strings that are cut short and varints of any length.
    flexible = message_class.flexible_version_q(version)
    message = super(ApiMessage, message_class).decode(
        data, version=version, compact=flexible, tagged=flexible, data_class=message_class
    )
    if rest := len(data.getbuffer()) - data.tell():
        raise ValueError(f"{rest} bytes too many")
    return message


@contextmanager
def _malformed(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AssertionError, struct.error) as error:
        raise MalformedFrame(f"{what} cannot be decoded: {error}") from error

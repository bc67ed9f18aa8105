"""Kafka's own messages that the endpoint reads and changes on their way, in the versions it offers.

ApiVersions 0 to 4, Metadata 0 to 9 (its classes are those of :mod:`~modeaware.wire.kip694`, which add a version) and
CreatePartitions 0 to 3. Tagged fields that are not known are passed over when decoding, so they are gone when the
message is encoded again. Importing this needs kafka-python. All functions may be called from any thread.

In Metadata 0, an empty ``topics`` means all topics; from 1 on null does, and an empty one means none.
"""

from __future__ import annotations

from modeaware.wire.codec import (
    API_VERSIONS_KEY,
    CREATE_PARTITIONS_KEY,
    MESSAGES,
    METADATA_KEY,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from modeaware.wire.dialect import Dialect, Header, peek_header

__all__ = [
    "API_VERSIONS_KEY",
    "CREATE_PARTITIONS_KEY",
    "METADATA_KEY",
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

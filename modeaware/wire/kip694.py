"""KIP-694's own messages: Metadata version 10, where each partition has its mode, and what brokers keep and tell.

Metadata 10 is Kafka's version 9 with ``mode`` INT8 at the end of each partition. It is not Kafka's own version 10, so
it is for peers that have said they mean KIP-694's: a server by the feature ``partition.mode`` in ApiVersions, a client
by its software name. Importing this needs kafka-python. All functions may be called from any thread.
"""

from __future__ import annotations

from typing import Any

from modeaware.wire.api_versions import FEATURE, MODES_VERSION
from modeaware.wire.codec import (
    MESSAGES,
    METADATA_KEY,
)
from modeaware.wire.codec import MetadataRequest as ModesRequest
from modeaware.wire.codec import MetadataResponse as ModesResponse
from modeaware.wire.dialect import Dialect, Header

__all__ = [
    "ACTIVE_NODE_ID",
    "ENDPOINT_NODE_ID",
    "FEATURE",
    "METADATA_KEY",
    "MODES_VERSION",
    "ModesRequest",
    "ModesResponse",
    "decode_modes_request",
    "decode_modes_response",
    "encode_modes_request",
    "encode_modes_response",
]

ENDPOINT_NODE_ID = 694_694_694
"""The broker that stands for the endpoint that answers."""
ACTIVE_NODE_ID = 694_694_695
"""The broker that stands for the endpoint of the active controller, when that is another one."""

_MODES = Dialect(MESSAGES, {METADATA_KEY: (MODES_VERSION, MODES_VERSION)})


def encode_modes_request(message: Any, correlation_id: int, client_id: str | None) -> bytes:
    """A Metadata 10 request's frame payload (without the length)."""
    return _MODES.encode_request(message, MODES_VERSION, correlation_id, client_id)


def decode_modes_request(payload: bytes) -> tuple[Header, Any]:
    """A Metadata 10 request's header and message.

    Raises:
        MalformedFrame: it is none, or above the limits of a request.
    """
    return _MODES.decode_request(payload)


def encode_modes_response(message: Any, correlation_id: int) -> bytes:
    """A Metadata 10 response's frame payload (without the length).

    ``message`` may have been decoded from Kafka's version 9 (:mod:`modeaware.wire.stock`): its partitions have mode 0,
    ReadWrite, until another is set. It is a version 10 from then on.
    """
    return _MODES.encode_response(message, MODES_VERSION, correlation_id)


def decode_modes_response(payload: bytes) -> tuple[int, Any]:
    """A Metadata 10 response's correlation id and message.

    Raises:
        MalformedFrame: it is none, or above the limits of a response.
    """
    return _MODES.decode_response(payload, METADATA_KEY, MODES_VERSION)

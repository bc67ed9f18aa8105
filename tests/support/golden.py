"""Compares what the codec makes, and reads, with bytes put together by hand."""

from __future__ import annotations

from typing import Any

from modeaware.wire import codec
from modeaware.wire.dialect import Dialect
from tests.support.wire_bytes import Wire

EVERYTHING = Dialect(
    codec.MESSAGES,
    {**codec.SUPPORTED_VERSIONS, 3: (0, 10), 6: (7, 7)},
)
"""Every message there is a schema for here, in every version."""


def check_request(message: Any, version: int, expected: Wire, client_id: str | None = "me") -> Any:
    """Encodes to the expected bytes, and these bytes decode to what encodes to them; the decoded message."""
    assert EVERYTHING.encode_request(message, version, 7, client_id) == expected.made
    header, decoded = EVERYTHING.decode_request(expected.made)
    assert header == codec.Header(message.API_KEY, version, 7, client_id)
    assert EVERYTHING.encode_request(decoded, version, 7, client_id) == expected.made
    return decoded


def check_response(message: Any, version: int, expected: Wire) -> Any:
    assert EVERYTHING.encode_response(message, version, 7) == expected.made
    correlation_id, decoded = EVERYTHING.decode_response(expected.made, message.API_KEY, version)
    assert correlation_id == 7
    assert EVERYTHING.encode_response(decoded, version, 7) == expected.made
    return decoded

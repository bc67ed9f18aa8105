"""ApiVersions 3 by hand: does a server speak KIP-694's Metadata? Loads no codec; a client asks this at every start.

Of the answer only what matters here is kept, but all of it is read, strictly: a length is checked against what is left,
and bytes after the end are an error. Pure, no IO.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from modeaware.wire.cursor import Cursor
from modeaware.wire.frames import MalformedFrame

FEATURE = "partition.mode"
"""The feature in ApiVersions (1 to 1) of a server whose Metadata 10 is KIP-694's."""
FEATURE_VERSION = 1
MODES_VERSION = 10
CLIENT_NAME = "modeaware"
"""The client software name (KIP-511) by which a server knows that Metadata 10 is KIP-694's for this client."""
UNDERLYING_NAME = "modeaware-librdkafka"
"""The same of librdkafka underneath a client of ours: it cannot read modes, and what it does heeds them."""
SOFTWARE_NAME = "client.software.name"
"""librdkafka's setting (KIP-511). An endpoint that refuses old clients serves our clients' librdkafka because of it."""
_IDENTITY = "modeaware.controller."
_API_KEY, _VERSION, _METADATA_KEY = 18, 3, 3
_UNSUPPORTED_VERSION = 35
_SUPPORTED_FEATURES_TAG = 0
_HEADER = struct.Struct(">hhi")
_INT16, _INT32, _SPAN, _API = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">hh"), struct.Struct(">hhh")


@dataclass(frozen=True)
class Offer:
    """What a server says of itself.

    Attributes:
        modes: it answers Metadata 10 with modes.
        ours: it is an endpoint of modeaware, which tells topic ids and epochs as well.
    """

    modes: bool
    ours: bool = False


def request(correlation_id: int, software_version: str) -> bytes:
    """The request's frame payload (without the length)."""
    client_id = CLIENT_NAME.encode()
    header = _HEADER.pack(_API_KEY, _VERSION, correlation_id) + _INT16.pack(len(client_id)) + client_id + b"\0"
    return header + b"".join(_compact(text.encode()) for text in (CLIENT_NAME, software_version)) + b"\0"


def read(payload: bytes, correlation_id: int) -> Offer:
    """What the response with this frame payload says.

    A server that does not know version 3 says so in version 0 (KIP-511), and has no features.

    Raises:
        MalformedFrame: it is no such response, or one with another error.
    """
    data = Cursor(payload)
    (answered,) = data.unpack(_INT32)
    if answered != correlation_id:
        raise MalformedFrame(f"an answer to request {answered} where {correlation_id} was asked")
    (error_code,) = data.unpack(_INT16)
    if error_code == _UNSUPPORTED_VERSION:
        return Offer(modes=False)
    if error_code:
        raise MalformedFrame(f"error {error_code} to ApiVersions")
    metadata = (0, -1)
    for _ in range(data.count(_API.size + 1)):
        api_key, lowest, highest = data.unpack(_API)
        data.skip_tags()
        if api_key == _METADATA_KEY:
            metadata = (lowest, highest)
    data.take(_INT32.size)  # throttle_time_ms
    features: dict[str, tuple[int, int]] = {}
    for _ in range(data.varint()):
        tag, size = data.varint(), data.varint()
        value = data.take(size)
        if tag == _SUPPORTED_FEATURES_TAG:
            features = _features(value)
    data.end()
    lowest, highest = features.get(FEATURE, (0, -1))
    modes = lowest <= FEATURE_VERSION <= highest and metadata[0] <= MODES_VERSION <= metadata[1]
    return Offer(modes, any(name.startswith(_IDENTITY) for name in features))


def _features(value: bytes) -> dict[str, tuple[int, int]]:
    cursor = Cursor(value)
    found = {}
    for _ in range(cursor.count(_SPAN.size + 2)):
        if (name := cursor.string()) is None:
            raise MalformedFrame("a feature without a name")
        lowest, highest = cursor.unpack(_SPAN)
        cursor.skip_tags()
        found[name] = (lowest, highest)
    cursor.end()
    return found


def _compact(data: bytes) -> bytes:
    assert len(data) < 0x7F, "a varint of one byte"
    return bytes([len(data) + 1]) + data

"""Whole messages, headers and all, from and to frame payloads. Knows no message itself and does no IO.

Decoding is bounded as :mod:`modeaware.wire.strict` says; ``REQUEST_LIMITS`` and ``RESPONSE_LIMITS`` are its limits.
All functions may be called from any thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from modeaware.wire import strict
from modeaware.wire.frames import MAX_RESPONSE_BYTES, MalformedFrame

API_VERSIONS_KEY = 18
_PREFIX = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")


@dataclass(frozen=True)
class Limits:
    """What one message may have, beside the length of its frame (see :mod:`modeaware.wire.strict`).

    Attributes:
        elements: elements of all its arrays together, and tagged fields.
        string_bytes: bytes of one string.
    """

    elements: int
    string_bytes: int

    def budget(self) -> strict.Budget:
        """For one message to use up."""
        return strict.Budget(self.elements, self.string_bytes)


REQUEST_LIMITS = Limits(elements=65_536, string_bytes=32_767)
"""From a client, who may be anybody. 32 767 is Kafka's own limit."""
RESPONSE_LIMITS = Limits(elements=8_388_608, string_bytes=MAX_RESPONSE_BYTES)
"""From a broker or controller: room for Metadata of a million partitions with three replicas."""


@dataclass(frozen=True)
class Header:
    """A request's header: which api in which version, whose answer goes to ``correlation_id``."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def peek_header(payload: bytes) -> Header:
    """The first fields of a request's header, which every version of every api has (no ``client_id``).

    Raises:
        MalformedFrame: the frame is too short to be a request.
    """
    if len(payload) < _PREFIX.size:
        raise MalformedFrame(f"a frame of {len(payload)} bytes is no request")
    return Header(*_PREFIX.unpack_from(payload))


@dataclass(frozen=True)
class Dialect:
    """Some apis in some versions: their messages from and to frame payloads (without the length).

    Attributes:
        messages: api key -> (request class, response class).
        versions: api key -> (lowest, highest version).
    """

    messages: Mapping[int, tuple[Any, Any]]
    versions: Mapping[int, tuple[int, int]]

    def speaks(self, api_key: int, version: int) -> bool:
        """Whether messages of this api and version can be encoded and decoded here."""
        lowest, highest = self.versions.get(api_key, (0, -1))
        return lowest <= version <= highest

    def is_supported(self, header: Header) -> bool:
        """Whether a request with this header can be decoded here."""
        return self.speaks(header.api_key, header.api_version)

    def encode_request(self, message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
        """A request's frame payload.

        Raises:
            ValueError: this version is not spoken here.
        """
        self._set_version(message, version)
        message.with_header(correlation_id=correlation_id, client_id=client_id)
        return bytes(message.encode(header=True))

    def decode_request(self, payload: bytes) -> tuple[Header, Any]:
        """A supported request's header and message.

        Raises:
            MalformedFrame: the api or version is not supported, the bytes do not follow its layout to the last one, or
                it is above ``REQUEST_LIMITS``.
        """
        header = peek_header(payload)
        if not self.is_supported(header):
            raise MalformedFrame(f"api key {header.api_key} version {header.api_version} is not spoken here")
        message_class, version = self.messages[header.api_key][0], header.api_version
        budget = REQUEST_LIMITS.budget()
        with malformed(f"a request of api key {header.api_key} version {version}"):
            client_id, position = strict.read_nullable_string(payload, _PREFIX.size, budget)
            if message_class.flexible_version_q(version):
                position = strict.skip_tagged_fields(payload, position, budget)
            message = read_to_the_end(message_class, payload, position, version, budget)
        return Header(header.api_key, version, header.correlation_id, client_id), message

    def encode_response(self, message: Any, version: int, correlation_id: int) -> bytes:
        """A response's frame payload.

        Raises:
            ValueError: this version is not spoken here.
        """
        self._set_version(message, version)
        message.with_header(correlation_id=correlation_id)
        return bytes(message.encode(header=True))

    def decode_response(self, payload: bytes, api_key: int, version: int) -> tuple[int, Any]:
        """A response's correlation id and message.

        An ApiVersions response with an error is read as version 0, as Kafka has it (``message.version`` is 0 then); its
        header has no tagged fields in any version (KIP-511).

        Raises:
            MalformedFrame: the bytes do not follow the response's layout to the last one, or it is above
                ``RESPONSE_LIMITS``; or the version is not spoken here.
        """
        budget = RESPONSE_LIMITS.budget()
        with malformed(f"a response of api key {api_key} version {version}"):
            (correlation_id,) = _CORRELATION_ID.unpack_from(payload)
            position = _CORRELATION_ID.size
            if api_key == API_VERSIONS_KEY and payload[position : position + 2] != b"\0\0":
                version = 0
            if not self.speaks(api_key, version):
                raise ValueError("it is not spoken here")
            message_class = self.messages[api_key][1]
            if api_key != API_VERSIONS_KEY and message_class.flexible_version_q(version):
                position = strict.skip_tagged_fields(payload, position, budget)
            return correlation_id, read_to_the_end(message_class, payload, position, version, budget)

    def _set_version(self, message: Any, version: int) -> None:
        if not self.speaks(message.API_KEY, version):
            raise ValueError(f"api key {message.API_KEY} version {version} is not spoken here")
        message._header = None  # of an earlier encoding; kafka-python would set the version in it, where it has none
        message.API_VERSION = version


def read_to_the_end(message_class: Any, data: bytes, position: int, version: int, budget: strict.Budget) -> Any:
    """A message that ends where the bytes end.

    Raises:
        ValueError, IndexError, struct.error: the bytes do not follow its schema to the last one.
    """
    message, position = strict.read_message(message_class, data, position, version, budget)
    if rest := len(data) - position:
        raise ValueError(f"{rest} bytes too many")
    return message


@contextmanager
def malformed(what: str) -> Iterator[None]:
    """Errors of reading ``what`` as MalformedFrame."""
    try:
        yield
    except IndexError as error:
        raise MalformedFrame(f"{what} cannot be decoded: it ends too early") from error
    except (ValueError, struct.error) as error:
        raise MalformedFrame(f"{what} cannot be decoded: {error}") from error

"""A client of raw frames over TLS that authenticates by SASL, and what it asks an endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import struct
import time
import uuid
from collections.abc import Mapping
from typing import Any

from modeaware.lifecycle.commands import CreatePartitionsCommand
from modeaware.wire import codec, kip694, messages, stock
from modeaware.wire.client_tls import split_address
from modeaware.wire.frames import MAX_RESPONSE_BYTES, frame
from tests.support.endpoint import Peer
from tests.support.secured import secret

HANDSHAKE, AUTHENTICATE = stock.SASL_HANDSHAKE_KEY, stock.SASL_AUTHENTICATE_KEY


class EndOfStream(AssertionError):
    """The other side has closed the connection."""


class RawClient(Peer):
    """A client that writes its frames itself. Correlation ids count from 1."""

    def __init__(self, address: str, tls: ssl.SSLContext) -> None:
        super().__init__(split_address(address), tls)
        self._correlation_id = 0

    @property
    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def authenticate(self, user: str, mechanism: str = "PLAIN", password: str | None = None) -> int:
        """Both SASL frames, one after the other, and the session's lifetime in ms.

        Raises:
            AssertionError: the broker does not let this user in.
        """
        handshake, auth = self.sasl(user, mechanism, password)
        assert self.ask(handshake)[4:6] == b"\0\0"
        return lifetime_ms(self.ask(auth))

    def sasl(self, user: str, mechanism: str = "PLAIN", password: str | None = None) -> tuple[bytes, bytes]:
        """SaslHandshake 1 and SaslAuthenticate 1, of a mechanism with one round."""
        given = secret(user) if password is None else password
        first = f"\0{user}\0{given}" if mechanism == "PLAIN" else f"n,,\x01auth=Bearer {token(user)}\x01\x01"
        handshake = struct.pack(">hhihh", HANDSHAKE, 1, self.next_id, -1, len(mechanism)) + mechanism.encode()
        auth = struct.pack(">hhihi", AUTHENTICATE, 1, self.next_id, -1, len(first)) + first.encode()
        return handshake, auth

    def name_itself(self) -> None:
        """As a client that knows modes; from then on Metadata 10 is KIP-694's."""
        answer = self.ask(self.api_versions())
        assert codec.decode_response(answer, codec.API_VERSIONS_KEY, 3)[1].error_code == 0

    def api_versions(self) -> bytes:
        hello = codec.ApiVersionsRequest(client_software_name="modeaware", client_software_version="1")
        return codec.encode_request(hello, 3, self.next_id, None)

    def modes(self, *topics: str) -> bytes:
        """Metadata 10, read afresh; without names: of all topics that have modes."""
        request = kip694.ModesRequest(
            topics=[(topic,) for topic in topics] or None,
            allow_auto_topic_creation=False,
            modes_only=not topics,
            fresh=True,
        )
        return kip694.encode_modes_request(request, self.next_id, None)

    def metadata(self) -> bytes:
        """Metadata 9 of all topics, with what this user may do."""
        request = stock.MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        return stock.encode_request(request, 9, self.next_id, None)

    def shrink(self, counts: Mapping[str, int]) -> bytes:
        """DeletePartitions."""
        message = messages.delete_partitions_request(counts, delay_ms=-1, immediate_delete=False, timeout_ms=20_000)
        return self.command(message)

    def grow(self, topic: str, count: int) -> bytes:
        """CreatePartitions."""
        command = CreatePartitionsCommand(topic, count)
        return self.command(messages.create_partitions_request([command], validate_only=False, timeout_ms=20_000))

    def command(self, message: Any) -> bytes:
        return codec.encode_request(message, codec.SUPPORTED_VERSIONS[message.API_KEY][1], self.next_id, None)

    def asked(self, message: Any) -> Any:
        """Send a command and read its answer."""
        answer = self.ask(self.command(message))
        return codec.decode_response(answer, message.API_KEY, codec.SUPPORTED_VERSIONS[message.API_KEY][1])[1]

    def shrinks(self, topic: str, count: int) -> int:
        """Have it shrunk; the error code."""
        answer = self.ask(self.shrink({topic: count}))
        return shrink_code(answer)

    def grows(self, topic: str, count: int) -> int:
        """Have it grown; the error code."""
        return grow_code(self.ask(self.grow(topic, count)))

    def conversation(self, words: list[bytes], *, at_once: bool) -> list[bytes]:
        """All answers until the endpoint closes the connection, which it must.

        Args:
            at_once: send all in one write; else each one but the last when the one before it is answered.
        """
        answers: list[bytes] = []
        try:
            if at_once:
                self.send_at_once(*words)
            else:
                for word in words[:-1]:
                    answers.append(self.ask(word))
                self.send(words[-1])
            while True:
                answers.append(self.receive())
        except EndOfStream:
            return answers
        except (ConnectionResetError, BrokenPipeError):
            return answers

    def receive(self) -> bytes:
        try:
            return super().receive()
        except AssertionError as error:
            raise EndOfStream from error

    def send_at_once(self, *payloads: bytes) -> None:
        """In one write."""
        self.socket.sendall(b"".join(frame(payload, MAX_RESPONSE_BYTES) for payload in payloads))


def shrink_code(answer: bytes) -> int:
    """The error of a DeletePartitions answer, of the request or of its one topic."""
    response = codec.decode_response(answer, codec.DELETE_PARTITIONS_KEY, 0)[1]
    if response.error_code:
        return int(response.error_code)
    (topic,) = response.responses
    return int(max(partition.error_code for partition in topic.partitions))


def grow_code(answer: bytes) -> int:
    """The error of the one topic in a CreatePartitions answer."""
    version = codec.SUPPORTED_VERSIONS[codec.CREATE_PARTITIONS_KEY][1]
    (result,) = codec.decode_response(answer, codec.CREATE_PARTITIONS_KEY, version)[1].results
    return int(result.error_code)


def lifetime_ms(answer: bytes) -> int:
    """The session's lifetime in a SaslAuthenticate 1 answer.

    Raises:
        AssertionError: it is a refusal.
    """
    error, length = struct.unpack_from(">hh", answer, 4)
    assert error == 0, f"error {error}"
    at = 8 + max(length, 0)  # behind the message, which there is none of
    (size,) = struct.unpack_from(">i", answer, at)
    return int(struct.unpack_from(">q", answer, at + 4 + max(size, 0))[0])


def token(user: str) -> str:
    """An unsecured token; each call makes another."""
    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + 3600, "jti": uuid.uuid4().hex}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."

"""A client of raw frames over TLS that authenticates by SASL, and what it asks an endpoint."""

from __future__ import annotations

import base64
import json
import ssl
import struct
import time
import uuid
from typing import Any

from modeaware.lifecycle.commands import CreatePartitionsCommand
from modeaware.wire import codec, messages
from modeaware.wire.security import split_address
from tests.support.conversation import hello, modes_request, old_metadata_request
from tests.support.endpoint import Peer
from tests.support.secured import secret

HANDSHAKE, AUTHENTICATE = codec.SASL_HANDSHAKE_KEY, codec.SASL_AUTHENTICATE_KEY


class RawClient(Peer):
    """A client that writes its frames itself. Correlation ids count from 1."""

    def __init__(self, address: str, tls: ssl.SSLContext) -> None:
        super().__init__(split_address(address), tls)
        self._correlation_id = 0

    @property
    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def authenticate(self, user: str) -> None:
        """Both SASL frames, one after the other; the broker has to let this user in."""
        for payload in self.sasl(user):
            assert self.ask(payload)[4:6] == b"\0\0"

    def sasl(self, user: str, mechanism: str = "PLAIN") -> tuple[bytes, bytes]:
        """SaslHandshake 1 and SaslAuthenticate 1, of a mechanism with one round."""
        first = f"\0{user}\0{secret(user)}" if mechanism == "PLAIN" else f"n,,\x01auth=Bearer {token(user)}\x01\x01"
        handshake = struct.pack(">hhihh", HANDSHAKE, 1, self.next_id, -1, len(mechanism)) + mechanism.encode()
        auth = struct.pack(">hhihi", AUTHENTICATE, 1, self.next_id, -1, len(first)) + first.encode()
        return handshake, auth

    def name_itself(self) -> None:
        """As a client that knows modes; from then on Metadata 10 is KIP-694's."""
        answer = self.ask(hello(self.next_id))
        assert codec.decode_response(answer, codec.API_VERSIONS_KEY, 3)[1].error_code == 0

    def modes(self, *topics: str) -> bytes:
        """Metadata 10, read afresh; without names: of all topics that have modes."""
        fields = {"allow_auto_topic_creation": False, "modes_only": not topics, "fresh": True}
        return modes_request(self.next_id, list(topics) or None, **fields)

    def metadata(self) -> bytes:
        """Metadata 9 of all topics, with what this user may do."""
        flags = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
        return old_metadata_request(
            self.next_id, 9, None, allow_auto_topic_creation=False, **dict.fromkeys(flags, True)
        )

    def asked(self, message: Any) -> Any:
        """Send a command and read its answer."""
        version = codec.VERSIONS[message.API_KEY][1]
        answer = self.ask(codec.encode_request(message, version, self.next_id, None))
        return codec.decode_response(answer, message.API_KEY, version)[1]

    def shrinks(self, topic: str, count: int, delay_ms: int | None = None) -> int:
        """Have it shrunk; the error code, of the request or of the topic."""
        counts = {topic: count}
        answer = self.asked(
            messages.delete_partitions_request(counts, delay_ms=delay_ms, immediate_delete=False, timeout_ms=20_000)
        )
        return int(answer.error_code or max(p.error_code for told in answer.responses for p in told.partitions))

    def grows(self, topic: str, count: int) -> int:
        """Have it grown; the error code."""
        command = CreatePartitionsCommand(topic, count)
        answer = self.asked(messages.create_partitions_request([command], validate_only=False, timeout_ms=20_000))
        return int(answer.results[0].error_code)


def token(user: str) -> str:
    """An unsecured token; each call makes another."""
    now = int(time.time())
    claims = {"sub": user, "iat": now, "exp": now + 3600, "jti": uuid.uuid4().hex}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."

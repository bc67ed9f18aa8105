"""How far a connection's SASL exchange with the broker has come, from headers and error codes alone.

SASL frames are the client's and the broker's business: nothing of them is decoded or kept but the header, and the error
code of a SaslAuthenticate answer.

===========  ==================================================  ==========================================
state        begins with                                         what is sent on
===========  ==================================================  ==========================================
NEEDED       a connection to brokers that require SASL           ApiVersions, SaslHandshake
UNDER_WAY    SaslHandshake is sent (KIP-368: any number of times)  SASL frames; what else there is waits until
                                                                 they are answered, and ends the connection
                                                                 unless the last answer was SaslAuthenticate's
                                                                 and without an error
OPEN         another request, sent after that, is answered       everything
===========  ==================================================  ==========================================

Whether a mechanism needs one more round only its two sides know. A request that comes too early is the client's own
mistake then, and the broker closes the connection, as it would without this endpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from modeaware.wire.codec import API_VERSIONS_KEY, Header
from modeaware.wire.stock import SASL_AUTHENTICATE_KEY, SASL_HANDSHAKE_KEY

_FLEXIBLE_SINCE = 2  # SaslAuthenticate
_SASL_KEYS = (SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY)


class _State(Enum):
    NEEDED = auto()
    UNDER_WAY = auto()
    OPEN = auto()


class Authentication:
    """One connection's. ``required``: the brokers' listener is a SASL one."""

    def __init__(self, required: bool) -> None:
        self._state = _State.NEEDED if required else _State.OPEN
        self._unanswered = 0  # SASL frames
        self._succeeded = False  # as far as the last SASL answer tells
        self._exchange = 0  # how many handshakes there were

    def must_wait(self, header: Header) -> bool:
        """Whether this request cannot be sent yet."""
        return self._unanswered > 0 and header.api_key not in _SASL_KEYS

    def refusal(self, header: Header) -> str | None:
        """Why this request ends the connection; None: it does not."""
        if header.api_key == SASL_HANDSHAKE_KEY:
            return "SaslHandshake version 0: what follows it has no header" if header.api_version < 1 else None
        if self._state is _State.NEEDED and header.api_key != API_VERSIONS_KEY:
            return "a request before authentication"
        if self._state is _State.UNDER_WAY and not self._succeeded and header.api_key != SASL_AUTHENTICATE_KEY:
            return "a request before authentication has ended"
        return None

    def sent(self, header: Header) -> Callable[[bytes], None] | None:
        """Note a request that is sent to the broker. What is returned wants to see the answer."""
        if header.api_key == SASL_HANDSHAKE_KEY:
            self._state = _State.UNDER_WAY
            self._exchange += 1
            self._unanswered += 1
            return self._handshake_answered
        if header.api_key == SASL_AUTHENTICATE_KEY:
            self._unanswered += 1
            flexible = header.api_version >= _FLEXIBLE_SINCE
            return lambda answer: self._round_answered(answer, flexible)
        if self._state is _State.UNDER_WAY and header.api_key != API_VERSIONS_KEY:
            exchange = self._exchange
            return lambda _: self._proved(exchange)
        return None

    def _handshake_answered(self, _: bytes) -> None:
        self._unanswered -= 1
        self._succeeded = False

    def _round_answered(self, answer: bytes, flexible: bool) -> None:
        self._unanswered -= 1
        self._succeeded = answer[4:7] == b"\0\0\0" if flexible else answer[4:6] == b"\0\0"

    def _proved(self, exchange: int) -> None:
        """Brokers answer such a request only to somebody who is authenticated."""
        if exchange == self._exchange:
            self._state = _State.OPEN

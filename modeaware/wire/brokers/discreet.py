"""Keeps credentials out of kafka-python's log: at DEBUG it tells every request whole, SaslAuthenticate too."""

from __future__ import annotations

import logging

from modeaware.wire.codec import MissingExtra

try:
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse, SaslBytesRequest
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): install modeaware[controller]") from error

_LOGGERS = ("kafka.net.connection", "kafka.protocol.parser")
_SECRETIVE = (SaslAuthenticateRequest, SaslAuthenticateResponse, SaslBytesRequest)
_SASL_AUTHENTICATE_KEY = 36


class Discreet(logging.Filter):
    """Leaves out lines that hold a SASL message, as an object or as the bytes that are sent. Any thread may use it."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        sending = "Send" in str(record.msg)
        return not any(isinstance(each, _SECRETIVE) or (sending and _holds_sasl(each)) for each in arguments)


def keep_credentials_out_of_the_log() -> None:
    """For all of kafka-python's connections in this process, from now on. Idempotent."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_DISCREET)


def _holds_sasl(frames: object) -> bool:
    """Whether one of these requests is a SaslAuthenticate; what are no whole frames may be one as well."""
    if not isinstance(frames, (bytes, bytearray)):
        return False
    while frames:
        size = int.from_bytes(frames[:4], "big")
        if len(frames) < 4 + size or size < 2 or int.from_bytes(frames[4:6], "big") == _SASL_AUTHENTICATE_KEY:
            return True
        frames = frames[4 + size :]
    return False


_DISCREET = Discreet()

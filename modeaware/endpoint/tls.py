"""TLS without IO, and the endpoint's own certificate.

asyncio's own TLS keeps a buffer of 256 KiB for every connection; with a thousand of them on both sides that alone is
half a gigabyte. Here ciphertext goes in and plaintext comes out, in pieces no larger than one TLS record.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

from modeaware.errors import ConfigError

RECORD_BYTES = 16_384
"""The most plaintext in one TLS record (RFC 8446, section 5.1)."""


def server_context(certificate: str | Path, key: str | Path | None = None) -> ssl.SSLContext:
    """The endpoint's side of TLS 1.2 and later. No client is asked for a certificate.

    Args:
        certificate: a PEM file with the certificate and those that lead from it to the authority.
        key: a PEM file with its private key, without a password; None: it is in ``certificate``.

    Raises:
        ConfigError: a file cannot be read, is no PEM, needs a password, or the two do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # a client that returns makes a new handshake; nothing is kept for it
    files = f"{certificate} and {key}" if key else str(certificate)
    try:
        # Without a password a prompt would block; an empty one fails.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"the endpoint's certificate cannot be used ({files}): {error}. Two PEM files are wanted, of a certificate "
            "with its chain and of its private key without a password"
        ) from error
    return context


class TlsStream:
    """One side of one TLS connection. Not safe to share between threads.

    Args:
        context: with the certificates.
        server_hostname: whom a client expects, for SNI and the check of the certificate; None makes a server.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "ready")

    def __init__(self, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self.ready = False
        """Whether the handshake is through: before, nothing can be encrypted."""

    def start(self) -> bytes:
        """What has to be sent first: a client's hello; nothing from a server."""
        self._shake_hands()
        return self._outgoing.read()

    def receive(self, ciphertext: memoryview) -> tuple[bytes, bytes]:
        """Take bytes as they came from the peer; the plaintext that is complete now, and what has to be sent back.

        Raises:
            ssl.SSLError: no TLS, or a certificate that does not hold. :meth:`last_words` has the alert for the peer.
        """
        plaintext = bytearray()
        while ciphertext:  # piece by piece, so that no buffer of OpenSSL grows for good
            self._incoming.write(ciphertext[:RECORD_BYTES])
            ciphertext = ciphertext[RECORD_BYTES:]
            if self.ready or self._shake_hands():
                self._read_into(plaintext)
        return bytes(plaintext), self._outgoing.read()

    def encrypt(self, plaintext: bytes) -> Iterator[bytes]:
        """``plaintext`` as TLS records, one at a time. Only once it is ready."""
        rest = memoryview(plaintext)
        while rest:
            written = self._tls.write(rest[:RECORD_BYTES])
            rest = rest[written:]
            yield self._outgoing.read()

    def last_words(self) -> bytes:
        """What a peer should get before the connection is closed: a closing alert, or one that says what was wrong."""
        if self.ready:
            # The peer's own closing alert is not waited for, and after a failure there is none.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.ready = True
        return True

    def _read_into(self, plaintext: bytearray) -> None:
        while True:
            try:
                data = self._tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLZeroReturnError:  # a closing alert; the end of the connection follows it
                return
            if not data:
                return
            plaintext += data

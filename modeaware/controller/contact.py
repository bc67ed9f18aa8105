"""How a controller is reached: what its claim says of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:0"


@dataclass(frozen=True)
class Contact:
    """Where commands are taken.

    Attributes:
        address: ``host:port`` that clients are to connect to; None: nowhere.
        host: the name of the host it runs on: a loopback address means nothing on any other.
        security_protocol: what clients speak to it, in the words of ``security.protocol``.
    """

    address: str | None = None
    host: str = ""
    security_protocol: str = "PLAINTEXT"


NOWHERE = Contact()


def default_listen(conf: Mapping[str, Any]) -> str | None:
    """Where a controller listens when nobody has said: a free port of the loopback interface.

    With ``security.protocol=SSL`` nowhere (None): the brokers know users by their certificates then, and the endpoint
    has none to present but its own.
    """
    return None if str(conf.get("security.protocol", "")).upper() == "SSL" else DEFAULT_LISTEN


def check_listener(listen: str | None, advertised: str | None, certificate: str | None, key: str | None) -> None:
    """See that nothing said of the endpoint would be passed over.

    Raises:
        ConfigError: it would.
    """
    if key is not None and certificate is None:
        raise ConfigError(
            "--tls-key without --tls-certificate: the endpoint would listen without TLS. Name the certificate's file, "
            "too"
        )
    said = {"--advertised-listener": advertised, "--tls-certificate": certificate}
    unused = [option for option, value in said.items() if value is not None]
    if listen is None and unused:
        raise ConfigError(
            f"{' and '.join(unused)}: there is no endpoint to use that (--listen none, --once, or security.protocol is "
            "SSL and no --listen). Leave it out, or say where to listen"
        )

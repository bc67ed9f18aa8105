"""A client's servers, and TLS to them, from librdkafka's settings.

``ssl`` is imported where it is needed: most clients of a plaintext cluster never load it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modeaware.errors import ConfigError

if TYPE_CHECKING:
    import ssl

DEFAULT_PORT = 9092
"""librdkafka's default port, for a server that is given without a port."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_SETTINGS = frozenset(
    {
        "enable.ssl.certificate.verification",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
"""The settings that :func:`ssl_context` translates."""


def bootstrap_servers(conf: Mapping[str, Any]) -> str:
    """Return ``bootstrap.servers``, else ``metadata.broker.list`` (librdkafka's other name for it), else ""."""
    return str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list") or "")


def servers(conf: Mapping[str, Any]) -> list[str]:
    """Return the bootstrap servers in order. Drop the protocol of a URL (``PLAINTEXT://host:9092``); add no port."""
    text = bootstrap_servers(conf)
    addresses = [server.strip().rpartition("://")[2] for server in text.split(",") if server.strip()]
    if not addresses:
        raise ConfigError("bootstrap.servers is missing")
    return addresses


def split_address(address: str, default_port: int | None = None) -> tuple[str, int]:
    """Split ``host:port`` (``[::1]:9092`` for IPv6).

    Args:
        default_port: the port of an address without a port; if None, every address must have one.
    """
    host, colon, port = address.rpartition(":")
    if default_port is not None and ":" not in address.rpartition("]")[2]:
        host, colon, port = address, ":", str(default_port)
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_family(conf: Mapping[str, Any]) -> int:
    """Return the socket family of ``broker.address.family``."""
    families = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
    return families.get(str(conf.get("broker.address.family")).lower(), socket.AF_UNSPEC)


def security_protocol(conf: Mapping[str, Any]) -> str:
    """Return the setting ``security.protocol`` in capitals."""
    protocol = str(conf.get("security.protocol", "plaintext")).upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol!r} is none of {', '.join(PROTOCOLS)}")
    return protocol


def ssl_context(conf: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a client's context for TLS 1.2 and later, made from :data:`TLS_SETTINGS` (PEM files or strings)."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # librdkafka takes "https" and "none" in upper or lower case. No value but "none" may disable the check.
    context.check_hostname = str(conf.get("ssl.endpoint.identification.algorithm", "https")).strip().lower() != "none"
    if not is_true(conf.get("enable.ssl.certificate.verification", True)):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _named("ssl.ca.location", _load_ca, context, conf)
    if conf.get("ssl.cipher.suites"):
        _named("ssl.cipher.suites", lambda: context.set_ciphers(str(conf["ssl.cipher.suites"])))
    if conf.get("ssl.crl.location"):
        _named("ssl.crl.location", lambda: context.load_verify_locations(cafile=str(conf["ssl.crl.location"])))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _load_certificate(context, conf)
    return context


def _load_ca(context: ssl.SSLContext, conf: Mapping[str, Any]) -> None:
    location, pem = conf.get("ssl.ca.location"), conf.get("ssl.ca.pem")
    if pem:
        # Python requires ASCII. Other characters can only be comments between the certificates, so they are dropped.
        context.load_verify_locations(cadata=str(pem).encode("ascii", "ignore").decode())
    elif not location or location == "probe":
        context.load_default_certs()
    elif Path(str(location)).is_dir():
        context.load_verify_locations(capath=str(location))
    else:
        context.load_verify_locations(cafile=str(location))


def _load_certificate(context: ssl.SSLContext, conf: Mapping[str, Any]) -> None:
    has_certificate = conf.get("ssl.certificate.location") or conf.get("ssl.certificate.pem")
    has_key = conf.get("ssl.key.location") or conf.get("ssl.key.pem")
    if not has_certificate:
        if has_key:
            raise ConfigError("ssl.key.location or ssl.key.pem needs ssl.certificate.location or ssl.certificate.pem")
        return
    password = conf.get("ssl.key.password")

    def load() -> None:
        with ExitStack() as files:
            certificate = _as_file(conf, "ssl.certificate", files)
            key = _as_file(conf, "ssl.key", files) if has_key else None
            # If no password were given, OpenSSL would prompt for one, and block. With the empty one it raises an error.
            context.load_cert_chain(certificate, key, "" if password is None else str(password))

    _named("ssl.certificate.location or ssl.key.location", load)


def _as_file(conf: Mapping[str, Any], name: str, files: ExitStack) -> str:
    """Return the path of the setting's PEM. Python reads certificates only from files. So a PEM string is written to a
    file, in a directory that only this user can read; both exist until ``files`` is closed."""
    pem = conf.get(f"{name}.pem")
    if not pem:
        return str(conf[f"{name}.location"])
    import tempfile  # here, because most clients have no PEM strings

    path = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="modeaware-"))) / name
    path.write_text(str(pem), encoding="utf-8")
    return str(path)


def _named(setting: str, load: Callable[..., object], *arguments: object) -> None:
    try:
        load(*arguments)
    except (OSError, TypeError, ValueError) as error:  # or SSLError, which is an OSError
        raise ConfigError(f"{setting} cannot be used: {error}") from error


def is_true(value: object) -> bool:
    """Return whether the value means true to librdkafka."""
    return str(value).strip().lower() in ("true", "t", "1")

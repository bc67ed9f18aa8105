"""librdkafka's connection settings as kafka-python's."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from modeaware.errors import ConfigError
from modeaware.wire.codec import MissingExtra

try:
    from kafka.net.sasl.oauth import AbstractTokenProvider
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): pip install 'modeaware[controller]'") from error

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
# Without effect on which broker is reached as whom: librdkafka's own defaults and tuning.
_HARMLESS = frozenset(
    {
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "ssl.provider.location",
    }
)
_TAKEN = frozenset(
    {
        "enable.ssl.certificate.verification",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
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


def kafka_python_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """What kafka-python needs to reach the same brokers as the same user.

    Takes ``bootstrap.servers``, ``client.id``, ``security.protocol``, ``ssl.*`` with PEM files or strings, and
    ``sasl.*`` for PLAIN, SCRAM, OAUTHBEARER (by ``oauth_cb``) and GSSAPI (with the credentials the process has). What
    only tunes librdkafka is left out.

    Raises:
        ConfigError: a setting decides who connects or how, and kafka-python has nothing like it. It names the setting.
    """
    servers = str(conf.get("bootstrap.servers") or conf.get("metadata.broker.list") or "")
    if not servers.strip():
        raise ConfigError("bootstrap.servers is missing")
    protocol = str(conf.get("security.protocol", "plaintext")).upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    settings: dict[str, Any] = {
        "bootstrap_servers": [_host_port(server) for server in servers.split(",") if server.strip()],
        "client_id": str(conf.get("client.id", "modeaware-controller")),
        "security_protocol": protocol,
    }
    _refuse_unknown(conf, protocol)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(conf)
    if protocol.startswith("SASL"):
        settings.update(_sasl(conf))
    return settings


def _host_port(server: str) -> str:
    # librdkafka also takes URLs: PLAINTEXT://host:9092
    return server.strip().rpartition("://")[2]


def _refuse_unknown(conf: Mapping[str, Any], protocol: str) -> None:
    used = [start for start, wanted in (("ssl.", "SSL"), ("sasl.", "SASL")) if wanted in protocol.split("_")]
    for name, value in conf.items():
        decides = name.startswith(tuple(used)) or (name == "enable.sasl.oauthbearer.unsecure.jwt" and value)
        if decides and value not in (None, "") and name not in _TAKEN | _HARMLESS:
            raise ConfigError(f"{name} cannot be translated for the controller's own connections (kafka-python)")


def _ssl_context(conf: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = conf.get("ssl.endpoint.identification.algorithm", "https") == "https"
    if not _truth(conf.get("enable.ssl.certificate.verification", True)):
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
        context.load_verify_locations(cadata=str(pem))
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
    # Python reads certificates from files only; the directory is readable by this user alone and goes at once.
    with tempfile.TemporaryDirectory(prefix="modeaware-") as folder:
        certificate = _as_file(conf, "ssl.certificate", Path(folder))
        key = _as_file(conf, "ssl.key", Path(folder)) if has_key else None
        _named(
            "ssl.certificate.location or ssl.key.location",
            # Without a password a prompt would block; an empty one fails.
            lambda: context.load_cert_chain(
                str(certificate), key and str(key), "" if password is None else str(password)
            ),
        )


def _as_file(conf: Mapping[str, Any], name: str, folder: Path) -> Path:
    if pem := conf.get(f"{name}.pem"):
        path = folder / name
        path.write_text(str(pem), encoding="utf-8")
        return path
    return Path(str(conf[f"{name}.location"]))


def _named(setting: str, load: Callable[..., object], *arguments: object) -> None:
    try:
        load(*arguments)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(f"{setting} cannot be used: {error}") from error


def _truth(value: object) -> bool:
    return str(value).strip().lower() in ("true", "t", "1")


def _sasl(conf: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is none of {', '.join(_MECHANISMS)}")
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        if str(conf.get("sasl.oauthbearer.method", "default")).lower() != "default":
            raise ConfigError("sasl.oauthbearer.method: the controller takes tokens from oauth_cb only")
        if not callable(conf.get("oauth_cb")):
            raise ConfigError("oauth_cb is missing, which sasl.mechanism OAUTHBEARER takes its tokens from")
        settings["sasl_oauth_token_provider"] = OauthCallback(
            conf["oauth_cb"], str(conf.get("sasl.oauthbearer.config", ""))
        )
    elif mechanism == "GSSAPI":
        if find_spec("gssapi") is None:
            raise ConfigError("sasl.mechanism: GSSAPI needs the Python package gssapi beside kafka-python")
        settings["sasl_kerberos_service_name"] = str(conf.get("sasl.kerberos.service.name", "kafka"))
    else:
        for setting in ("sasl.username", "sasl.password"):
            if conf.get(setting) is None:
                raise ConfigError(f"{setting} is missing, which sasl.mechanism {mechanism} needs")
        settings["sasl_plain_username"] = str(conf["sasl.username"])
        settings["sasl_plain_password"] = str(conf["sasl.password"])
    return settings


class OauthCallback(AbstractTokenProvider):  # type: ignore[misc,unused-ignore]  # untyped
    """Tokens by confluent_kafka's ``oauth_cb(config) -> (token, expiry_s[, principal, extensions])``."""

    def __init__(self, callback: Callable[[str], Any], config: str) -> None:
        super().__init__()
        self._callback = callback
        self._config = config
        self._extensions: dict[str, str] = {}

    def token(self) -> str:
        """A token, asked for anew with each connection."""
        answer = self._callback(self._config)
        self._extensions = dict(answer[3]) if len(answer) > 3 and answer[3] else {}
        return str(answer[0])

    def extensions(self) -> dict[str, str]:
        """SASL extensions that came with the last token."""
        return self._extensions

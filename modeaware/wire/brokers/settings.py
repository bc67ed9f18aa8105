"""librdkafka's connection settings as kafka-python's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from modeaware.config import OAUTH_CALLBACK, named_function
from modeaware.errors import ConfigError
from modeaware.wire.client_tls import TLS_SETTINGS, security_protocol, servers, ssl_context
from modeaware.wire.codec import MissingExtra

try:
    from kafka.errors import SaslAuthenticationFailedError
    from kafka.net.sasl.oauth import AbstractTokenProvider
except ImportError as error:
    raise MissingExtra(f"the controller needs kafka-python ({error}): install modeaware[controller]") from error

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
DIRECT = "modeaware-direct://"
"""kafka-python's ``proxy_url`` of connections without a proxy; ``v4`` or ``v6`` after it: only to such addresses."""
_TAKEN = TLS_SETTINGS | {
    "sasl.kerberos.service.name",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "security.protocol",
}


def kafka_python_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """What kafka-python needs to reach the same brokers as the same user.

    Takes ``bootstrap.servers``, ``client.id``, ``broker.address.family``, ``security.protocol``, ``ssl.*`` with PEM
    files or strings, and ``sasl.*`` for PLAIN, SCRAM, OAUTHBEARER (by ``oauth_cb``) and GSSAPI (with the credentials
    the process has). What only tunes librdkafka is left out.

    Raises:
        ConfigError: a setting decides who connects or how, and kafka-python has nothing like it. It names the setting.
    """
    protocol = security_protocol(conf)
    settings: dict[str, Any] = {
        "bootstrap_servers": servers(conf),
        "client_id": str(conf.get("client.id") or "modeaware-controller"),
        "security_protocol": protocol,
    }
    if (family := str(conf.get("broker.address.family")).lower()) in ("v4", "v6"):
        settings["proxy_url"] = DIRECT + family
    _refuse_unknown(conf, protocol)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = ssl_context(conf)
    if protocol.startswith("SASL"):
        settings.update(_sasl(conf))
    return settings


def _refuse_unknown(conf: Mapping[str, Any], protocol: str) -> None:
    used = [start for start, wanted in (("ssl.", "SSL"), ("sasl.", "SASL")) if wanted in protocol.split("_")]
    for name, value in conf.items():
        decides = name.startswith(tuple(used)) or (name == "enable.sasl.oauthbearer.unsecure.jwt" and value)
        if decides and value not in (None, "") and name not in _TAKEN | _HARMLESS:
            raise ConfigError(f"{name} cannot be translated for the controller's own connections (kafka-python)")


def _sasl(conf: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = str(conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is none of {', '.join(_MECHANISMS)}")
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        if str(conf.get("sasl.oauthbearer.method", "default")).lower() != "default":
            raise ConfigError("sasl.oauthbearer.method: the controller takes tokens from oauth_cb only")
        callback = conf.get(OAUTH_CALLBACK)
        if isinstance(callback, str):
            callback = named_function(OAUTH_CALLBACK, callback)
        if not callable(callback):
            raise ConfigError("oauth_cb is missing, which sasl.mechanism OAUTHBEARER takes its tokens from")
        settings["sasl_oauth_token_provider"] = OauthCallback(callback, str(conf.get("sasl.oauthbearer.config", "")))
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
        """A token, asked for anew with each connection.

        Raises:
            SaslAuthenticationFailedError: the callback failed, with anything, or returned something else.
        """
        try:
            answer = self._callback(self._config)
        except Exception as error:
            raise SaslAuthenticationFailedError(f"oauth_cb failed: {type(error).__name__}: {error}") from error
        if not isinstance(answer, tuple | list) or len(answer) < 2:  # not told: it may be the bare token
            raise SaslAuthenticationFailedError(
                f"oauth_cb has to return (token, expiry in seconds), not {type(answer).__name__}"
            )
        self._extensions = dict(answer[3]) if len(answer) > 3 and answer[3] else {}
        return str(answer[0])

    def extensions(self) -> dict[str, str]:
        """SASL extensions that came with the last token."""
        return self._extensions

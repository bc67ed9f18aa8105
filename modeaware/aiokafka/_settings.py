"""aiokafka's keyword arguments for the source of the modes: what it has another way than kafka-python."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from modeaware.errors import ConfigError
from modeaware.keyword_settings import OVERRIDES, Settings, split_settings

TOKEN_TIMEOUT_S = 30.0
"""How long librdkafka's thread waits for a token that the event loop is to fetch."""


def split(configs: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> Settings:
    """Part the keyword arguments of an ``AIOKafkaProducer``; see :func:`~modeaware.keyword_settings.split_settings`.

    An ``ssl_context`` is translated as far as it tells: its CA certificates and what it checks. Whether it has a
    client certificate cannot be seen: where brokers ask for one, ``modeaware_librdkafka`` has to name it.

    Args:
        loop: runs a token provider's coroutines.

    Raises:
        ConfigError: as from ``split_settings``; ``modeaware_on_resize`` is ``hold``.
    """
    words = dict(configs)
    protocol = str(words.get("security_protocol", "PLAINTEXT"))
    context = words.pop("ssl_context", None)
    if protocol.startswith("SASL"):
        words["sasl_mechanism"] = words.get("sasl_mechanism") or "PLAIN"
        if words.get("sasl_oauth_token_provider") is not None:
            words["sasl_oauth_token_provider"] = _TokenProvider(words["sasl_oauth_token_provider"], loop)
    settings = split_settings(words)
    if settings.config.on_resize == "hold":
        raise ConfigError(
            "modeaware_on_resize: 'hold' is not to be had with aiokafka's producer, which does not tell what it still "
            "has queued: give 'warn' or 'error', or take confluent_kafka's or kafka-python's"
        )
    named = any(name.startswith("ssl.") for name in configs.get(OVERRIDES) or {})
    tls = {} if context is None or "SSL" not in protocol.split("_") or named else _of_context(context)
    theirs = {name: configs[name] for name in configs if name in settings.theirs or name == "ssl_context"}
    return replace(settings, conf={**settings.conf, **tls}, theirs=theirs)


def _of_context(context: ssl.SSLContext) -> dict[str, Any]:
    conf: dict[str, Any] = {}
    # None where they lie in OpenSSL's own directory, which it reads as it needs them: librdkafka looks there as well.
    authorities = context.get_ca_certs(binary_form=True)
    if authorities:
        conf["ssl.ca.pem"] = "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in authorities)
    if not context.check_hostname:
        conf["ssl.endpoint.identification.algorithm"] = "none"
    if context.verify_mode == ssl.CERT_NONE:
        conf["enable.ssl.certificate.verification"] = False
    return conf


@dataclass(frozen=True)
class _TokenProvider:
    """kafka-python's form of a token provider of aiokafka's, whose ``token`` is a coroutine. To be called in another
    thread than the event loop's."""

    provider: Any
    loop: asyncio.AbstractEventLoop

    def token(self) -> str:
        asking = self.provider.token()
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self.loop)
        except RuntimeError:  # the loop is closed
            asking.close()
            raise
        return str(future.result(TOKEN_TIMEOUT_S))

    def extensions(self) -> Mapping[str, str]:
        found: Mapping[str, str] = getattr(self.provider, "extensions", dict)() or {}
        return found

"""aiokafka's keyword arguments in librdkafka's words."""

from __future__ import annotations

import asyncio
import gc
import ssl
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from modeaware.aiokafka._settings import split
from modeaware.errors import ConfigError
from modeaware.keyword_settings import Settings
from tests.support.secured import make_certificate


def parted(**configs: Any) -> Settings:
    loop = asyncio.new_event_loop()
    try:
        return split(configs, loop)
    finally:
        loop.close()


def test_ours_theirs_and_the_connection() -> None:
    settings = parted(bootstrap_servers=["a:1", "b:2"], acks="all", linger_ms=5, modeaware_view_timeout_ms=7)
    assert settings.conf == {"bootstrap.servers": "a:1,b:2"}
    assert settings.config.view_timeout_ms == 7
    assert settings.theirs == {"bootstrap_servers": ["a:1", "b:2"], "acks": "all", "linger_ms": 5}


def test_the_mechanism_that_aiokafka_takes_by_default() -> None:
    settings = parted(security_protocol="SASL_PLAINTEXT", sasl_plain_username="u", sasl_plain_password="p")
    assert settings.conf["sasl.mechanisms"] == "PLAIN"
    assert "sasl_mechanism" not in settings.theirs


def test_an_ssl_context_is_translated_as_far_as_it_tells(tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(make_certificate(tmp_path).certificate))
    settings = parted(bootstrap_servers="a:1", security_protocol="SSL", ssl_context=context)
    assert settings.theirs["ssl_context"] is context
    told = ssl.create_default_context(cadata=settings.conf["ssl.ca.pem"])
    assert told.get_ca_certs(binary_form=True) == context.get_ca_certs(binary_form=True) != []
    assert settings.conf.keys() == {"bootstrap.servers", "security.protocol", "ssl.ca.pem"}
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loose = parted(security_protocol="SSL", ssl_context=context).conf
    assert loose["ssl.endpoint.identification.algorithm"] == "none"
    assert loose["enable.ssl.certificate.verification"] is False
    given = {"ssl.ca.location": "ca.pem"}
    instead = parted(security_protocol="SSL", ssl_context=context, modeaware_librdkafka=given).conf
    assert instead == {"bootstrap.servers": "localhost", "security.protocol": "SSL", **given}
    assert "ssl.ca.pem" not in parted(ssl_context=context).conf


def test_a_token_providers_coroutine_runs_in_the_event_loop() -> None:
    class Provider:
        async def token(self) -> str:
            return f"of {threading.current_thread().name}"

        def extensions(self) -> dict[str, str]:
            return {"a": "b"}

    async def test() -> tuple[Any, ...]:
        conf = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        loop = asyncio.get_running_loop()
        settings, again = split(conf, loop), split(conf, loop)
        assert settings.theirs == conf
        assert settings.conf["oauth_cb"] == again.conf["oauth_cb"]  # so that clients share their views
        token: tuple[Any, ...] = await asyncio.to_thread(settings.conf["oauth_cb"], "")
        return token

    token, _, _, extensions = asyncio.run(test())
    assert (token, extensions) == (f"of {threading.current_thread().name}", {"a": "b"})


def test_a_token_that_is_asked_for_after_the_event_loop_is_refused_without_a_warning() -> None:
    class Provider:
        async def token(self) -> str:
            return "t"

    conf = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
    callback = parted(**conf).conf["oauth_cb"]
    with warnings.catch_warnings(record=True) as warned, pytest.raises(RuntimeError, match="closed"):
        callback("")
    gc.collect()
    assert warned == []


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"modeaware_on_resize": "hold"}, "'hold' is not to be had with aiokafka"),
        ({"modeaware_on_unknow": "block"}, "did you mean 'modeaware_on_unknown'"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_domain_name": "d"},
            "sasl_kerberos_domain_name cannot be passed on",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(configs: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parted(**configs)

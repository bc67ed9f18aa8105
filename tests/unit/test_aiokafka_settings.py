"""What AIOKafkaProducer's keyword arguments mean for its source of modes, in librdkafka's words."""

from __future__ import annotations

import asyncio
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from modeaware.aiokafka import AIOKafkaProducer
from modeaware.errors import ConfigError
from tests.support.offline import Acquired
from tests.support.secured import make_certificate


@pytest.fixture
def conf_of(acquired: Acquired) -> Any:
    """The librdkafka configuration of a producer's views."""

    def conf_of(**configs: Any) -> dict[str, Any]:
        async def make() -> None:
            await AIOKafkaProducer(**configs).stop()

        asyncio.run(make())
        return dict(acquired.asked[-1][0])

    return conf_of


def test_own_settings_are_taken_out(conf_of: Any, acquired: Acquired) -> None:
    servers = ["a:1", "b:2"]
    assert conf_of(bootstrap_servers=servers, acks="all", modeaware_view_timeout_ms=7) == {
        "bootstrap.servers": "a:1,b:2"
    }
    assert acquired.asked[-1][1].view_timeout_ms == 7


def test_ssl_context_is_translated_as_far_as_it_can_be_read(conf_of: Any, tmp_path: Path) -> None:
    context = ssl.create_default_context(cafile=str(make_certificate(tmp_path).certificate))
    tls = {"bootstrap_servers": "a:1", "security_protocol": "SSL", "ssl_context": context}
    conf = conf_of(**tls)
    read = ssl.create_default_context(cadata=conf["ssl.ca.pem"])
    assert read.get_ca_certs(binary_form=True) == context.get_ca_certs(binary_form=True) != []
    assert conf.keys() == {"bootstrap.servers", "security.protocol", "ssl.ca.pem"}
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loose = conf_of(**tls)
    assert loose["ssl.endpoint.identification.algorithm"] == "none"
    assert loose["enable.ssl.certificate.verification"] is False
    given = {"ssl.ca.location": "ca.pem"}
    assert "ssl.ca.pem" not in conf_of(**tls, modeaware_librdkafka=given)


def test_token_coroutine_runs_in_the_event_loop(acquired: Acquired) -> None:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return f"of {threading.current_thread().name}"

        def extensions(self) -> dict[str, str]:
            return {"a": "b"}

    async def test() -> tuple[Any, ...]:
        oauth = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()}
        producers = [AIOKafkaProducer(security_protocol="SASL_PLAINTEXT", **oauth) for _ in range(2)]
        callback, again = (conf["oauth_cb"] for conf, _ in acquired.asked)
        assert callback == again, "clients that share a provider share their views"
        token: tuple[Any, ...] = await asyncio.to_thread(callback, "")
        for producer in producers:
            await producer.stop()
        return token

    token, _, _, extensions = asyncio.run(test())
    assert (token, extensions) == (f"of {threading.current_thread().name}", {"a": "b"})


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"modeaware_on_resize": "hold"}, "'hold' is not to be had with aiokafka"),
        ({"modeaware_on_unknow": "block"}, "did you mean 'modeaware_on_unknown'"),
    ],
)
def test_unsupported_settings_are_rejected(conf_of: Any, configs: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        conf_of(**configs)

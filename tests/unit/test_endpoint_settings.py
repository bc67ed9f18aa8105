"""Settings of a controller's endpoint that would be passed over are refused."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.config import ControllerConfig
from modeaware.controller.daemon import Controller
from modeaware.errors import ConfigError

CONF = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tls_key": "key.pem"}, "--tls-key without --tls-certificate"),
        ({"tls_key": "key.pem", "listen": None}, "--tls-key without --tls-certificate"),
        ({"tls_certificate": "both.pem", "listen": None}, "--tls-certificate: there is no endpoint"),
        ({"advertised": "modes.example:9690", "listen": None}, "--advertised-listener: there is no endpoint"),
        (
            {"advertised": "modes.example:9690", "tls_certificate": "c.pem", "tls_key": "k.pem", "listen": None},
            "--advertised-listener and --tls-certificate: there is no endpoint",
        ),
    ],
)
def test_what_would_be_passed_over_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Controller(CONF, ControllerConfig(), **settings)
    assert told in str(caught.value)

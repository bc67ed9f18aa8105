"""By which name the librdkafka under our AdminClient is known to an endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as StockAdminClient

from modeaware import AdminClient


@pytest.mark.parametrize(("conf", "told"), [({}, "modeaware-librdkafka"), ({"client.software.name": "mine"}, "mine")])
def test_an_endpoint_that_refuses_old_clients_takes_it_for_none(
    monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], told: str
) -> None:
    heard: list[dict[str, Any]] = []
    real = StockAdminClient.__init__

    def listen(self: StockAdminClient, conf: dict[str, Any], **named: Any) -> None:
        heard.append(conf)
        real(self, conf, **named)

    monkeypatch.setattr(StockAdminClient, "__init__", listen)
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **conf}).close()
    assert [conf["client.software.name"] for conf in heard] == [told]

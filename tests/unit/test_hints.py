"""Errors that show that metadata may be old have the source asked again; nothing else changes for the application."""

from __future__ import annotations

from typing import Any

import pytest

from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from tests.support.offline import CONF, Acquired, finish, is_librdkafkas_own
from tests.support.waiting import eventually


@pytest.mark.parametrize("form", ["positional", "named"])
def test_a_producer_without_brokers(acquired: Acquired, form: str) -> None:
    heard: list[Any] = []
    conf = {**CONF, "error_cb": heard.append}
    producer = Producer(conf) if form == "positional" else Producer({**CONF}, error_cb=heard.append)
    eventually(lambda: producer.poll(0.1) or heard)
    eventually(lambda: acquired.views.hints)
    assert is_librdkafkas_own(producer.produce)
    finish(producer)


def test_a_consumer_without_brokers(acquired: Acquired) -> None:
    heard: list[Any] = []
    consumer = Consumer({**CONF, "group.id": "g", "error_cb": heard.append})
    eventually(lambda: consumer.poll(0.1) or heard)
    eventually(lambda: acquired.views.hints)
    consumer.close()

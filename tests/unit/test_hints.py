"""Errors that show that metadata may be old have the source asked again; nothing else changes for the application."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from modeaware.confluent._hints import STALE, Hints
from modeaware.confluent.consumer import Consumer
from modeaware.confluent.producer import Producer
from tests.support.fake_views import FakeViews
from tests.support.offline import CONF, Acquired, finish, is_librdkafkas_own
from tests.support.waiting import eventually


@pytest.mark.parametrize("code", sorted(STALE))
def test_stale_metadata_is_a_hint_and_the_application_hears_it_as_before(code: int) -> None:
    heard: list[Any] = []
    hints, error = Hints(), KafkaError(code)
    conf = hints.listening({"error_cb": heard.append, "client.id": "c"})
    conf["error_cb"](error)
    views = hints.views = FakeViews()
    conf["error_cb"](error)
    assert heard == [error, error]
    assert views.hints == 1
    assert conf["client.id"] == "c"


def test_other_errors_are_none() -> None:
    hints = Hints()
    views = hints.views = FakeViews()
    hints.listening({"error_cb": lambda _error: None})["error_cb"](KafkaError(KafkaError._AUTHENTICATION))
    assert views.hints == 0


def test_where_the_application_does_not_listen_nobody_does() -> None:
    conf = {"client.id": "c"}
    assert Hints().listening(conf) is conf
    assert Hints().listening(None) is None


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

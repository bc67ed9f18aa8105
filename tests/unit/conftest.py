"""Fixtures of the producer's tests without a broker. A module that needs other views defines its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.confluent.producer import Producer
from modeaware.views import registry
from tests.support.fake_views import FakeViews
from tests.support.offline import CONF, Acquired, Reports, finish


@pytest.fixture
def acquired(monkeypatch: pytest.MonkeyPatch) -> Acquired:
    acquired = Acquired()
    monkeypatch.setattr(registry, "acquire", acquired)
    return acquired


@pytest.fixture
def views(acquired: Acquired) -> FakeViews:
    return acquired.views


@pytest.fixture
def producer(views: FakeViews) -> Iterator[Producer]:
    producer = Producer(CONF)
    yield producer
    finish(producer)


@pytest.fixture
def reports() -> Reports:
    return Reports()

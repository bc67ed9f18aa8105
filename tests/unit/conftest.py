"""Fixtures of tests without a broker: of the producer, the endpoint's server and views from the wire.

A module that needs another thing of the same name defines its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modeaware.confluent.producer import Producer
from modeaware.views import registry
from tests.support.endpoint import FakeBroker, MakeServer, StubController, servers
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, acquiring
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


# The endpoint's server


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    broker = FakeBroker()
    yield broker
    broker.close()


@pytest.fixture
def controller() -> StubController:
    controller = StubController()
    controller.silent = True
    return controller


@pytest.fixture
def make_server(monkeypatch: pytest.MonkeyPatch, controller: StubController) -> Iterator[MakeServer]:
    with servers(monkeypatch, controller) as make:
        yield make


# Views from the wire


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    made = FakeEndpoint()
    yield made
    made.stop()


@pytest.fixture
def acquire(endpoint: FakeEndpoint) -> Iterator[Acquire]:
    with acquiring(endpoint) as acquire:
        yield acquire

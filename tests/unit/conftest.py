"""Fixtures of tests without a broker: of the producer, the endpoint's server and views from the wire.

A module that needs another thing of the same name defines its own.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from modeaware.confluent.producer import Producer
from modeaware.controller import worker
from modeaware.views import registry
from tests.support.endpoint import FakeBroker, MakeServer, StubController, servers
from tests.support.fake_endpoint import FakeEndpoint
from tests.support.fake_sources import Acquire, acquiring
from tests.support.fake_views import FakeViews
from tests.support.offline import CONF, Acquired, Reports, finish
from tests.support.secured import Certificate, make_certificate
from tests.support.worker_world import World


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """What is in a cycle of references stays, and a test sees it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


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


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


# The controller's thread


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(worker, "RETRY_DELAY_S", 0)
    monkeypatch.setattr(worker, "POLL_S", 0.001)
    return World()


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

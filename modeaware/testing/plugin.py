"""The fixtures for pytest, which finds them by the entry point ``pytest11``: no import, no configuration.

Every run of pytest imports this module if modeaware is installed, so this module itself imports only pytest.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from modeaware.controller.daemon import Controller
    from modeaware.local import Kafka
    from modeaware.testing.kafka import MockKafka
    from modeaware.testing.modes import ScriptedModes


@pytest.fixture
def modeaware_modes(request: pytest.FixtureRequest) -> Iterator[ScriptedModes]:
    """Return scripted modes for every client made in the test: :class:`modeaware.testing.ScriptedModes`.

    Raises:
        pytest.UsageError: the test also uses ``modeaware_controller``, whose modes no client would see.
    """
    if "modeaware_controller" in request.fixturenames:
        raise pytest.UsageError(
            "modeaware_modes hides the modes of modeaware_controller; use only one of these two fixtures"
        )
    from modeaware.testing.modes import ScriptedModes

    with ScriptedModes() as modes:
        yield modes


@pytest.fixture
def modeaware_mock_kafka() -> Iterator[MockKafka]:
    """Return librdkafka's mock broker, for one test: :class:`modeaware.testing.MockKafka`."""
    from modeaware.testing.kafka import MockKafka

    with MockKafka() as mock:
        yield mock


@pytest.fixture(scope="session")
def modeaware_kafka() -> Iterator[Kafka]:
    """Return a real Kafka of one node for the run: :func:`modeaware.local.start_kafka`. Needs the extra ``testing``.

    All tests of the run share this Kafka, so each test needs its own names of topics and groups.
    """
    from modeaware.local import start_kafka

    with start_kafka() as running:
        yield running


@pytest.fixture(scope="session")
def modeaware_controller_configs() -> Mapping[str, Any]:
    """Override this fixture to give ``modeaware_controller`` other settings, which are fields of
    :class:`modeaware.config.ControllerConfig`.

    If ``mode_log_topic`` is among them, set the clients' ``modeaware.mode.log.topic`` to the same topic.
    """
    return {}


@pytest.fixture(scope="session")
def modeaware_controller(
    modeaware_kafka: Kafka, modeaware_controller_configs: Mapping[str, Any]
) -> Iterator[Controller]:
    """Return the controller of ``modeaware_kafka``, with quick settings. Do not stop it: all tests of the run share it.

    Raises:
        pytest.UsageError: the extra ``testing`` is not installed.
    """
    with warnings.catch_warnings():
        # kafka-python 3.0.12 reads its schemas with a function that is deprecated in Python 3.11 and 3.12. A project's
        # settings may turn the warning into an error.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            importlib.import_module("modeaware.controller.daemon")
        except ImportError as error:
            raise pytest.UsageError(
                f"modeaware_controller needs the package {error.name or 'kafka-python'}: install modeaware[testing]"
            ) from error

    from modeaware.testing.kafka import run_controller

    with run_controller(modeaware_kafka.bootstrap_servers, **modeaware_controller_configs) as controller:
        yield controller

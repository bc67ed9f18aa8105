"""The fixtures for pytest, which finds them by the entry point ``pytest11``: nothing to import, nothing to configure.

Every run of pytest imports this module where modeaware is installed, so it imports nothing more than pytest by itself.
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
    """The modes that every client made in the test sees, by script: :class:`modeaware.testing.ScriptedModes`.

    Raises:
        pytest.UsageError: the test has a controller as well, whose modes no client would see.
    """
    if "modeaware_controller" in request.fixturenames:
        raise pytest.UsageError("modeaware_modes hides the modes of modeaware_controller; use one of them")
    from modeaware.testing.modes import ScriptedModes

    with ScriptedModes() as modes:
        yield modes


@pytest.fixture
def modeaware_mock_kafka() -> Iterator[MockKafka]:
    """librdkafka's mock broker, for one test: :class:`modeaware.testing.MockKafka`."""
    from modeaware.testing.kafka import MockKafka

    with MockKafka() as mock:
        yield mock


@pytest.fixture(scope="session")
def modeaware_kafka() -> Iterator[Kafka]:
    """A real Kafka of one node for the whole run: :func:`modeaware.local.start_kafka`. Needs the extra ``testing``.

    It is shared: use topics and groups with names of your own.
    """
    from modeaware.local import start_kafka

    with start_kafka() as running:
        yield running


@pytest.fixture(scope="session")
def modeaware_controller_configs() -> Mapping[str, Any]:
    """Override it for other settings of ``modeaware_controller``: fields of :class:`modeaware.config.ControllerConfig`.

    The mode log is the one that clients read by default.
    """
    return {}


@pytest.fixture(scope="session")
def modeaware_controller(
    modeaware_kafka: Kafka, modeaware_controller_configs: Mapping[str, Any]
) -> Iterator[Controller]:
    """The controller of ``modeaware_kafka``, with quick settings; it runs until the end of the run: do not stop it.

    Raises:
        pytest.UsageError: the extra ``testing`` is not installed.
    """
    with warnings.catch_warnings():
        # kafka-python 3.0.12 reads its schemas with a function that Python 3.11 and 3.12 call deprecated, which is an
        # error where the project's settings say so.
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

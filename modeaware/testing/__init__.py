"""For tests of applications: partition modes by script, without a broker, and a real Kafka with a controller.

The pytest fixtures are in :mod:`modeaware.testing.plugin`; what is here needs no pytest. Names are loaded when first
used: pytest imports this package in every run, and only ``run_controller`` needs the extra ``testing``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeaware.testing.catching_up import catch_up as catch_up
    from modeaware.testing.controllers import run_controller as run_controller
    from modeaware.testing.fake_views import FakeViews as FakeViews
    from modeaware.testing.fake_views import modes_of as modes_of
    from modeaware.testing.mock_kafka import MockKafka as MockKafka
    from modeaware.testing.scripted_modes import ScriptedModes as ScriptedModes

_EXPORTS = {
    "FakeViews": "modeaware.testing.fake_views",
    "MockKafka": "modeaware.testing.mock_kafka",
    "ScriptedModes": "modeaware.testing.scripted_modes",
    "catch_up": "modeaware.testing.catching_up",
    "modes_of": "modeaware.testing.fake_views",
    "run_controller": "modeaware.testing.controllers",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

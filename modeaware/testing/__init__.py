"""For tests of applications: partition modes by script, without a broker, and a real Kafka with a controller.

The pytest fixtures are in :mod:`modeaware.testing.plugin`; what is here needs no pytest. Names are loaded when first
used: pytest imports this package in every run, and only ``run_controller`` needs the extra ``testing``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modeaware.testing.kafka import MockKafka as MockKafka
    from modeaware.testing.kafka import catch_up as catch_up
    from modeaware.testing.kafka import run_controller as run_controller
    from modeaware.testing.modes import FakeViews as FakeViews
    from modeaware.testing.modes import ScriptedModes as ScriptedModes
    from modeaware.testing.modes import modes_of as modes_of

_EXPORTS = {
    "FakeViews": "modeaware.testing.modes",
    "MockKafka": "modeaware.testing.kafka",
    "ScriptedModes": "modeaware.testing.modes",
    "catch_up": "modeaware.testing.kafka",
    "modes_of": "modeaware.testing.modes",
    "run_controller": "modeaware.testing.kafka",
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

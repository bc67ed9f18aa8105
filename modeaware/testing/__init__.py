"""For tests of applications: scripted partition modes without a broker, and a real Kafka with a controller.

The pytest fixtures are in :mod:`modeaware.testing.plugin`; this module needs no pytest. Its names are loaded at their
first use, because pytest imports this package in every run, and only ``run_controller`` needs the extra ``testing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from modeaware import lazy_exports

if TYPE_CHECKING:
    from modeaware.testing.kafka import MockKafka as MockKafka
    from modeaware.testing.kafka import catch_up as catch_up
    from modeaware.testing.kafka import run_controller as run_controller
    from modeaware.testing.modes import FakeViews as FakeViews
    from modeaware.testing.modes import ScriptedModes as ScriptedModes
    from modeaware.testing.modes import modes_of as modes_of

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {"kafka": ("MockKafka", "catch_up", "run_controller"), "modes": ("FakeViews", "ScriptedModes", "modes_of")},
)

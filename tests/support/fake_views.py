"""Views of partition modes held in memory: those that applications are tested with, too."""

from __future__ import annotations

from modeaware.testing.modes import FakeViews, modes_of

__all__ = ["FakeViews", "modes_of"]

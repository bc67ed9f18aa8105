"""Views of partition modes held in memory: those that applications are tested with, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modeaware.modes import PartitionMode
from modeaware.testing.modes import FakeViews, modes_of
from modeaware.topic_view import Successor, TopicView

__all__ = ["FakeViews", "announce", "modes_of", "switch"]


def announce(views: FakeViews, topic: str, successor: str, count: int = 4) -> TopicView:
    """As the record of ``topic`` shows it once its successor exists."""
    view = views.view(topic)
    if view.topic_id is None:
        view = TopicView(topic, f"id-of-{topic}", (1, 1), modes_of(12, 12))
    view = replace(view, version=(1, view.epoch + 1), successor=Successor(successor, f"id-of-{successor}", count))
    views.put(view)
    return view


def switch(views: FakeViews, topic: str, successor: str, count: int = 4, **state: Any) -> TopicView:
    view = announce(views, topic, successor, count)
    assert view.successor is not None
    view = replace(
        view,
        version=(1, view.epoch + 1),
        modes=(PartitionMode.READ_ONLY,) * len(view.modes),
        successor=replace(view.successor, switched=True, **state),
    )
    views.put(view)
    return view

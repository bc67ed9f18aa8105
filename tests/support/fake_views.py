"""Views of partition modes held in memory: those that applications are tested with, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modeaware.modes import PartitionMode
from modeaware.testing.modes import FakeViews, modes_of
from modeaware.topic_view import ReplacedBy, TopicView

__all__ = ["FakeViews", "announce", "modes_of", "switch"]


def announce(views: FakeViews, topic: str, new_topic: str, count: int = 4) -> TopicView:
    """As the record of ``topic`` shows it once the new topic exists."""
    view = views.view(topic)
    if view.topic_id is None:
        view = TopicView(topic, f"id-of-{topic}", (1, 1), modes_of(12, 12))
    view = replace(view, version=(1, view.epoch + 1), replaced_by=ReplacedBy(new_topic, f"id-of-{new_topic}", count))
    views.put(view)
    return view


def switch(views: FakeViews, topic: str, new_topic: str, count: int = 4, **state: Any) -> TopicView:
    view = announce(views, topic, new_topic, count)
    assert view.replaced_by is not None
    view = replace(
        view,
        version=(1, view.epoch + 1),
        modes=(PartitionMode.READ_ONLY,) * len(view.modes),
        replaced_by=replace(view.replaced_by, switched=True, **state),
    )
    views.put(view)
    return view

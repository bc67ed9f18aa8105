"""The topic that a name stands for in calls that neither write nor read a record.

From the switch on, the name of an old topic in a call about *writing* stands for the topic to which records under the
name go. In a call about *offsets* (committed ones, and those of the log), the name stands for the topic that brokers
have under this name. If brokers have no such topic, the name stands for the first topic of the name's chain that
exists. :mod:`modeaware.chain` defines the terms.
"""

from __future__ import annotations

from collections.abc import Callable

from modeaware.chain import chain_views, present_topic, written_topic
from modeaware.clients.following import FirstView
from modeaware.topic_view import TopicView
from modeaware.views.source import VERIFY_TIMEOUT_S, Views


class PairedName(str):
    """A string with both names of a topic as attributes, because client libraries pass only one string on.

    Attributes:
        logical: the application's name for the topic.
        physical: the name of the topic that has the record.
    """

    logical: str
    physical: str

    @classmethod
    def of(cls, shown: str, logical: str, physical: str) -> PairedName:
        made = cls(shown)
        made.logical, made.physical = logical, physical
        return made


class NamedTopics:
    """The topics that names stand for, by one client's share of the views. Thread-safe.

    Calls wait up to ``timeout_s`` seconds (-1: up to ``modeaware.view.timeout.ms``) for the first view. If no view has
    come by then, the name stands for itself.

    Raises, from every call:
        ClientErrors.timeout: no view within ``modeaware.view.timeout.ms``, and ``modeaware.on.unknown`` is ``error``.
    """

    def __init__(self, views: Views, first_view: FirstView) -> None:
        self._views = views
        self._first_view = first_view

    def written(self, name: str, timeout_s: float = -1.0) -> str:
        """Return the topic to which records under ``name`` go."""
        return self._points_to(name, written_topic, timeout_s)

    def present(self, name: str, timeout_s: float = -1.0) -> str:
        """Return the topic that ``name`` stands for in calls about offsets."""
        return self._points_to(name, present_topic, timeout_s)

    def writable_partitions(self, name: str, count: Callable[[str], int]) -> tuple[int, ...]:
        """Return the partitions to which a record under ``name`` may be addressed now, ascending.

        Args:
            count: returns how many partitions a topic has; called only if no partition is retired.

        Raises:
            ClientErrors.pending: there is no first view, and ``modeaware.on.unknown`` is ``block``.
        """
        self._first_view.wait()
        self._verify(name)
        view = written_topic(name, self._views.view)
        return tuple(range(count(view.topic))) if view.all_writable else view.writable

    def _points_to(
        self, name: str, topic_of: Callable[[str, Callable[[str], TopicView]], TopicView], timeout_s: float
    ) -> str:
        first = self._first_view
        if not first.over:
            first.arrived(first.left_s() if timeout_s < 0 else min(timeout_s, first.left_s()))
        if self._views.view(name).replaced_by is None:
            return name
        self._verify(name)
        return topic_of(name, self._views.view).topic

    def _verify(self, name: str) -> None:
        """Compare the topic ids of the chain with the cluster's (invariant I8). Aliases are left out, because the log
        alone decides where an alias points."""
        chain = chain_views(name, self._views.view)
        there = {view.topic for view in chain if not view.is_alias}
        self._views.verify(there, VERIFY_TIMEOUT_S)

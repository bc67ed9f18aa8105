"""The chain of topics that a name leads to: each one has replaced the one before it.

Producers write to the last one that has been switched to (:mod:`modeaware.lifecycle.replacement`). What a group reads
of the chain is decided at the gates (:mod:`modeaware.clients.subscription`). A chain may lead back to an earlier name,
to a topic of another id: a step is a name, and :func:`walk` passes each topic id once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from modeaware.topic_view import Successor, TopicView

Views = Callable[[str], TopicView]
"""The view of the topic of a name."""


class _Link(Protocol):
    @property
    def topic_id(self) -> str | None: ...


Link = TypeVar("Link", bound=_Link)


def walk(first: Iterable[Link], step: Callable[[Link], Iterable[Link]]) -> Iterator[Link]:
    """Yield ``first`` and all that ``step`` leads to from there, the nearest first, each topic id once."""
    passed: set[str | None] = set()
    found = list(first)
    for each in found:
        if each.topic_id not in passed:
            passed.add(each.topic_id)
            yield each
            found += step(each)


def written_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic that producers write to, who name it ``topic``."""
    return segments(topic, views)[-1]


def present_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic of that name; where brokers have none, of the first one in its chain that they have.

    A chain may lead back to its first name: then it is the new topic of that name, not the interim one before it.
    """
    found = segments(topic, views)
    here = [view for view in found if not view.is_alias] or [found[-1]]
    return next((view for view in here if view.topic == topic), here[0])


def segments(topic: str, views: Views) -> tuple[TopicView, ...]:
    """Return the views of the topics that have had the name ``topic`` one after another: the last one is written to.

    A topic of another id under the name of a successor is the last one, without modes: its own record may apply to it,
    that of the successor does not (invariant I8).
    """

    def switched_to(view: TopicView) -> Iterable[TopicView]:
        if (now := view.successor) is None or not now.switched:
            return ()
        return (_following(now, views) or TopicView(now.topic, now.topic_id),)

    return tuple(walk((views(topic),), switched_to))


def predecessors(views: Mapping[str, TopicView]) -> dict[str, TopicView]:
    """Return successor -> the view of the topic that it replaces (invariant I8: where the names are those topics)."""
    found: dict[str, TopicView] = {}
    for view in views.values():
        if view.successor is not None and _following(view.successor, views.get) is not None:
            found[view.successor.topic] = view
    return found


def _following(successor: Successor, views: Callable[[str], TopicView | None]) -> TopicView | None:
    """Return the view of the successor; None where another topic has its name.

    A chain may lead back to an earlier name: what is in force under that is the view of the topic that is gone.
    """
    found = views(successor.topic)
    if found is not None and found.topic_id == successor.topic_id:
        return found
    is_free = found is None or found.topic_id is None or found.is_alias
    return TopicView(successor.topic, successor.topic_id) if is_free else None


def links(topic: str, views: Callable[[str], TopicView | None]) -> tuple[TopicView, ...]:
    """Return the views of the topics of the chain that begins at ``topic``, also of those that are only announced."""

    def replaced_by(view: TopicView) -> Iterable[TopicView]:
        following = _following(view.successor, views) if view.successor is not None else None
        return () if following is None else (following,)

    return tuple(walk((views(topic) or TopicView.unlisted(topic),), replaced_by))


def read_topics(topic: str, views: Callable[[str], TopicView | None], needs: Callable[[TopicView], bool]) -> list[str]:
    """Return the topics that a member subscribes to who names ``topic``: the last one of its chain, and those before it
    that its group needs (invariant I2).

    Args:
        needs: whether the group still reads a topic that is replaced.
    """
    *before, last = links(topic, views)
    return [*(view.topic for view in before if needs(view)), last.topic]


def logical_topic(topic: str, is_named: Callable[[str], bool], before: Mapping[str, TopicView]) -> str:
    """Return the earliest name in the chain that led to ``topic`` for which ``is_named`` is true; ``topic`` where none
    is.

    Args:
        before: :func:`predecessors`.
    """
    named = [view.topic for view in topics_before(topic, before) if is_named(view.topic)]
    return named[-1] if named else topic


def topics_before(topic: str, before: Mapping[str, TopicView]) -> Iterator[TopicView]:
    """Yield the topics of the chain that led to ``topic``, the last one first.

    Args:
        before: :func:`predecessors`.
    """

    def replaced_by(name: str) -> Iterable[TopicView]:
        return (before[name],) if name in before else ()

    return walk(replaced_by(topic), lambda view: replaced_by(view.topic))

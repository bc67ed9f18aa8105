"""The chain of topics that begins at a name: each topic has replaced the one before it.

Producers write to the last topic of the chain whose switch has taken place (:mod:`modeaware.lifecycle.replacement`).
The gates decide which topics of the chain a group reads (:mod:`modeaware.clients.subscription`). A rename back brings
an earlier name into the chain again, for a topic of another id. So :func:`walk` follows names, but passes each topic id
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from modeaware.topic_view import ReplacedBy, TopicView

Views = Callable[[str], TopicView]
"""Returns the view of the topic with a name."""


class _Link(Protocol):
    @property
    def topic_id(self) -> str | None: ...


Link = TypeVar("Link", bound=_Link)


def walk(first: Iterable[Link], step: Callable[[Link], Iterable[Link]]) -> Iterator[Link]:
    """Yield ``first`` and all links that ``step`` returns from there, the nearest first, each topic id once."""
    passed: set[str | None] = set()
    links = list(first)
    for link in links:
        if link.topic_id not in passed:
            passed.add(link.topic_id)
            yield link
            links += step(link)


def written_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic to which producers of ``topic`` write."""
    return segments(topic, views)[-1]


def present_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic of that name; if brokers have no such topic, of the first topic in its chain that
    brokers have.

    After a rename back this is the newest topic of the name, not the topic between.
    """
    topics = segments(topic, views)
    here = [view for view in topics if not view.is_alias] or [topics[-1]]
    return next((view for view in here if view.topic == topic), here[0])


def segments(topic: str, views: Views) -> tuple[TopicView, ...]:
    """Return the views of the topics of the chain, up to the last switch: producers write to the last topic.

    A topic of another id under the name of a new topic ends the chain, without modes: the new topic's record does not
    apply to that topic (invariant I8).
    """

    def switched_to(view: TopicView) -> Iterable[TopicView]:
        if (new_topic := view.replaced_by) is None or not new_topic.switched:
            return ()
        return (_following(new_topic, views) or TopicView(new_topic.topic, new_topic.topic_id),)

    return tuple(walk((views(topic),), switched_to))


def old_topics(views: Mapping[str, TopicView]) -> dict[str, TopicView]:
    """Return the name of each new topic -> the view of its old topic; without a name that another topic has (invariant
    I8)."""
    before: dict[str, TopicView] = {}
    for view in views.values():
        if view.replaced_by is not None and _following(view.replaced_by, views.get) is not None:
            before[view.replaced_by.topic] = view
    return before


def _following(new_topic: ReplacedBy, views: Callable[[str], TopicView | None]) -> TopicView | None:
    """Return the view of the new topic; None if another topic has the new topic's name.

    During a rename back, the view in force under that name may still be that of the topic that is gone.
    """
    view = views(new_topic.topic)
    if view is not None and view.topic_id == new_topic.topic_id:
        return view
    is_free = view is None or view.topic_id is None or view.is_alias
    return TopicView(new_topic.topic, new_topic.topic_id) if is_free else None


def links(topic: str, views: Callable[[str], TopicView | None]) -> tuple[TopicView, ...]:
    """Return the views of all topics of the chain that begins at ``topic``, also if only announced."""

    def replaced_by(view: TopicView) -> Iterable[TopicView]:
        following = _following(view.replaced_by, views) if view.replaced_by is not None else None
        return () if following is None else (following,)

    return tuple(walk((views(topic) or TopicView.unlisted(topic),), replaced_by))


def read_topics(topic: str, views: Callable[[str], TopicView | None], needs: Callable[[TopicView], bool]) -> list[str]:
    """Return the topics that a member subscribes to for ``topic``: the last topic of the chain, and the earlier ones
    that the member's group needs (invariant I2).

    Args:
        needs: returns whether the group still reads an old topic.
    """
    *before, last = links(topic, views)
    return [*(view.topic for view in before if needs(view)), last.topic]


def logical_topic(topic: str, is_named: Callable[[str], bool], before: Mapping[str, TopicView]) -> str:
    """Return the earliest name before ``topic`` in the chain for which ``is_named`` is true; ``topic`` if there is
    none.

    Args:
        before: :func:`old_topics`.
    """
    named = [view.topic for view in topics_before(topic, before) if is_named(view.topic)]
    return named[-1] if named else topic


def topics_before(topic: str, before: Mapping[str, TopicView]) -> Iterator[TopicView]:
    """Yield the topics before ``topic`` in the chain, the last one first.

    Args:
        before: :func:`old_topics`.
    """

    def replaced_by(view: TopicView) -> Iterable[TopicView]:
        old = before.get(view.topic)
        if old is None or old.replaced_by is None:
            return ()
        # After a rename back, the first topic of the chain and the last one share a name, but not the old topic.
        return (old,) if view.topic_id == old.replaced_by.topic_id else ()

    first = before.get(topic)
    return walk(() if first is None else (first,), replaced_by)

"""The chain of topics that begins at a name: each topic replaces the topic before it.

From a *switch* on, producers write to the new topic (:mod:`modeaware.lifecycle.replacement`); the last switch in the
chain counts. *Gates* decide which topics of the chain a group reads (:mod:`modeaware.clients.subscription`). The name
of a deleted old topic is an *alias*. A *rename back* is a replacement whose new topic gets an earlier name: then the
chain has this name twice, with two topic ids. So :func:`walk` follows names, and yields each topic id once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from modeaware.topic_view import ReplacedBy, TopicView

Views = Callable[[str], TopicView]
"""A function from a name to the view of the topic that has the name."""


class _Link(Protocol):
    @property
    def topic_id(self) -> str | None: ...


Link = TypeVar("Link", bound=_Link)


def walk(first: Iterable[Link], step: Callable[[Link], Iterable[Link]]) -> Iterator[Link]:
    """Yield ``first``, the links that ``step`` returns for these, and so on; nearest first, each topic id once."""
    passed: set[str | None] = set()
    links = list(first)
    for link in links:
        if link.topic_id not in passed:
            passed.add(link.topic_id)
            yield link
            links += step(link)


def written_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic to which producers of ``topic`` write."""
    return chain_views(topic, views)[-1]


def present_topic(topic: str, views: Views) -> TopicView:
    """Return the view of the topic that has the name now. If no topic has the name, return the view of the first
    existing topic of the name's chain, or else of the chain's last topic.

    After a rename back (``a``, ``b``, ``a``), this is the view of the second ``a``, not of ``b``.
    """
    topics = chain_views(topic, views)
    here = [view for view in topics if not view.is_alias] or [topics[-1]]
    return next((view for view in here if view.topic == topic), here[0])


def chain_views(topic: str, views: Views) -> tuple[TopicView, ...]:
    """Return the views of the chain's topics up to the last switch. Producers write to the last of these topics.

    If another topic now has the name of a new topic, the chain ends with a view of the new topic that has no modes: the
    record of one topic id does not apply to another id (invariant I8).
    """

    def switched_to(view: TopicView) -> Iterable[TopicView]:
        if (new_topic := view.replaced_by) is None or not new_topic.switched:
            return ()
        return (_following(new_topic, views) or TopicView(new_topic.topic, new_topic.topic_id),)

    return tuple(walk((views(topic),), switched_to))


def old_topics(views: Mapping[str, TopicView]) -> dict[str, TopicView]:
    """Return name of a new topic -> view of its old topic. If another topic has the new topic's name now, that name is
    left out (invariant I8)."""
    before: dict[str, TopicView] = {}
    for view in views.values():
        if view.replaced_by is not None and _following(view.replaced_by, views.get) is not None:
            before[view.replaced_by.topic] = view
    return before


def _following(new_topic: ReplacedBy, views: Callable[[str], TopicView | None]) -> TopicView | None:
    """Return the view of the new topic, or None if another topic has the new topic's name.

    During a rename back, the view under the name may still be that of an alias. The name is free then.
    """
    view = views(new_topic.topic)
    if view is not None and view.topic_id == new_topic.topic_id:
        return view
    is_free = view is None or view.topic_id is None or view.is_alias
    return TopicView(new_topic.topic, new_topic.topic_id) if is_free else None


def links(topic: str, views: Callable[[str], TopicView | None]) -> tuple[TopicView, ...]:
    """Return the views of all topics of the chain that begins at ``topic``, also of a new topic before its switch."""

    def replaced_by(view: TopicView) -> Iterable[TopicView]:
        following = _following(view.replaced_by, views) if view.replaced_by is not None else None
        return () if following is None else (following,)

    return tuple(walk((views(topic) or TopicView.unlisted(topic),), replaced_by))


def read_topics(topic: str, views: Callable[[str], TopicView | None], needs: Callable[[TopicView], bool]) -> list[str]:
    """Return the topics to which a member subscribes for ``topic``: the last topic of the chain, and the earlier topics
    that the member's group needs (invariant I2).

    Args:
        needs: returns whether the group still reads an old topic.
    """
    *before, last = links(topic, views)
    return [*(view.topic for view in before if needs(view)), last.topic]


def logical_topic(topic: str, is_named: Callable[[str], bool], before: Mapping[str, TopicView]) -> str:
    """Return the earliest name before ``topic`` in the chain for which ``is_named`` is true. If there is none, return
    ``topic``.

    Args:
        before: the result of :func:`old_topics`.
    """
    named = [view.topic for view in topics_before(topic, before) if is_named(view.topic)]
    return named[-1] if named else topic


def topics_before(topic: str, before: Mapping[str, TopicView]) -> Iterator[TopicView]:
    """Yield the topics before ``topic`` in the chain, the last one first.

    Args:
        before: the result of :func:`old_topics`.
    """

    def replaced_by(view: TopicView) -> Iterable[TopicView]:
        old = before.get(view.topic)
        if old is None or old.replaced_by is None:
            return ()
        # After a rename back, the first and the last topic of the chain share a name; ``old`` precedes the last only.
        return (old,) if view.topic_id == old.replaced_by.topic_id else ()

    first = before.get(topic)
    return walk(() if first is None else (first,), replaced_by)

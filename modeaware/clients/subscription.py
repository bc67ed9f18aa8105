"""Which topics a member subscribes to, and which new topics it shows: a pure function of views and names.

The function sends no request, and has no clock and no memory. Facts of the mode log do not expire, and every member of
a group with the same views gets the same result.

**Subscribed**: every topic of a name's chain (:mod:`modeaware.chain`) that is not *gone* (deleted). A *released* old
topic (no required group needs it) is not subscribed if the gate behind it (below) is open for the group: a subscription
would prevent the topic's deletion. With ``modeaware.on.replace=named``, only the application's own names are
subscribed. If a pattern matches a released topic of this kind, the topic is *left out* of the pattern.

**Shown**: each old topic has a *gate* behind it. A new topic is hidden while the gate behind any earlier topic of its
chain is closed for the group. Gates behind topics that are gone do not count. The controller opens gates
(:mod:`modeaware.modelog.moved`); a view has the groups with an open gate in ``replaced_by.moved``. Gates apply to all
subscriptions: by name, by pattern, and to the new topic itself (invariant I9). In two cases a gate is open without the
controller:

* The group names the new topic but not the old topic, and the replacement's complete list of groups does not contain
  the group. This case applies only after the switch. Before the switch, the list of groups is not final. Topics
  are compared by id, because a chain may return to its first name.
* ``modeaware.on.replace`` is ``unordered``.

A release opens no gate. A consumer without a group decides by its own progress.

If a replacement is undone, no name points to its new topic any more. Then the new topic is hidden without a gate
(``Gate.UNNAMED``), unless the application names the topic itself or already holds its partitions. The topic stays
assigned to the member until brokers have deleted it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from modeaware.chain import links, logical_topic, old_topics, read_topics, topics_before
from modeaware.modes import PartitionMode
from modeaware.topic_view import TopicView

Match = Callable[[str, str], bool | None]
"""Returns whether the client library matches a topic with a pattern (``^...``), or None if that is unknown."""


class Gate(Enum):
    """What hides a topic from a group. ``ABSENT`` and ``OPEN`` hide nothing. ``UNNAMED`` and ``LEFT`` do not hide a
    partition that the application already holds."""

    ABSENT = "replaces no topic"
    CLOSED = "closed"
    OPEN = "open"
    UNNAMED = "no name points to the topic"
    LEFT = "released, and the gate behind it is open for the group"


@dataclass(frozen=True)
class Reader:
    """A reader, and the names that it subscribes to.

    Attributes:
        group: the group; "" for a consumer without one.
        names: what the application subscribes to: names of topics, and patterns (``^...``).
        match: how the client library matches a pattern.
        on_replace: ``modeaware.on.replace``.
        passed: ids of the old topics that a consumer without a group has read to their ends itself.
    """

    group: str
    names: tuple[str, ...]
    match: Match
    on_replace: str = "ordered"
    passed: frozenset[str] = frozenset()

    @property
    def follows(self) -> bool:
        """Return whether the member subscribes to topics that the application does not name."""
        return self.on_replace != "named"

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.startswith("^"))

    def names_topic(self, topic: str) -> bool:
        """Return whether the application's subscription includes ``topic``; True if a pattern's match is unknown."""
        return topic in self.names or any(self.match(pattern, topic) is not False for pattern in self.patterns)

    def has_open_gate(self, old: TopicView) -> bool:
        """Return whether the controller has opened the gate behind ``old`` for the group."""
        if old.replaced_by is None:
            return False
        return old.replaced_by.moved.has_open_gate(self.group) if self.group else old.topic_id in self.passed

    def needs(self, old: TopicView) -> bool:
        """Return whether the member still subscribes to ``old``; True if no topic replaces ``old``."""
        new_topic = old.replaced_by
        return new_topic is None or not (new_topic.gone or (new_topic.released and self.has_open_gate(old)))


class TopicReading(NamedTuple):
    """How a member reads one topic.

    Attributes:
        view: the view of the topic that brokers have under the name.
        gate: what hides the topic.
        ends: partition -> the offset behind its last record, for the sealed partitions of an old topic. For the
            ReadOnly partitions of another topic: the resume offset.
        awaits_report: members report the group's progress on this old topic by notes in commits, because the gate
            behind the topic is closed for the group.
    """

    view: TopicView
    gate: Gate
    ends: Mapping[int, int]
    awaits_report: bool


@dataclass(frozen=True)
class Reading:
    """What a member reads by the views in force.

    Attributes:
        topics: what to subscribe to: names and patterns of the application, and topics of their chains.
        left_out: topics that a pattern of the application matches and that are no longer read.
        logical: new topic -> the name by which the application subscribes to its chain. New topics that the application
            names itself are not keys.
        old: new topic -> the view of the topic that it replaces.
    """

    reader: Reader
    views: Mapping[str, TopicView]
    topics: tuple[str, ...]
    left_out: frozenset[str]
    logical: Mapping[str, str]
    old: Mapping[str, TopicView]
    _led_to: Mapping[str, TopicView]
    _ids: frozenset[str | None]
    _topics: dict[str, TopicReading] = field(default_factory=dict, compare=False)

    def view(self, topic: str) -> TopicView:
        """Return the view of the topic that brokers have under the name ``topic``. The view of an alias is of a deleted
        topic, so it is not returned: brokers may have another topic of that name (invariant I8)."""
        view = self.views.get(topic)
        return TopicView.unlisted(topic) if view is None or view.is_alias else view

    def is_alias(self, topic: str) -> bool:
        return topic in self.views and self.views[topic].is_alias

    def topic(self, topic: str) -> TopicReading:
        """Return how the member reads ``topic``; computed once."""
        reading = self._topics.get(topic)
        if reading is None:
            view = self.view(topic)
            waits = view.replaced_by is not None and not self.reader.has_open_gate(view)
            reading = TopicReading(view, self._gate(topic, view), _ends(view), bool(self.reader.group) and waits)
            self._topics[topic] = reading
        return reading

    def gate(self, topic: str) -> Gate:
        """Return what hides ``topic``, a topic that the member is assigned."""
        return self.topic(topic).gate

    def _gate(self, topic: str, view: TopicView) -> Gate:
        if self.reader.follows and view.replaced_by is not None and not self.reader.needs(view):
            return Gate.LEFT
        if topic in self.old:
            return self._gates[topic]
        is_known = topic in self._led_to or self.reader.names_topic(topic)
        return Gate.ABSENT if is_known else Gate.UNNAMED

    @cached_property
    def _gates(self) -> Mapping[str, Gate]:
        """The gates of the new topics."""
        is_ordered = self.reader.on_replace != "unordered"
        passed = {view.topic_id: self._is_passed(view) for view in self.old.values()}
        closed = {
            topic
            for topic in self.old
            if is_ordered and not all(passed[view.topic_id] for view in topics_before(topic, self.old))
        }
        return {topic: Gate.CLOSED if topic in closed else Gate.OPEN for topic in self.old}

    def _is_passed(self, old: TopicView) -> bool:
        new_topic = old.replaced_by
        if new_topic is None or new_topic.gone or self.reader.has_open_gate(old):
            return True
        group = self.reader.group
        is_user = bool(group) and (group in new_topic.groups or not new_topic.groups_complete)
        return new_topic.switched and not is_user and old.topic_id not in self._ids

    def topic_id(self, topic: str) -> str | None:
        """Return the id of ``topic``, if known. A new topic may have no record: its old topic's record has the id."""
        new_topic = self.old[topic].replaced_by if topic in self.old else None
        return self.view(topic).topic_id if new_topic is None else new_topic.topic_id

    @cached_property
    def new_topics(self) -> frozenset[str]:
        """The topics among :attr:`topics` that replace another one."""
        return frozenset(self.old).intersection(self.topics)


def read(reader: Reader, views: Mapping[str, TopicView]) -> Reading:
    """Return what ``reader`` reads by ``views``."""
    old = old_topics(views)
    led_to = {view.topic: view for name in _first_topics(reader, views) for view in links(name, views.get)}
    if not reader.follows:
        ids = frozenset(_id(views, topic) for topic in [*views, *reader.names] if reader.names_topic(topic))
        return Reading(reader, views, reader.names, frozenset(), {}, old, {}, ids)
    topics: dict[str, None] = {}
    left_out: set[str] = set()
    for name in reader.names:
        if name.startswith("^"):
            topics |= dict.fromkeys(_matched(reader, name, views, left_out))
        else:
            topics |= dict.fromkeys(read_topics(name, views.get, reader.needs))
    ids = frozenset(view.topic_id for name in _first_topics(reader, views) for view in links(name, views.get))
    chains = {topic: logical_topic(topic, reader.names_topic, old) for topic in old.keys() - set(reader.names)}
    logical = {topic: name for topic, name in chains.items() if name != topic}
    return Reading(reader, views, tuple(topics), frozenset(left_out), logical, old, led_to, ids)


def _ends(view: TopicView) -> Mapping[int, int]:
    if view.replaced_by is not None:
        return view.replaced_by.read_up_to
    ends = view.resume_offsets.items()
    return {partition: end for partition, end in ends if view.mode(partition) is PartitionMode.READ_ONLY}


def _first_topics(reader: Reader, views: Mapping[str, TopicView]) -> Iterable[str]:
    """Return the names with which the chains of ``reader`` begin."""
    matched = (
        topic for topic in views if any(reader.match(pattern, topic) is not False for pattern in reader.patterns)
    )
    return dict.fromkeys([*(name for name in reader.names if not name.startswith("^")), *matched])


def _id(views: Mapping[str, TopicView], topic: str) -> str | None:
    return views[topic].topic_id if topic in views else None


def _matched(reader: Reader, pattern: str, views: Mapping[str, TopicView], left_out: set[str]) -> list[str]:
    """Return the pattern, and the topics to subscribe to by name. The pattern does not match these topics, but matches
    an earlier topic of their chain.

    Args:
        left_out: the set to which the function adds the topics that the pattern matches and that are no longer read.
    """
    replaced = {topic for topic, view in views.items() if view.replaced_by and reader.match(pattern, topic)}
    needed = dict.fromkeys(topic for first in sorted(replaced) for topic in read_topics(first, views.get, reader.needs))
    left_out |= replaced - needed.keys()
    return [pattern, *(topic for topic in needed if reader.match(pattern, topic) is False)]

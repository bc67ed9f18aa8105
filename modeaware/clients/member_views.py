"""The views by which a member decides, and the log lines about them, for every client library."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from modeaware.callouts import get_logger
from modeaware.chain import old_topics
from modeaware.clients.member import Member
from modeaware.clients.partition import State
from modeaware.clients.subscription import Gate
from modeaware.errors import ModeSourceError
from modeaware.modes import format_ranges
from modeaware.views.source import VERIFY_TIMEOUT_S, Views

log = get_logger(__name__)

REFRESH_S = 3.0


class MemberViews:
    """The views of one member. For the polling thread.

    Args:
        group_id: the group, for the log.
    """

    def __init__(self, member: Member, views: Views, group_id: str) -> None:
        self._member = member
        self._views = views
        self._group_id = group_id
        self._known: set[str] = set()
        self._open: set[str] = set()
        self._warned: set[str] = set()

    def follow(self) -> None:
        """Make the member decide by the views in force."""
        self._member.viewed(self._views.views())
        reading = self._member.reading
        now_open = {topic for topic in reading.new_topics if reading.gate(topic) is Gate.OPEN}
        for topic in sorted(now_open - self._open):
            log.info("%s: the gate of %s is open", self._group_id, topic)
        self._open = now_open
        if self._member.manual:
            self._warn_of_manual()

    def verify(self, topics: Collection[str]) -> None:
        """Drop the views of topics that were deleted, and created again under their names (invariant I8)."""
        self._views.verify(topics, VERIFY_TIMEOUT_S)

    def before_assignment(self, topics: Collection[str]) -> None:
        """Verify the views of ``topics`` before their partitions are assigned. If the member meets a topic without a
        record for the first time, also refresh all views: the topic may have replaced another one."""
        self.verify(topics)
        unknown = set(topics) - self._known
        unknown -= self._views.recorded(unknown) | old_topics(self._views.views()).keys()
        if unknown and self._views.ready:
            try:
                self._views.refresh(REFRESH_S)
            except ModeSourceError as error:
                log.warning(
                    "%s: partitions of %s are assigned by the last known modes: %s",
                    self._group_id, sorted(unknown), error,
                )  # fmt: skip
        self._known.update(topics)
        self.follow()

    def _warn_of_manual(self) -> None:
        """Warn of partitions that the application assigned itself; its assignment is not changed."""
        reading = self._member.reading
        for topic in sorted({topic for topic, _ in self._member.partitions} - self._warned):
            view = reading.view(topic)
            hidden = [p for t, p in self._member.partitions if t == topic and not view.is_readable(p)]
            if hidden:
                log.warning(
                    "%s: partitions %s are in mode None, and are not read until their mode changes",
                    topic, format_ranges(hidden),
                )  # fmt: skip
            if view.replaced_by is not None:
                log.warning(
                    "%s: topic %s is being replaced by %s, and its partitions were assigned with assign(). Once they "
                    "are read to the end, assign the partitions of %s; or use subscribe()",
                    self._group_id, topic, view.replaced_by.topic, view.replaced_by.topic,
                )  # fmt: skip
            if hidden or view.replaced_by is not None:
                self._warned.add(topic)

    def stats(self) -> dict[str, Any]:
        """Return the member's part of ``modeaware_stats`` (any thread)."""
        states = [partition.state for partition in tuple(self._member.partitions.values())]
        reading = self._member.reading
        gates = [
            {"topic": reading.old[topic].topic, "new_topic": topic, "state": reading.gate(topic).value}
            for topic in sorted(reading.new_topics)
        ]
        held = states.count(State.SHOWN)
        return {"assigned": held, "hidden": len(states) - held, "gates": gates}

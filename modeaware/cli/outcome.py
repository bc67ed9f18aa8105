"""The outcome of a change that ``--wait`` watches: whether the wait is over, and the message at its end."""

from __future__ import annotations

from collections.abc import Sequence

from modeaware.errors import ModeAwareError
from modeaware.lifecycle import reasons
from modeaware.lifecycle.keep_name import KeptName
from modeaware.lifecycle.report import ReplacementReport
from modeaware.plan.steps import AcceptStateLoss, Replace, Resizes, Shrink, Step
from modeaware.reports.describe import TopicDescription
from modeaware.reports.session import Session


class Watch:
    """The state of one topic's change, from the topic's descriptions.

    Args:
        steps: the steps of the change, taken now or earlier; empty if another command has begun the change.

    Attributes:
        last: the last description.
        wanted: the requested replacement, if one was requested.
        count: the partition count of a replaced topic, from the time before its deletion.
        is_replaced: whether a replaced topic is deleted, and another topic has its name. (As long as the old topic
            exists, its description shows the replacement.)
        kept: the change that keeps the topic's name, as last described.
        is_kept: whether that change is done.
        pause_ms: the time from the switch of a replacement until all partitions were sealed, if both were observed.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.wanted = next((step.command for step in steps if isinstance(step, Replace)), None)
        self.undo = self.wanted is not None and self.wanted.undo
        self.last: TopicDescription | None = None
        self.count = 0
        self.is_replaced = False
        self._switched_id: str | None = None
        self.pause_ms: int | None = None
        self._seen_unsealed = False
        self.kept: KeptName | None = None
        self.is_kept = False

    def ended(self, topic: TopicDescription) -> bool:
        """Return whether the change is done, or waits only for a command or for the topic's own retention."""
        self.last, replacement = topic, topic.replacement
        if self.keeps_name and topic.kept_name is not None and topic.kept_name.keeps:
            self.kept = topic.kept_name
            self.is_kept = self.kept.phase == "done"
            self.count = max(self.count, len(topic.partitions) if self.kept.half == 1 else 0)
            return self.is_kept or (topic.is_idle and topic.phase != "done")
        if self.kept is not None:
            is_left = topic.kept_name is not None  # otherwise the interim topic's alias is removed, too
            self.is_kept = not is_left and (self.kept.half == 2 or self.kept.first_switched_ms is not None)
            self.kept = self.kept if self.is_kept else None
        if replacement is None:
            wanted = None if self.wanted is None else self.wanted.new_topic
            is_other = self._switched_id is not None and topic.topic_id != self._switched_id
            self.is_replaced = is_other or (wanted is not None and wanted in (topic.points_to, topic.replaces))
            return topic.phase == "done" or self.wanted is not None
        self.count = len(topic.partitions) or self.count
        self._switched_id = topic.topic_id if replacement.switched_ms is not None else None
        if replacement.switched_ms is None or topic.phase == "seal":
            self._seen_unsealed = True
        elif self._seen_unsealed and self.pause_ms is None:
            self.pause_ms = replacement.changed_ms - replacement.switched_ms
        return topic.is_idle and not (topic.is_paused and self.undo)

    @property
    def keeps_name(self) -> bool:
        """Whether the change is to keep the topic's name."""
        return self.wanted is not None and self.wanted.keep_name and not self.undo

    @property
    def report(self) -> ReplacementReport | None:
        """The replacement of the topic, as last described."""
        return self.last.replacement if self.last is not None else None

    @property
    def is_paused(self) -> bool:
        """Whether a replacement waits before the switch, as requested."""
        return self.last is not None and self.last.is_paused

    @property
    def awaits_retention(self) -> bool:
        """Whether the rest of the change waits only for the old topic's own retention."""
        return self.report is not None and self.last is not None and self.last.awaits_retention

    @property
    def is_undoable(self) -> bool:
        """Whether a replacement has begun, but not switched yet."""
        switched = self.report is not None and self.report.switched_ms is not None
        return self.wanted is not None and not self.undo and not switched

    @property
    def shrinks(self) -> bool:
        """Whether the change is a shrink, which can be undone."""
        return any(isinstance(step, Shrink | AcceptStateLoss) for step in self.steps)


def outcome(session: Session, topic: str, watch: Watch) -> list[str]:
    """Return the outcome of a change that has ended, in lines.

    Raises:
        ModeAwareError: the outcome is not the requested one, for example because the change was undone.
    """
    wanted, report = watch.wanted, watch.report
    if wanted is not None and watch.keeps_name and watch.kept is not None and not watch.is_paused:
        return _kept_name_text(topic, watch, watch.kept, wanted.num_partitions)
    if wanted is not None and wanted.undo:
        if session.cluster.shape(wanted.new_topic) is None:
            return [f"{topic}: undone."]
        return [f"{topic}: undone. {wanted.new_topic} is not deleted: it has records, or another partition count."]
    if report is None:
        if wanted is not None and watch.is_replaced:
            deleted = f"{topic}: replaced by {wanted.new_topic} and deleted{_fewer(watch, wanted.num_partitions)}."
            return [deleted, f"{topic}: {_new_topic_text(watch)}."]
        if wanted is not None:
            why = f"its replacement by {wanted.new_topic!r} was given up or undone; the controller's log has the reason"
            raise ModeAwareError(f"topic {topic!r}: {why}", topic=topic)
        _check_count(topic, watch)
        return [f"{topic}: done."]
    new_topic = report.new_topic if wanted is None else wanted.new_topic
    if watch.is_paused:
        go_on = "To continue, repeat the command without --pause-before-switch."
        return [f"{topic}: paused before the switch; {new_topic} exists. {go_on}"]
    lines = [f"{topic}: replaced by {new_topic}{_end_of(topic, watch, report)}."]
    if watch.pause_ms is not None:
        lines.append(f"Groups that had read all records waited {watch.pause_ms / 1000:.1f} s for the end of {topic}.")
    return lines


def _kept_name_text(topic: str, watch: Watch, kept: KeptName, count: int) -> list[str]:
    """Return the outcome of a change that keeps the name: it is done, or waits for a topic's retention."""
    if watch.is_kept:
        size = f"{count} partitions{_fewer(watch, count)}" if watch.count else f"{count} partitions"
        return [f"{topic}: keeps its name, with {size}. {kept.interim} was deleted."]
    old, rest = (topic, f". Then a new topic gets the name {topic}") if kept.half == 1 else (kept.interim, "")
    return [f"{topic}: every group has moved. {old} is deleted once its own retention has emptied it{rest}."]


def _check_count(topic: str, watch: Watch) -> None:
    """Raise ModeAwareError if a topic does not have the number of writable partitions that this change requested.
    Another command may have undone the change."""
    for step in watch.steps:
        if isinstance(step, Resizes) and watch.last is not None and watch.last.writable != step.to:
            counts = f"{watch.last.writable} partitions take writes, not {step.to}"
            why = f"topic {topic!r}: {counts}: another command has undone this change, or changed the topic again"
            raise ModeAwareError(why, topic=topic)


def _end_of(topic: str, watch: Watch, report: ReplacementReport) -> str:
    """Return how a replaced topic ends: deleted already, deleted later, or not deleted."""
    if report.gone_ms is not None:
        return f" and deleted{_fewer(watch, report.num_partitions)}"
    moved = f"; every required group has moved. {topic} is"
    if report.fence == "none":
        return f"{moved} not deleted (--fence none)"
    return f"{moved} deleted once its own retention has emptied it"


def _new_topic_text(watch: Watch) -> str:
    """Return which topic now has the name of a topic that was replaced and deleted."""
    if watch.last is not None and watch.last.replaces is not None:
        return f"a new topic, which replaces {watch.last.replaces}, has the name now"
    return reasons.text(reasons.NAME_TAKEN)


def _fewer(watch: Watch, now_count: int) -> str:
    """Return by how many partitions a topic and its new topic differ; empty if this was not observed."""
    fewer = watch.count - now_count
    return f"; {abs(fewer)} {'fewer' if fewer > 0 else 'more'} partitions" if fewer and watch.count else ""

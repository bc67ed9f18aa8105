"""What may happen next: one method an event, each with dice of its own; and how often which."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.broker_actions import BrokerActions
from tests.simulation.client_actions import ClientActions
from tests.simulation.evacuation_actions import EvacuationActions
from tests.simulation.faults import Fault
from tests.simulation.log_actions import LogActions


class Actions(EvacuationActions, ClientActions, BrokerActions, LogActions):
    """The events of one world; whoever holds this decides which one comes next."""

    def forget_start(self) -> None:
        """Brokers note log starts once a minute: killed all at once, they forget that records were deleted."""
        world = self.world
        if world.topic is None:
            return
        retired = [p for p, mode in enumerate(world.modes) if not mode.writable and p < len(world.topic.logs)]
        logs = [log for log in (world.topic.logs[p] for p in retired) if log.log_start > 0]
        for log in logs:
            start = world.below(log.log_start)
            world.gone.update(log.records[start : log.log_start])
            log.truncate(log.end, start, world.steps)
        if logs:
            world.hit(Fault.TRUNCATION)
            world.tell("the log starts of partitions %s go back", retired)

    def recreate_before_late(self) -> None:
        """A growth that was given up will find another topic, which has fewer partitions, and is being shrunk."""
        if any(fault is Fault.LATE_CREATE for fault, _ in self.world.late):
            self.recreate()
            if self.world.topic is None:
                self.world.make_topic()
            self.shrink()


Weighted = tuple[Callable[[Actions], None], float, Fault | None]

ALWAYS: tuple[Weighted, ...] = (
    (Actions.controller, 34, None),
    (Actions.wait, 5, None),
    (Actions.shrink, 6.5, None),
    (Actions.grow, 0.8, None),
    (Actions.produce, 8, None),
    (Actions.flush, 3, None),
    (Actions.poll, 8, None),
    (Actions.poll_all, 5, None),
    (Actions.poll_behind, 4, None),
    (Actions.join, 2, None),
)
"""Event, weight, and the fault it counts as: those without one are in every schedule."""

SOMETIMES: tuple[Weighted, ...] = (
    (Actions.produce_behind, 6, Fault.STALE_PRODUCER),
    (Actions.produce_explicit, 2, Fault.LONG_PAUSED_PRODUCER),
    (Actions.produce_unaware, 2, Fault.UNAWARE),
    (Actions.transaction, 3, Fault.OPEN_TRANSACTION),
    (Actions.modes_away, 1, Fault.MODES_OUT_OF_REACH),
    (Actions.leave, 1.5, Fault.GROUP_LEAVES),
    (Actions.expire, 1.5, Fault.OFFSETS_EXPIRE),
    (Actions.reset, 1, Fault.GROUP_RESET),
    (Actions.omit, 1.5, Fault.GROUP_OMITTED),
    (Actions.hide, 1.5, Fault.GROUPS_HIDDEN),
    (Actions.rule, 2, Fault.WAIVER),
    (Actions.leader, 2, Fault.NO_LEADER),
    (Actions.truncate, 1.5, Fault.TRUNCATION),
    (Actions.forget_start, 0.8, Fault.TRUNCATION),
    (Actions.retention, 1.5, Fault.RETENTION),
    (Actions.cleanup_policy, 0.5, Fault.CLEANUP_POLICY),
    (Actions.recreate, 0.4, Fault.RECREATED),
    (Actions.grow_by_another_tool, 0.7, Fault.FOREIGN_GROWTH),
    (Actions.late_request, 2, Fault.LATE_DELETE),
    (Actions.compaction, 1.5, Fault.COMPACTION),
    (Actions.duplicates, 1, Fault.DUPLICATES),
    (Actions.stray, 1, Fault.STRAY_RECORD),
    (Actions.rubbish, 1, Fault.RUBBISH),
    (Actions.rubbish_in_use, 0.7, Fault.RUBBISH_IN_USE),
    (Actions.late_append, 1, Fault.APPEND_LATE),
)
"""Those that a schedule has or has not."""

WITH_EVACUATIONS: tuple[Weighted, ...] = (
    (Actions.shrink, 4, None),
    (Actions.grow, 1.5, None),
    (Actions.evacuation_starts, 7, None),
    (Actions.evacuation_ends, 7, None),
    (Actions.evacuation_dies, 1, None),
    (Actions.evacuation_expires, 0.7, None),
    (Actions.waive_evacuation, 0.7, None),
    (Actions.cleanup_policy, 0.7, Fault.CLEANUP_POLICY),
)
"""Those of schedules whose topics are compacted."""

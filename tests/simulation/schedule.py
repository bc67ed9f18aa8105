"""One schedule: everything that happens in it follows from its seed."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

from tests.simulation.actions import ALWAYS, SOMETIMES, WITH_EVACUATIONS, Actions
from tests.simulation.faults import Coverage, Fault
from tests.simulation.groups import Group
from tests.simulation.producers import Producer
from tests.simulation.settling import settle
from tests.simulation.world import World

IO_FAULTS: dict[Fault, float] = {
    Fault.CRASH: 0.03,
    Fault.APPEND_LOST: 0.04,
    Fault.APPEND_ANSWER_LOST: 0.04,
    Fault.APPEND_LATE: 0.04,
    Fault.LOG_UNREACHABLE: 0.2,
    Fault.OBSERVE_FAILED: 0.03,
    Fault.STALE_BROKER: 0.03,
    Fault.EFFECT_REFUSED: 0.15,
    Fault.EFFECT_ANSWER_LOST: 0.3,
    Fault.LATE_DELETE: 0.5,
    Fault.LATE_CREATE: 0.7,
    Fault.RECREATED_AT_EFFECT: 0.1,
    Fault.HANGING_TRANSACTION: 1.0,
}
"""How likely a fault is at each request where it can strike, in a schedule that has it."""
PAUSE_ODDS = 0.06
ANEW_FROM = 1_000_000_000
"""From this seed on, topics are made anew, records of the mode log come twice, and groups rebalance all the time: what
only all of that shows is rare otherwise."""
EVACUATE_FROM = 2_000_000_000
"""From this seed on, topics are compacted, and evacuated."""


def run(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    """Run the schedule of ``seed`` to its end.

    Raises:
        Violation: an invariant does not hold.
    """
    world = new_world(seed, coverage, story)
    actions = Actions(world)
    weighted = list(ALWAYS)
    for event in SOMETIMES:
        if world.random() < 0.45:
            weighted.append((event[0], event[1] * (0.5 + 2 * world.random()), event[2]))
    if world.odds[Fault.LATE_CREATE] or world.odds[Fault.LATE_DELETE]:  # what is late finds things changed
        weighted += [(Actions.grow, 0.4, None), (Actions.recreate_before_late, 3.0, Fault.RECREATED)]
    if seed >= EVACUATE_FROM:
        weighted += WITH_EVACUATIONS
    elif seed >= ANEW_FROM:
        weighted += [(Actions.recreate, 1.5, Fault.RECREATED), (Actions.duplicates, 8.0, Fault.DUPLICATES)]
        weighted += [(Actions.shrink, 6.0, None), (Actions.join, 6.0, None)]
    late_odds = 0.15 if world.random() < 0.5 else 0.0
    sums = list(accumulate(weight for _, weight, _ in weighted))
    events, total, random = [event for event, _, _ in weighted], sums[-1], world.random

    def act() -> None:
        world.steps += 1
        if world.late and random() < (0.5 if world.in_rare_phase else 0.3 if world.opening else late_odds):
            actions.late_request()
        events[bisect(sums, random() * total)](actions)

    world.act = act
    for _ in range(50 + world.below(70)):
        act()
    settle(world, actions)
    return world


def new_world(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    """A topic in use: some groups have read a part of it, a controller has its first turn."""
    world = World(seed, 0, coverage, story)
    assert world.topic is not None
    if seed >= EVACUATE_FROM:
        world.compacted = True
        world.topic.cleanup_policy = world.new_policy()
    world.topic.grow(3 + world.below(4))
    for fault, odds in IO_FAULTS.items():
        if world.random() < 0.45:
            world.odds[fault] = odds * (0.3 + world.random())
    if world.random() < 0.6:
        world.pause_odds = PAUSE_ODDS * (0.3 + world.random())
    _make_clients(world)
    for producer in world.producers:
        for log in world.topic.logs:
            if world.random() < 0.5:
                log.append(world.new_record(), 0, 0)
        producer.flush()
    for group in world.groups.values():
        if world.random() < 0.6:
            group.join()
            group.poll(world.below(3), behind=False)
    world.controllers[0].step()
    return world


def _make_clients(world: World) -> None:
    world.producers = [Producer(world, aware=True), Producer(world, aware=True), Producer(world, aware=False)]
    for name in ("billing", "audit", "share", "streams", "console-consumer-1")[: 1 + world.below(5)]:
        aware = name != "console-consumer-1" and world.random() < 0.75
        latest = name == "console-consumer-1" or world.random() < 0.4
        group = Group(world, name, aware=aware, latest=latest, members=1 + (world.random() < 0.3))
        group.commits = name != "console-consumer-1"
        group.epochless = name == "audit"
        group.kind = name if name in ("share", "streams") else "classic"
        group.stateful = name == "streams" and world.random() < 0.5
        world.groups[name] = group

"""One schedule: everything that happens in it follows from its seed. At its end everything gets time to finish."""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate

from tests.simulation.actions import Actions
from tests.simulation.ending import settle
from tests.simulation.faults import Coverage, Kind
from tests.simulation.succession.actions import ReplaceActions
from tests.simulation.succession.chain_schedule import ChainActions
from tests.simulation.succession.kept_names import KeptNameActions
from tests.simulation.world import World

REPLACE_FROM = 3_000_000_000
"""From this seed on, topics are replaced, not resized."""
DELETE_FROM = 3_500_000_000
"""From this seed on, schedules are about the deletion of the old topic: it begins when nothing else is left to do."""
CHAIN_FROM = 4_000_000_000
"""From this seed on, schedules are about chains and aliases."""
NAMES_FROM = 4_500_000_000
"""From this seed on, schedules are about a topic that keeps its name."""
ACTIONS: dict[Kind, type[Actions]] = {
    Kind.RESIZES: Actions,
    Kind.REPLACEMENTS: ReplaceActions,
    Kind.DELETIONS: ReplaceActions,
    Kind.CHAINS: ChainActions,
    Kind.NAMES: KeptNameActions,
}


def run(seed: int, coverage: Coverage, story: list[str] | None = None) -> World:
    kind = Kind(sum(seed >= first for first in (REPLACE_FROM, DELETE_FROM, CHAIN_FROM, NAMES_FROM)))
    world = World(seed, kind, coverage, story)
    actions, random = ACTIONS[kind](world, seed), world.random
    actions.make_clients()
    weighted = list(actions.always)
    for event, weight in actions.sometimes:
        if random() < actions.share:
            weighted.append((event, weight * (0.5 + 2 * random())))
    weighted += actions.more()
    late_odds = actions.late_odds
    sums = list(accumulate(weight for _, weight in weighted))
    events, total = [event for event, _ in weighted], sums[-1]

    def act() -> None:
        world.steps += 1
        if world.late and late_odds is not None:
            odds = 0.5 if world.in_rare_phase else 0.3 if world.opening else late_odds
            if random() < odds:
                actions.late_request()
        events[bisect(sums, random() * total)](actions)

    actions.head_start()
    world.act = act
    for _ in range(actions.fewest + world.below(actions.spread)):
        act()
    settle(world, actions)
    return world

"""The world of the simulator, driven by hypothesis: it looks for the shortest story that breaks an invariant.

What happens is hypothesis' choice, and so are the dice of each event; what is checked, and how it ends, is the
simulator's business (tests.simulation).
"""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulation.actions import ALWAYS, SOMETIMES, Actions
from tests.simulation.faults import Coverage, Fault
from tests.simulation.schedule import IO_FAULTS, new_world
from tests.simulation.seams import seams
from tests.simulation.settling import settle

WEIGHTS = {event.__name__: max(round(weight), 1) for event, weight, _ in (*ALWAYS, *SOMETIMES)}
EVENTS = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
"""Listed as often as they weigh: a schedule has to get through a shrink for anything to go wrong in it."""
DICE = st.integers(0, 1 << 32)
SOME = st.sets(st.sampled_from([event.__name__ for event, _, _ in SOMETIMES]), max_size=6)


class Protocol(RuleBasedStateMachine):
    """One world, to which one event after the other happens."""

    def __init__(self) -> None:
        super().__init__()
        self._seams = ExitStack()
        self._seams.enter_context(seams())
        self.actions: Actions | None = None

    @initialize(
        dice=DICE, also=SOME, faults=st.sets(st.sampled_from(sorted(IO_FAULTS)), max_size=4), pauses=st.booleans()
    )
    def begin(self, dice: int, also: set[str], faults: set[Fault], pauses: bool) -> None:
        self.usual = {event.__name__ for event, _, _ in ALWAYS} | also
        self.world = new_world(dice, Coverage())
        for fault, odds in IO_FAULTS.items():
            self.world.odds[fault] = odds if fault in faults else 0.0
        self.world.pause_odds = 0.1 if pauses else 0.0
        self.actions = Actions(self.world)
        self.world.act = self._another

    def _another(self) -> None:
        """What somebody else does while a controller is paused."""
        names = list(WEIGHTS)
        self._happens(names[self.world.below(len(names))])

    def _happens(self, event: str) -> None:
        self.world.steps += 1
        getattr(self.actions, event if event in self.usual else "controller")()

    @rule(event=EVENTS, dice=DICE)
    def happens(self, event: str, dice: int) -> None:
        """One event, with dice of its own: hypothesis can leave any other out and this one stays what it is."""
        self.world.rng.seed(dice)
        self._happens(event)

    def teardown(self) -> None:
        try:
            if self.actions is not None:
                settle(self.world, self.actions)
        finally:
            self._seams.close()


TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(
    max_examples=200, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
)

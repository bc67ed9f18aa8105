"""What a guard is as a text, and the modules that guards stand in."""

from __future__ import annotations

from dataclasses import dataclass

LIFECYCLE = "modeaware.lifecycle."
STEPS = LIFECYCLE + "steps"
HANDOVER = LIFECYCLE + "handover"
DRAIN = LIFECYCLE + "drain"
EVACUATION = LIFECYCLE + "evacuation"
GROUP_RULES = LIFECYCLE + "group_rules"
REQUIREMENT = LIFECYCLE + "requirement"
SHRINKING = LIFECYCLE + "shrinking"
GROWING = LIFECYCLE + "growing"
ADVANCE = LIFECYCLE + "advance"
OPENING = LIFECYCLE + "opening"
RECORDS = "modeaware.modelog.records"
RULES = "modeaware.modelog.group_rules"
REPLAY = "modeaware.modelog.replay"
ENGINE = "modeaware.controller.engine"
REPLACED = LIFECYCLE + "replaced"
TOPIC_WATCH = "modeaware.controller.replaced"
CLUSTER = "modeaware.cluster.cluster"
LEASE = "modeaware.controller.lease"
ROUTING = "modeaware.routing"
ASSIGNMENT = "modeaware.assignment"
POLICY = LIFECYCLE + "policy"
TOPIC_VIEW = "modeaware.topic_view"
LOG = "tests.simulation.modelog"
BROKERS = "tests.simulation.effects"


@dataclass(frozen=True)
class Change:
    """In ``module``, ``old`` (which occurs once) becomes ``new``."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Guard:
    """A guard, the invariant that breaks without it, and a seed that once showed it (it is tried first)."""

    name: str
    invariant: str
    changes: tuple[Change, ...]
    seed: int = 0


def guard(name: str, invariant: str, seed: int, *texts: str) -> Guard:
    """``texts``: module, old text, new text, as often as there are changes."""
    changes = tuple(Change(*texts[i : i + 3]) for i in range(0, len(texts), 3))
    return Guard(name, invariant, changes, seed)

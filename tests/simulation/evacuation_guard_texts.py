"""The guards of evacuations, as texts: where each stands, and what is left when it is gone."""

from __future__ import annotations

from tests.simulation.guard_form import (
    DRAIN,
    EVACUATION,
    GROUP_RULES,
    GROWING,
    HANDOVER,
    OPENING,
    REQUIREMENT,
    SHRINKING,
    STEPS,
    Guard,
    guard,
)

EVACUATION_GUARDS: tuple[Guard, ...] = (
    guard(
        "a compacted topic is not shrunk without an evacuation", "evacuated", 2_000_000_018,
        SHRINKING, "if facts.compacted and not command.evacuate:", "if False:",
    ),
    guard(
        "an evacuation is waited for", "evacuated", 2_000_000_000,
        DRAIN, "if requirement.evacuation is not None:", "if False:",
    ),
    guard(
        "a commit at the seal proves an evacuation", "evacuated", 2_000_000_000,
        DRAIN, "if job is None or reason is not None:", "if job is None or partition not in job.committed:",
    ),
    guard(
        "an evacuation is named by its epoch", "evacuated", 2_000_000_050,
        EVACUATION, 'return f"{EVACUATION_PREFIX}{topic}-{epoch}"', 'return f"{EVACUATION_PREFIX}{topic}-0"',
    ),
    guard(
        "an evacuation begins anew when keys move again", "evacuated", 2_000_000_606,
        GROWING, "evacuation_epoch=record.epoch + 1 if deletion.evacuate else -1",
        "evacuation_epoch=deletion.evacuation_epoch",
    ),
    guard(
        "an evacuation cannot be waived", "evacuated", 2_000_000_003,
        GROUP_RULES, "if rule.kind == WAIVE and rule.group.startswith(EVACUATION_PREFIX):", "if False:",
        DRAIN, "if requirement.evacuation is not None:",
        "if requirement.evacuation is not None and not requirement.waiver(requirement.evacuation, None, partition):",
    ),
    guard(
        "keys are handed over after they are evacuated", "order", 2_000_000_000,
        HANDOVER, "if retired is None:\n        now =", "if True:\n        now =",
    ),
    guard(
        "nobody reads for an earlier evacuation", "order", 2_000_000_000,
        REQUIREMENT, "g for g in {*noted, *using, *named} if not is_evacuation_group(facts.topic, g)",
        "{*noted, *using, *named}",
    ),
    guard(
        "nobody commits for an evacuation", "evacuated", 2_000_000_140,
        OPENING, "if is_evacuation_group(record.topic, name):", "if False:",
    ),
    guard(
        "nothing is deleted where brokers only compact", "evacuated", 2_000_000_003,
        STEPS, "return due and now.facts.deletes and reclaim_policy(", "return due and reclaim_policy(",
    ),
    guard(
        "an evacuated topic under retention keeps its records", "I1", 2_000_000_192,
        STEPS, 'return due and now.facts.deletes and reclaim_policy(partition, now.record) == "drained"',
        "return due and now.facts.deletes",
        STEPS, 'if policy == "retention":  # the log start', "if False:  # the log start",
    ),
)  # fmt: skip

"""Plans of ``modeaware apply`` for people, as a diff, and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from modeaware.apply.steps import (
    IN_PROGRESS,
    PENDING,
    REFUSED,
    AcceptStateLoss,
    AlterConfigs,
    Create,
    Grow,
    Shrink,
    Step,
    TopicPlan,
)
from modeaware.modelog.records import RETENTION_DELAY_MS
from modeaware.modes import format_ranges

APPLIED, FAILED = "applied", "failed"
_DEFAULT = "the cluster's default"


def plan_lines(plans: Sequence[TopicPlan]) -> Iterator[str]:
    """Each topic with something to tell, and the sum. Marks: ``+`` new, ``~`` other, ``-`` gone, ``!`` read this."""
    for plan in plans:
        if plan.status in (PENDING, REFUSED) or plan.progress is not None:
            yield from _topic_lines(plan)
    statuses = [plan.status for plan in plans]
    counts = (
        (PENDING, "to change"),
        (IN_PROGRESS, "in progress"),
        ("unchanged", "as declared"),
        (REFUSED, "refused"),
    )
    told = ", ".join(f"{statuses.count(status)} {words}" for status, words in counts if status in statuses)
    yield f"Topics: {told or 'none'}."


def _topic_lines(plan: TopicPlan) -> Iterator[str]:
    yield f"{plan.topic} ({plan.where})"
    if plan.refusal is not None:
        yield f"  ! refused: {plan.refusal}"
    for step in plan.steps:
        for line in step_lines(step):
            yield f"  {line}"
    for warning in plan.warnings if plan.refusal is None else ():
        yield f"  ! WARNING: {warning}"
    if plan.progress is not None and plan.refusal is None:
        yield f"  = in progress: {plan.progress}"
    for note in plan.notes if plan.refusal is None else ():
        yield f"    ({note})"


def step_lines(step: Step) -> list[str]:
    """One step as a diff."""
    if isinstance(step, Create):
        factor = "" if step.replication_factor is None else f", replication factor {step.replication_factor}"
        configs = [f"    + {name}: {value}" for name, value in step.configs.items()]
        return [f"+ create with {step.partitions} partitions{factor}", *configs]
    if isinstance(step, AlterConfigs):
        before = step.before or {}
        changed = [
            f"{'~' if name in before else '+'} {name}: {before.get(name, _DEFAULT)} -> {value}"
            for name, value in step.set.items()
        ]
        return changed + [f"- {name}: {before.get(name)} -> {_DEFAULT}" for name in step.remove]
    if isinstance(step, AcceptStateLoss):
        return [f"~ the shrink in progress goes on although {', '.join(step.groups)} keep state"]
    head = f"~ partitions: {step.before} -> {step.command.total_count}"
    if isinstance(step, Grow):
        revived = [f"    ReadWrite again: {format_ranges(step.revived)}"] if step.revived else []
        return [head, *revived, *([f"    new: {format_ranges(step.created)}"] if step.created else [])]
    retired = range(step.command.total_count, step.before)
    return [head, f"    ReadOnly: {format_ranges(retired)}; {_policy(step)}"]


def _policy(step: Shrink) -> str:
    command = step.command
    if step.records_stay:
        return "evacuated first; then no client reads them any more, and their records stay on the brokers"
    if command.delay_ms == RETENTION_DELAY_MS:
        told = "policy retention: their records stay until the topic's own retention takes them"
    else:
        earliest = f", {command.delay_ms} ms from now at the earliest" if command.delay_ms else ""
        told = f"policy drained: their records are deleted once every group has read them{earliest}"
    return f"{told}; evacuated first" if command.evacuate else told


def plans_json(plans: Sequence[TopicPlan], failures: Mapping[str, str | None]) -> dict[str, Any]:
    """All of it; ``failures``: of each topic whose steps were taken why that failed, or None."""
    return {
        "version": 1,
        "changed": sum(1 for error in failures.values() if error is None),
        "topics": [_topic_json(plan, failures) for plan in plans],
    }


def _topic_json(plan: TopicPlan, failures: Mapping[str, str | None]) -> dict[str, Any]:
    failure = failures.get(plan.topic)
    status = plan.status if plan.topic not in failures else APPLIED if failure is None else FAILED
    return {
        "topic": plan.topic,
        "where": plan.where,
        "status": status,
        "steps": [_step_json(step) for step in plan.steps],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "in_progress": plan.progress,
        "error": failure if failure is not None else plan.refusal,
    }


def _step_json(step: Step) -> dict[str, Any]:
    if isinstance(step, Create):
        return {
            "step": "create",
            "partitions": step.partitions,
            "replication_factor": step.replication_factor,
            "configs": dict(step.configs),
        }
    if isinstance(step, AlterConfigs):
        return {"step": "alter_configs", "set": dict(step.set), "remove": list(step.remove)}
    if isinstance(step, AcceptStateLoss):
        return {"step": "accept_state_loss", "groups": list(step.groups)}
    sizes = {"from": step.before, "to": step.command.total_count}
    if isinstance(step, Grow):
        return {"step": "grow", **sizes, "revived": list(step.revived), "created": list(step.created)}
    command = step.command
    retention = command.delay_ms == RETENTION_DELAY_MS
    return {
        "step": "shrink",
        **sizes,
        "policy": "retention" if retention else "drained",
        "delay_ms": None if retention else command.delay_ms,
        "evacuate": command.evacuate,
        "accept_state_loss": list(command.accept_state_loss),
    }

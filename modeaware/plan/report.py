"""What ``modeaware plan`` finds, as one value; text, JSON and HTML are made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.plan.blockers import Blocker, GroupLag, find_blockers, group_lags
from modeaware.plan.effects import (
    Counted,
    Effect,
    Question,
    choose_targets,
    counted_effects,
    counted_recognition,
    effects,
)
from modeaware.plan.recognise import Recognition, recognise
from modeaware.plan.sample import Sample, TopicLook


@dataclass(frozen=True)
class ResizePlan:
    """What ``target`` and its alternatives would do to a topic.

    Attributes:
        count: the topic's number of partitions.
        base: the number of partitions over which producers place keys now: all, or fewer after a shrink.
        recognition: what places the keys.
        now: the effect of no change: the load of each partition as keys are placed now.
        effects: of the target and its alternatives, ascending.
        counted: where Spark has counted every record: all figures are of the whole topic, margins 0, and the sample
            only chose the hashes that were tried. Null: all figures follow from the sample.
    """

    json_only: ClassVar = {
        "schema_version": "schema_version",
        "topic": "topic",
        "partitions": "count",
        "placed_over": "base",
        "target": "target",
        "created_ms": "created_ms",
        "sample": "sample",
        "hash": "recognition",
        "now": "now",
        "targets": "effects",
        "groups": "groups",
        "blockers": "blockers",
        "counted": "counted",
    }
    schema_version: ClassVar = 1

    topic: str
    count: int
    base: int
    target: int
    created_ms: int
    sample: Sample
    recognition: Recognition
    now: Effect
    effects: tuple[Effect, ...]
    groups: tuple[GroupLag, ...]
    blockers: tuple[Blocker, ...]
    counted: Counted | None = None

    @property
    def chosen(self) -> Effect:
        """The effect of the target that was asked for."""
        return next(effect for effect in self.effects if effect.target == self.target)

    @property
    def shrinks(self) -> bool:
        return self.target < self.base

    @property
    def span_ms(self) -> int | None:
        """The time that the topic's records span; None where timestamps do not say."""
        return self.sample.span_ms if self.counted is None else self.counted.span_ms


def make_plan(look: TopicLook, sample: Sample, target: int, now_ms: int) -> ResizePlan:
    """Plan by a sample.

    Raises:
        RequestRefused: ``target`` is not positive, or what the topic has.
    """
    recognition = recognise(sample)
    base = _base(sample, recognition, target)
    stamps = [record.timestamp_ms for record in sample.records if record.timestamp_ms > 0]
    found = effects(sample, recognition, base, (base, *choose_targets(base, target)))
    return _plan(look, sample, recognition, (base, target), found, max(stamps, default=None), now_ms)


def ask_for_counts(sample: Sample, recognition: Recognition, target: int) -> Question:
    """Return what has to be counted of the whole topic for a plan of ``target``.

    Raises:
        RequestRefused: ``target`` is not positive, or what the topic has.
    """
    base, present = _base(sample, recognition, target), recognition.present
    return Question(
        sample.count,
        base,
        choose_targets(base, target),
        tuple(placement.candidate for placement in recognition.placements),
        present.name if present is not None else None,
    )


def make_counted_plan(
    look: TopicLook, sample: Sample, recognition: Recognition, counted: Counted, target: int, now_ms: int
) -> ResizePlan:
    """Put a plan together from what every record of the topic gave.

    Args:
        sample, recognition: what decided which hashes to try.
        counted: the answer to :func:`ask_for_counts` of the same three.
    """
    found = counted_recognition(recognition, counted, sample.count)
    base, shares = counted.question.base, counted_effects(found, counted)
    return _plan(look, sample, found, (base, target), shares, counted.last_ms, now_ms, counted)


def _plan(
    look: TopicLook,
    sample: Sample,
    recognition: Recognition,
    counts: tuple[int, int],
    found: tuple[Effect, ...],
    last_write_ms: int | None,
    now_ms: int,
    counted: Counted | None = None,
) -> ResizePlan:
    """``counts``: base and target. ``found``: the effect of the base, then those of the targets."""
    base, target = counts
    now, *others = found
    return ResizePlan(
        topic=sample.topic,
        count=sample.count,
        base=base,
        target=target,
        created_ms=now_ms,
        sample=sample,
        recognition=recognition,
        now=now,
        effects=tuple(others),
        groups=group_lags(look.facts, target),
        blockers=find_blockers(look.facts, target, now_ms, last_write_ms, look.unknown, base),
        counted=counted,
    )


def _base(sample: Sample, recognition: Recognition, target: int) -> int:
    """The number of partitions over which keys are placed now; refuses that, and no partition, as a target."""
    present = recognition.present
    base = present.over if present is not None else sample.count
    if target < 1 or target == base:
        why = f"{sample.topic!r} has them already"
        if base != sample.count:
            why = f"of the {sample.count} of {sample.topic!r}, recent records are placed over {base} already"
        raise RequestRefused(
            f"{target} partitions: {why if target >= 1 else 'at least 1 must stay'}",
            code=ErrorCode.INVALID_PARTITIONS,
            topic=sample.topic,
        )
    return base

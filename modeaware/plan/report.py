"""All that ``modeaware plan`` tells, as one value; text, JSON and HTML are made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modeaware.errors import ErrorCode, RequestRefused
from modeaware.plan.blockers import Blocker, GroupLag, find_blockers, group_lags
from modeaware.plan.counted import Counted, Question, counted_effects, counted_recognition
from modeaware.plan.recognise import PLACERS, Placement, Recognition, recognise
from modeaware.plan.sample import Sample, TopicLook
from modeaware.plan.targets import Effect, Share, choose_targets, effects

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ResizePlan:
    """What ``target`` and its alternatives would do to a topic.

    Attributes:
        base: over how many partitions producers place keys now: the topic's count, or what recent records show.
        now: the effect of no change: the load of each partition as keys are placed now.
        effects: of the target and its alternatives, ascending.
        created_ms: when it was made, ms since 1970.
        counted: what every record of the topic gave. None: all figures follow from the sample.
    """

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
        """The time that the topic's records span; None where timestamps do not tell."""
        return self.sample.span_ms if self.counted is None else self.counted.span_ms

    def bytes_per_s(self, load: float) -> float | None:
        """A load (bytes held) as the rate at which it came in; None where timestamps do not tell."""
        return load * 1000 / self.span_ms if self.span_ms else None


def make_plan(look: TopicLook, sample: Sample, target: int, now_ms: int) -> ResizePlan:
    """Put everything together.

    Raises:
        RequestRefused: ``target`` is not positive, or what the topic has.
    """
    recognition = recognise(sample)
    base = _base(sample, recognition, target)
    stamps = [record.timestamp_ms for record in sample.records if record.timestamp_ms > 0]
    (now,) = effects(sample, recognition, base, [base])
    return ResizePlan(
        topic=sample.topic,
        count=sample.count,
        base=base,
        target=target,
        created_ms=now_ms,
        sample=sample,
        recognition=recognition,
        now=now,
        effects=effects(sample, recognition, base, choose_targets(base, target)),
        groups=group_lags(look.facts, target),
        blockers=find_blockers(look.facts, target, now_ms, max(stamps, default=None), look.unknown, base),
    )


def ask_for_counts(sample: Sample, recognition: Recognition, target: int) -> Question:
    """What has to be counted of the whole topic for a plan of ``target``.

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
        sample, recognition: by which hashes to try was decided.
        counted: the answer to :func:`ask_for_counts` of the same three.
    """
    found = counted_recognition(recognition, counted, sample.count)
    now, *others = counted_effects(found, counted)
    return ResizePlan(
        topic=sample.topic,
        count=sample.count,
        base=counted.question.base,
        target=target,
        created_ms=now_ms,
        sample=sample,
        recognition=found,
        now=now,
        effects=tuple(others),
        groups=group_lags(look.facts, target),
        blockers=find_blockers(look.facts, target, now_ms, counted.last_ms, look.unknown, counted.question.base),
        counted=counted,
    )


def _base(sample: Sample, recognition: Recognition, target: int) -> int:
    """Over how many partitions keys are placed now; refuses that and what is not positive as a target."""
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


def plan_json(plan: ResizePlan) -> dict[str, Any]:
    """For programs; the command's help documents it."""
    sample = plan.sample
    return {
        "schema_version": SCHEMA_VERSION,
        "topic": plan.topic,
        "partitions": plan.count,
        "placed_over": plan.base,
        "target": plan.target,
        "created_ms": plan.created_ms,
        "sample": {
            "asked": sample.asked,
            "records": len(sample.records),
            "of_records": sample.total_records,
            "bytes": sum(record.size for record in sample.records),
            "of_bytes": round(sample.total_bytes),
            "span_ms": sample.span_ms,
            "unread": sorted(sample.unread),
        },
        "hash": _recognition_json(plan.recognition),
        "now": _effect_json(plan, plan.now),
        "targets": [_effect_json(plan, effect) for effect in plan.effects],
        "groups": [
            {
                "group": group.group,
                "kind": group.kind,
                "has_members": group.has_members,
                "stateful": group.stateful,
                "lag": group.lag,
                "lag_retiring": group.retiring,
                "uncommitted_retiring": group.uncommitted,
            }
            for group in plan.groups
        ],
        "blockers": [{"code": b.code, "severity": b.severity, "text": b.text} for b in plan.blockers],
        "counted": None if plan.counted is None else _counted_json(plan.counted),
    }


def _counted_json(counted: Counted) -> dict[str, Any]:
    return {"records": counted.records, "bytes": counted.bytes, "span_ms": counted.span_ms}


def _recognition_json(recognition: Recognition) -> dict[str, Any]:
    present = recognition.present
    return {
        "verdict": recognition.verdict,
        "name": present.name if present is not None else None,
        "partitions": present.over if present is not None else None,
        "clients": PLACERS[present.name].clients if present is not None else None,
        "placements": [_placement_json(each) for each in recognition.placements],
        "evidence": [_placement_json(each) for each in recognition.evidence],
        "keyed": recognition.keyed,
        "null_keys": recognition.null,
        "empty_keys": recognition.empty,
        "keys": recognition.keys,
        "unexplained_share": recognition.unexplained,
        "null_keys_hashed_share": recognition.null_share,
        "null_keys_partition": recognition.null_home,
        "keys_in_one_partition_share": recognition.together,
    }


def _placement_json(placement: Placement) -> dict[str, Any]:
    return {
        "hash": placement.name,
        "partitions": placement.over,
        "matched": round(placement.matched, 3),
        "of": round(placement.of, 3),
        "share": placement.share,
        "chance": placement.chance,
        "records_share": placement.records_share,
        "log10_odds_of_chance": placement.log10_odds,
    }


def _effect_json(plan: ResizePlan, effect: Effect) -> dict[str, Any]:
    most = max(effect.load) if effect.load else None
    return {
        "target": effect.target,
        "divides": effect.divides,
        "keys_moved": _share_json(effect.keys),
        "records_moved": _share_json(effect.records),
        "bytes_moved": _share_json(effect.bytes),
        "survivors_keys_moved": effect.survivors,
        "keys_moved_expected": effect.expected,
        "keys_moved_least": effect.least,
        "mean_bytes": round(effect.mean_load),
        "most_bytes": round(most) if most is not None else None,
        "mean_bytes_per_s": plan.bytes_per_s(effect.mean_load),
        "most_bytes_per_s": plan.bytes_per_s(most) if most is not None else None,
        "skew": effect.skew,
        "load_bytes": [round(load) for load in effect.load],
    }


def _share_json(share: Share | None) -> dict[str, float] | None:
    return None if share is None else {"share": share.value, "margin": share.margin}

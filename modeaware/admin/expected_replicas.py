"""Compare-and-set for reassignments: the alternative that KIP-860 left open, as far as a client can have it.

The cluster has no such request, so the replicas are compared right before the reassignment is sent. What is compared:

- the metadata of *every* live broker has to name exactly the expected replicas, in their order (the first is the
  preferred leader). One broker's metadata may be old; all of them at once rarely are.
- the controller of the cluster, who is never behind, must not have a reassignment of the partition in progress, neither
  before nor after the brokers were asked. So replicas that were read in mid-reassignment never pass for settled ones.

The window that is left: a change that begins after the last look and before our request is carried out, and one that
ended so short a time before the first look that no live broker has heard of it. Where both matter, use KIP-860's option
beside it: the controller itself holds that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from modeaware.errors import ErrorCode, ReplicasChanged, RequestRefused

Seen = Mapping[tuple[str, int], tuple[int, ...]]
"""The replicas of partitions, as one broker's metadata names them."""


def expectation_failures(
    expected: Mapping[tuple[str, int], tuple[int, ...]],
    seen: Mapping[int, Seen | None],
    in_progress: Collection[tuple[str, int]],
) -> dict[tuple[str, int], RequestRefused]:
    """Whether the replicas are the expected ones: an error for each partition where that is not certain.

    Args:
        expected: what the caller takes the replicas to be.
        seen: per live broker what its metadata says; None: it did not answer.
        in_progress: what the controller of the cluster is reassigning.

    Returns:
        ReplicasChanged: they are others, or are being reassigned; RequestRefused with the code REQUEST_TIMED_OUT: a
        broker did not answer, so it is not known; with UNKNOWN_TOPIC_OR_PARTITION: no broker knows the partition.
    """
    failures = {}
    for key, replicas in expected.items():
        if (failure := _failure(key, replicas, seen, key in in_progress)) is not None:
            failures[key] = failure
    return failures


def _failure(
    key: tuple[str, int], expected: tuple[int, ...], seen: Mapping[int, Seen | None], in_progress: bool
) -> RequestRefused | None:
    topic, partition = key
    what = f"{topic}-{partition} was not reassigned"
    if in_progress:
        return ReplicasChanged(
            f"{what}: a reassignment of it is in progress; wait for its end, or cancel it",
            topic=topic,
            partition=partition,
        )
    answers = {node: told.get(key) for node, told in seen.items() if told is not None}
    if answers and all(replicas is None for replicas in answers.values()):
        return RequestRefused(
            f"{what}: no broker knows it", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=topic, partition=partition
        )
    for node, replicas in sorted(answers.items()):
        if replicas != expected:
            named = "does not know it" if replicas is None else f"says {_ids(replicas)}"
            return ReplicasChanged(
                f"{what}: its replicas are not the expected {_ids(expected)}: broker {node} {named}; look again",
                topic=topic,
                partition=partition,
            )
    silent = sorted(node for node, told in seen.items() if told is None)
    if silent or not seen:
        return RequestRefused(
            f"{what}: whether its replicas are the expected {_ids(expected)} is not known, since broker "
            f"{', '.join(map(str, silent)) or 'none'} did not answer; try again when all live brokers answer",
            code=ErrorCode.REQUEST_TIMED_OUT,
            topic=topic,
            partition=partition,
        )
    return None


def _ids(replicas: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, replicas))}]"

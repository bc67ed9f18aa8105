"""The partitioner that a librdkafka configuration asks for."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.librdkafka import consistent, fnv1a, murmur2
from partitioners import DEFAULT_NAME, Hash, HashFunction, HashPartitioner, named

C_HASHES: Mapping[Hash, HashFunction] = {Hash.CRC32: consistent, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}

_LINGER_NAMES = ("queue.buffering.max.ms", "linger.ms")  # the second is librdkafka's alias of the first
_DEFAULT_LINGER_MS = 5.0
_MOST_STICKY_LINGER_MS = 900_000


def partitioner_of(
    conf: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> HashPartitioner:
    """What ``partitioner`` and ``sticky.partitioning.linger.ms`` say, with the hashes in C.

    Args:
        conf: a configuration that librdkafka has accepted; ``default.topic.config`` in it overrides the rest, as there.
        clock, randomness: see :func:`partitioners.named`.

    Raises:
        ValueError: an unknown partitioner.
    """
    settings = {**conf, **conf.get("default.topic.config", {})}
    name = settings.get("partitioner")
    return named(
        DEFAULT_NAME if name is None else str(name),
        hashes=C_HASHES,
        linger_s=_sticky_linger_ms(settings) / 1000,
        clock=clock,
        randomness=randomness,
    )


def _sticky_linger_ms(settings: Mapping[str, Any]) -> int:
    if "sticky.partitioning.linger.ms" in settings:
        return int(_number(settings["sticky.partitioning.linger.ms"], 2 * _DEFAULT_LINGER_MS))
    linger_ms = _DEFAULT_LINGER_MS
    for name, value in settings.items():  # the last one counts
        if name in _LINGER_NAMES:
            linger_ms = _number(value, _DEFAULT_LINGER_MS)
    return min(_MOST_STICKY_LINGER_MS, int(2 * linger_ms))


def _number(value: Any, default: float) -> float:
    # As strtol and strtod: "0x10" and "10ms" are numbers there.
    found = re.match(r"\s*(0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE]\d+)?)", str(value))
    if found is None:
        return default
    text = found[1]
    return float(int(text, 16)) if text[:2] in ("0x", "0X") else float(text)

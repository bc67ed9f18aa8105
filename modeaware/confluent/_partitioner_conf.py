"""The partitioner that a producer's configuration asks for: librdkafka's, one of ours, or the user's own."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from modeaware.config import with_topic_config
from modeaware.errors import ConfigError
from modeaware.librdkafka_hashes import C_HASHES
from partitioners import (
    DEFAULT_NAME,
    LIBRDKAFKA_NAMES,
    NAMES,
    Partitioner,
    as_partitioner,
    is_plug_in,
    load,
    named,
)

_LINGER_NAMES = ("queue.buffering.max.ms", "linger.ms")  # the second is librdkafka's alias of the first
_DEFAULT_LINGER_MS = 5.0
_MOST_STICKY_LINGER_MS = 900_000
_DEFAULT_BATCH_SIZE = 1_000_000  # librdkafka's batch.size


def is_beyond_librdkafka(partitioner: object) -> bool:
    """Whether this value of ``partitioner`` is for us alone: one of ours by name, ``"package.module:name"``, or an
    object. What librdkafka knows, or nobody does, is for librdkafka."""
    if isinstance(partitioner, str):
        return (partitioner in NAMES and partitioner not in LIBRDKAFKA_NAMES) or is_plug_in(partitioner)
    return partitioner is not None


def partitioner_of(
    conf: Mapping[str, Any],
    *,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> Partitioner:
    """What ``partitioner`` and ``sticky.partitioning.linger.ms`` say, with the hashes in C.

    Args:
        conf: a configuration whose rest librdkafka has accepted; ``default.topic.config`` in it overrides the rest, as
            there.
        clock, randomness: see :func:`partitioners.named`.

    Raises:
        ConfigError: the partitioner that it names, or holds, is none.
    """
    settings = with_topic_config(conf)
    chosen = settings.get("partitioner")
    try:
        if isinstance(chosen, str) and is_plug_in(chosen):
            return load(chosen)
        if chosen is not None and not isinstance(chosen, str):
            return as_partitioner(chosen, repr(chosen))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"partitioner: {error}") from error
    if chosen == "sticky":
        raise ConfigError(
            "partitioner: sticky (KIP-480) moves on when a batch ends, which librdkafka does not tell: use "
            "uniform_sticky, which counts bytes, or one of librdkafka's own"
        )
    return named(
        DEFAULT_NAME if chosen is None else chosen,
        hashes=C_HASHES,
        linger_s=_sticky_linger_ms(settings) / 1000,
        batch_size=int(_number(settings.get("batch.size", ""), _DEFAULT_BATCH_SIZE)),
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

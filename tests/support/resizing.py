"""Producers whose keys move, and which keys do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import murmur2

from modeaware.confluent.producer import Producer
from tests.support.offline import CONF, finish

KEYS = [f"key-{number}".encode() for number in range(200)]
MOVED_12_TO_5 = [key for key in KEYS if murmur2(key, 12) != murmur2(key, 5)]
KEPT_12_TO_5 = [key for key in KEYS if murmur2(key, 12) == murmur2(key, 5)]
Make = Callable[..., Producer]


class Makes:
    """``make(policy, **settings)``: a producer that hashes with murmur2; a context manager that closes them."""

    def __init__(self) -> None:
        self._made: list[Producer] = []

    def __call__(self, policy: str | None = None, **settings: Any) -> Producer:
        ours = {} if policy is None else {"modeaware.on.resize": policy}
        self._made.append(Producer({**CONF, "partitioner": "murmur2_random", **ours, **settings}))
        return self._made[-1]

    def close(self) -> None:
        for producer in self._made:
            finish(producer)

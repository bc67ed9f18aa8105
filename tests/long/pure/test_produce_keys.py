"""A million random keys in every form of a call: the extension, Python and librdkafka choose the same partitions."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from modeaware.librdkafka import C_HASHES
from partitioners import Hash
from tests.property.test_produce_calls import every_way

KEYS = 1_000_000


FORMS: list[Callable[[Callable[..., Any], Any], None]] = [
    lambda produce, key: produce("routed", b"v", key),
    lambda produce, key: produce("routed", key=key),
    lambda produce, key: produce("routed", b"v", key, on_delivery=print),
    lambda produce, key: produce("routed", b"v", key=key, callback=print, timestamp=5),
    lambda produce, key: produce("routed", None, key, headers=[("h", b"1")]),
    lambda produce, key: produce(topic="routed", value=b"v", key=key),
]


def placed(form: Callable[[Callable[..., Any], Any], None], hash_name: Hash, keys: list[Any]) -> list[array[int]]:
    """Where each key goes: by the extension, by Python's function, and by its method."""
    chosen: list[array[int]] = []
    for produce in every_way(lambda topic, value, key, where, *rest: chosen[-1].append(where), hash_name):
        chosen.append(array("b"))
        for key in keys:
            form(produce, key)
    return chosen


@pytest.mark.parametrize("hash_name", Hash)
def test_no_key_is_placed_elsewhere(hash_name: Hash) -> None:
    randomness = random.Random(hash_name.value)
    keys: list[bytes | str] = [randomness.randbytes(randomness.randrange(1, 40)) for _ in range(KEYS // 2)]
    keys += [chr(randomness.randrange(1, 0xD800)) * randomness.randrange(1, 9) for _ in range(KEYS // 2)]
    expected = array("b", (C_HASHES[hash_name](k.encode() if isinstance(k, str) else k, 4) for k in keys))
    for form in FORMS:
        assert placed(form, hash_name, keys) == [expected] * 3

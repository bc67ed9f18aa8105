"""Every form in which the hashes come, as a function of keys and one number of partitions for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from partitioners import NUMBERS, PURE_HASHES, Hash, named
from partitioners.call_forms import for_aiokafka, for_kafka_python
from partitioners.columns import hash_column
from tests.support.partitioning import C_HASHES, Metadata

Form = Callable[[Hash, Sequence[bytes], Sequence[int]], list[int]]
NAMES = {Hash.CRC32: "consistent", Hash.MURMUR2: "murmur2", Hash.FNV1A: "fnv1a"}
"""The partitioners that hash every record."""


def pure(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    return list(map(PURE_HASHES[which], keys, counts))


def numbers(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    number = NUMBERS[which]
    return [number(key) % count for key, count in zip(keys, counts, strict=True)]


def librdkafka(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    return list(map(C_HASHES[which], keys, counts))


def seam(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    return list(map(named(NAMES[which]).for_topic("t").partition, keys, counts))


def kafka_python(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    clusters = clusters_of(counts)
    return [
        form.partition("t", "any", key, "any", b"value", clusters[count])
        for key, count in zip(keys, counts, strict=True)
    ]


def older_kafka_python(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    form = for_kafka_python(named(NAMES[which], hashes=C_HASHES))
    clusters = clusters_of(counts)
    return [form.partition("t", key, clusters[count]) for key, count in zip(keys, counts, strict=True)]


def aiokafka(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
    form = for_aiokafka(named(NAMES[which], hashes=C_HASHES))
    partitions = {count: list(range(count)) for count in set(counts)}
    return [form(key, partitions[count], []) for key, count in zip(keys, counts, strict=True)]


def clusters_of(counts: Sequence[int]) -> dict[int, Metadata]:
    """Metadata of a topic for each number of partitions."""
    return {count: Metadata(range(count)) for count in set(counts)}


def column(made: Callable[[Sequence[bytes]], Any]) -> Form:
    """The vectorised form over the column that ``made`` makes of keys."""

    def vectorised(which: Hash, keys: Sequence[bytes], counts: Sequence[int]) -> list[int]:
        found = hash_column(made(keys), which)
        indices: list[int] = (found.astype(np.int64) % np.asarray(counts, np.int64)).tolist()
        return indices

    return vectorised


def sliced(keys: Sequence[bytes]) -> Any:
    """An Arrow array that begins and ends within its buffers."""
    return pa.array([b"x" * 7, *keys, b"y"], pa.binary())[1:-1]


def chunked(keys: Sequence[bytes]) -> Any:
    """In three chunks, one of them empty, each with buffers of its own."""
    half = len(keys) // 2
    return pa.chunked_array([pa.array(part, pa.large_binary()) for part in (keys[:half], [], keys[half:])])


SCALAR: Mapping[str, Form] = {"pure": pure, "numbers": numbers, "librdkafka": librdkafka, "seam": seam}
WRAPPED: Mapping[str, Form] = {
    "kafka-python": kafka_python,
    "older kafka-python": older_kafka_python,
    "aiokafka": aiokafka,
}
VECTORISED: Mapping[str, Form] = {
    "list": column(list),
    "tuple": column(tuple),
    "objects": column(lambda keys: np.array([*keys, None], object)[:-1]),
    "Arrow": column(lambda keys: pa.array(keys, pa.binary())),
    "sliced Arrow": column(sliced),
    "chunked Arrow": column(chunked),
    "dictionary": column(lambda keys: pa.array(keys, pa.binary()).dictionary_encode()),
}

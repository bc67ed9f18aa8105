"""``partitioner`` in the forms that our producer takes beside kafka-python's own."""

from __future__ import annotations

from typing import Any

from modeaware.librdkafka_hashes import C_HASHES
from partitioners import Partitioner, is_plug_in, load, named


def one_of_ours(partitioner: Any) -> Partitioner | None:
    """The partitioner of :mod:`partitioners` that is given, or meant by a name (``murmur2_random``,
    ``package.module:name``); None for anything else, which is kafka-python's to take or refuse.

    Raises:
        ValueError, TypeError: the name means no partitioner; says why.
    """
    if isinstance(partitioner, str):
        return load(partitioner) if is_plug_in(partitioner) else named(partitioner, hashes=C_HASHES)
    return partitioner if callable(getattr(partitioner, "for_topic", None)) else None

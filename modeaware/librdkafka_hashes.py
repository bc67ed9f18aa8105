"""librdkafka's own functions for the hashes of :mod:`partitioners`, which are faster than the same in Python."""

from __future__ import annotations

from collections.abc import Mapping

from modeaware.librdkafka import consistent, fnv1a, murmur2
from partitioners import Hash, HashFunction

C_HASHES: Mapping[Hash, HashFunction] = {Hash.CRC32: consistent, Hash.MURMUR2: murmur2, Hash.FNV1A: fnv1a}

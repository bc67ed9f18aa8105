"""Every message that the codec has a schema for."""

from __future__ import annotations

from modeaware.wire import codec
from modeaware.wire.dialect import Dialect

EVERYTHING = Dialect(
    codec.MESSAGES,
    {**codec.SUPPORTED_VERSIONS, 3: (0, 10)},
)
"""Every message there is a schema for here, in every version."""

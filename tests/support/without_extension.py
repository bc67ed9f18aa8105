"""A pytest plugin: modeaware as it is installed without a compiler (``-p tests.support.without_extension``)."""

from __future__ import annotations

import sys

sys.modules["modeaware.confluent._routed"] = None  # type: ignore[assignment] # importing it fails then

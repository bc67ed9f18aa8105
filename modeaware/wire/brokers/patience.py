"""How long a broker is waited for: a silent one holds up the first call to it, not every call."""

from __future__ import annotations

import time
from collections.abc import Callable

SILENT_TIMEOUT_S = 1.0
"""What a broker has to answer in after it did not: enough for one that is back."""
SILENT_FOR_S = 10.0
"""For so long; then it is given the whole time once more, as one that is merely slow would need it."""
_PUNCTUAL_S = 0.1


class Patience:
    """Remembers which brokers let the time run out. One thread uses it.

    Args:
        monotonic_s: the clock.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._silent_since_s: dict[int, float] = {}

    def until_s(self, node_id: int, deadline_s: float) -> float:
        """Until when this broker is waited for in a call that ends at ``deadline_s``."""
        now_s = self._monotonic_s()
        return min(deadline_s, now_s + SILENT_TIMEOUT_S) if self._is_silent(node_id) else deadline_s

    def answered(self, node_id: int) -> None:
        """It did, whatever it said."""
        self._silent_since_s.pop(node_id, None)

    def failed(self, node_id: int, until_s: float) -> None:
        """It gave no answer. Only who let the time run out is silent: a refused connection costs none."""
        if self._monotonic_s() > until_s - _PUNCTUAL_S and not self._is_silent(node_id):
            self._silent_since_s[node_id] = self._monotonic_s()

    def _is_silent(self, node_id: int) -> bool:
        since_s = self._silent_since_s.get(node_id)
        return since_s is not None and self._monotonic_s() - since_s < SILENT_FOR_S

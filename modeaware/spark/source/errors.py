"""What reading with ``format("modeaware")`` raises beside the errors of :mod:`modeaware.errors`."""

from __future__ import annotations

from modeaware.errors import ModeAwareError


class RecordsLost(ModeAwareError):
    """Records that the query was to read are not there any more; ``failOnDataLoss`` is true, so it fails."""

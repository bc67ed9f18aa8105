"""Topics as a file declares them: reading it, and the steps that lead there. Pure, but for ``read`` and ``brokers``."""

from __future__ import annotations

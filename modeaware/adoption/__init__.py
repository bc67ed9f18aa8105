"""Mode-aware clients for frameworks that construct their own: no line of the application changes.

:func:`install` puts ours in the place of confluent_kafka's and kafka-python's classes, :func:`uninstall` puts theirs
back. ``python -m modeaware run app.py`` runs a program in an interpreter where that was done first.
"""

from __future__ import annotations

from modeaware.adoption.installing import install, uninstall

__all__ = ["install", "uninstall"]

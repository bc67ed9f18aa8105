"""Mode-aware clients for frameworks that construct their own clients: no line of the application changes.

:func:`install` replaces confluent_kafka's and kafka-python's classes by ours, and :func:`uninstall` restores theirs.
``python -m modeaware run app.py`` runs a program in an interpreter after :func:`install`.
"""

from __future__ import annotations

from modeaware.adoption.installing import install, uninstall

__all__ = ["install", "uninstall"]

"""Finds the notes of a consumer by the consumer's group metadata.

An application takes the group metadata from its consumer, and passes it to ``send_offsets_to_transaction`` of its
producer. The commit in the transaction has to contain the consumer's notes, too (:mod:`modeaware.notes`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

_taken: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def metadata_taken(metadata: Hashable, notes: Any) -> None:
    """Note that the application took a group's metadata from the consumer that has ``notes`` (any thread).

    Args:
        notes: the consumer's notes, which are not kept alive.
    """
    _taken[metadata] = notes


def notes_of(metadata: Hashable) -> Any:
    """Return the notes of the consumer of ``metadata``, or None if that consumer is unknown or gone (any thread)."""
    return _taken.get(metadata)

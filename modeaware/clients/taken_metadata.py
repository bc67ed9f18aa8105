"""Which consumer has returned the metadata of a group, with which a producer sends offsets to its transaction: its
notes ride on them, too."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from weakref import WeakValueDictionary

_taken: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def metadata_taken(metadata: Hashable, notes: Any) -> None:
    """The application has taken the metadata of a group from the consumer that has ``notes`` (any thread).

    Args:
        notes: is not kept alive.
    """
    _taken[metadata] = notes


def notes_of(metadata: Hashable) -> Any:
    """Return the notes of the consumer that has returned ``metadata``; None: it is not known, or gone (any thread)."""
    return _taken.get(metadata)

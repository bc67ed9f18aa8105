"""Partitioners that users write, named as ``package.module:name`` in a configuration."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable
from typing import Any

from partitioners.hashes import positive
from partitioners.seam import Partitioner

KeyFunction = Callable[[bytes | None, int], int]
"""Key (None for a record without one) and count to an index, ``0 <= index < count``."""


def is_plug_in(name: str) -> bool:
    """Whether ``name`` is to be loaded, and not one of :data:`~partitioners.NAMES`."""
    return ":" in name


def load(name: str) -> Partitioner:
    """The partitioner that ``name`` means.

    Args:
        name: ``package.module:name``; the part after the colon may have dots. It is a class, which is instantiated
            without arguments, or a :class:`~partitioners.seam.Partitioner`, or a function of a key and a count.

    Raises:
        ValueError: there is nothing of that name; says whether it is the module or the name in it.
        TypeError: it is none of these.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"{name!r} is no partitioner's name: write 'package.module:name'")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"the partitioner {name!r} cannot be loaded: no import of {module_name}: {error}") from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ValueError(f"the partitioner {name!r} cannot be loaded: {error}") from error
    return as_partitioner(found, name)


def as_partitioner(found: Any, name: str) -> Partitioner:
    """A class's instance, a partitioner as it is, or a function as a partitioner; ``name`` is for messages.

    Raises:
        TypeError: it is none of these, or the class cannot be instantiated without arguments.
    """
    made: Any = found
    if isinstance(found, type):
        try:
            made = found()
        except TypeError as error:
            raise TypeError(f"the partitioner {name!r} cannot be made without arguments: {error}") from error
    if callable(getattr(made, "for_topic", None)):
        partitioner: Partitioner = made
        return partitioner
    if callable(made) and made is found:
        return FunctionPartitioner(made, name)
    raise TypeError(
        f"{name!r} is no partitioner: it has no method for_topic(topic), and it is no function of a key and a count"
    )


class FunctionPartitioner:
    """A function as a partitioner, for all topics. Safe to use from several threads where the function is.

    Args:
        function: is asked for each record, also for one without a key (None). Equal keys are given the same candidates.
        name: for messages.
    """

    def __init__(self, function: KeyFunction, name: str) -> None:
        self._function = function
        self._name = name

    def for_topic(self, topic: str) -> FunctionPartitioner:
        """Itself: one function for all topics."""
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        """Always: nobody knows what the function does with a record without a key."""
        return True

    def partition(self, key: bytes | None, count: int) -> int:
        """See :meth:`~partitioners.TopicPartitioner.partition`.

        Raises:
            ValueError: the function gave something else than an index below ``count``.
        """
        given = self._function(key, positive(count))
        try:
            index = operator.index(given)
        except TypeError:
            index = -1
        if 0 <= index < count:
            return index
        raise ValueError(f"the partitioner {self._name!r} gave {given!r}, which is no index below {count}")

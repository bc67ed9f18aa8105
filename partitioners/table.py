"""Partitioners by name: librdkafka's, this package's, and a user's own as ``package.module:name``."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from partitioners.hashes import PURE_HASHES, Hash, HashFunction, positive
from partitioners.librdkafka import DEFAULT_NAME, RULES, LibrdkafkaPartitioner
from partitioners.minimal_movement import MinimalMovement
from partitioners.seam import REMAINDERS, HashPartitioner, Options, Partitioner, Placer, Rule, checked_index
from partitioners.spreading import Manual, RoundRobin, Sticky, UniformSticky

_OURS: Mapping[str, type[HashPartitioner]] = {
    kind.RULE.name: kind for kind in (RoundRobin, Sticky, UniformSticky, Manual, MinimalMovement)
}
"""The partitioners that librdkafka does not have."""

_RULES: Mapping[str, Rule] = {**RULES, **{name: kind.RULE for name, kind in _OURS.items()}}

NAMES = tuple(_RULES)
"""All names that :func:`named` accepts."""

PLACERS: Mapping[str, Placer] = MappingProxyType(
    {
        placer.name: placer
        for placer in (*REMAINDERS.values(), *(kind.RULE.placer for kind in _OURS.values()))
        if placer is not None
    }
)
"""The ways from a key to its index, by name. Several partitioners may share one."""


def rule_named(name: str) -> Rule:
    """Return the rule of the partitioner called ``name``. Raise ValueError, with all names, if there is none."""
    rule = _RULES.get(name)
    if rule is None:
        raise ValueError(f"unknown partitioner {name!r}; known: {', '.join(NAMES)}")
    return rule


def named(
    name: str = DEFAULT_NAME, *, hashes: Mapping[Hash, HashFunction] = PURE_HASHES, **options: Unpack[Options]
) -> HashPartitioner:
    """Return the partitioner called ``name``.

    Args:
        name: one of :data:`NAMES`: librdkafka's (:data:`LIBRDKAFKA_NAMES`), ``round_robin``, ``sticky`` (KIP-480),
            ``uniform_sticky`` (KIP-794), ``manual`` and ``minimal_movement``.
        hashes: the hash functions to use.
        options: see :class:`~partitioners.HashPartitioner`.

    Raises:
        ValueError: there is no such partitioner; the message lists the names.
    """
    rule = rule_named(name)
    hash_function = None if rule.hash is None else hashes[rule.hash]
    if name in _OURS:
        return _OURS[name](hash_function, **options)
    return LibrdkafkaPartitioner(hash_function, rule=rule, **options)


# Users' own

KeyFunction = Callable[[bytes | None, int], int]
"""Returns the index for a key (None for a record without one) and a count, ``0 <= index < count``."""


def is_plug_in(name: str) -> bool:
    """Return whether ``name`` has the form for :func:`load`. No name in :data:`~partitioners.NAMES` has it."""
    return ":" in name


def load(name: str) -> Partitioner:
    """Return the partitioner at ``name`` (``package.module:name``, where the last part may have dots).

    Raises:
        ValueError: the module, or the name in it, does not exist.
        TypeError: as from :func:`as_partitioner`.
    """
    module_name, colon, path = name.partition(":")
    if not (module_name and colon and path):
        raise ValueError(f"invalid partitioner {name!r}; write 'package.module:name'")
    try:
        value = operator.attrgetter(path)(importlib.import_module(module_name))
    except ImportError as error:
        raise ValueError(f"cannot load the partitioner {name!r}: import of {module_name} failed: {error}") from error
    except AttributeError as error:
        raise ValueError(f"cannot load the partitioner {name!r}: {error}") from error
    return as_partitioner(value, name)


def as_partitioner(given: Any, name: str) -> Partitioner:
    """Return the partitioner for ``given``: a partitioner, its class, or a function of a key and a count.

    Raises:
        TypeError: ``given`` is none of these, or its class needs arguments. The message has ``name``.
    """
    made: Any = given
    if isinstance(given, type):
        try:
            made = given()
        except TypeError as error:
            raise TypeError(f"the partitioner {name!r} cannot be made without arguments: {error}") from error
    if callable(getattr(made, "for_topic", None)):
        partitioner: Partitioner = made
        return partitioner
    if callable(made) and made is given:
        return FunctionPartitioner(made, name)
    raise TypeError(f"{name!r} is not a partitioner: it has no method for_topic(topic) and is not a function")


class FunctionPartitioner:
    """A function as a partitioner, for all topics. Safe to use from several threads if the function is.

    The function is called for each record, also for one without a key (None). All records have the same candidates,
    whether or not a candidate has a leader. ``name`` is for messages.
    """

    def __init__(self, function: KeyFunction, name: str) -> None:
        self._function = function
        self._name = name

    def for_topic(self, topic: str) -> FunctionPartitioner:
        """Return itself."""
        return self

    def requires_consistency(self, key: bytes | None) -> bool:
        """Return True, because the function may place records without a key, too."""
        return True

    def partition(self, key: bytes | None, count: int) -> int:
        """Return the function's result. Raise ValueError if it is not an index below ``count``."""
        return checked_index(self._function(key, positive(count)), count, repr(self._name))

"""Groups that keep state per partition, known by their type or by the names of their changelog topics.

Their state for a key lies in the partition of a changelog that goes with the input partition: it would not move with
the keys of a retired one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

STREAMS_SUFFIXES = ("-changelog", "-repartition")
QUIX_PREFIXES = ("changelog__", "repartition__")


def stateful_groups(topics: Iterable[str], names: Collection[str], streams: Collection[str]) -> frozenset[str]:
    """The groups of ``names`` with state: those of ``streams`` (known as Streams groups), and those whose name has
    changelog topics: ``<group>-...-changelog`` (Kafka Streams, Faust) or ``changelog__<group>--...`` (Quix)."""
    found = set(streams)
    for topic in topics:
        if topic.endswith("-changelog") or topic.startswith("changelog__"):
            found |= owners(topic, names, streams)
    return frozenset(found)


def owners(topic: str, names: Collection[str], streams: Collection[str]) -> frozenset[str]:
    """The groups of ``names`` that an internal topic (changelog or repartition) can belong to, by its name.

    ``app-x-store-changelog`` could be that of ``app`` or of ``app-x``; one that is known as a Streams group owns it.
    """
    candidates = {name for name in _prefixes(topic) if name in names}
    known = candidates & set(streams)
    return frozenset({max(known, key=len)} if known else candidates)


def owner(topic: str, types: Mapping[str, bool | None]) -> str | None:
    """The Streams group whose internal topic this is, if any.

    Args:
        types: group -> whether it is a Streams group; None: not known, as of one without members.
    """
    streams = {name for name, is_streams in types.items() if is_streams}
    possible = {name for name, is_streams in types.items() if is_streams is not False}
    return max(owners(topic, possible, streams), key=len, default=None)


def _prefixes(topic: str) -> Iterable[str]:
    if topic.startswith(QUIX_PREFIXES):
        stem = topic.partition("__")[2]
        yield from (stem[:place] for place in range(len(stem)) if stem.startswith("--", place))
    if topic.endswith(STREAMS_SUFFIXES):
        stem = topic.rpartition("-")[0]
        places = [place for place, character in enumerate(stem) if character == "-"]
        yield from (stem[:place] for place in places)

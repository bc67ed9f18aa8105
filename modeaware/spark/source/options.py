"""The options of ``format("modeaware")``: its own, and everything else a client's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.config import split_client_config
from modeaware.errors import ConfigError

EARLIEST, LATEST = -2, -1
"""Kafka's numbers (ListOffsets) for the log start and the log end."""
_NAMED = {"earliest": EARLIEST, "latest": LATEST}
# Spark's own, which it hands on to the source, or may.
_SPARKS = frozenset({"checkpointlocation", "queryname", "outputmode"})

Offsets = int | Mapping[int, int]
"""One for every partition, or by partition: offsets, or EARLIEST and LATEST."""


@dataclass(frozen=True)
class SourceOptions:
    """What a reader or writer of this format was told.

    Attributes:
        topic: the topic. A writer without one takes it from the column ``topic``.
        conf: the client's configuration, ours included.
        starting, ending: where to begin and to end, None where nothing was said.
        fail_on_data_loss: whether the query fails when records are gone that it was to read (true).
    """

    topic: str | None
    conf: Mapping[str, Any]
    starting: Offsets | None = None
    ending: Offsets | None = None
    fail_on_data_loss: bool = True

    @property
    def one_topic(self) -> str:
        """The topic.

        Raises:
            ConfigError: there is none.
        """
        if not self.topic:
            raise ConfigError('format("modeaware"): the option topic is missing')
        return self.topic


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Part the options, whose names Spark has put in lower case.

    Raises:
        ConfigError: one of ours has a bad value, a ``modeaware.`` setting is unknown, or there is no
            ``bootstrap.servers``.
    """
    left = {name: value for name, value in options.items() if name not in _SPARKS}
    if "path" in left:
        raise ConfigError(
            'format("modeaware"): a topic is no path: give the option topic, and load() or save() nothing'
        )
    topic = left.pop("topic", None)
    starting, ending = (_offsets(left, name, topic) for name in ("startingOffsets", "endingOffsets"))
    lossless = left.pop("failondataloss", "true").lower()
    if lossless not in ("true", "false"):
        raise ConfigError(f"failOnDataLoss: must be true or false, not {lossless!r}")
    for name in left:
        if name.startswith("kafka."):
            raise ConfigError(f"{name}: settings have librdkafka's names here, without kafka.: {name[6:]!r}?")
    if not (left.get("bootstrap.servers") or left.get("metadata.broker.list")):
        raise ConfigError('format("modeaware"): the option bootstrap.servers is missing')
    split_client_config(left)
    return SourceOptions(topic, left, starting, ending, lossless == "true")


def _offsets(options: dict[str, str], name: str, topic: str | None) -> Offsets | None:
    value = options.pop(name.lower(), None)
    if value is None or value in _NAMED:
        return None if value is None else _NAMED[value]
    try:
        found = {int(p): offset for p, offset in json.loads(value)[topic].items()}
        if not all(type(offset) is int and offset >= EARLIEST for offset in found.values()):
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        example = json.dumps({topic: {"0": 23, "1": -2}})
        raise ConfigError(f"{name}: must be earliest, latest, or JSON such as {example}, not {value}") from error
    return found

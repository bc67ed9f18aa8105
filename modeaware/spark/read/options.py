"""Options of Spark's Kafka source for one topic: what is ours to say, and what the caller may."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from modeaware.errors import ConfigError

_WHICH_TOPICS = ("assign", "subscribe", "subscribepattern")
_BY_PARTITION = ("startingoffsets", "endingoffsets", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp")


def caller_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The caller's options as Spark takes them: texts; those that are None are left out.

    Raises:
        ConfigError: one says which topics or partitions to read, which is told by other means here.
    """
    for name in options:
        if name.lower() in _WHICH_TOPICS:
            raise ConfigError(
                f"option {name}: the topic is an argument of its own, and its modes decide the partitions"
            )
    return {name: _text(value) for name, value in options.items() if value is not None}


def assign_option(topic: str, partitions: Collection[int]) -> str:
    """The value of the option ``assign``."""
    return json.dumps({topic: sorted(partitions)})


def only_partitions(options: Mapping[str, str], topic: str, partitions: Collection[int]) -> dict[str, str]:
    """``options`` with offsets and timestamps by partition cut down to ``partitions``: Spark refuses the others.

    Raises:
        ConfigError: such an option is JSON, but not an object of topics and their partitions.
    """
    cut = dict(options)
    for name, value in options.items():
        if name.lower() in _BY_PARTITION and value.lstrip().startswith("{"):
            cut[name] = _cut(name, value, topic, partitions)
    return cut


def _cut(name: str, value: str, topic: str, partitions: Collection[int]) -> str:
    try:
        topics = json.loads(value)
        topics[topic] = {p: offset for p, offset in topics[topic].items() if int(p) in partitions}
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        example = json.dumps({topic: {"0": 23}})
        raise ConfigError(f"option {name}: expected JSON such as {example}, not {value}", topic=topic) from error
    return json.dumps(topics)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

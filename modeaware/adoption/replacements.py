"""Which class of ours stands for which of confluent_kafka's, kafka-python's and aiokafka's."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

log = logging.getLogger(__name__)

AIOKAFKA, AIOKAFKA_PRODUCER = "aiokafka", "modeaware.aiokafka.producer"
"""aiokafka is left for later where the program has not imported it: many have it, and few of them use it."""

# Where applications import the classes, and where ours of the same names are.
_CONFLUENT = (
    ("confluent_kafka", "Producer", "modeaware.confluent.producer"),
    ("confluent_kafka", "Consumer", "modeaware.confluent.consumer"),
    ("confluent_kafka", "SerializingProducer", "modeaware.confluent.serde"),
    ("confluent_kafka", "DeserializingConsumer", "modeaware.confluent.serde"),
    ("confluent_kafka.admin", "AdminClient", "modeaware.confluent.admin"),
    ("confluent_kafka.aio", "AIOProducer", "modeaware.aio"),
    ("confluent_kafka.aio", "AIOConsumer", "modeaware.aio"),
    ("confluent_kafka.aio", "AsyncSerializingProducer", "modeaware.aio"),
    ("confluent_kafka.aio", "AsyncDeserializingConsumer", "modeaware.aio"),
)
_KAFKA_PYTHON = (
    ("kafka", "KafkaProducer", "modeaware.kafka_python.producer"),
    ("kafka", "KafkaConsumer", "modeaware.kafka_python.consumer"),
)
_AIOKAFKA = (("aiokafka", "AIOKafkaProducer", AIOKAFKA_PRODUCER),)


class Replacement(NamedTuple):
    """One class of a package, as it is exported now, and what takes its place."""

    package: ModuleType
    name: str
    ours: type


def aiokafka_is_here() -> bool:
    """Whether aiokafka is imported: all of it, not just being imported by somebody."""
    module = sys.modules.get(AIOKAFKA)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def replacements(*, aiokafka: bool) -> list[Replacement]:
    """What can be replaced in this process: kafka-python's where it can be imported, which this does.

    Args:
        aiokafka: aiokafka's as well, which is imported.

    A subclass that somebody put in a package already (a tracer) stays in effect: ours is put over it.
    """
    # All of ours first, with the stock classes that they build on: our own code never sees a replaced one.
    found = [_replacement(*entry) for entry in (*_CONFLUENT, *_kafka_python(), *(_aiokafka() if aiokafka else ()))]
    return [one for one in found if one is not None]


def originals(replacements: list[Replacement]) -> Mapping[type, Replacement]:
    """By each class that is to be replaced wherever it is held: the exported one, and the stock class beneath."""
    found: dict[type, Replacement] = {}
    for one in replacements:
        for base in one.ours.__mro__:
            if base.__name__ == one.name and not _is_ours(base):
                found[base] = one
        current = getattr(one.package, one.name)
        if not _is_ours(current):
            found[current] = one
    return found


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "modeaware"


def _kafka_python() -> Iterator[tuple[str, str, str]]:
    try:
        import_module("modeaware.kafka_python")
    except ImportError as error:
        if error.name != "kafka" or not isinstance(
            error, ModuleNotFoundError
        ):  # it is there, in another release, or another package of this name
            log.warning("kafka-python's clients stay as they are, unaware of partition modes: %s", error)
        return
    yield from _KAFKA_PYTHON


def _aiokafka() -> Iterator[tuple[str, str, str]]:
    try:
        import_module(AIOKAFKA_PRODUCER)
    except ImportError as error:  # another release, or another package of this name
        log.warning("aiokafka's producer stays as it is, unaware of partition modes: %s", error)
        return
    yield from _AIOKAFKA


def _replacement(package_name: str, name: str, our_module: str) -> Replacement | None:
    ours: type = getattr(import_module(our_module), name)
    package = import_module(package_name)
    current = getattr(package, name)
    if not isinstance(current, type):
        log.warning("%s.%s is not a class (a mock?) and stays as it is: %r", package_name, name, current)
        return None
    if issubclass(ours, current) or issubclass(current, ours):
        return Replacement(package, name, ours if issubclass(ours, current) else current)
    names = {"__module__": ours.__module__, "__qualname__": ours.__qualname__, "__doc__": ours.__doc__}
    return Replacement(package, name, types.new_class(name, (ours, current), exec_body=lambda body: body.update(names)))

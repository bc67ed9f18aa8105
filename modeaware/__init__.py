"""Shrink Kafka topics: partition modes (KIP-694) for clients of stock Apache Kafka.

``modeaware.Producer``, ``Consumer``, ``SerializingProducer``, ``DeserializingConsumer`` and ``AdminClient`` are drop-in
replacements for confluent_kafka's classes of the same names. A name is loaded when first used, so importing the package
costs next to nothing.

PYTEST_DONT_REWRITE: without this word, pytest would warn that it cannot rewrite a package that is already loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeaware.printable import escape_logs

if TYPE_CHECKING:
    from modeaware.admin.new_topics import CreationResult as CreationResult
    from modeaware.admin.new_topics import NewPartitions as NewPartitions
    from modeaware.admin.new_topics import NewTopic as NewTopic
    from modeaware.admin.new_topics import TopicReplacement as TopicReplacement
    from modeaware.adoption import install as install
    from modeaware.adoption import uninstall as uninstall
    from modeaware.clients.resize import Resize as Resize
    from modeaware.confluent.admin import AdminClient as AdminClient
    from modeaware.confluent.consumer import Consumer as Consumer
    from modeaware.confluent.consumer import DeserializingConsumer as DeserializingConsumer
    from modeaware.confluent.controller_calls import DeletePartitions as DeletePartitions
    from modeaware.confluent.producer import Producer as Producer
    from modeaware.confluent.producer import SerializingProducer as SerializingProducer
    from modeaware.errors import ModeAwareError as ModeAwareError
    from modeaware.modelog.group_rules import GroupRule as GroupRule
    from modeaware.modes import PartitionMode as PartitionMode
    from modeaware.topic_view import Moved as Moved
    from modeaware.topic_view import ReplacedBy as ReplacedBy
    from modeaware.topic_view import TopicView as TopicView

__version__ = "0.3.0"

escape_logs()


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package whose names are loaded when first used.

    Args:
        modules: module in ``package`` -> the names that the module defines.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}
    exported = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return exported, load, lambda: exported


__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "admin.new_topics": ("CreationResult", "NewPartitions", "NewTopic", "TopicReplacement"),
        "adoption": ("install", "uninstall"),
        "clients.resize": ("Resize",),
        "confluent.admin": ("AdminClient",),
        "confluent.controller_calls": ("DeletePartitions",),
        "confluent.consumer": ("Consumer", "DeserializingConsumer"),
        "confluent.producer": ("Producer", "SerializingProducer"),
        "errors": ("ModeAwareError",),
        "modelog.group_rules": ("GroupRule",),
        "modes": ("PartitionMode",),
        "topic_view": ("Moved", "ReplacedBy", "TopicView"),
    },
)
__all__ += ["__version__"]

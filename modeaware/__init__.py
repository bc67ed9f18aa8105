"""Shrink Kafka topics: partition modes (KIP-694) for clients of stock Apache Kafka.

``modeaware.Producer``, ``Consumer``, ``SerializingProducer``, ``DeserializingConsumer`` and ``AdminClient`` are drop-in
for confluent_kafka's classes of the same names. Names are loaded when first used, so importing the package costs next
to nothing.

PYTEST_DONT_REWRITE: pytest would rewrite the assertions of a plugin's package, and warn where that is loaded already.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modeaware.printable import escape_logs

if TYPE_CHECKING:
    from modeaware.admin.new_topics import CreationResult as CreationResult
    from modeaware.admin.new_topics import NewPartitions as NewPartitions
    from modeaware.admin.new_topics import NewTopic as NewTopic
    from modeaware.adoption import install as install
    from modeaware.adoption import uninstall as uninstall
    from modeaware.confluent.admin import AdminClient as AdminClient
    from modeaware.confluent.admin import DeletePartitions as DeletePartitions
    from modeaware.confluent.consumer import Consumer as Consumer
    from modeaware.confluent.consumer import DeserializingConsumer as DeserializingConsumer
    from modeaware.confluent.producer import Producer as Producer
    from modeaware.confluent.producer import SerializingProducer as SerializingProducer
    from modeaware.errors import ModeAwareError as ModeAwareError
    from modeaware.modelog.group_rules import GroupRule as GroupRule
    from modeaware.modes import PartitionMode as PartitionMode
    from modeaware.topic_view import TopicView as TopicView

__version__ = "0.2.0"

_EXPORTS = {
    "AdminClient": "modeaware.confluent.admin",
    "Consumer": "modeaware.confluent.consumer",
    "CreationResult": "modeaware.admin.new_topics",
    "DeletePartitions": "modeaware.confluent.admin",
    "DeserializingConsumer": "modeaware.confluent.consumer",
    "GroupRule": "modeaware.modelog.group_rules",
    "ModeAwareError": "modeaware.errors",
    "NewPartitions": "modeaware.admin.new_topics",
    "NewTopic": "modeaware.admin.new_topics",
    "PartitionMode": "modeaware.modes",
    "Producer": "modeaware.confluent.producer",
    "SerializingProducer": "modeaware.confluent.producer",
    "TopicView": "modeaware.topic_view",
    "install": "modeaware.adoption",
    "uninstall": "modeaware.adoption",
}

__all__ = [*sorted(_EXPORTS), "__version__"]


escape_logs()


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

"""Asking the coordinator how it dealt: one description of the group, checked against what this member was given."""

from __future__ import annotations

import logging
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modeaware.librdkafka import KafkaError, KafkaException
from modeaware.modelog.connection import connection_conf

if TYPE_CHECKING:
    from modeaware.confluent._offsets import Key

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 2.0
RANGE = "range"
_GENERATION = struct.Struct("<i")
_VERSION_SIZE = 2
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_METADATA_MAGIC = b"CGMDv2:"


@dataclass(frozen=True)
class GroupDealing:
    """How the coordinator dealt to the members of the present generation.

    Attributes:
        strategy: the group's strategy (``range``, ``roundrobin``, ...).
        topics: topic -> member id -> partitions.
    """

    strategy: str
    topics: Mapping[str, Mapping[str, tuple[int, ...]]] = field(hash=False)

    def of(self, topic: str) -> Mapping[str, tuple[int, ...]]:
        return self.topics.get(topic, {})


class GroupMoved(Exception):
    """The group is in another generation than the caller, or about to be: another assignment is coming."""


class DealingUnknown(Exception):
    """The coordinator's answer could not be had.

    Attributes:
        final: asking again will not help (not authorised).
    """

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class GroupDescriber:
    """Describes the consumer's own group; the admin client is made when first needed, and has no thread of ours.

    Not thread-safe: used by the polling thread alone.
    """

    def __init__(self, conf: Mapping[str, Any], group_id: str) -> None:
        self._conf = connection_conf(conf, "group")
        self._group_id = group_id
        self._admin: Any = None

    def dealing(self, member: str, given: set[Key]) -> GroupDealing:
        """The dealing of the generation in which ``member`` was given ``given``.

        A group that is stable and shows exactly this for the member id is in the caller's generation: the next one
        cannot be complete without a new join of this member.

        Raises:
            GroupMoved: it is not, or a rebalance is under way.
            DealingUnknown: no answer, or one that cannot be used.
        """
        description = self._describe()
        if description.state != "Stable":
            raise GroupMoved(f"group {self._group_id} is {description.state}")
        topics: dict[str, dict[str, tuple[int, ...]]] = {}
        own: set[Key] | None = None
        for other in description.members:
            assignment = assignment_of(other.assignment)
            if other.id == member:
                own = {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}
            for topic, partitions in assignment.items():
                topics.setdefault(topic, {})[other.id] = partitions
        if own != given:
            raise GroupMoved(f"group {self._group_id} shows another assignment for {member}")
        return GroupDealing(description.protocol, topics)

    def _describe(self) -> Any:
        if self._admin is None:
            # Imported here: a consumer whose topics are all readable never needs an admin client.
            from modeaware.librdkafka_admin import AdminClient

            self._admin = AdminClient(self._conf)
        try:
            # Not describe_consumer_groups: librdkafka aborts the process when that request's timeout runs out while the
            # coordinator is away (an assertion in rdkafka_queue.h, librdkafka 2.16). This older call does not.
            # Its deprecation is ours to know; where warnings are errors the call would fail.
            warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
            found = self._admin.list_groups(self._group_id, timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._unknown(error.args[0]) from error
        for group in found:
            if group.id == self._group_id:
                if group.error is not None:
                    raise self._unknown(group.error)
                return group
        raise DealingUnknown(f"group {self._group_id} not described: no broker lists it")

    def _unknown(self, error: KafkaError) -> DealingUnknown:
        final = error.code() in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        return DealingUnknown(f"group {self._group_id} not described: {error.str()}", final=final)

    def close(self) -> None:
        self._admin = None


def assignment_of(data: bytes | None) -> dict[str, tuple[int, ...]]:
    """Topic -> partitions in a member's assignment (Kafka's ConsumerProtocolAssignment, any version).

    Raises:
        DealingUnknown: it is of another form.
    """
    if not data:
        return {}
    assignment: dict[str, tuple[int, ...]] = {}
    try:
        (count,), at = _COUNT.unpack_from(data, _VERSION_SIZE), _VERSION_SIZE + _COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            topic, at = data[at : at + length].decode(), at + length
            (partitions,) = _COUNT.unpack_from(data, at)
            at += _COUNT.size
            assignment[topic] = struct.unpack_from(f">{partitions}i", data, at)
            at += 4 * partitions
    except (struct.error, UnicodeDecodeError) as error:
        raise DealingUnknown(f"a member's assignment cannot be read: {error}", final=True) from error
    return assignment


def generation_of(metadata: Any) -> int | None:
    """The generation in a client's group metadata, None where its form is not the known one.

    librdkafka writes ``CGMDv2:``, the generation (int32), group id, member id and group instance id
    (``rd_kafka_consumer_group_metadata_write``); confluent_kafka hands these bytes out.
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(_METADATA_MAGIC):
        return None
    if len(metadata) < len(_METADATA_MAGIC) + _GENERATION.size:
        return None
    generation: int = _GENERATION.unpack_from(metadata, len(_METADATA_MAGIC))[0]
    return generation

"""A member of a classic group by raw requests: any protocol, and it stops where the test wants it to."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer.group import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import FindCoordinatorRequest
from tests.support.waiting import eventually

MEMBER_ID_REQUIRED = 79


class RawMember:
    """Joins on construction; until :meth:`settle` its group is in a rebalance."""

    def __init__(
        self, brokers: Brokers, group: str, topic: str, *, protocol: str = "range", protocol_type: str = "consumer"
    ) -> None:
        self._brokers, self.group, self._topic, self._protocol_type = brokers, group, topic, protocol_type
        self._protocol = protocol
        self._coordinator = -1
        eventually(self._found_coordinator, message="the group has no coordinator")
        self._member_id = ""
        self._generation = -1
        eventually(self._joined, message="the group cannot be joined")

    def settle(self, assigned: tuple[int, ...] = (0,)) -> None:
        """Give itself some partitions: the group is stable then."""
        part = ConsumerProtocolAssignment.TopicPartition(topic=self._topic, partitions=list(assigned))
        assignment = ConsumerProtocolAssignment(version=0, assigned_partitions=[part], user_data=b"").encode()
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=self._member_id, assignment=assignment)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            assignments=[given],
        )
        assert self._brokers.ask(request, self._coordinator).error_code == 0

    def leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self._member_id, group_instance_id=None)
        self._brokers.ask(LeaveGroupRequest(group_id=self.group, members=[identity], min_version=3), self._coordinator)

    def _found_coordinator(self) -> bool:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group], min_version=4)
        (found,) = self._brokers.ask(request).coordinators
        self._coordinator = found.node_id
        return found.error_code == 0

    def _joined(self) -> bool:
        answer = self._join()
        if answer.error_code in (0, MEMBER_ID_REQUIRED):  # others pass: the coordinator has just begun
            self._member_id, self._generation = answer.member_id, answer.generation_id
        return answer.error_code == 0

    def _join(self) -> Any:
        metadata = ConsumerProtocolSubscription(version=0, topics=[self._topic], user_data=b"").encode()
        entry = JoinGroupRequest.JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=self._protocol_type,
            protocols=[entry],
        )
        return self._brokers.ask(request, self._coordinator)

"""A member's requests to brokers (:class:`~modeaware.clients.actions.Asked`), by librdkafka.

Only the polling thread may use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modeaware.clients.actions import Asked, Committed, Start
from modeaware.clients.member import Member
from modeaware.clients.places import find_places, find_restarts
from modeaware.clients.starts import Key, Starts
from modeaware.confluent.offsets import ANSWER_S, LibrdkafkaOffsets, NonMember, commits_of, parts_of, positions
from modeaware.confluent.ownership import Ownership
from modeaware.confluent.patterns import present


class Requests:
    """The requests of one member.

    Args:
        stock: the client's own methods.
        non_member: requests offsets of topics that need not be assigned.
        offsets: the client's requests for offsets.
    """

    def __init__(
        self,
        stock: Any,
        non_member: NonMember,
        member: Member,
        starts: Starts,
        offsets: LibrdkafkaOffsets,
        ownership: Ownership,
    ) -> None:
        self._stock = stock
        self._non_member = non_member
        self._member = member
        self._starts = starts
        self._offsets = offsets
        self._other_offsets = LibrdkafkaOffsets(non_member, member.reading.reader.group, is_final=False)
        self._ownership = ownership

    def answer(self, what: Asked, keys: frozenset[Key], given: set[Key], *, inside: bool) -> Mapping[Key, Any]:
        """Return the answers about ``keys``. Keys without an answer are left out.

        Args:
            given: the partitions that the group gave to this member.
            inside: within a callback of librdkafka.

        Raises:
            KafkaException: no answer at all.
        """
        match what:
            case Asked.STARTS:
                return self._find_starts(keys, self._offsets)
            case Asked.OTHER_STARTS:
                return self._find_starts(keys, self._other_offsets)
            case Asked.PLACES:
                return find_places(
                    positions(self._stock, keys), self._starts, self._offsets, self._offsets.log_starts_now,
                    subscribed=not self._member.manual,
                )  # fmt: skip
            case Asked.RESTARTS:
                at, commits = positions(self._stock, keys), self._committed(keys)
                return find_restarts(
                    self._member.partitions, at, commits, self._starts, self._offsets, self._offsets.log_starts_now
                )
            case Asked.COMMITTED:
                return self._committed(keys)
            case Asked.OWNED:
                return {key: not self._ownership.lacks_owner({key[0]}, given) for key in keys}
            case Asked.TOPICS:
                return dict.fromkeys(self._present(keys, inside=inside), True)

    def _committed(self, keys: frozenset[Key]) -> dict[Key, Committed | None]:
        """Return the group's commits.

        The member's own client requests the commits of the member's partitions, because the request of another client
        could overtake this client's commits. The NonMember requests the others; its docstring has the reason.
        """
        own = keys & self._member.partitions.keys()
        others = keys - own
        commits = commits_of(self._stock.committed(parts_of(own), timeout=ANSWER_S)) if own else {}
        return commits | (commits_of(self._non_member.committed(parts_of(others), ANSWER_S)) if others else {})

    def _present(self, keys: frozenset[Key], *, inside: bool) -> list[Key]:
        old = self._member.reading.old
        is_switched = {
            key[0]: (new_topic := old[key[0]].replaced_by) is not None and new_topic.switched for key in keys
        }
        new = {topic for topic, switched in is_switched.items() if not switched}
        there = present(self._stock, self._non_member, new, inside=inside) if new else set()
        return [key for key in keys if is_switched[key[0]] or key[0] in there]

    def _find_starts(self, keys: frozenset[Key], offsets: LibrdkafkaOffsets) -> dict[Key, Start]:
        if self._member.manual:
            return dict.fromkeys(keys, Start(None))
        return self._starts.find(keys, offsets).starts

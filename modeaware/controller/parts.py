"""What a controller's thread works with."""

from __future__ import annotations

from dataclasses import dataclass

from modeaware.cluster.cluster import Cluster
from modeaware.controller.claims import ClaimWatch
from modeaware.controller.election import Election
from modeaware.controller.engine import Engine
from modeaware.controller.inbox import Inbox
from modeaware.controller.log import ControllerLog
from modeaware.controller.observed import BrokerWatch
from modeaware.controller.replaced import TopicWatch
from modeaware.controller.status import Status
from modeaware.errors import ErrorCode, ModeAwareError

POLL_S = 0.1
"""How often the election is looked at, at least, where no step is in between: commands are waited for in between."""


@dataclass(frozen=True)
class Parts:
    """All of it is used by the worker's thread alone, but for the inbox and the status.

    Attributes:
        clusters: the connections of all others, closed when the worker leaves.
    """

    engine: Engine
    log: ControllerLog
    election: Election
    claims: ClaimWatch
    inbox: Inbox
    status: Status
    brokers: BrokerWatch | None = None
    clusters: tuple[Cluster, ...] = ()
    topics: TopicWatch | None = None


def may_pass(error: ModeAwareError) -> bool:
    """Whether trying again may help: nobody has answered, rather than refused."""
    return error.code is ErrorCode.REQUEST_TIMED_OUT

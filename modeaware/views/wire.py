"""KIP-694's Metadata as a source of views, from one server that has the feature ``partition.mode``.

The server is an endpoint of modeaware, which returns epochs and topic ids beside the modes, or a broker that implements
KIP-694, which returns modes alone. A server may lag behind, so these rules apply to its responses (invariant I4):

* The store ignores a version that is older than the view in force. Once another topic id has taken the place of an id,
  this module ignores the past id's versions up to the last one that was in force.
* A topic that a response lacks is requested by name. The topic is gone only if an endpoint lists its id as removed, or
  if a server returns "unknown topic" twice, at least :data:`CONFIRM_S` apart.
* Of responses without epochs the later one counts, but none replaces a view that has an epoch.

Importing this module needs no kafka-python; a request does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from cachetools import LRUCache

from modeaware.callouts import InnerLock, get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ClusterError, ErrorCode, ModeAwareError, ModeSourceError, NotAuthorized
from modeaware.modelog.records import ClaimRecord
from modeaware.modes import PartitionMode
from modeaware.topic_view import REPLACEMENT_STATES, Moved, ReplacedBy, TopicView
from modeaware.views.store import REMEMBERED_IDS, ViewStore
from modeaware.wire.security import security_protocol

logger = get_logger(__name__)

CONFIRM_S = 5.0
"""The time after which a missing topic is requested once more: a broker that has just started may not have it yet."""
TURN_S = 0.5
UNKNOWN_TOPIC, DENIED = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class TopicsMissing(ModeSourceError):
    """The response lacks topics that have a view; the last views of these topics stay in force."""


class TopicsDenied(TopicsMissing, NotAuthorized):
    """The response lacks topics because the user is no longer authorized to describe them."""


class WireSource:
    """Requests views from one server and publishes them. Thread-safe; one request at a time.

    Args:
        conf: the client's librdkafka settings.
        store: where the views are published.
        wanted: returns whether a response is still needed.
        take_id: called with a topic and the brokers' id of it, if the record has another id (invariant I8), while the
            store's turn is held.
        groups: returns the groups of the clients' consumers. The server returns which of these have an open gate.

    Attributes:
        server: the server that is used now, or was used last.
        used_s: when the last request was sent to the server, on the monotonic clock.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        store: ViewStore,
        wanted: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM_CLOCK,
        take_id: Callable[[str, str], object] = lambda topic, live_id: None,
        groups: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self._conf = dict(conf)
        self._store = store
        self._wanted = wanted
        self._clock = clock
        self._take_id = take_id
        self._groups = groups
        self._asking = InnerLock()
        self._connection: Any = None  # a OneServer, whose module needs kafka-python
        self._ours = False
        self._replaced: set[str] = set()  # topics whose id on the cluster is not the id in the server's record
        self._denied: LRUCache[str, tuple[int, int]] = LRUCache(REMEMBERED_IDS)  # ids of topics that are gone
        self._doubted: dict[str, float] = {}  # topics that were unknown once -> when to request them again
        self._counter = 0
        self._contradicted: set[str] = set()
        self._claim: ClaimRecord | None = None
        self.server: str | None = None
        self.used_s = clock.monotonic_s()

    def point_to(self, server: str, *, ours: bool) -> None:
        """Use ``server`` from now on.

        Args:
            ours: whether the server is an endpoint of modeaware. If so, a topic without a mode epoch has no record.

        Raises:
            MissingExtra: kafka-python is not installed.
            ConfigError: a setting has no equivalent in kafka-python.
            ModeSourceError: a request to the last server is still pending.
        """
        from modeaware.wire.transport import OneServer

        if not self._asking.acquire(timeout=TURN_S):
            raise ModeSourceError(f"modes over the wire: no answer from {self.server} yet")
        try:
            self._disconnect()
            self._connection, self._ours, self.server = OneServer(self._conf, server), ours, server
        finally:
            self._asking.release()

    def claim(self) -> ClaimRecord | None:
        """Return the active controller by the last response, as a claim with the highest controller epoch so far."""
        return self._claim

    @property
    def confirm_due_s(self) -> float | None:
        """Return when to request unknown topics again."""
        return min(self._doubted.values(), default=None)

    def close(self) -> None:
        """Close the connection, unless a request is pending."""
        if self._asking.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._asking.release()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def fetch(self, timeout_s: float, *, fresh: bool) -> None:
        """Request the modes of all topics that have a record.

        Args:
            fresh: whether the server must first read the mode log to its end.

        Raises:
            TopicsMissing: the response lacks some topics; the views of all others are in force.
            ModeSourceError: no usable response arrived in time. The last views stay.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        if not self._asking.acquire(timeout=max(timeout_s, 0.0)):
            raise ModeSourceError(
                "modes over the wire: timed out; an earlier request is still without an answer",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        try:
            self.used_s = self._clock.monotonic_s()
            returned = self._take(self._ask(None, deadline_s, fresh=fresh))
            missing = [topic for topic in self._store.views() if topic not in returned]
            self._doubted = {name: due for name, due in self._doubted.items() if name in missing}
            if missing:
                # Fresh, because an endpoint that lags behind may not have read the missing topics' records yet.
                self._confirm_missing(missing, self._ask(missing, deadline_s, fresh=True))
        except (ClusterError, ImportError) as error:
            code = error.code if isinstance(error, ModeAwareError) else None
            raise ModeSourceError(f"modes over the wire: {error}", code=code) from error
        finally:
            self._asking.release()

    def _ask(self, topics: Collection[str] | None, deadline_s: float, *, fresh: bool) -> Any:
        from modeaware.wire import codec
        from modeaware.wire.frames import MalformedFrame

        held = [self._store.view(topic).topic_id for topic in topics or ()]
        request = codec.ModesMetadataRequest(
            topics=None if topics is None else [(topic,) for topic in topics],
            allow_auto_topic_creation=False,
            modes_only=topics is None,
            fresh=fresh,
            held_topic_ids=[topic_id for topic_id in held if topic_id is not None],
            groups=sorted(self._groups()),
        )

        def encode(correlation_id: int, client_id: str | None) -> bytes:
            return codec.encode_request(request, codec.MODES_VERSION, correlation_id, client_id)

        may_be_closed = self._connection.connected  # if it was idle for long, the peer may have closed it
        while True:
            try:
                left_s = deadline_s - self._clock.monotonic_s()
                answer = self._connection.ask(
                    codec.METADATA_KEY, codec.MODES_VERSION, encode, left_s, wanted=self._wanted
                )
                return codec.decode_response(answer, codec.METADATA_KEY, codec.MODES_VERSION)[1]
            except MalformedFrame as error:
                self._disconnect()
                raise ModeSourceError(f"modes over the wire: {self.server}: {error}") from error
            except ClusterError:
                if not may_be_closed or self._clock.monotonic_s() >= deadline_s or not self._wanted():
                    raise
                may_be_closed = False

    # Reading a response: _asking is held, and the store's turn where views change

    def _take(self, answer: Any) -> set[str]:
        """Publish the topics that have modes; return their names."""
        with self._store.turn:
            topics = [topic for topic in answer.topics if not topic.error_code]
            for topic in topics:
                if topic.topic_id is not None:
                    self._compare(topic)
            views = [view for topic in topics if (view := self._view(topic)) is not None]
            for view in views:
                self._doubted.pop(view.topic, None)
            self._claim = _claim(answer, security_protocol(self._conf), self._claim) or self._claim
            self._publish(views)
            return {view.topic for view in views}

    def _compare(self, topic: Any) -> None:
        """Call ``take_id`` with the topic's id on the cluster (invariant I8). While the server's record has another id,
        a response has the cluster's id and no epochs. ``take_id`` is called for each such response, because a broker
        may lag behind, and once afterwards."""
        if not _has_record(topic):
            self._replaced.add(topic.name)
        elif topic.name in self._replaced:
            self._replaced.discard(topic.name)
        else:
            return
        self._take_id(topic.name, topic.topic_id)

    def _confirm_missing(self, missing: Collection[str], answer: Any) -> None:
        """Decide which topics are gone. ``missing`` have a view; ``answer`` is the response to the request by name."""
        with self._store.turn:
            self._take(answer)
            by_name = {topic.name: topic for topic in answer.topics}
            unknown = {name for name, topic in by_name.items() if topic.error_code == UNKNOWN_TOPIC}
            gone = []
            errors: dict[str, int | None] = {}  # 0: the topic has no record; None: the response lacks the topic
            for name in missing:
                topic = by_name.get(name)
                code = None if topic is None else int(topic.error_code)
                held = self._store.view(name)
                if held.topic_id is not None and held.topic_id in answer.removed_topic_ids:
                    gone.append(name)
                    self._leave_behind(held)
                elif name in unknown:
                    if self._is_confirmed(name):
                        gone.append(name)
                        if held.topic_id is not None:  # noted, because the broker may lag behind
                            self._denied[held.topic_id] = held.version
                elif topic is None or code:
                    errors[name] = code
                elif self._ours and not _has_record(topic) and topic.topic_id is None:
                    # A missing record is no tombstone (invariant I4): the endpoint may be unable to read the record.
                    errors[name] = code
            self._doubted = {name: due for name, due in self._doubted.items() if name in unknown.difference(gone)}
            self._store.publish((), gone)
        if errors:
            names = ", ".join(
                f"{name} ({'no mode record' if code == 0 else f'error {code}'})"
                for name, code in sorted(errors.items())[:10]
            )
            kind = TopicsDenied if set(errors.values()) == {DENIED} else TopicsMissing
            raise kind(f"modes over the wire: {self.server} returns no modes of {names}; the last views stay in force")

    def _is_confirmed(self, name: str) -> bool:
        """Return whether the topic was already unknown :data:`CONFIRM_S` ago."""
        now_s = self._clock.monotonic_s()
        return now_s >= self._doubted.setdefault(name, now_s + CONFIRM_S)

    def _view(self, topic: Any) -> TopicView | None:
        """Return the view of a topic in a response, or None if the topic has no record."""
        if not _has_record(topic):
            return None if self._ours else self._counted(topic.name, _modes(topic))
        return TopicView(
            topic.name,
            topic.topic_id,
            (int(topic.controller_epoch), int(topic.mode_epoch)),
            _modes(topic),
            {p.partition_index: p.resume_offset for p in topic.partitions if p.resume_offset >= 0},
            frozenset(p.partition_index for p in topic.partitions if p.reclaimed),
            topic.previous_count if topic.previous_count >= 0 else None,
            _replaced_by(topic),
        )

    def _counted(self, name: str, modes: tuple[PartitionMode, ...]) -> TopicView | None:
        """Return a view from a server without epochs. Its version counts the responses that changed the modes."""
        held = self._store.held(name)
        if held is None and all(mode.writable for mode in modes):
            return None  # equal to an unlisted topic
        if held is not None and held.version[0] > 0 and held.modes != modes and name not in self._contradicted:
            self._contradicted.add(name)
            logger.warning(
                "%s returns modes of %s without an epoch, which differ from the view in force (%s). The view stays. If "
                "a broker with KIP-694 has taken the place of modeaware's controller, restart this client",
                *(self.server, name, held.describe()),
            )
        if held is not None and (held.modes == modes or held.version[0] > 0):
            return held
        self._counter = max(self._counter, 0 if held is None else held.version[1]) + 1
        return TopicView(name, None, (0, self._counter), modes)

    def _publish(self, views: Iterable[TopicView]) -> None:
        fit = []
        for view in views:
            held = self._store.held(view.topic)
            topic_id = view.topic_id or ""
            past, denied = self._store.past_ids.get(topic_id), self._denied.get(topic_id)
            if (past is not None and view.version <= past) or (denied is not None and view.version < denied):
                logger.debug(
                    "%s still returns an earlier view of %r, or of an earlier topic of that name",
                    self.server,
                    view.topic,
                )
                continue
            if held is not None and held.topic_id != view.topic_id and not self._store.is_aside(view.topic_id):
                self._leave_behind(held)
            fit.append(view)
        self._store.publish(fit)

    def _leave_behind(self, view: TopicView) -> None:
        """From now on ignore versions of this topic id up to that of ``view``: a lagging server may still return them
        (invariant I4)."""
        if view.topic_id is not None:
            self._store.past_ids[view.topic_id] = view.version


def _has_record(topic: Any) -> bool:
    return bool(topic.topic_id is not None and topic.mode_epoch >= 0)


def _modes(topic: Any) -> tuple[PartitionMode, ...]:
    """Return the modes of partition 0, 1, 2, ...

    Raises:
        ModeSourceError: a mode is unknown, or a partition is missing.
    """
    modes = {partition.partition_index: partition.mode for partition in topic.partitions}
    try:
        if modes.keys() != set(range(len(modes))):
            raise ValueError("partitions are missing")
        return tuple(PartitionMode(modes[partition]) for partition in range(len(modes)))
    except ValueError as error:
        raise ModeSourceError(f"modes over the wire: topic {topic.name!r}: {error}", topic=topic.name) from error


def _replaced_by(topic: Any) -> ReplacedBy | None:
    """Return the new topic of a topic in a response, or None. An unknown ``state`` counts as the highest known one."""
    if not topic.replaced_by:
        return None
    (new_topic,) = topic.replaced_by[:1]
    decided = int(topic.moved_controller_epoch), int(topic.moved_epoch)
    return ReplacedBy(
        new_topic.name,
        new_topic.topic_id,
        int(new_topic.partition_count),
        **{name: new_topic.state >= n for n, name in enumerate(REPLACEMENT_STATES) if n},
        read_up_to={p.partition_index: p.read_up_to for p in topic.partitions if p.read_up_to >= 0},
        groups=frozenset(new_topic.groups),
        groups_complete=bool(new_topic.groups_complete),
        moved=Moved(groups=frozenset(topic.moved or ()), version=decided),
    )


def _claim(answer: Any, security_protocol: str, last: ClaimRecord | None) -> ClaimRecord | None:
    if answer.controller_name is None:
        return None
    known = 0 if last is None else last.controller_epoch  # a response may lack the topics with the highest epoch
    epoch = max((int(topic.controller_epoch) for topic in answer.topics), default=0)
    node = next((broker for broker in answer.brokers if broker.node_id == answer.controller_id), None)
    address = None
    if node is not None:
        host = f"[{node.host}]" if ":" in node.host else node.host
        address = f"{host}:{node.port}"
    # The active controller's endpoint is assumed to use the same protocol as this one.
    return ClaimRecord(max(epoch, known), address, answer.controller_name, security_protocol=security_protocol)

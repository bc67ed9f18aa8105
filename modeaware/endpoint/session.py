"""One client connection's conversation without IO: frames in, actions out, answers in the order of the requests.

Each request that goes further becomes exactly one request to the broker, at its own place in the order: its own bytes,
or the Metadata request that stands in for it. So the broker's answers pair with what waits for them by order alone, and
none is ever kept back behind another. A request that needs more than the broker (the controller, or the mode log's end)
lets the ones behind it wait, unsent, until it has its answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from modeaware.endpoint import api_versions, changes, metadata
from modeaware.endpoint.api_versions import Awareness
from modeaware.endpoint.authentication import Authentication
from modeaware.endpoint.changes import Change
from modeaware.endpoint.desk import (
    REFUSE,
    Action,
    ActiveController,
    Close,
    Desk,
    Outcome,
    Refresh,
    Submit,
    ToClient,
    ToUpstream,
)
from modeaware.endpoint.limits import Limits
from modeaware.endpoint.metadata import Answers, Gate, ModesQuery
from modeaware.endpoint.order import Ended, Order, Slot
from modeaware.errors import ModeAwareError, ModeSourceError
from modeaware.wire import codec, stock
from modeaware.wire.codec import Header, peek_header
from modeaware.wire.frames import MalformedFrame
from modeaware.wire.kip694 import METADATA_KEY, MODES_VERSION

_REFUSED = {
    0: "Produce: records do not pass here",
    1: "Fetch: records do not pass here",
    78: "ShareFetch: records do not pass here",
    api_versions.DESCRIBE_TOPIC_PARTITIONS_KEY: "DescribeTopicPartitions: it is not offered here",
}
_LOWEST_ID = -(2**31)


class Session:
    """One client connection. No IO, no clock; one thread calls it.

    Frames go in, actions come out, to be carried out in their order. No method raises. After a Close every call gives
    no more actions.

    Contract: ``from_client`` is called only while ``wants_more`` is true; a frame beyond that closes the connection.
    A peer's end of stream needs no call: close the other side.

    Args:
        desk: what is asked of the controller process.
        limits: see :class:`Limits`.
        mechanism_required: the brokers' listener is a SASL one: nothing but ApiVersions and SaslHandshake goes before
            authentication.
        cache: Metadata answers, shared by all sessions of an endpoint; None for one of its own.
    """

    def __init__(self, desk: Desk, limits: Limits, mechanism_required: bool, cache: Answers | None = None) -> None:
        self._desk = desk
        self._limits = limits
        self._answers = cache if cache is not None else Answers(limits)
        self._authentication = Authentication(mechanism_required)
        self._queue: deque[bytes] = deque()  # not yet looked at
        self._queue_bytes = 0
        self._actions: list[Action] = []
        self._order = Order(lambda answer: self._actions.append(ToClient(answer)), limits.response_bytes)
        self._in_work: Change | ModesQuery | None = None  # the requests behind it wait
        self._ticket: int | None = None  # what it waits for, once that is not the broker
        self._last_ticket = 0
        self._last_id = 0
        self._client = Awareness()
        self._metadata_version = stock.METADATA_WITH_IDS  # for questions of our own, until the broker tells of less
        self._closed = False

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._queue) + len(self._order) + (self._ticket is not None)

    @property
    def wants_more(self) -> bool:
        """Whether ``from_client`` may be called: below ``limits.pipeline`` and ``limits.held_bytes``, and not closed.

        Ask after each frame: one chunk of the socket may hold many.
        """
        return not self._closed and self.pending < self._limits.pipeline and self._queue_bytes < self._limits.held_bytes

    @property
    def held_bytes(self) -> int:
        """What is kept for requests that wait, about: their bytes, what one takes that is decoded, and answers."""
        in_work = self._in_work.size_bytes if self._in_work is not None else 0
        return self._queue_bytes + in_work + self._order.held_bytes

    @property
    def closed(self) -> bool:
        """Whether a Close was given."""
        return self._closed

    def from_client(self, payload: bytes) -> list[Action]:
        """Take one whole frame (without its length) of the client."""
        if self._closed:
            return []
        if not self.wants_more:
            return self._end("more requests at once than are taken")
        self._queue.append(payload)
        self._queue_bytes += len(payload)
        return self._carry_on(lambda: None)

    def from_upstream(self, payload: bytes) -> list[Action]:
        """Take one whole frame (without its length) of the broker."""
        return [] if self._closed else self._carry_on(lambda: self._take_answer(payload))

    def resolved(self, ticket: int, outcome: Outcome) -> list[Action]:
        """A Submit or Refresh has come to ``outcome``. One that is not awaited (any more) is passed over."""
        if self._closed or ticket != self._ticket:
            return []
        return self._carry_on(lambda: self._resolve(outcome))

    def _carry_on(self, step: Callable[[], None]) -> list[Action]:
        """Take a step, and then everything that need not wait any longer."""
        try:
            step()
            while self._queue and not self._must_wait(self._queue[0]):
                payload = self._queue.popleft()
                self._queue_bytes -= len(payload)
                self._dispatch(payload)
        except Ended as ended:
            return self._end(str(ended))
        except MalformedFrame:  # its text may quote the frame
            return self._end("a frame that cannot be read")
        except ModeAwareError as error:  # of the desk
            return self._end(f"nothing can be said about partition modes now ({type(error).__name__})")
        actions, self._actions = self._actions, []
        return actions

    def _end(self, reason: str) -> list[Action]:
        actions, self._actions = [*self._actions, Close(reason)], []
        self._closed = True
        self._queue.clear()
        self._queue_bytes = 0
        self._order.clear()
        self._in_work = self._ticket = None
        return actions

    # -- the client's side ------------------------------------------------------------------------------------------

    def _must_wait(self, payload: bytes) -> bool:
        return self._in_work is not None or self._authentication.must_wait(peek_header(payload))

    def _dispatch(self, payload: bytes) -> None:
        header = peek_header(payload)
        if (refusal := _REFUSED.get(header.api_key)) is not None:
            raise Ended(refusal)
        if (refusal := self._authentication.refusal(header)) is not None:
            raise Ended(refusal)
        if header.api_key == stock.API_VERSIONS_KEY:
            self._api_versions(payload, header)
        elif header.api_key == METADATA_KEY:
            self._metadata(payload, header)
        elif header.api_key in api_versions.OURS:
            self._begin_change(payload, header)
        else:
            self._pass_on(payload, header, Slot())

    def _pass_on(self, payload: bytes, header: Header, slot: Slot) -> None:
        slot.asked = header.correlation_id
        slot.told = self._authentication.sent(header)
        self._order.asked(slot)
        self._actions.append(ToUpstream(payload))

    def _stand_in(self, question: Callable[[int], bytes], header: Header, slot: Slot) -> None:
        self._last_id = self._last_id - 1 if self._last_id > _LOWEST_ID else -1
        self._pass_on(question(self._last_id), Header(header.api_key, header.api_version, self._last_id), slot)

    def _api_versions(self, payload: bytes, header: Header) -> None:
        _check_size(payload, self._limits.versions_bytes)
        if not api_versions.is_known(header.api_version):
            self._order.answered_here(api_versions.unsupported(header.correlation_id))
            return
        said = api_versions.awareness(payload)
        was = self._client
        client = self._client = Awareness(said.reads or was.reads, said.heeds or was.heeds, said.drops or was.drops)
        version, controller_id = header.api_version, self._desk.controller_id

        def rewrite(answer: bytes) -> bytes:
            if (newest := api_versions.metadata_version(answer, version, self._answers)) is not None:
                has_ids = newest >= stock.METADATA_WITH_IDS
                self._metadata_version = stock.METADATA_WITH_IDS if has_ids else stock.METADATA_WITHOUT_IDS
            return api_versions.answered(answer, version, controller_id, self._answers, modes=client.reads)

        self._pass_on(payload, header, Slot(rewrite=rewrite))

    def _metadata(self, payload: bytes, header: Header) -> None:
        version = header.api_version
        if version == MODES_VERSION and self._client.reads:
            _check_size(payload, self._limits.modes_bytes)
            query = ModesQuery(payload)
            if query.fresh:
                self._in_work = query
                self._actions.append(Refresh(self._new_ticket()))
            else:
                self._ask_modes(query)
        elif not stock.is_supported(header):
            raise Ended(f"Metadata version {version}, which was not offered")
        elif self._desk.old_clients == REFUSE and not self._client.heeds:
            self._ask_at_the_gate(payload, header)
        elif self._client.drops:
            self._pass_on(payload, header, Slot())
        else:
            self._pass_on(
                payload,
                header,
                Slot(rewrite=lambda answer: metadata.served(answer, version, self._desk), limited=False),
            )

    def _ask_at_the_gate(self, payload: bytes, header: Header) -> None:
        _check_size(payload, self._limits.modes_bytes)
        gate = Gate(header.correlation_id, header.api_version, self._metadata_version)
        self._stand_in(
            lambda own_id: metadata.gate_question(payload, own_id, gate.asked),
            Header(METADATA_KEY, gate.asked, 0),
            Slot(rewrite=lambda answer: gate.turned_away(answer, self._desk, self._answers), limited=False),
        )

    def _ask_modes(self, query: ModesQuery) -> None:
        correlation_id, known_only, removed = query.correlation_id, query.modes_only, query.removed(self._desk)
        version = self._metadata_version

        def rewrite(answer: bytes) -> bytes:  # keeps nothing else of the query: many may wait for a broker
            return metadata.moded(
                answer,
                correlation_id,
                self._desk,
                self._answers,
                version=version,
                known_only=known_only,
                removed=removed,
            )

        self._stand_in(
            lambda own_id: query.question(self._desk, own_id, version),
            Header(METADATA_KEY, version, 0),
            Slot(rewrite=rewrite),
        )

    def _begin_change(self, payload: bytes, header: Header) -> None:
        if not codec.is_supported(header):
            raise Ended(f"api key {header.api_key} version {header.api_version}, which was not offered")
        _check_size(payload, self._limits.change_bytes)
        change = changes.read(payload)
        if isinstance(change, bytes):
            self._order.answered_here(change)
            return
        self._in_work = change
        self._stand_in(change.question, header, Slot(change=change))

    # -- the broker's and the controller's side ---------------------------------------------------------------------

    def _take_answer(self, payload: bytes) -> None:
        if (judged := self._order.answered(payload)) is not None:
            self._decide(*judged)

    def _decide(self, change: Change, rights: bytes) -> None:
        """The broker has said what its user may do: hand on what he may, or answer."""
        change.judge(rights)
        if not self._desk.is_active():
            self._finish(change.not_controller(self._last_active()))
        elif commands := change.allowed:
            self._actions.append(Submit(self._new_ticket(), commands, change.timeout_ms))
        else:
            self._finish(change.answer([]))

    def _last_active(self) -> ActiveController | None:
        """The active controller, as far as is known: a controller that starts has not read the mode log yet, and a
        closed connection would leave its client in doubt about a request that went nowhere."""
        try:
            return self._desk.claim()
        except ModeSourceError:
            return None

    def _resolve(self, outcome: Outcome) -> None:
        self._ticket = None
        if isinstance(self._in_work, Change):
            self._finish(self._in_work.answer(outcome))
        elif isinstance(self._in_work, ModesQuery):
            if outcome is not None:
                raise Ended("the end of the mode log, which was asked for, cannot be read now")
            query, self._in_work = self._in_work, None
            self._ask_modes(query)

    def _finish(self, answer: bytes) -> None:
        self._in_work = None
        self._order.answered_here(answer)

    def _new_ticket(self) -> int:
        self._last_ticket += 1
        self._ticket = self._last_ticket
        return self._last_ticket


def _check_size(payload: bytes, limit: int) -> None:
    if len(payload) > limit:
        raise Ended(f"a request of {len(payload)} bytes; {limit} are taken of this api")

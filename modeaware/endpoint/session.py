"""One client connection's conversation without IO: frames in, actions out, responses in the order of the requests.

Each relayed request becomes exactly one request to the broker, at the same place in the order: the client's own bytes,
or a Metadata request of the endpoint instead. So the broker's responses pair with the waiting requests by order alone,
and none is delayed behind another. Some requests need more than the broker: the controller, or the mode log's end.
Until the controller has responded, or the log has been read, the requests behind such a request are not sent.

SASL is between the client and the broker. Of its frames the endpoint decodes and keeps only the header, and the error
code of a SaslAuthenticate response; from these :class:`Authentication` derives the state of the exchange:

===========  ==================================================  ==========================================
state        begins with                                         what is relayed
===========  ==================================================  ==========================================
NEEDED       a connection to brokers that require SASL           ApiVersions, SaslHandshake
UNDER_WAY    SaslHandshake is sent, also again (KIP-368)         SASL frames. Other requests wait until all SASL
                                                                 frames have a response. Such a request then ends
                                                                 the connection, unless the last response was a
                                                                 SaslAuthenticate's without an error
OPEN         a response to a request sent after SASL succeeded,  everything
             but not a response to ApiVersions
===========  ==================================================  ==========================================

Only the client and the broker can tell whether their SASL mechanism needs another round. If a client sends a request
too early, the broker closes the connection, as it would without this endpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from modeaware.endpoint import api_versions, changes, metadata
from modeaware.endpoint.api_versions import Awareness
from modeaware.endpoint.changes import ChangeRequest
from modeaware.endpoint.facade import (
    REFUSE,
    Action,
    ActiveController,
    Close,
    ControllerView,
    Outcome,
    Refresh,
    Submit,
    ToClient,
    ToUpstream,
)
from modeaware.endpoint.limits import EndpointLimits
from modeaware.endpoint.metadata import Answers, ModesQuery
from modeaware.errors import ModeAwareError, ModeSourceError
from modeaware.wire import codec
from modeaware.wire.codec import (
    API_VERSIONS_KEY,
    METADATA_KEY,
    MODES_VERSION,
    SASL_AUTHENTICATE_KEY,
    SASL_HANDSHAKE_KEY,
    Header,
    peek_header,
)
from modeaware.wire.frames import MalformedFrame

_REFUSED = {
    0: "Produce: the endpoint takes no records",
    1: "Fetch: the endpoint returns no records",
    78: "ShareFetch: the endpoint returns no records",
    api_versions.DESCRIBE_TOPIC_PARTITIONS_KEY: "DescribeTopicPartitions: the endpoint does not offer it",
}
_LOWEST_ID = -(2**31)
_FLEXIBLE_AUTHENTICATE = 2


class Ended(Exception):
    """The conversation cannot continue; the text is the reason. Raised and caught within this module."""


class _State(Enum):
    NEEDED = auto()
    UNDER_WAY = auto()
    OPEN = auto()


class Authentication:
    """One connection's SASL exchange; see the module. ``required`` is whether the brokers' listener requires SASL."""

    def __init__(self, required: bool) -> None:
        self._state = _State.NEEDED if required else _State.OPEN
        self._unanswered = 0  # SASL frames without a response
        self._succeeded = False  # whether the last SASL response was a success
        self._exchange = 0  # the number of handshakes

    @property
    def done(self) -> bool:
        return self._state is _State.OPEN

    def must_wait(self, header: Header) -> bool:
        """Return whether this request cannot be sent yet."""
        return self._unanswered > 0 and header.api_key not in (SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY)

    def refusal(self, header: Header) -> str | None:
        """Return why this request ends the connection, or None if it does not."""
        if header.api_key == SASL_HANDSHAKE_KEY:
            return (
                "SaslHandshake version 0, whose tokens have no request header, is not supported"
                if header.api_version < 1
                else None
            )
        if self._state is _State.NEEDED and header.api_key != API_VERSIONS_KEY:
            return "a request before authentication"
        if self._state is _State.UNDER_WAY and not self._succeeded and header.api_key != SASL_AUTHENTICATE_KEY:
            return "a request before authentication has ended"
        return None

    def sent(self, header: Header) -> Callable[[bytes], None] | None:
        """Note a request that is sent to the broker. Return the function to call with its response, if any."""
        if header.api_key == SASL_HANDSHAKE_KEY:
            self._state = _State.UNDER_WAY
            self._exchange += 1
            self._unanswered += 1
            return lambda _: self._answered(False)
        if header.api_key == SASL_AUTHENTICATE_KEY:
            self._unanswered += 1
            ok = slice(4, 7) if header.api_version >= _FLEXIBLE_AUTHENTICATE else slice(4, 6)
            return lambda answer: self._answered(len(answer) >= ok.stop and not any(answer[ok]))
        if self._state is _State.UNDER_WAY and header.api_key != API_VERSIONS_KEY:
            exchange = self._exchange
            return lambda _: self._proved(exchange)
        return None

    def _answered(self, succeeded: bool) -> None:
        self._unanswered -= 1
        self._succeeded = succeeded

    def _proved(self, exchange: int) -> None:
        """Note a response that proves the user: to this request brokers respond only if the user is authenticated."""
        if exchange == self._exchange:
            self._state = _State.OPEN


@dataclass(slots=True, repr=False)
class Slot:
    """A request without a response.

    Attributes:
        asked: the correlation id that the broker's response must have.
        seen: called with the broker's response, before all else.
        rewrite: makes the client's response from the broker's.
        limited: whether the response limit applies to the result of ``rewrite``. The limit does not apply if the result
            is nearly the broker's own response.
        judge: called with the broker's response about the user's rights to a change. The client does not get that
            response.
        answer: the endpoint's own response to a request that was not sent on. The responses to earlier requests are
            sent first.
    """

    asked: int = 0
    seen: Callable[[bytes], None] | None = None
    rewrite: Callable[[bytes], bytes] | None = None
    limited: bool = True
    judge: Callable[[bytes], None] | None = None
    answer: bytes | None = None


class ClientSession:
    """One client connection. No IO, no clock. For one thread.

    Frames go in, actions come out, to be carried out in their order. No method raises. After a Close no call returns
    further actions.

    Call ``from_client`` only while ``wants_more`` is true: a frame too many closes the connection. If the client or the
    broker ends its stream, no call is needed: close the connection to the other.
    """

    def __init__(
        self, controller: ControllerView, limits: EndpointLimits, mechanism_required: bool, cache: Answers | None = None
    ) -> None:
        self._controller = controller
        self._limits = limits
        self._answers = cache if cache is not None else Answers(limits)
        self._authentication = Authentication(mechanism_required)
        self._queue: deque[bytes] = deque()  # requests not handled yet
        self._queue_bytes = 0
        self._slots: deque[Slot] = deque()  # the first slot always waits for the broker
        self._answer_bytes = 0  # of our own responses that wait in the slots
        self._actions: list[Action] = []
        self._in_work: ChangeRequest | ModesQuery | None = None  # the requests behind this one wait
        self._ticket: int | None = None  # of the request in work, while the controller works for it
        self._last_ticket = 0
        self._last_id = 0
        self._client = Awareness()
        self._metadata_version = codec.METADATA_WITH_IDS  # of our requests; less if the broker's highest is less
        self._closed = False

    @property
    def pending(self) -> int:
        return len(self._queue) + len(self._slots) + (self._ticket is not None)

    @property
    def wants_more(self) -> bool:
        """Return whether ``from_client`` may be called: the session is not closed, and its requests are below
        ``limits.pipeline`` and ``limits.held_bytes``.

        Check this after each frame: one chunk of the socket may hold many frames.
        """
        return not self._closed and self.pending < self._limits.pipeline and self._queue_bytes < self._limits.held_bytes

    @property
    def authenticated(self) -> bool:
        """Return whether the broker has authenticated the user; true from the beginning if SASL is not required."""
        return self._authentication.done

    @property
    def judging(self) -> bool:
        """Return whether the broker's next response is about the rights to a change. If so, it is decoded whole."""
        return bool(self._slots) and self._slots[0].judge is not None

    @property
    def held_bytes(self) -> int:
        """Return the approximate bytes kept for waiting requests: their frames, a decoded request, and responses."""
        in_work = self._in_work.size_bytes if self._in_work is not None else 0
        return self._queue_bytes + in_work + self._answer_bytes

    def from_client(self, payload: bytes) -> list[Action]:
        """Take one whole frame (without its length) of the client."""
        if self._closed:
            return []
        if not self.wants_more:
            return self._end("too many requests at once")
        self._queue.append(payload)
        self._queue_bytes += len(payload)
        return self._carry_on(lambda: None)

    def from_upstream(self, payload: bytes) -> list[Action]:
        """Take one whole frame (without its length) of the broker."""
        return [] if self._closed else self._carry_on(lambda: self._take_answer(payload))

    def resolved(self, ticket: int, outcome: Outcome) -> list[Action]:
        """Take the outcome of a Submit or Refresh; ignore an outcome that is no longer awaited."""
        if self._closed or ticket != self._ticket:
            return []
        return self._carry_on(lambda: self._resolve(outcome))

    def _carry_on(self, step: Callable[[], None]) -> list[Action]:
        """Take a step, and then every step that is no longer blocked."""
        try:
            step()
            while self._queue and not self._must_wait(self._queue[0]):
                payload = self._queue.popleft()
                self._queue_bytes -= len(payload)
                self._dispatch(payload)
        except Ended as ended:
            return self._end(str(ended))
        except MalformedFrame:  # the error's text may quote the frame
            return self._end("a frame that cannot be read")
        except ModeAwareError as error:  # raised by the controller
            return self._end(f"the partition modes are not known now ({type(error).__name__})")
        actions, self._actions = self._actions, []
        return actions

    def _end(self, reason: str) -> list[Action]:
        actions, self._actions = [*self._actions, Close(reason)], []
        self._closed = True
        self._queue.clear()
        self._slots.clear()
        self._queue_bytes = self._answer_bytes = 0
        self._in_work = self._ticket = None
        return actions

    # Requests of the client

    def _must_wait(self, payload: bytes) -> bool:
        return self._in_work is not None or self._authentication.must_wait(peek_header(payload))

    def _dispatch(self, payload: bytes) -> None:
        header = peek_header(payload)
        if refusal := _REFUSED.get(header.api_key) or self._authentication.refusal(header):
            raise Ended(refusal)
        if header.api_key == API_VERSIONS_KEY:
            self._api_versions(payload, header)
        elif header.api_key == METADATA_KEY:
            self._metadata(payload, header)
        elif header.api_key in api_versions.OURS:
            self._begin_change(payload, header)
        else:
            self._pass_on(payload, header, Slot())

    def _pass_on(self, payload: bytes, header: Header, slot: Slot) -> None:
        slot.asked = header.correlation_id
        slot.seen = self._authentication.sent(header)
        self._slots.append(slot)
        self._actions.append(ToUpstream(payload))

    def _replace(self, question: Callable[[int], bytes], version: int, slot: Slot, api_key: int = METADATA_KEY) -> None:
        """Send a request of our own in the place of the client's request."""
        self._last_id = self._last_id - 1 if self._last_id > _LOWEST_ID else -1
        self._pass_on(question(self._last_id), Header(api_key, version, self._last_id), slot)

    def _api_versions(self, payload: bytes, header: Header) -> None:
        _check_size(payload, self._limits.versions_bytes)
        if not api_versions.is_known(header.api_version):
            self._answer(api_versions.unsupported(header.correlation_id))
            return
        client = self._client = self._client | api_versions.awareness(payload)
        version, controller_id = header.api_version, self._controller.controller_id

        def rewrite(answer: bytes) -> bytes:
            ours, newest = api_versions.answered(answer, version, controller_id, self._answers, modes=client.reads)
            if newest is not None:
                has_ids = newest >= codec.METADATA_WITH_IDS
                self._metadata_version = codec.METADATA_WITH_IDS if has_ids else codec.METADATA_WITHOUT_IDS
            return ours

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
        elif not 0 <= version <= codec.METADATA_WITHOUT_IDS:
            raise Ended(f"Metadata version {version}, which was not offered")
        elif self._controller.old_clients == REFUSE and not self._client.follows:
            self._refuse_old_client(payload, header)
        elif self._client.drops:
            self._pass_on(payload, header, Slot())
        else:
            rewrite = partial(metadata.served, version=version, controller=self._controller)
            self._pass_on(payload, header, Slot(rewrite=rewrite, limited=False))

    def _refuse_old_client(self, payload: bytes, header: Header) -> None:
        _check_size(payload, self._limits.modes_bytes)
        asked = self._metadata_version
        rewrite = partial(
            metadata.refused, header=header, asked=asked, controller=self._controller, answers=self._answers
        )
        slot = Slot(rewrite=rewrite, limited=False)
        self._replace(lambda own_id: metadata.old_question(payload, own_id, asked), asked, slot)

    def _ask_modes(self, query: ModesQuery) -> None:
        version = self._metadata_version
        rewrite = partial(  # not a closure, which would keep the query: many may wait for a broker
            metadata.with_modes_of,
            correlation_id=query.correlation_id,
            controller=self._controller,
            answers=self._answers,
            version=version,
            known_only=query.modes_only,
            removed=query.removed(self._controller),
            groups=query.groups,
        )
        self._replace(lambda own_id: query.question(self._controller, own_id, version), version, Slot(rewrite=rewrite))

    def _begin_change(self, payload: bytes, header: Header) -> None:
        if not codec.is_supported(header):
            raise Ended(f"api key {header.api_key} version {header.api_version} was not offered")
        _check_size(payload, self._limits.change_bytes)
        change = changes.read(payload)
        if isinstance(change, bytes):
            self._answer(change)
            return
        self._in_work = change
        self._replace(change.question, changes.QUESTION_VERSION, Slot(judge=change.judge))
        for some in change.creations():
            slot = Slot(judge=partial(change.judge_new_topics, some))
            question = partial(change.creation_question, some)
            self._replace(question, codec.CREATION_VERSION, slot, codec.CREATE_TOPICS_KEY)

    # Responses, in the order of the requests

    def _take_answer(self, payload: bytes) -> None:
        """Handle the broker's response to the first waiting request."""
        if not self._slots:
            raise Ended("unexpected response from the broker: no request is waiting")
        slot = self._slots[0]
        if payload[:4] != slot.asked.to_bytes(4, "big", signed=True):
            raise Ended("responses from the broker out of order")
        if slot.seen is not None:
            slot.seen(payload)
        if slot.judge is None:
            if slot.rewrite is not None:
                payload = slot.rewrite(payload)
                if slot.limited:
                    self._check_answer(payload)
            self._actions.append(ToClient(payload))
        self._slots.popleft()
        self._send_ready()
        if slot.judge is not None:
            slot.judge(payload)
            if isinstance(self._in_work, ChangeRequest) and not self._slots:
                self._decide(self._in_work)

    def _answer(self, answer: bytes) -> None:
        """Send a response of our own, after the responses to all earlier requests."""
        self._check_answer(answer)
        self._slots.append(Slot(answer=answer))
        self._answer_bytes += len(answer)
        self._send_ready()

    def _send_ready(self) -> None:
        while self._slots and (answer := self._slots[0].answer) is not None:
            self._slots.popleft()
            self._answer_bytes -= len(answer)
            self._actions.append(ToClient(answer))

    def _check_answer(self, answer: bytes) -> None:
        if len(answer) > self._limits.response_bytes:
            raise Ended(f"a response of {len(answer)} bytes; the limit is {self._limits.response_bytes}")

    # Work of the controller

    def _decide(self, change: ChangeRequest) -> None:
        """Submit the commands that the user is authorized for, or respond."""
        if not self._controller.is_active():
            self._finish(change.not_controller(self._last_active()))
        elif commands := change.allowed:
            self._actions.append(Submit(self._new_ticket(), commands, change.timeout_ms))
        else:
            self._finish(change.answer([]))

    def _last_active(self) -> ActiveController | None:
        """Return the active controller, or None if it is unknown: a new controller may not have read the mode log yet.
        An error would close the connection, and leave the client's request with an unknown outcome."""
        try:
            return self._controller.claim()
        except ModeSourceError:
            return None

    def _resolve(self, outcome: Outcome) -> None:
        self._ticket = None
        if isinstance(self._in_work, ChangeRequest):
            self._finish(self._in_work.answer(outcome))
        elif isinstance(self._in_work, ModesQuery):
            if outcome is not None:
                raise Ended("a Metadata request with Fresh needs the end of the mode log, which cannot be read now")
            query, self._in_work = self._in_work, None
            self._ask_modes(query)

    def _finish(self, answer: bytes) -> None:
        self._in_work = None
        self._answer(answer)

    def _new_ticket(self) -> int:
        self._last_ticket += 1
        self._ticket = self._last_ticket
        return self._last_ticket


def _check_size(payload: bytes, limit: int) -> None:
    if len(payload) > limit:
        raise Ended(f"a request of {len(payload)} bytes; the limit of this api is {limit}")

"""The topics that a member reads in the place of those it was given by name, and the gates between them.

Where a topic is replaced its members subscribe to the successor as well, from its announcement on. The successor's
partitions are assigned like any others and stay hidden until their gate is open: :mod:`modeaware.clients.gate` has the
rules, this module finds out what they depend on, through what a client library can do (:class:`GroupClient`).

* What the group has committed is requested when the gate may open: the offsets up to which the predecessor has to be
  read are final, and this member has read its own share. Otherwise seldom, because the gate may have been opened by
  another member, whose commit on the successor then shows it.
* A record counts as read once the application polls again after it; so nothing is decided within a call of ``poll``.
  With ``enable.auto.commit`` what counts is then committed at once, with a note in the commit's metadata: a commit at
  the end without one may be a library's own, made while the application still works on the last record. Commits of an
  application count as they are.
* When its gate opens, a member commits the start of its own partitions of the successor that have no commit, and after
  :data:`UNCOMMITTED_S` of those that still have none, having no owner: the controller lets a predecessor go when the
  group has a commit on every partition of the successor.
* A gate opens with a warning where the group's commits have not moved for ``modeaware.gate.timeout.ms``.

* A pattern matches the predecessor also when it is let go, and a subscription to a topic keeps it from being deleted.
  What the group does not need any more is therefore left out of a pattern, as it is left out of names.

All of it is for the polling thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from modeaware.callouts import get_logger
from modeaware.chain import logical_topic, predecessors, read_topics
from modeaware.clients.gate import GATE_OPENED, READ, Gate, awaits_group, has_read, is_open
from modeaware.clients.starts import BrokerOffsets, Key, Starts
from modeaware.config import ClientConfig
from modeaware.errors import ModeSourceError
from modeaware.modes import format_ranges
from modeaware.topic_view import Successor, TopicView
from modeaware.views.source import Views

log = get_logger(__name__)

LOOK_S = 0.25
"""How often a shut gate is looked at. Costs nothing but where an answer of the brokers may open it."""
ASK_S = 1.0
"""How often the group's offsets are requested, where they were not what the gate waits for in the first seconds."""
SELDOM_S = 10.0
"""How often they are requested where this member itself has not read its share yet."""
SOON_S = 3.0
"""The first seconds after this member has read its share: others of a group that keeps up have, too."""
SOON_LOOK_S = 0.1
"""How often a gate is looked at, and the group's offsets are requested, in these seconds."""
TURN_S = 0.5
LOG_STARTS_S = 5.0
UNCOMMITTED_S = 15.0
"""How long other members are given to commit their own starts. An owner that reads commits sooner, by
``auto.commit.interval.ms`` (5 s)."""
SHUT_LOG_S = 30.0
ANSWER_S = 1.0
"""How long the polling thread waits for an answer. It asks again later."""
REFRESH_S = 3.0


class Committed(NamedTuple):
    """What a group has committed on a partition."""

    offset: int
    metadata: str = ""


class GroupClient(Protocol):
    """What a client library can do for one member of a group, within :data:`ANSWER_S`. Partitions without an answer are
    left out, and what is committed shows when it is requested again."""

    @property
    def offsets(self) -> BrokerOffsets:
        """Return what finds where partitions start."""

    def positions(self, keys: Collection[Key]) -> Mapping[Key, int | None]:
        """Return up to where the application was given partitions that this member is assigned; None: nothing yet."""

    def committed(self, keys: Collection[Key], *, after_own: bool = False) -> Mapping[Key, Committed | None]:
        """Return what the group has committed; None: nothing.

        Args:
            after_own: with what this member has sent so far.
        """

    def log_starts(self, keys: Collection[Key]) -> Mapping[Key, int]: ...

    def commit_delivered(self) -> None:
        """Commit what the application was given."""

    def commit(self, offsets: Mapping[Key, Committed]) -> None: ...

    def have_topics(self, topics: Mapping[str, bool]) -> Collection[str]:
        """Return which of the topics brokers know by now, one of which has only just created them. Creates none.

        Args:
            topics: topic -> whether it has replaced another one.
        """

    def is_polling(self) -> bool:
        """Return whether a call of ``poll`` or ``consume`` is under way, which may have taken records already."""


class Gates:
    """The gates of one consumer.

    Args:
        client: the client library.
        group_id: the group.
        auto_commit: ``enable.auto.commit``.
        match: whether a pattern (``^...``) matches a topic, to the client library; None: not known.

    Attributes:
        shut: topics whose partitions are hidden: successors whose gate is shut, or whose replacement was undone; and
            topics that were let go, and assigned when the group had read them, or while that is not known.
        added: topics that this member has subscribed to for itself.
        subscribed: the topics of the last :meth:`topics`.
        left_out: topics that its patterns match, and that are not read any more.
    """

    def __init__(
        self,
        client: GroupClient,
        group_id: str,
        auto_commit: bool,
        config: ClientConfig,
        views: Views,
        starts: Starts,
        now_s: Callable[[], float] = time.monotonic,
        *,
        match: Callable[[str, str], bool | None],
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._auto_commit = auto_commit
        self._ordered = config.on_replace != "unordered"
        self._follows = config.on_replace != "named"
        self._timeout_s = config.gate_timeout_ms / 1000
        self._views = views
        self._starts = starts
        self._now_s = now_s
        self._match = match
        self._given: Collection[str] = ()
        self._gates: dict[tuple[str, str], Gate] = {}
        self._found: set[tuple[str, str]] = set()
        self._known: set[str] = set()
        self._warned: set[str] = set()
        self.added: set[str] = set()
        self._needless: set[str] = set()  # topics that were let go, and assigned when they were not needed, or may be
        self._next_s = 0.0
        self.shut: set[str] = set()
        self.subscribed: tuple[str, ...] = ()
        self.left_out: frozenset[str] = frozenset()

    # Which topics

    def topics(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return what to subscribe to where the application subscribes to ``names``.

        A successor that this client does not find on the brokers yet is left out: an error would reach the application.
        """
        names = tuple(names)
        self._given = given = dict.fromkeys(names)
        if not self._follows:
            self.subscribed = names
            return names
        found: dict[str, None] = {}
        left_out: set[str] = set()
        for name in given:
            if name.startswith("^"):
                found |= dict.fromkeys(self._matched(name, left_out))
            else:
                found |= dict.fromkeys(self._read_topics(name))
        self.left_out = frozenset(left_out)
        absent, is_named = self._absent(found), self._named(given)
        self.subscribed = tuple(topic for topic in found if topic not in absent)
        self.added = {topic for topic in self.added.union(self.subscribed) if not is_named(topic)}
        return self.subscribed

    def _absent(self, topics: Iterable[str]) -> set[str]:
        """Return those that brokers do not know yet, one of which has only just created them. They are not asked about
        what the application has named, unless that is an alias, to which a topic comes back."""
        before = predecessors(self._views.views())
        new = {
            topic: view.successor
            for topic in topics
            if (view := before.get(topic)) and view.successor and (topic not in self._given or self._is_alias(topic))
            if (topic, view.successor.topic_id) not in self._found
        }
        there = self._client.have_topics({topic: each.switched for topic, each in new.items()}) if new else ()
        self._found |= {(topic, new[topic].topic_id) for topic in there}
        if absent := new.keys() - there:
            log.debug("%s: not subscribed to yet: %s", self._group_id, sorted(absent))
        return absent

    def _is_alias(self, topic: str) -> bool:
        return self._views.view(topic).is_alias

    def _read_topics(self, name: str) -> list[str]:
        return read_topics(name, self._views.view, self._needs)

    def _chains(self, names: Iterable[str], needs: Callable[[TopicView], bool]) -> set[str]:
        """What is read in the place of those of ``names`` that are no patterns."""
        chains = (read_topics(name, self._views.view, needs) for name in names if not name.startswith("^"))
        return {topic for chain in chains for topic in chain}

    def _matched(self, pattern: str, left_out: set[str]) -> list[str]:
        """The pattern, and what it does not match of the chains of topics that it matches.

        Args:
            left_out: what it matches of them and is not read any more is added to it.
        """
        views = self._views.views().items()
        replaced = {topic for topic, view in views if view.successor and self._match(pattern, topic)}
        chains = dict.fromkeys(each for topic in replaced for each in self._read_topics(topic))
        left_out |= (without := replaced - chains.keys())
        found = self._without(pattern, without)
        is_named = self._named(found)
        return [*found, *(each for each in chains if not is_named(each))]

    def _without(self, pattern: str, left_out: Collection[str]) -> list[str]:
        """Return what to subscribe to so as to read what ``pattern`` matches, but for the topics ``left_out``."""
        return [pattern]

    def _named(self, names: Iterable[str]) -> Callable[[str], bool]:
        """Return what tells whether a subscription to ``names`` is one to a topic, as far as can be told."""
        plain = frozenset(names)
        patterns = [name for name in plain if name.startswith("^")]
        return lambda topic: topic in plain or any(self._match(each, topic) is not False for each in patterns)

    def _needs(self, view: TopicView) -> bool:
        assert view.successor is not None
        if view.successor.gone:
            return False
        gate = self._gates.get(_name(view, view.successor))
        return gate is None or gate.needs_predecessor

    def logical_names(self, names: Collection[str]) -> dict[str, str]:
        """Return successor -> the topic in whose place it is read, where the application subscribes to ``names``.

        A successor that is subscribed to by its own name is left out.
        """
        before, is_named = predecessors(self._views.views()), self._named(names)
        chains = {topic: logical_topic(topic, is_named, before) for topic in before.keys() - set(names)}
        return {topic: name for topic, name in chains.items() if name != topic}

    @property
    def successors(self) -> set[str]:
        """Return the successors among the topics of the last :meth:`topics`."""
        return set(self.subscribed) & {gate.successor.topic for gate in self._gates.values()}

    # Looking

    def follow(self, given: Collection[Key], names: Iterable[str] = ()) -> None:
        """Take in the views in force.

        Args:
            given: what this member is assigned.
            names: what the application subscribes to.
        """
        concerned = {topic for topic, _ in given} | set(self.subscribed)
        before = predecessors(self._views.views())
        if self._follows:
            patterns = [name for name in names if name.startswith("^")]
            matched = (v.topic for v in before.values() if any(self._match(each, v.topic) for each in patterns))
            # Whole chains: what is needed of them is found out by these gates.
            concerned |= self._chains([*names, *matched], lambda view: True)
        gates: dict[tuple[str, str], Gate] = {}
        for topic, view in before.items():
            assert view.successor is not None
            if not concerned & ({topic, view.topic} if self._follows else {topic}):
                continue
            name = _name(view, view.successor)
            gate = self._gates.get(name) or Gate(
                view, view.successor, self._now_s(), opened=not self._ordered, is_proof=self._ordered
            )
            if gate.view is not view:
                if gate.view.successor != view.successor:
                    self._next_s = gate.ask_s = 0.0
                gate.view, gate.successor = view, view.successor
                gate.has_read = gate.has_read and view.successor.let_go  # else a fence may have been lifted
            if view.successor.gone:
                gate.opened = gate.settled = True
            gates[name] = gate
        # An open gate never shuts, also where the view is out of force for a while; unless its replacement was undone.
        kept = (name for name, gate in self._gates.items() if gate.opened and gate.successor.switched)
        self._gates = {name: self._gates[name] for name in kept} | gates
        by_end = {gate.successor.topic_id: gate for gate in self._gates.values()}
        by_start = {gate.view.topic_id: gate for gate in self._gates.values()}
        for gate in self._gates.values():
            gate.preceding, gate.following = by_end.get(gate.view.topic_id or ""), by_start.get(gate.successor.topic_id)
        self._update_shut()

    def on_assign(self, new: Collection[Key], given: Collection[Key]) -> None:
        """Partitions are being assigned: know their gates, and whether they are open, before any of them is read."""
        topics = {topic for topic, _ in new} - self._known
        unknown = topics - self._views.recorded(topics) - predecessors(self._views.views()).keys()
        if unknown and self._views.ready:
            try:
                self._views.refresh(REFRESH_S)
            except ModeSourceError as error:
                log.warning("%s: %s assigned by the last known modes: %s", self._group_id, sorted(unknown), error)
        self._known |= topics
        self.follow(given, self._given)
        # What was subscribed to before this assignment was made is not shown any more.
        self.added -= self.undone - {topic for topic, _ in given} - set(self.subscribed)
        for gate in self._in_turn():
            if not gate.asked:
                self._ask(gate, ready=False, within=given)
            if gate.opened and not gate.settled:
                self._next_s = gate.ask_s = 0.0  # its own starts are known at the next poll
        began = {topic for topic, _ in new}
        kept = self._needless & {topic for topic, _ in given} - began
        self._needless = kept | (began & self._not_needed())
        self._update_shut()

    def ask_before_joining(self, names: Iterable[str]) -> None:
        """A predecessor that was let go is left out of the subscription from the start where the group has read it, and
        later by a member that has no partitions, which :meth:`look` is not for.

        Args:
            names: what the application subscribes to. Which topics are the group's decides what a gate waits for.
        """
        names = tuple(names)
        self.topics(names)  # first: gates of a former subscription are none of this one
        self.follow((), names)
        for gate in self._in_turn():
            if gate.may_be_needed and self._now_s() >= gate.ask_s:
                self._ask(gate, ready=False, within=())

    def look(self, mine: Collection[Key], held: Collection[Key]) -> None:
        """Look at the gates that are not through, if it is time.

        Args:
            mine: what this member is assigned.
            held: what it reads of that.
        """
        now_s = self._now_s()
        if now_s < self._next_s or self._client.is_polling():
            return
        for gate in self._in_turn():
            self._look_at(gate, mine, held, now_s)
        now_s = self._now_s()
        self._next_s = now_s + (SOON_LOOK_S if any(_is_soon(gate, now_s) for gate in self._gates.values()) else LOOK_S)
        self._update_shut()

    def _in_turn(self) -> Iterator[Gate]:
        """Yield the gates that are not through, the one looked at longest ago first, for :data:`TURN_S`: each may take
        a request, and the polling thread has records to return."""
        began_s = self._now_s()
        for gate in sorted(self._gates.values(), key=lambda gate: gate.looked_s):
            if self._now_s() >= began_s + TURN_S:
                return
            if not gate.done:
                gate.looked_s = self._now_s()
                yield gate

    def _update_shut(self) -> None:
        # What was added and has no gate any more (an undone replacement) is assigned for a while yet, and never shown.
        self.shut = {gate.successor.topic for gate in self._gates.values() if not gate.opened} | self.undone
        if self._needless:
            self.shut |= self._needless & self._not_needed()

    def _not_needed(self) -> set[str]:
        """The topics that the next subscription is without, or may be: it is not known yet what the group has read."""
        gates = [gate for gate in self._gates.values() if gate.successor.remains]
        left = [gate.view for gate in gates if self._follows and not (gate.is_known and gate.needs_predecessor)]
        return {view.topic for view in left if self._views.view(view.topic).topic_id == view.topic_id}

    @property
    def undone(self) -> set[str]:
        """Return the successors that were subscribed to, and whose replacement was undone before it was switched."""
        known = {topic for gate in self._gates.values() for topic in (gate.view.topic, gate.successor.topic)}
        return self.added - known

    def due_s(self) -> float | None:
        """Return when to look again, on the monotonic clock; None: when a view changes."""
        return None if all(gate.done for gate in self._gates.values()) else self._next_s

    def _look_at(self, gate: Gate, mine: Collection[Key], held: Collection[Key], now_s: float) -> None:
        if gate.opened:
            if now_s >= gate.ask_s:
                self._settle(gate, mine)
            return
        read_up_to = gate.successor.read_up_to
        unknown = [partition for _, partition in gate.keys if partition not in read_up_to]
        behind = [] if unknown else self._behind(gate, held)
        ready = not unknown and not behind
        if ready and gate.ready_s is None:
            gate.ready_s, gate.moved_s, gate.ask_s = now_s, now_s, now_s
        elif not ready:
            gate.ready_s = None
        if unknown:
            gate.waits_for = f"the end of {gate.view.topic} [{format_ranges(unknown)}] to be final"
        elif behind:
            gate.waits_for = f"this member to read {gate.view.topic} [{format_ranges(behind)}] to its end"
        if now_s >= gate.ask_s:
            self._ask(gate, ready=ready, within=mine)
        self._wait(gate, mine, now_s)

    def _wait(self, gate: Gate, mine: Collection[Key], now_s: float) -> None:
        """Where a gate has stayed shut: open it after its timeout, or log from time to time what it waits for."""
        if gate.opened:
            return
        if not gate.is_next or not gate.is_known:
            gate.moved_s = now_s  # its turn has not come, or the predecessor itself may be hidden meanwhile
        if gate.ready_s is not None and now_s >= gate.moved_s + self._timeout_s:
            log.warning(
                "%s: the gate before %s opens after modeaware.gate.timeout.ms without progress: records of %s that "
                "other members have not read yet may come after newer ones of their keys; it waited for %s",
                self._group_id, gate.successor.topic, gate.view.topic, gate.waits_for,
            )  # fmt: skip
            gate.is_proof = False
            self._open(gate, mine)
        elif now_s >= gate.logged_s + SHUT_LOG_S:
            gate.logged_s = now_s
            log.info("%s: the gate before %s is shut: it waits for %s",
                     self._group_id, gate.successor.topic, gate.waits_for)  # fmt: skip

    def _behind(self, gate: Gate, held: Collection[Key]) -> list[int]:
        """The partitions of the predecessor of which the application has not been given all by this member."""
        given = dict(gate.successor.read_up_to)  # what others hold is theirs to read
        for key, position in self._client.positions([key for key in gate.keys if key in held]).items():
            at = self._starts.start_of(key) if position is None else position
            # Without an answer the client library starts where the group is.
            given[key[1]] = gate.committed.get(key[1], 0) if at is None else at
        return self._unread(gate, given)

    def _unread(self, gate: Gate, committed: Mapping[int, int]) -> list[int]:
        unread = gate.unread(committed)
        if unread and self._now_s() >= gate.log_starts_s:
            self._ask_log_starts()  # retention may have taken the rest
            unread = gate.unread(committed)
        return unread

    def _ask_log_starts(self) -> None:
        """Of all gates for which it is time, in one request: its answer may come after that to a fetch, which waits for
        records (``fetch.wait.max.ms``)."""
        now_s = self._now_s()
        due: dict[Gate, list[Key]] = {}
        for gate in self._gates.values():
            if not gate.done and now_s >= gate.log_starts_s and (unread := gate.unread({})):
                due[gate] = [(gate.view.topic, partition) for partition in unread]
                gate.log_starts_s = now_s + LOG_STARTS_S
        found = self._client.log_starts({key for keys in due.values() for key in keys})
        for gate, keys in due.items():
            gate.log_starts |= {key[1]: found[key] for key in keys if key in found}

    def _take_in(self, gate: Gate, answer: Mapping[Key, Committed | None]) -> bool:
        """Keep what the group has committed on the predecessor, if all of it is known."""
        if not all(key in answer for key in gate.keys):
            return False
        found = {key[1]: at for key in gate.keys if (at := answer[key]) is not None}
        committed = {partition: at.offset for partition, at in found.items()}
        if committed != gate.committed:
            gate.committed, gate.moved_s = committed, self._now_s()
        gate.noted = {partition for partition, at in found.items() if at.metadata}
        is_at_end = committed.keys().isdisjoint(self._unread(gate, committed))
        gate.has_read = has_read(gate.view, committed, gate.log_starts)
        gate.has_expired = not committed or (is_at_end and self._group_id in gate.successor.groups)
        return True

    def _ask(self, gate: Gate, *, ready: bool, within: Collection[Key]) -> None:
        """Request the group's offsets on both topics, and open the gate if they allow it.

        Args:
            ready: this member has read its share of the predecessor, and the application has polled again.
            within: what this member is assigned.
        """
        if ready and self._auto_commit:
            self._client.commit_delivered()
        keys = [*gate.keys, *gate.successor_keys]
        answer = self._client.committed(keys)
        if ready and self._auto_commit and self._note_read(gate, within, answer):
            answer = self._client.committed(keys)
        now_s = self._now_s()
        soon = ready and _is_soon(gate, now_s)
        is_known = self._take_in(gate, answer) and answer.keys() >= {*gate.successor_keys}
        gate.ask_s = now_s + (SOON_LOOK_S if soon else SELDOM_S if is_known and not ready else ASK_S)
        silent_s, gate.asked_s = now_s - gate.asked_s, now_s
        if not is_known:
            gate.moved_s = min(gate.moved_s + silent_s, now_s)  # nothing shows that the group makes no progress
            gate.waits_for = "an answer of the brokers to what the group has committed" if ready else gate.waits_for
            return
        gate.asked = True
        gate.has_moved = self._has_moved(gate, answer, within)
        handled = self._handled(gate)
        is_handled = gate.has_read and has_read(gate.view, handled, gate.log_starts)
        apart = self._is_apart(gate, within)
        if is_open(gate.view, has_read=is_handled, has_moved=gate.has_passed, waived=apart, is_next=gate.is_next):
            self._open(gate, within, answer)
        elif not gate.is_next:
            gate.waits_for = f"the gate before {gate.view.topic}"
        elif ready:
            late = format_ranges(gate.unread(handled))
            gate.waits_for = f"the group to commit {gate.view.topic} [{late}] to its end"

    def _note_read(self, gate: Gate, mine: Collection[Key], answer: Mapping[Key, Committed | None]) -> bool:
        """Note at this member's commits that the last records are handled; return whether there was one to be noted."""
        end = gate.successor.read_up_to
        own = {key: found for key in gate.keys if key in mine and (found := answer.get(key)) is not None}
        read = {
            key: Committed(found.offset, READ)
            for key, found in own.items()
            if not found.metadata and found.offset >= end[key[1]]
        }
        if read:
            self._client.commit(read)
        return bool(read)

    def _handled(self, gate: Gate) -> dict[int, int]:
        """What the group has committed, where that says that the application has handled it."""
        return {p: at for p, at in gate.committed.items() if p in gate.noted or not self._auto_commit}

    def _has_moved(self, gate: Gate, answer: Mapping[Key, Committed | None], given: Collection[Key]) -> bool:
        """Whether commits on the successor show that its gate was open.

        Offset 0 shows nothing of a group that still reads the predecessor: kafka-python commits it for what it is
        assigned, also of a topic that the application names before it is known for a successor.
        """
        found = [at for key in gate.successor_keys if (at := answer.get(key)) is not None]
        if any(at.offset > 0 or at.metadata == GATE_OPENED for at in found):
            return True
        has_read = gate.successor.let_go and self._group_id in gate.successor.groups
        return bool(found) and (has_read or not self._reads(gate.view.topic, given))

    def _reads(self, topic: str, given: Collection[Key]) -> bool:
        """Whether this member reads the topic, or will when it subscribes next."""
        if any(each == topic for each, _ in given) or self._named(self.subscribed)(topic):
            return True
        return self._follows and topic in self._chains(self._given, self._needs)

    def _is_apart(self, gate: Gate, given: Collection[Key]) -> bool:
        """Whether the group reads the successor by its own name, and has never read the predecessor."""
        has_read = bool(gate.committed) or self._group_id in gate.successor.groups
        return not has_read and not self._reads(gate.view.topic, given)

    # Opening

    def _open(self, gate: Gate, mine: Collection[Key], answer: Mapping[Key, Committed | None] | None = None) -> None:
        gate.opened = True
        how = "read" if gate.has_read else "moved" if gate.has_passed else "waits no longer"
        waited_s = self._now_s() - (gate.ready_s if gate.ready_s is not None else gate.since_s)
        log.info("%s: the gate before %s opens (the group has %s), %.1f s after this member had read %s",
                 self._group_id, gate.successor.topic, how, waited_s, gate.view.topic)  # fmt: skip
        gate.since_s = self._now_s()
        self._settle(gate, mine, answer)

    def _settle(self, gate: Gate, mine: Collection[Key], answer: Mapping[Key, Committed | None] | None = None) -> None:
        """Commit the starts of the successor's partitions that have no commit; learn whether the predecessor is needed.

        Args:
            answer: the group's offsets, where they are known already.
        """
        now_s = self._now_s()
        committed = self._client.committed(gate.successor_keys) if answer is None else answer
        is_known = committed.keys() >= {*gate.successor_keys}
        if gate.may_be_needed:
            gate.asked |= self._take_in(gate, self._client.committed(gate.keys)) and is_known
        gate.ask_s = now_s + (SELDOM_S if gate.successor.let_go and gate.asked else ASK_S)
        missing = [key for key in gate.successor_keys if key in committed and committed[key] is None]
        gate.has_moved = gate.has_moved or self._has_moved(gate, committed, mine)
        if is_known:
            gate.settled = not missing or not awaits_group(gate.view, self._group_id, gate.committed)
        after = gate.following
        if after is not None and after.successor.remains and (after.is_left or not after.is_known):
            if mine and after.is_left:
                self._put_back(after, missing)
            return
        positions = self._client.positions([key for key in missing if key in mine])
        # A position is committed by the application, or in its name: it may not have handled the last record yet.
        idle = [key for key, position in positions.items() if position is None]
        read = [] if self._auto_commit else [key for key, position in positions.items() if position is not None]
        if read:  # the application may have committed since
            now = self._client.committed(read, after_own=True)
            idle += [key for key in read if key in now and now[key] is None]
        starts = {key: start for key in idle if (start := self._starts.start_of(key)) is not None and start >= 0}
        unowned = [key for key in missing if key not in mine]
        if unowned and now_s >= gate.since_s + UNCOMMITTED_S:
            found = self._starts.find(unowned, self._client.offsets).starts
            # Requested once more, last of all: an owner's first commit must not be set back.
            again = self._client.committed(found)
            starts |= {key: start for key, start in found.items() if key in again and again[key] is None}
        if starts:
            self._client.commit({key: Committed(at, GATE_OPENED) for key, at in sorted(starts.items())})

    def _put_back(self, gate: Gate, expired: Iterable[Key]) -> None:
        """Commit the predecessor, which the group has left, at its end again: the controller looks for its commits
        before it deletes the topic before that. Their starts would have it read anew."""
        ends = gate.successor.read_up_to
        if read := {key: Committed(ends[key[1]], READ) for key in expired if key[1] in ends}:
            self._client.commit(read)

    def warn_of_manual(self, topics: Iterable[str]) -> None:
        """An assignment that the application made itself is left as it is."""
        for topic in topics:
            successor = self._views.view(topic).successor
            if successor is not None and topic not in self._warned:
                self._warned.add(topic)
                log.warning(
                    "%s: %s is being replaced by %s, and its partitions were assigned with assign(): assign those of "
                    "%s when these are read to their end, or subscribe instead",
                    self._group_id, topic, successor.topic, successor.topic,
                )  # fmt: skip

    def stats(self) -> list[dict[str, Any]]:
        """Return the gates, for a consumer's ``modeaware_stats``."""
        return [
            {
                "topic": gate.view.topic,
                "successor": gate.successor.topic,
                "state": "open" if gate.opened else "shut",
                "age_s": round(self._now_s() - gate.since_s, 3),
                "waits_for": None if gate.opened else gate.waits_for or "the first look",
            }
            for gate in tuple(self._gates.values())
        ]


def _name(view: TopicView, successor: Successor) -> tuple[str, str]:
    return view.topic_id or view.topic, successor.topic_id


def _is_soon(gate: Gate, now_s: float) -> bool:
    return not gate.opened and gate.ready_s is not None and now_s < gate.ready_s + SOON_S

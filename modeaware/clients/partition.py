"""One partition that a member is assigned: whether the application sees it, and what the member says of it.

==================  =====================================================================================
state               meaning
==================  =====================================================================================
GIVEN               the group gave it to this member, which has not shown it yet: where to read is not known
WITHHELD            it is not certain which member owns it (``range``, :mod:`modeaware.clients.assignment`)
HIDDEN_BY_MODE      in mode None
HIDDEN_BY_GATE      of a new topic behind its gate, or of an old one that the group needs no more
SHOWN               the application holds it
DECLINED            the application did not take it when it was shown
==================  =====================================================================================

=================  =======================================  ==========================================
from               when                                     to
=================  =======================================  ==========================================
(none)             assigned                                 GIVEN, or what hides it
GIVEN              its callback has run                     SHOWN, or DECLINED where that left it out
WITHHELD           ownership is certain                     GIVEN; stays where another member owns it
HIDDEN_BY_MODE     readable again                           GIVEN
HIDDEN_BY_GATE     its gate opens                           GIVEN
SHOWN              mode None, a gate that closes            what hides it, after the callback has run
SHOWN              a shown revocation                       GIVEN, from the committed offset
any                revoked, lost, unassigned                (none)
=================  =======================================  ==========================================

A gate closes where the log says so alone: a topic that was shown turns out to replace another one, or the group turns
out to use the old topic. What is released is not taken from an application that still holds it: the next subscription
is without it.

Every partition but a SHOWN one is paused in the library. DECLINED ends with the next assignment.

What is said of an old topic's partition (:mod:`modeaware.notes`) is a function of its end, of what the
application was given, of whether it has polled since, and of what is committed: :meth:`Partition.note` (invariant I9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from modeaware.clients.actions import Committed, Place, Start
from modeaware.notes import BUSY, GIVEN, READ, Note, kind_of


class State(Enum):
    """What the application sees of a partition: see the tables of the module."""

    GIVEN = "given"
    WITHHELD = "withheld"
    HIDDEN_BY_MODE = "hidden by its mode"
    HIDDEN_BY_GATE = "hidden by its gate"
    SHOWN = "shown"
    DECLINED = "declined"


class Step(Enum):
    """What is missing before the library reads a partition from where it should."""

    START = "its start is not known"
    ASSIGN = "the library is not assigned it"
    PLACE = "where it goes on is not known"
    REWIND = "where the group has committed is not known"
    SEEK = "the library does not read from there"
    DONE = "nothing"

    @property
    def is_assigned(self) -> bool:
        """Whether the library is assigned the partition."""
        return self not in (Step.START, Step.ASSIGN)


@dataclass(frozen=True)
class Committing:
    """How an application commits.

    Attributes:
        automatic: the library commits by itself (``enable.auto.commit``).
        stores: the library stores by itself what is committed (``enable.auto.offset.store``).
        transactional: the application has taken the group's metadata, to commit with transactions.
    """

    automatic: bool = True
    stores: bool = True
    transactional: bool = False

    @property
    def may_be_short(self) -> bool:
        """Whether the application decides what is committed: it may leave the last records out for long."""
        return not (self.automatic and self.stores)


@dataclass(eq=False)
class Partition:
    """One partition of an assignment.

    Attributes:
        place: where to read from, once it is to be sought or assigned; None: the library decides.
        start: where this assignment began; None: not known.
        base: from where the application is given records, since the assignment or a seek.
        position: the offset behind the last record that it was given since; None: none.
        furthest: the offset behind the last record that it was given in this assignment.
        polled: the application has polled since it was given the last record.
        committed: what the group has committed; ``knows_commit``: whether that is known.
        flushed: the library has committed all that is stored, and was given nothing to store since.
        retry_s: not requested, nor sought, before.
    """

    state: State = State.GIVEN
    step: Step = Step.START
    place: int | None = None
    is_chosen: bool = False
    start: int | None = None
    base: int | None = None
    position: int | None = None
    furthest: int = -1
    polled: bool = False
    committed: Committed | None = None
    knows_commit: bool = False
    flushed: bool = False
    retry_s: float = 0.0

    # Where it is read

    @property
    def given_up_to(self) -> int | None:
        """The offset up to which the application was given all; None: not known."""
        return self.base if self.position is None else self.position

    def may_be_at(self, end: int) -> bool:
        """Return whether the application was given all to ``end``, or nothing from a start that is not known."""
        at = self.given_up_to
        return at is None or max(self.furthest, at) >= end

    def learns_commit(self, at: Committed | None) -> None:
        """It is known what is committed. Where the library has decided the start, and has delivered nothing since, it
        has begun there."""
        self.committed, self.knows_commit = at, True
        if at is not None and self.given_up_to is None:
            self.start = self.base = at.offset

    def starts(self, start: Start) -> None:
        """Its start is known: that of the group, which the application's own choice overrides."""
        self.committed, self.knows_commit = start.committed, True
        if not self.is_chosen:
            self.place = start.offset
        self.step = Step.ASSIGN

    def goes_on(self, place: Place) -> None:
        """It is known where it goes on. Where nothing was delivered, it has not begun: retention may have taken what it
        was to begin with."""
        self.place, self.step = place.offset, Step.SEEK
        if place.offset is not None and place.has_begun:
            self.furthest = max(self.furthest, place.offset)
        elif place.offset is not None and self.base == self.start:
            self.start = self.base = place.offset

    def reads_from(self, offset: int | None) -> None:
        """The library reads it from ``offset``, and gives nothing of it that was fetched before."""
        if self.step is Step.ASSIGN:
            self.start = offset
        self.step, self.is_chosen = Step.DONE, False
        if offset is not None and offset != self.given_up_to:
            self.sought(offset)

    def sought(self, offset: int) -> None:
        """The application is given records from ``offset`` on, by a seek of its own or of ours."""
        self.base, self.position, self.polled = offset, None, False

    def takes_position(self, position: int | None) -> None:
        """The application polls, and was given records up to ``position`` by earlier polls."""
        if position is not None and position != self.position:
            self.position, self.flushed = position, False
            self.furthest = max(self.furthest, position)
        self.polled = True

    # What is said of it

    def is_handled(self, end: int, *, paused: bool) -> bool:
        """Return whether the application was given all to ``end`` and is done with it, as far as a poll shows it."""
        at = self.given_up_to
        return at is not None and at >= end and self.polled and not paused

    def is_short(self, end: int) -> bool:
        """Return whether the application was given records to ``end`` that are not committed."""
        at = self.committed
        return self.knows_commit and self.position is not None and (at is None or at.offset < end)

    def needs_flush(self, end: int, how: Committing, *, paused: bool) -> bool:
        """Return whether the library is to commit what is stored before anything is said: its own commit, by a timer or
        at a revocation, would wipe a note."""
        is_given = self.furthest >= end
        at = self.given_up_to
        is_back = at is not None and at < end
        return how.automatic and not self.flushed and is_given and (self.polled or paused or is_back)

    def note(self, end: int, how: Committing, *, paused: bool, says_given: bool) -> Committed | None:
        """Return what is to be committed so that the group's metadata says how far this member is; None: nothing.

        Never over metadata of the application, below what is committed, or beyond what the application or the library
        has committed: but for a start where there is no commit.

        Args:
            end: the offset behind the partition's last record.
            paused: by the application.
            says_given: the application will not be shown a revocation (any more).
        """
        at, commit = self.given_up_to, self.committed
        if at is None or not self.knows_commit or self.needs_flush(end, how, paused=paused):
            return None
        is_handled = self.is_handled(end, paused=paused)
        if commit is None:
            # Its own start, where there is no commit, sets no group back.
            if not is_handled or self.start is None or (self.position is not None and how.transactional):
                return None
            if self.start >= end:
                return Committed(self.start, READ)
            return Committed(self.start, GIVEN) if how.may_be_short and says_given else None
        kind = kind_of(commit.metadata)
        if kind is Note.FOREIGN or how.transactional:
            return None
        if commit.offset >= end:
            said = READ if is_handled else BUSY if paused or at < end else commit.metadata
        elif is_handled:
            said = GIVEN if how.may_be_short and says_given else commit.metadata
        else:  # it was taken up, or gone back in: records come that a note of before does not cover
            said = "" if kind is Note.GIVEN else commit.metadata
        return None if said == commit.metadata.rstrip("\0") else Committed(commit.offset, said.rstrip("\0"))

    def idle_start(self, end: int) -> Committed | None:
        """Return what is to be committed of a partition that was taken up at its end and has no commit: a client
        library commits nothing where nothing was delivered."""
        is_idle = self.position is None and self.start is not None and self.start >= end
        return Committed(self.start or 0) if is_idle and self.knows_commit and self.committed is None else None

    def rides(
        self, offset: int, position: int | None, end: int, how: Committing, *, paused: bool, in_transaction: bool
    ) -> str:
        """Return the metadata of a commit of the application at ``offset`` that has none of its own.

        A transaction contains what the application made of the records: it proves that they are handled, also of a
        partition that is paused meanwhile. A plain commit does not, as an application may commit before it works: there
        a poll has to come in between.

        Args:
            position: the offset behind the last record that it was given, by this moment.
        """
        at = self.base if position is None else position
        if at is None:
            return ""
        is_handled = self.is_handled(end, paused=paused)
        if offset < end:
            was_given = self.committed is not None and kind_of(self.committed.metadata) is Note.GIVEN
            return GIVEN if is_handled and was_given and not in_transaction else ""
        if at < end or (paused and not in_transaction):
            return "" if in_transaction else BUSY  # which no plain commit could take back
        return READ if is_handled or in_transaction else ""

"""One partition that a member is assigned: whether the application sees it, and what the member reports of it.

==================  =====================================================================================
state               meaning
==================  =====================================================================================
GIVEN               assigned to this member and not shown yet, because its position is not known
WITHHELD            another member owns it, or may own it (``range``: :mod:`modeaware.clients.assignment`)
HIDDEN_BY_MODE      in mode None
HIDDEN_BY_GATE      its topic is a new topic with a closed gate, or a topic that the group no longer reads
SHOWN               the application holds it
DECLINED            the application did not take it when it was shown
==================  =====================================================================================

=================  =======================================  ==========================================
from               when                                     to
=================  =======================================  ==========================================
(none)             assigned                                 GIVEN, or the state that hides it
GIVEN              the callback has run                     SHOWN; DECLINED if the callback left it out
DECLINED           the application assigns it as well       SHOWN, or what hides it
WITHHELD           ownership is certain                     GIVEN; stays if another member owns it
HIDDEN_BY_MODE     readable again                           GIVEN
HIDDEN_BY_GATE     its gate opens                           GIVEN
SHOWN              mode None, a gate that closes            what hides it, after the callback has run
SHOWN              the revocation callback ran so that the  GIVEN, read again from the committed offset
                   application commits, or because other
                   partitions changed
any                revoked, lost, unassigned                (none)
=================  =======================================  ==========================================

A *gate* hides a new topic from a group until the group has read the old topic (:mod:`modeaware.lifecycle.moved`).
A gate closes only by new records of the mode log: a topic replaces another one, or the group uses the old topic after
all. If the group no longer reads a topic, an application that holds one of its partitions
keeps it until the next subscription, which leaves the topic out.

Every partition that is not SHOWN is paused in the library. DECLINED ends with the next assignment at the latest.

:meth:`Partition.note` returns the report on an old topic's partition (:mod:`modeaware.notes`). The report depends on
the partition's end and the group's commit, and on the application: the records that it got, its polls and pauses since,
and how it commits (invariant I9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from modeaware.clients.actions import Committed, Place, Start
from modeaware.notes import BUSY, GIVEN, READ, Note, kind_of


class State(Enum):
    """Whether the application sees a partition: see the tables of the module."""

    GIVEN = "given"
    WITHHELD = "withheld"
    HIDDEN_BY_MODE = "hidden by its mode"
    HIDDEN_BY_GATE = "hidden by its gate"
    SHOWN = "shown"
    DECLINED = "declined"


class Step(Enum):
    """The missing step before the library reads a partition from the right position."""

    START = "its start is not known"
    ASSIGN = "the library is not assigned it"
    PLACE = "its position is not known"
    RESTART = "the group's commit is not known"
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
        stores: the library itself stores the offsets that will be committed (``enable.auto.offset.store``).
        transactional: the application has taken the group's metadata, to commit with transactions.
    """

    automatic: bool = True
    stores: bool = True
    transactional: bool = False

    @property
    def may_be_short(self) -> bool:
        """Whether the application decides what is committed, so that the last records may stay uncommitted for long."""
        return not (self.automatic and self.stores)

    @property
    def may_drop(self) -> bool:
        """Whether the application may drop uncommitted records when it sees a revocation: these records come again."""
        return self.may_be_short or self.transactional


@dataclass(eq=False)
class Partition:
    """One partition of an assignment.

    Attributes:
        place: the position for the next seek or assignment, or None if the library decides it.
        start: the first offset of this assignment, or None if it is unknown.
        base: the offset from which the application gets records since the last assignment or seek.
        position: the offset behind the last record that the application got since then, or None if it got no record.
        furthest: the highest offset behind a record that the application got in this assignment.
        polled: the application has polled since its last record.
        committed: the group's commit, or None if the group has none. It counts only if ``knows_commit`` is true.
        flushed: the library has committed all stored offsets, and none was stored since.
        is_dropped: the application may have dropped the records since its last commit, and has got no record since. The
            library may yet store the offset behind the dropped records.
        is_paused: an action of the member has paused it in this assignment.
        retry_s: the time before which no request and no seek is repeated.
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
    is_dropped: bool = False
    is_paused: bool = False
    retry_s: float = 0.0

    # Where it is read

    @property
    def given_up_to(self) -> int | None:
        """The offset up to which the application got all records, or None if it is unknown."""
        return self.base if self.position is None else self.position

    def may_be_at(self, end: int) -> bool:
        """Return whether the application got all records to ``end``, or got nothing since an unknown start."""
        at = self.given_up_to
        return at is None or max(self.furthest, at) >= end

    def learns_commit(self, at: Committed | None) -> None:
        """Note the group's commit. If the library decided the start and has delivered nothing since, the commit is the
        start."""
        self.committed, self.knows_commit = at, True
        if at is not None and self.given_up_to is None:
            self.start = self.base = at.offset

    def starts(self, start: Start) -> None:
        """Note the start that was found for the group; a choice of the application overrides it."""
        self.committed, self.knows_commit = start.committed, True
        if not self.is_chosen:
            self.place = start.offset
        self.step = Step.ASSIGN

    def goes_on(self, place: Place) -> None:
        """Note the position of this partition, which was hidden. If it had delivered nothing, the position is its new
        start: retention may have deleted the first records."""
        self.place, self.step = place.offset, Step.SEEK
        if place.offset is not None and place.has_begun:
            self.furthest = max(self.furthest, place.offset)
        elif place.offset is not None and self.base == self.start:
            self.start = self.base = place.offset

    def restarts(self, start: Start) -> None:
        """Note the group's commit, and the offset from which the partition is read again (None: it is not). Without a
        commit, this offset is the partition's start, or the log start if that is higher."""
        self.committed, self.knows_commit = start.committed, True
        self.place, self.step, self.is_dropped = start.offset, Step.SEEK, start.offset is not None
        if start.committed is None and start.offset is not None and self.base == self.start:
            self.start = start.offset

    def reads_from(self, offset: int | None) -> None:
        """Note that the library reads from ``offset``, and has dropped all records that it had fetched before."""
        if self.step is Step.ASSIGN:
            self.start = offset
        self.step, self.is_chosen = Step.DONE, False
        if offset is not None and offset != self.given_up_to:
            self.sought(offset)

    def sought(self, offset: int) -> None:
        """Note that the application gets records from ``offset`` on, after its own seek or one of this package."""
        self.base, self.position, self.polled = offset, None, False

    def takes_position(self, position: int | None) -> None:
        """Note that the application polls, and that earlier polls returned records up to ``position``."""
        if position is not None and position != self.position:
            self.position, self.flushed = position, False
            self.furthest = max(self.furthest, position)
            self.is_dropped = self.is_dropped and self.step is not Step.DONE  # until DONE, the position is an old one
        self.polled = True

    # Reports

    def is_handled(self, end: int, *, paused: bool) -> bool:
        """Return whether the application got all records to ``end`` and has polled since: then it has handled them."""
        at = self.given_up_to
        return at is not None and at >= end and self.polled and not paused

    def is_short(self, end: int) -> bool:
        """Return whether the application got records to ``end`` that are not committed."""
        at = self.committed
        return self.knows_commit and self.position is not None and (at is None or at.offset < end)

    def needs_flush(self, end: int, how: Committing, *, paused: bool) -> bool:
        """Return whether the library has to commit the stored offsets before a report. Otherwise the library's own
        later commit, by a timer or at a revocation, would overwrite the note."""
        is_given = self.furthest >= end
        at = self.given_up_to
        is_back = at is not None and at < end
        return how.automatic and not self.flushed and is_given and (self.polled or paused or is_back)

    def note(self, end: int, how: Committing, *, paused: bool, is_final: bool) -> Committed | None:
        """Return the commit whose metadata reports how far this member has read, or None if there is nothing to report.

        The commit never replaces metadata of the application. The commit's offset is the group's committed offset, or
        the start if the group has none.

        Args:
            end: the offset behind the partition's last record.
            paused: the application has paused the partition.
            is_final: no (further) revocation will be shown to the application.
        """
        at, commit = self.given_up_to, self.committed
        if at is None or not self.knows_commit or self.needs_flush(end, how, paused=paused):
            return None
        is_handled = self.is_handled(end, paused=paused)
        if commit is None:
            # The group has no commit, so a commit of the member's own start does not set the group back.
            if not is_handled or self.start is None or (self.position is not None and how.transactional):
                return None
            if self.start >= end:
                return Committed(self.start, READ)
            return Committed(self.start, GIVEN) if how.may_be_short and is_final else None
        kind = kind_of(commit.metadata)
        if kind is Note.FOREIGN:
            return None
        # A commit of the member overrides the offsets of an open transaction. Once the group has committed the end, and
        # the application has handled all records, no open transaction has offsets other than the end.
        if how.transactional and not (is_handled and commit.offset >= end):
            return None
        if commit.offset >= end:
            noted = READ if is_handled else BUSY if paused or at < end else commit.metadata
        elif is_handled:
            noted = GIVEN if how.may_be_short and is_final else commit.metadata
        else:  # assigned anew, or sought back: an earlier note does not cover the records that will follow
            noted = "" if kind is Note.GIVEN else commit.metadata
        return None if noted == commit.metadata.rstrip("\0") else Committed(commit.offset, noted.rstrip("\0"))

    def idle_start(self, end: int) -> Committed | None:
        """Return the commit for a partition that was assigned at its end and has no commit. A client library commits
        nothing on a partition that delivered nothing."""
        is_idle = self.position is None and self.start is not None and self.start >= end
        return Committed(self.start or 0) if is_idle and self.knows_commit and self.committed is None else None

    def rides(
        self, offset: int, position: int | None, end: int, how: Committing, *, paused: bool, in_transaction: bool
    ) -> str:
        """Return the metadata for a commit of the application at ``offset`` that has no metadata of its own.

        A transaction contains the application's results for the records. So its commit proves that the records are
        handled, even if the partition is paused meanwhile. A commit without a transaction proves nothing until a later
        poll: an application may commit before it handles the records.

        Args:
            position: the offset behind the last record that the application got so far.
        """
        at = self.base if position is None else position
        if at is None:
            return ""
        is_handled = self.is_handled(end, paused=paused)
        if offset < end:
            was_given = self.committed is not None and kind_of(self.committed.metadata) is Note.GIVEN
            return GIVEN if is_handled and was_given and not in_transaction else ""
        if at < end or (paused and not in_transaction):
            return "" if in_transaction else BUSY  # in a transaction, no BUSY: no later note could replace it
        return READ if is_handled or in_transaction else ""

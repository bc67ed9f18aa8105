"""A member of a group: what happens, and what the client library is to do then.

``EVENTS`` goes event by event. Each story of the other tables fails where one condition of the machine is missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modeaware.clients.actions import Commit, CommitStored, Committed, Pause, Request, Seek
from modeaware.clients.ends import SHORT_S
from modeaware.clients.joining import UNOWNED_S
from modeaware.clients.member import JOIN_S, LONGEST_RETRY_S, Traits
from modeaware.clients.new_topics import UNCOMMITTED_S
from modeaware.notes import BUSY, GIVEN, OPENED, READ, Note, kind_of
from modeaware.topic_view import Moved, TopicView
from tests.support.member_story import (
    A0,
    A1,
    B0,
    B1,
    COMMON,
    END,
    KAFKA_PYTHON,
    MOVED,
    NONE,
    READ_ONLY,
    READ_WRITE,
    S0,
    S1,
    S2,
    T0,
    Around,
    do,
    joined,
    plain,
    replaced,
    shrunk,
)
from tests.support.stories import Story

KAFKA_PYTHON_EAGER = Traits(keeps_pauses=False, waits_for_starts=True)


def delivered() -> tuple[Any, ...]:
    """It was given records of b0 before it knew what is committed there."""
    moved = (do.view(replaced(moved=MOVED)), do.poll(), do.assign(A0, B0), do.set(silent={B0, B1}), do.poll())
    return (*moved, do.poll(b0=3), do.set(silent=set(), done=[]))


EVENTS = {
    "new topic is looked up, subscribed to, held back, and shown with its start committed once its gate is open": Story(
        (do.view(replaced()), do.poll(), do.does("topics b0", "subscribe a b")),
        (do.assign(A0, B0), do.does("show assigned a0", "starts a0 b0", "assign a0=0 b0=0", "pause b0")),
        (do.poll(a0=3), do.does()),
        (do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0", "show revoked a0", "show assigned a0 b0", "seek b0=0", "resume b0",
                "committed b0 b1", "commit b0=0 the gate is open"),
        (do.poll(a0=3), do.does()),
        (do.poll(UNCOMMITTED_S - 1, a0=3), do.does("committed b0 b1")),
        (do.poll(1.0, a0=3)),
        do.does("committed b0 b1", "other_starts b1", "committed b0 b1", "commit b1=0 the gate is open"),
        (do.poll(1.0, a0=3), do.does("committed b0 b1")),
        (do.poll(100.0, a0=3), do.does()),
    ),
    "first commit of an owner is not set back by another member": Story(
        (*joined(A0, B0, moved=MOVED), do.poll(UNCOMMITTED_S - 1), do.poll(1.0), do.set(done=[])),
        (do.set(committed={B0: Committed(0), B1: Committed(7)}), do.poll(1.0), do.does("committed b0 b1")),
        do.poll(50.0), do.does(),
    ),
    "new topic that brokers do not have yet is subscribed to later": Story(
        (do.set(silent={B0}), do.view(replaced()), do.poll(), do.does("topics b0", "subscribe a")),
        (do.poll(0.5), do.does()),
        (do.set(silent=set()), do.poll(1.0), do.does("topics b0", "subscribe a b")),
    ),
    "eager application is shown each assignment and revocation, also without partitions": Story(
        (do.assign(), do.revoke(), do.does("show assigned", "show revoked")),
        (do.view(replaced()), do.poll(), do.set(done=[]), do.assign(B0)),
        do.does("show assigned", "starts b0", "assign b0=0", "pause b0"),
    ),
    "eager application loses all that it holds": Story(
        (*joined(A0, A1), do.revoke(A0, lost=True), do.does("show lost a0 a1")),
    ),
    "incremental application is shown an assignment without partitions": Story(
        (do.assign(), do.does("show assigned"), do.revoke(), do.does("show revoked")), traits=COMMON,
    ),
    "incremental application loses what is lost": Story(
        (*joined(A0, A1), do.revoke(A0, lost=True), do.does("show lost a0")), traits=COMMON,
    ),
    "application that assigns within its group leaves out what it was shown, not what it was not": Story(
        (*joined(A0, A1, B0), do.call("assigned_by_application", {A0: 2}), do.run(rebalancing=True)),
        (do.holds(A0, B0), do.view(replaced(moved=MOVED)), do.set(done=[]), do.poll()),
        do.does("places b0", "show revoked a0", "show assigned a0 b0", "seek b0=0", "resume b0",
                "committed b0 b1", "commit b0=0 the gate is open"),
    ),
    "application that assigns one more keeps the others": Story(
        (*joined(A0), do.add({A1: 2}), do.run(rebalancing=True)),
        (do.does("starts a1", "add a1=2"), do.holds(A0, A1)), traits=COMMON,
    ),
    "incremental group is shown what comes alone": Story(
        (*joined(A0, B0), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0", "show assigned b0", "seek b0=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open"),
        traits=COMMON,
    ),
    "assignment and revocation of hidden partitions alone are none to an incremental application": Story(
        (*joined(A0), do.assign(B0), do.does("starts b0", "add b0=0", "pause b0")),
        (do.revoke(B0), do.does()),
        (do.revoke(A0), do.does("show revoked a0")),
        traits=COMMON,
    ),
    "partition in mode None is hidden and goes on where it was": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[])),
        (do.view(TopicView("a", "id-a", (1, 1), (READ_WRITE, NONE))), do.poll()),
        do.does("show revoked a1", "pause a1"),
        (do.view(), do.set(log_starts={A1: 3}), do.poll()),
        do.does("places a1", "show assigned a1", "seek a1=3", "resume a1"),
        traits=COMMON,
    ),
    "eager application that drops records at a revocation gets them again, whatever was hidden": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[], committed={A0: Committed(2)}), do.poll(a0=3)),
        (do.view(plain(READ_WRITE, NONE)), do.poll()),
        do.does("show revoked a0 a1", "pause a0 a1", "restarts a0", "show assigned a0", "seek a0=2", "resume a0"),
        (do.view(), do.set(silent={A1}), do.poll(), do.does("restarts a1")),
        (do.set(silent=set(), committed={A0: Committed(3)}), do.poll(0.1)),
        do.does("restarts a1", "show revoked a0", "pause a0", "restarts a0", "show assigned a0 a1", "seek a0=3 a1=0",
                "resume a0 a1"),
        automatic=False, sees_revocations=True,
    ),
    "incremental application gets what it dropped when a partition was hidden, once it is shown again": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[], committed={A1: Committed(2)}), do.poll(a1=3)),
        (do.view(plain(READ_WRITE, NONE)), do.poll(), do.does("show revoked a1", "pause a1")),
        (do.view(), do.poll(), do.does("restarts a1", "show assigned a1", "seek a1=2", "resume a1")),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "application in transactions gets again what it has aborted at a revocation": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[]), do.call("commits_with_transactions")),
        (do.view(plain(READ_WRITE, NONE)), do.poll()),
        do.does("show revoked a0 a1", "pause a0 a1", "restarts a0", "show assigned a0", "seek a0=0", "resume a0"),
        automatic=False, sees_revocations=True,
    ),
    "application that does not see revocations, or leaves commits to the library, goes on where it was": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[]), do.view(plain(READ_WRITE, NONE)), do.poll(a0=3)),
        do.does("show revoked a0 a1", "show assigned a0", "pause a1"),
        sees_revocations=True,
    ),
    "last partition that is hidden during a revocation leaves an assignment without partitions": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[], silent={A0}), do.view(plain(READ_WRITE, NONE))),
        (do.poll(), do.does("show revoked a0 a1", "pause a0 a1", "restarts a0")),
        (do.view(plain(NONE, NONE)), do.poll(), do.does("show assigned"), do.poll(1.0), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "offsets that are stored at a revocation are committed before the partition is read again": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[], stored={A0: 3}), do.view(plain(READ_WRITE, NONE))),
        (do.poll(), do.does("show revoked a0 a1", "pause a0 a1", "CommitStored", "restarts a0", "show assigned a0",
                            "seek a0=3", "resume a0")),
        stores=False, sees_revocations=True,
    ),
    "hidden partition is paused in each assignment, since a library may have forgotten the topic": Story(
        (do.view(plain(READ_WRITE, NONE)), do.poll(), do.set(done=[]), do.assign(A0, A1)),
        do.does("show assigned a0", "starts a0 a1", "assign a0=0 a1=0", "pause a1"),
        (do.revoke(A0, A1), do.does("show revoked a0"), do.assign(A0, A1)),
        do.does("show assigned a0", "starts a0 a1", "assign a0=0 a1=0", "pause a1"),
        (do.revoke(A0, A1), do.view(), do.set(done=[]), do.assign(A0, A1)),
        do.does("show assigned a0 a1", "starts a0 a1", "assign a0=0 a1=0", "resume a1"),
    ),
    "what was delivered before a partition was hidden is not taken for its start": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(TopicView("a", "id-a", (1, 1), (NONE,))), do.poll()),
        (do.set(log_starts={A0: END}, begun={A0}), do.view(replaced()), do.poll(), do.set(done=[])),
        (do.poll(), do.does("commit a0=0 given")),
        automatic=False,
    ),
    "start moves with the log of a partition that has not begun": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(TopicView("a", "id-a", (1, 1), (NONE,))), do.poll()),
        (do.set(log_starts={A0: END}), do.view(replaced()), do.poll(), do.set(done=[])),
        (do.poll(), do.does("commit a0=5 read")),
        automatic=False,
    ),
    "partition whose place is not known keeps no other from being read": Story(
        (*joined(A0, B0, B1), do.set(silent={B1}), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0 b1", "show assigned b0", "seek b0=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open"),
        (do.set(silent=set()), do.poll(0.2)),
        do.does("places b1", "show assigned b1", "seek b1=0", "resume b1"),
        traits=COMMON,
    ),
    "library that is not ready to seek is asked again": Story(
        (*joined(A0, B0, B1), do.set(unready={B1}), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0 b1", "show assigned b0 b1", "seek b0=0 b1=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open"),
        (do.poll(0.05), do.does(), do.set(unready=set()), do.poll(0.05), do.does("seek b1=0", "resume b1")),
        traits=COMMON,
    ),
    "what the application has paused is resumed by it alone, also while it is hidden": Story(
        (*joined(A0, B0), do.call("pause", [B0]), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0", "show assigned b0", "seek b0=0", "committed b0 b1", "commit b0=0 the gate is open"),
        do.resumes(B0, now={B0}),
        traits=COMMON,
    ),
    "partition that is resumed while it is hidden follows when it is shown": Story(
        (*joined(A0, B0), do.call("pause", [B0]), do.resumes(B0, now=set()), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("places b0", "show assigned b0", "seek b0=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open"),
        traits=COMMON,
    ),
    "pause outlives an assignment in librdkafka": Story(
        (*joined(A0, B0), do.revoke(A0, B0), do.view(replaced(moved=MOVED)), do.set(done=[]), do.assign(A0, B0)),
        do.does("show assigned a0 b0", "starts a0 b0", "assign a0=0 b0=0", "resume b0"),
    ),
    "pause ends with an assignment in kafka-python": Story(
        (*joined(A0, B0), do.call("pause", [A0]), do.revoke(A0, B0), do.set(done=[]), do.assign(A0, B0)),
        do.does("show assigned a0", "starts a0 b0", "add a0=0 b0=0", "pause b0"),
        do.resumes(A0, now={A0}),
        traits=KAFKA_PYTHON,
    ),
    "start that is not known is waited for": Story(
        (do.view(replaced()), do.poll(), do.set(silent={A0}, done=[]), do.assign(A0, A1)),
        do.does("show assigned a0 a1", "starts a0 a1", "add a1=0"),
        (do.set(silent=set()), do.poll(0.2), do.does("starts a0", "add a0=0")),
        traits=KAFKA_PYTHON,
    ),
    "start that is not known in time is left to librdkafka": Story(
        (do.view(replaced()), do.poll(), do.set(silent={A0}, done=[]), do.assign(A0, A1)),
        do.does("show assigned a0 a1", "starts a0 a1", "assign a0=None a1=0"),
    ),
    "application chooses where to start, and declines": Story(
        (do.view(), do.poll(), do.choose({A0: 3}), do.set(done=[]), do.assign(A0, A1)),
        do.does("show assigned a0 a1", "starts a0 a1", "assign a0=3 a1=0", "pause a1"),
        (do.poll(5.0), do.does()),
        (do.revoke(A0, A1), do.assign(A0, A1)),
        do.does("show revoked a0", "show assigned a0 a1", "starts a0 a1", "assign a0=0 a1=0", "resume a1"),
    ),
    "application chooses where to go on in mid-life": Story(
        (*joined(A0, B0), do.view(replaced(moved=MOVED)), do.choose({A0: 2, B0: 1}), do.poll(a0=3)),
        do.does("places b0", "show revoked a0", "show assigned a0 b0", "seek a0=2 b0=1", "resume b0",
                "committed b0 b1", "commit b0=0 the gate is open"),
    ),
    "partitions are withheld until it is certain who owns them": Story(
        (do.view(), do.poll(), do.set(done=[]), do.assign(A0, A1, withheld=(A0, A1))),
        do.does("show assigned", "starts a0 a1", "assign a0=0 a1=0", "pause a0 a1"),
        (do.call("ownership_known", [A1]), do.poll()),
        do.does("places a0", "show revoked", "show assigned a0", "seek a0=0", "resume a0"),
    ),
    "gate does not hold for what the application assigns itself": Story(
        (do.view(replaced()), do.call("assigned_by_application", {B0: 2, B1: None}), do.poll()),
        do.does("starts b0 b1", "assign b0=2 b1=0", "topics b0", "subscribe a b"),
        traits=COMMON,
    ),
    "gate does not hold for what the application assigns itself after it has left its group": Story(
        (*joined(A0, B0), do.revoke(A0, B0), do.call("unsubscribe"), do.set(done=[])),
        (do.call("assigned_by_application", {B0: 0}), do.poll(), do.does("starts b0", "assign b0=0", "resume b0")),
    ),
    "new topic of an undone replacement is never shown": Story(
        (*joined(A0, B0, switched=False), do.view(), do.poll(), do.does("subscribe a")),
        traits=COMMON,
    ),
    "released topic stays with an application that holds it, and is not shown anew": Story(
        (*joined(A0), do.view(replaced(moved=MOVED, released=True)), do.poll(), do.does("subscribe b")),
        (do.assign(A1), do.does("starts a1", "add a1=0", "pause a1")),
        traits=COMMON,
    ),
    "late group reads a released topic first": Story(
        (do.view(replaced(released=True, groups=frozenset())), do.poll(), do.does("topics b0", "subscribe a b")),
        (do.assign(A0, B0), do.does("show assigned a0", "starts a0 b0", "add a0=0 b0=0", "pause b0")),
        (do.poll(a0=3), do.does()),
        (do.view(replaced(released=True, groups=frozenset(), moved=MOVED)), do.poll(a0=3)),
        do.does("places b0", "show assigned b0", "seek b0=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open", "subscribe b"),
        traits=COMMON,
    ),
    "gate closes for a group that turns out to use the old topic": Story(
        (do.view(replaced(groups=frozenset())), do.poll(), do.assign(B0), do.set(done=[])),
        (do.view(replaced()), do.poll(), do.does("show revoked b0", "pause b0")),
        traits=COMMON, names=("b",),
    ),
    "static member asks for a rebalance where the new topic has no owner": Story(
        (*joined(A0), do.set(owned=set()), do.poll(UNOWNED_S - 1), do.does()),
        (do.poll(1.0), do.does("owned b0", "Rejoin")),
        (do.set(owned={"b"}), do.poll(UNOWNED_S), do.does()),
        (do.poll(UNOWNED_S), do.does("owned b0")),
        traits=Traits(static=True),
    ),
    "member without automatic commits notes a commit at the end once the application polls again": Story(
        (*joined(A0), do.rides(A0, END, ""), do.call("committed", {A0: Committed(END)})),
        (do.poll(a0=END), do.does("commit a0=5 read"), do.rides(A0, END, READ)),
        (do.poll(5.0, a0=END), do.does()),
        automatic=False,
    ),
    "automatic commit comes before the note, and a new end after it": Story(
        (*joined(A0), do.set(stored={A0: END}), do.poll(a0=4), do.does()),
        (do.poll(a0=END), do.does("CommitStored", "commit a0=5 read")),
        (do.view(replaced(read_up_to={0: 6, 1: END})), do.poll(a0=END), do.does()),
        (do.set(stored={A0: 6}), do.poll(a0=6), do.does("CommitStored", "commit a0=6 read")),
    ),
    "start that librdkafka decides is what the group has committed, once it is known and nothing was delivered": Story(
        (do.view(), do.poll(), do.set(silent={A0, A1}, committed={A0: Committed(END), A1: Committed(2)}, done=[])),
        (do.assign(A0, A1), do.does("show assigned a0 a1", "starts a0 a1", "assign a0=None a1=None")),
        (do.set(silent={B0}), do.view(replaced()), do.poll(1.0)),
        do.does("committed a0 a1", "commit a0=5 read", "topics b0"),
        (do.poll(a1=END), do.does("commit a1=2 given")),
        automatic=False,
    ),
    "commit that is not answered is repeated": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.set(silent={A0}), do.poll(a0=END)),
        (do.does("commit a0=5 read"), do.poll(0.05, a0=END), do.does()),
        (do.set(silent=set()), do.poll(0.1, a0=END), do.does("commit a0=5 read")),
        (do.poll(9.0, a0=END), do.does()),
        automatic=False,
    ),
    "commits that are answered later are made one after the other": Story(
        (*joined(A0), do.set(stored={A0: END}, answers_later=True), do.poll(a0=END), do.does("CommitStored")),
        (do.poll(5.0, a0=END), do.does(), do.hears(), do.poll(a0=END), do.does("commit a0=5 read")),
        (do.poll(5.0, a0=END), do.does(), do.hears(), do.poll(5.0, a0=END), do.does()),
    ),
    "commit that fails is repeated less and less often": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.set(answers_later=True), do.poll(a0=END)),
        (do.does("commit a0=5 read"), do.hears(fails=True), do.poll(0.1, a0=END), do.does("commit a0=5 read")),
        (do.hears(fails=True), do.poll(0.1, a0=END), do.does(), do.poll(0.1, a0=END), do.does("commit a0=5 read")),
        automatic=False,
    ),
    "result of a commit says nothing of the next assignment": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.set(answers_later=True), do.poll(a0=END)),
        (do.does("commit a0=5 read"), do.set(committed={A0: Committed(3)})),
        (do.revoke(A0), do.assign(A0), do.hears(), do.set(done=[]), do.poll(), do.does()),
        (do.poll(a0=END), do.does("commit a0=3 given")),  # the application has not committed the rest yet
        automatic=False,
    ),
    "result of a commit is of no account once the application has committed more": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3, GIVEN)}), do.set(answers_later=True), do.poll(a0=4)),
        (do.does("commit a0=3"), do.call("committed", {A0: Committed(END)}), do.hears()),
        (do.poll(a0=END), do.does("commit a0=5 read")),
        automatic=False,
    ),
    "failed commit of the application is looked up": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.call("doubted", [A0]), do.poll(a0=END)),
        do.does("committed a0", "commit a0=0 given"),
        automatic=False,
    ),
    "note that an automatic commit has wiped is made again": Story(
        (*joined(A0), do.set(stored={A0: END}), do.poll(a0=END), do.does("CommitStored", "commit a0=5 read")),
        (do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.does("commit a0=5 read")),
    ),
    "revocation is shown again where the callback has raised, three times at most": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.set(committed={A0: Committed(3)}, raises=3)),
        *[
            (do.poll(a0=END), do.does(), do.poll(SHORT_S, a0=END),
             do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0"))
        ] * 3,
        (do.poll(a0=END), do.does("commit a0=3 given")),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown while the group joins again, nor soon after": Story(
        (do.view(), do.poll(), do.set(committed={A0: Committed(3)}), do.assign(A0, A1), do.poll(a0=END, a1=END)),
        (do.call("committed", {A1: Committed(END)}), do.view(replaced()), do.set(done=[]), do.poll(a0=END, a1=END)),
        (do.does("commit a1=5 read", "topics b0", "subscribe a b"), do.poll(SHORT_S, a0=END, a1=END), do.does()),
        (do.assign(B0), do.set(done=[]), do.poll(a0=END, a1=END), do.poll(SHORT_S / 2, a0=END, a1=END), do.does()),
        (do.poll(SHORT_S / 2, a0=END, a1=END)),
        do.does("show revoked a0 a1", "pause a0 a1", "restarts a0 a1", "show assigned a0 a1", "seek a0=3 a1=5",
                "resume a0 a1"),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "revocation is shown though a group that joins again brings no assignment": Story(
        (do.view(), do.poll(), do.set(committed={A0: Committed(3)}), do.assign(A0), do.view(replaced())),
        (do.poll(a0=END), do.set(done=[]), do.poll(JOIN_S - 1, a0=END), do.does(), do.poll(1.0, a0=END)),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0"),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "revocation is not shown for as long as the library joins": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.set(committed={A0: Committed(3)}), do.joins(True)),
        (do.poll(a0=END), do.poll(10 * JOIN_S, a0=END), do.joins(False), do.poll(1.0, a0=END), do.does()),
        do.poll(SHORT_S, a0=END),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0"),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "revocation is shown at once where the library has joined, without an assignment": Story(
        (do.view(), do.poll(), do.set(committed={A0: Committed(3)}), do.assign(A0), do.view(replaced())),
        (do.joins(False), do.poll(a0=END), do.set(done=[]), do.poll(SHORT_S, a0=END)),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0"),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "records that are on their way are given before a revocation is shown": Story(
        (*joined(A0, A1), do.call("committed", {A0: Committed(3)}), do.set(committed={A0: Committed(3)})),
        (do.poll(a0=END, a1=END), do.poll(SHORT_S, carrying=True, a0=END, a1=END), do.does(), do.is_due()),
        (do.poll(a0=END, a1=END), do.does("show revoked a0 a1", "pause a0 a1", "restarts a0 a1",
                                          "show assigned a0 a1", "seek a0=3 a1=0", "resume a0 a1")),
        automatic=False, sees_revocations=True,
    ),
    "records that are on their way are given before partitions are hidden and shown": Story(
        (*joined(A0, B0), do.view(replaced(moved=MOVED)), do.poll(carrying=True, a0=3)),
        (do.does("places b0", "committed b0 b1"), do.is_due()),
        (do.poll(carrying=True, a0=3), do.does(), do.is_due(), do.poll(a0=3)),
        do.does("show revoked a0", "show assigned a0 b0", "seek b0=0", "resume b0"),
        (do.poll(1.0, a0=3), do.does("committed b0 b1", "commit b0=0 the gate is open")),
    ),
    "records that are on their way do not keep anything from being said": Story(
        (*joined(A0), do.set(stored={A0: END}), do.poll(carrying=True, a0=END)),
        do.does("CommitStored", "commit a0=5 read"),
    ),
    "partition that is taken up at its end is noted": Story(
        (do.set(committed={A0: Committed(END)}), *joined(A0), do.poll(), do.does()),
        do.revoke(A0), do.set(done=[], committed={A0: Committed(END)}), do.assign(A0), do.set(done=[]),
        (do.poll(), do.does("commit a0=5 read")),
    ),
    "empty partition without a commit is noted at its start": Story(
        (do.view(replaced(read_up_to={0: 0, 1: 0})), do.poll(), do.assign(A0), do.set(done=[])),
        (do.poll(), do.does("commit a0=0 read")),
        automatic=False, transactional=True,
    ),
    "worker at the last record is busy until its partition is resumed": Story(
        (*joined(A0), do.set(stored={A0: END}), do.call("pause", [A0]), do.poll(a0=END)),
        do.does("CommitStored", "commit a0=5 busy"),
        (do.resumes(A0, now={A0}), do.poll(a0=END), do.does("commit a0=5 read")),
    ),
    "application that goes back is busy": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.does("commit a0=5 read")),
        (do.call("sought", A0, 1), do.poll(), do.does("commit a0=5 busy"), do.rides(A0, END, BUSY, None)),
        (do.poll(a0=END), do.does("commit a0=5 read")),
        automatic=False,
    ),
    "application that seeks the end has yet to poll again": Story(
        (*joined(A0), do.poll(a0=END - 1), do.call("sought", A0, END), do.rides(A0, END, "", None)),
        automatic=False,
    ),
    "commit that the library made by its timer is looked up before the note": Story(
        (*joined(A0), do.set(committed={A0: Committed(END)}), do.poll(a0=END)),
        do.does("CommitStored", "committed a0", "commit a0=5 read"),
    ),
    "metadata of the application is left alone": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END, "mine")}), do.poll(a0=END), do.does()),
        automatic=False,
    ),
    "commits of batches are shown a revocation once, and then said to be given": Story(
        (*joined(A0, A1), do.call("committed", {A0: Committed(3)}), do.poll(a0=END, a1=4), do.does()),
        (do.set(committed={A0: Committed(3), A1: None}), do.poll(SHORT_S, a0=END, a1=END), do.does()),
        (do.poll(SHORT_S, a0=END, a1=END),),
        do.does("show revoked a0 a1", "pause a0 a1", "restarts a0 a1", "show assigned a0 a1", "seek a0=3 a1=0",
                "resume a0 a1"),
        (do.poll(5.0, a0=4), do.does(), do.poll(a0=END), do.does("commit a0=3 given")),
        (do.rides(A0, 4, GIVEN), do.poll(9.0, a0=END, a1=END), do.does("commit a1=0 given")),
        (do.call("committed", {A0: Committed(END)}), do.poll(a0=END, a1=END), do.does("commit a0=5 read")),
        automatic=False, sees_revocations=True,
    ),
    "application that commits when it is revoked has read all": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.poll(a0=END), do.does()),
        (do.set(committed={A0: Committed(END)}), do.poll(SHORT_S, a0=END)),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=5", "resume a0"),
        (do.poll(a0=END), do.does("commit a0=5 read")),
        automatic=False, sees_revocations=True,
    ),
    "revocation is shown on a topic that was shrunk, and nothing is said": Story(
        (do.view(TopicView("a", "id-a", (1, 1), (READ_WRITE, READ_ONLY), {1: END})), do.poll()),
        (do.assign(A0, A1), do.set(done=[], committed={A1: Committed(2)}), do.poll(a1=END), do.does()),
        (do.poll(SHORT_S, a1=END)),
        do.does("show revoked a1", "pause a1", "restarts a1", "show assigned a1", "seek a1=2", "resume a1"),
        (do.poll(50.0, a1=END), do.does()),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "start of a retired partition that delivered nothing is committed": Story(
        (do.view(TopicView("a", "id-a", (1, 1), (READ_WRITE, READ_ONLY), {1: 0})), do.poll()),
        (do.assign(A0, A1), do.set(done=[]), do.poll(), do.does("commit a1=0")),
        (do.poll(50.0), do.does()),
    ),
    "start of a retired partition that delivered nothing is committed beside transactions": Story(
        (do.view(plain(READ_WRITE, READ_WRITE)), do.poll(), do.assign(A0, A1), do.poll(), do.set(done=[])),
        (do.view(TopicView("a", "id-a", (1, 2), (READ_WRITE, READ_ONLY), {1: 0})), do.poll(), do.does("commit a1=0")),
        automatic=False, transactional=True,
    ),
    "library that stores nothing by itself is flushed before a revocation is shown": Story(
        (*joined(A0), do.set(stored={A0: 3}), do.poll(a0=END), do.does("CommitStored")),
        (do.poll(SHORT_S, a0=END)),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0"),
        stores=False, sees_revocations=True,
    ),
    "member that takes up a partition takes back that it was given": Story(
        (do.view(replaced()), do.poll(), do.set(committed={A0: Committed(3, GIVEN)}), do.assign(A0), do.set(done=[])),
        (do.poll(), do.does("commit a0=3")),
        automatic=False,
    ),
    "note rides on a transaction, and is sent beside none that may have offsets": Story(
        (*joined(A0), do.call("commits_with_transactions"), do.call("committed", {A0: Committed(3)})),
        (do.poll(9.0, a0=END), do.does(), do.rides(A0, END, READ, in_transaction=True)),
        (do.call("committed", {A0: Committed(END)}), do.call("sought", A0, 3), do.poll(9.0, a0=4), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "transaction that was committed before the end was known is noted afterwards": Story(
        (do.view(replaced(read_up_to={})), do.poll(), do.assign(A0), do.call("commits_with_transactions")),
        (do.poll(), do.set(done=[], committed={A0: Committed(END)}), do.view(replaced())),
        (do.poll(a0=END + 1), do.does("committed a0", "commit a0=5 read")),  # it has passed a control record
        automatic=False, sees_revocations=True,
    ),
    "nothing is said once the gate is open": Story(
        (*joined(A0, moved=MOVED), do.call("committed", {A0: Committed(END)}), do.poll(a0=END)),
        (do.rides(A0, END, ""), do.rides(A0, END, "", in_transaction=True)),
        automatic=False, names=("a",), on_replace="named",
    ),
    "consumer without a group reads the new topic after the old one": Story(
        (*joined(A0, A1, B0), do.poll(a0=END, a1=4), do.does()),
        (do.poll(a0=END, a1=END), do.does("places b0", "show assigned b0", "seek b0=0", "resume b0")),
        traits=KAFKA_PYTHON, group="",
    ),
    "unordered member reads both at once": Story(
        (do.view(replaced()), do.poll(), do.set(done=[]), do.assign(A0, B0)),
        do.does("show assigned a0 b0", "starts a0 b0", "assign a0=0 b0=0"),
        on_replace="unordered",
    ),
}  # fmt: skip

ASSIGNMENTS = {
    "second assignment of an application replaces its first, also what is hidden of it": Story(
        (do.view(plain(READ_WRITE, NONE)), do.call("assigned_by_application", {A0: None, A1: None})),
        (do.run(rebalancing=True), do.does("starts a0 a1", "assign a0=0 a1=0", "pause a1")),
        (do.call("assigned_by_application", {A0: 2}), do.run(rebalancing=True), do.holds(A0)),
        do.does("starts a0", "assign a0=2"),
    ),
    "application that assigns by itself is shown nothing, and nothing is said for it": Story(
        (do.call("unsubscribe"), do.view(replaced()), do.call("assigned_by_application", {A0: 0, A1: 0, B0: 0})),
        (do.poll(), do.does("starts a0 a1 b0", "assign a0=0 a1=0 b0=0")),
        (do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.does(), do.rides(A0, END, "")),
        (do.call("unassigned_by_application", [A1]), do.holds(A0, B0), do.poll(a0=END), do.does()),
        (do.view(replaced(moved=MOVED)), do.poll(), do.does()),
        (do.view(plain(NONE, NONE)), do.poll(), do.does("pause a0")),
        (do.view(plain(READ_WRITE, READ_WRITE)), do.poll(), do.does("places a0", "seek a0=5", "resume a0")),
        (do.call("unassigned_by_application"), do.holds()),
    ),
    "application that assigns by itself while it is subscribed is shown nothing": Story(
        (do.view(), do.call("assigned_by_application", {A0: 0}), do.poll()),
        do.does("starts a0", "assign a0=0", "subscribe a"),
        (do.view(plain(NONE)), do.poll(), do.does("pause a0")),
    ),
    "seek to an offset that is not known holds for a partition whose commit is awaited": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.view(plain(READ_WRITE, NONE)), do.poll()),
        (do.view(), do.set(silent={A1}, done=[]), do.poll(), do.does("restarts a1")),
        (do.call("sought", A1, -1), do.set(silent=set()), do.poll(1.0), do.does("show assigned a1", "resume a1")),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "gate does not hold after the application has left a group that assigns one by one": Story(
        (*joined(A0, B0), do.call("unsubscribe"), do.revoke(A0, B0), do.set(done=[])),
        (do.call("assigned_by_application", {B0: 0}), do.poll(), do.does("starts b0", "assign b0=0", "resume b0")),
        traits=COMMON,
    ),
    "gate does not hold after the application has left a group that has assigned nothing": Story(
        (do.view(replaced()), do.poll(), do.assign(), do.call("unsubscribe"), do.set(done=[])),
        (do.call("assigned_by_application", {B0: 0}), do.poll(), do.does("starts b0", "assign b0=0")),
        traits=COMMON,
    ),
    "what a member has read is noted while it leaves its group": Story(
        (*joined(A0, A1), do.call("unsubscribe"), do.call("unassigned_by_application", [A1])),
        (do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.does("commit a0=5 read")),
        traits=COMMON, automatic=False,
    ),
    "gate holds for a subscriber that unassigns all and assigns again": Story(
        (*joined(A0), do.call("unassigned_by_application"), do.call("assigned_by_application", {A0: 0, B0: 0})),
        (do.poll(), do.does("starts a0 b0", "assign a0=0 b0=0", "pause b0")),
    ),
    "gate does not hold once a member has unsubscribed and unassigned all": Story(
        (*joined(A0), do.call("unsubscribe"), do.call("unassigned_by_application")),
        (do.call("assigned_by_application", {B0: 0}), do.poll(), do.does("starts b0", "assign b0=0")),
        traits=COMMON,
    ),
    "partition that was withheld in a group is shown to an application that assigns it itself": Story(
        (do.view(), do.poll(), do.assign(A0, withheld=(A0,)), do.revoke(A0), do.call("unsubscribe"), do.set(done=[])),
        (do.call("assigned_by_application", {A0: 0}), do.poll(), do.does("starts a0", "assign a0=0", "resume a0")),
    ),
    "calls about partitions that are not assigned change nothing": Story(
        (*joined(A0), do.call("sought", A1, 3), do.call("committed", {A1: Committed(1)})),
        (do.call("committed", {A1: Committed(1)}), do.call("doubted", [A1]), do.call("stored", [A1])),
        (do.rides(A1, END, ""), do.poll(), do.does(), do.holds(A0)),
    ),
    "eager assignment is all that the member has": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.assign(A0), do.holds(A0)),
    ),
    "assignment of a part does not replace the rest in the library": Story(
        (do.view(), do.poll(), do.set(silent={A0}, done=[]), do.assign(A0, A1)),
        do.does("show assigned a0 a1", "starts a0 a1", "add a1=0"),
        (do.set(silent=set()), do.poll(0.2), do.does("starts a0", "add a0=0")),
        traits=KAFKA_PYTHON_EAGER,
    ),
    "more is due once a callback of the library has returned": Story(
        (do.view(replaced()), do.assign(A0), do.is_due()),
    ),
    "partition whose gate opens before its start is known is read from that start": Story(
        (*joined(A0), do.set(silent={B0}), do.assign(B0), do.does("starts b0", "pause b0")),
        (do.view(replaced(moved=MOVED)), do.poll(), do.does("committed b0 b1")),
        (do.set(silent=set()), do.poll(0.2), do.does("starts b0", "add b0=0", "show assigned b0", "resume b0")),
        traits=KAFKA_PYTHON,
    ),
    "eager application is shown what is left of its assignment, and that nothing is": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.set(done=[])),
        (do.view(plain(READ_WRITE, NONE)), do.poll(), do.does("show revoked a0 a1", "show assigned a0", "pause a1")),
        (do.view(plain(NONE, NONE)), do.poll(), do.does("show revoked a0", "show assigned", "pause a0")),
        (do.view(), do.poll()),
        do.does("places a0 a1", "show revoked", "show assigned a0 a1", "seek a0=0 a1=0", "resume a0 a1"),
    ),
    "application leaves out in mid-life what it held": Story(
        (*joined(A0, A1, B0), do.view(replaced(moved=MOVED)), do.choose({A0: None, B0: None}), do.poll()),
        do.does("places b0", "show revoked a0 a1", "show assigned a0 a1 b0", "pause a1", "seek b0=0", "resume b0",
                "committed b0 b1", "commit b0=0 the gate is open"),
    ),
    "application that assigns within its group leaves out what it has declined": Story(
        (do.view(), do.poll(), do.choose({A0: None}), do.assign(A0, A1), do.holds(A0, A1)),
        (do.call("assigned_by_application", {A0: 2}), do.holds(A0)),
    ),
    "application that leaves its group is shown each of its partitions revoked": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.call("unsubscribe"), do.view(plain(READ_WRITE, NONE))),
        (do.set(done=[]), do.poll(), do.does("show revoked a1", "pause a1")),
        (do.revoke(A0, A1), do.does("show revoked a0")),
        traits=COMMON,
    ),
    "application assigns in its callback what the group has not given": Story(
        (do.view(), do.poll(), do.assign(A0), do.poll(), do.choose({A0: None, A1: None, S1: 7}), do.set(done=[])),
        (do.assign(A1), do.does("show assigned a1", "starts a1 s1", "add a1=0 s1=7"), do.holds(A0, A1, S1)),
        traits=COMMON,
    ),
    "application cannot assign in mid-life what the group has not given": Story(
        (*joined(A0, B0), do.view(replaced(moved=MOVED)), do.choose({A0: None, B0: None, S1: 7}), do.poll()),
        (do.holds(A0, B0), do.set(done=[])),
    ),
    "partition that is unassigned in the callback for its revocation is gone": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.view(plain(READ_WRITE, NONE)), do.set(done=[])),
        do.set(meanwhile={"show revoked": (do.call("unassigned_by_application", [A1]),)}),
        (do.poll(), do.does("show revoked a1"), do.holds(A0)),
        traits=COMMON,
    ),
    "what a member has read is noted after some of its partitions were revoked": Story(
        (*joined(A0, A1), do.call("committed", {A0: Committed(END)}), do.revoke(A1), do.set(done=[])),
        (do.poll(a0=END), do.does("commit a0=5 read")),
        traits=COMMON, automatic=False,
    ),
}  # fmt: skip
PLACES = {
    "seek of the application replaces one that the library was not ready for": Story(
        (*joined(A0, B0), do.set(unready={B0}), do.view(replaced(moved=MOVED)), do.poll(), do.set(done=[])),
        (do.call("sought", B0, 3), do.set(unready=set()), do.poll(0.2), do.does("resume b0")),
        traits=COMMON,
    ),
    "library does not seek before the records that are on their way are given": Story(
        (*joined(A0, B0), do.set(unready={B0}), do.view(replaced(moved=MOVED)), do.poll(), do.set(done=[])),
        (do.set(unready=set()), do.poll(0.2, carrying=True), do.does(), do.is_due()),
        (do.poll(), do.does("seek b0=0", "resume b0")),
        traits=COMMON,
    ),
    "start of a partition is requested though the application has sought in it": Story(
        (do.view(), do.poll(), do.set(silent={A0}), do.assign(A0), do.set(done=[])),
        (do.call("sought", A0, 3), do.set(silent=set()), do.poll(0.2), do.does("starts a0", "add a0=0")),
        traits=KAFKA_PYTHON,
    ),
    "application seeks in a partition that it is not shown": Story(
        (*joined(A0, B0), do.call("sought", B0, 3), do.view(replaced(moved=MOVED)), do.poll()),
        do.does("show assigned b0", "seek b0=3", "resume b0", "committed b0 b1", "commit b0=0 the gate is open"),
        traits=COMMON,
    ),
    "application seeks in a partition whose place is not known": Story(
        (*joined(A0, B0), do.set(silent={B0}), do.view(replaced(moved=MOVED)), do.poll(), do.set(done=[])),
        (do.call("sought", B0, 3), do.poll(0.2), do.does("show assigned b0", "seek b0=3", "resume b0")),
        traits=COMMON,
    ),
    "application seeks in a partition whose commit is not known after a revocation": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.poll(a0=END), do.set(silent={A0})),
        (do.poll(SHORT_S, a0=END), do.does("show revoked a0", "pause a0", "restarts a0")),
        (do.call("sought", A0, 1), do.poll(0.2), do.does("show assigned a0", "seek a0=1", "resume a0")),
        automatic=False, sees_revocations=True,
    ),
    "answer about a partition that is assigned again meanwhile does not place it": Story(
        (*joined(A0, B0), do.view(replaced(moved=MOVED))),
        (do.set(meanwhile={"places b0": (do.revoke(B0), do.assign(B0))}), do.poll()),
        do.does("places b0", "show assigned b0", "starts b0", "add b0=0", "resume b0", "committed b0 b1",
                "commit b0=0 the gate is open"),
        traits=COMMON,
    ),
    "seek in a partition that is revoked meanwhile, or assigned again, places nothing": Story(
        (*joined(A0, A1, B0, B1), do.set(unready={B0, B1}), do.view(replaced(moved=MOVED)), do.poll()),
        do.set(unready=set(), done=[]),
        do.set(meanwhile={"seek": (do.revoke(B0, B1), do.set(silent={B1}), do.assign(B1), do.set(silent=set()))}),
        do.poll(0.2), do.poll(0.2),
        do.does("seek b0=0 b1=0", "show revoked b0 b1", "show assigned b1", "starts b1", "starts b1", "add b1=0"),
        do.holds(A0, A1, B1),
        traits=KAFKA_PYTHON,
    ),
    "seek that fails is repeated after a while": Story(
        (*joined(A0, B0), do.set(fails=[Seek]), do.view(replaced(moved=MOVED)), do.poll(), do.set(done=[])),
        (do.poll(0.05), do.does(), do.poll(0.05), do.does("seek b0=0", "resume b0")),
        traits=COMMON,
    ),
    "request that fails is repeated after as long as it took": Story(
        (do.view(), do.poll(), do.set(fails=[Request], takes_s=0.5, done=[]), do.assign(A0)),
        (do.does("show assigned a0", "starts a0"), do.set(takes_s=0.0), do.poll(0.4), do.does()),
        (do.poll(0.1), do.does("starts a0", "add a0=0")),
        traits=KAFKA_PYTHON,
    ),
    "pause that fails is repeated": Story(
        (do.view(), do.poll(), do.assign(A0, A1), do.view(plain(READ_WRITE, NONE)), do.set(done=[], fails=[Pause])),
        (do.poll(), do.does("show revoked a1", "pause a1", "pause a1")),
        traits=COMMON,
    ),
    "place that the library has no number for stands, and the start with it": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(plain(NONE)), do.poll(), do.set(log_starts={A0: None})),
        (do.view(replaced()), do.poll(), do.call("sought", A0, END), do.set(done=[])),
        (do.poll(), do.does("commit a0=0 given")),
        automatic=False,
    ),
    "place without a number of a partition that has delivered": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(plain(NONE)), do.poll(), do.set(log_starts={A0: None})),
        (do.set(begun={A0}), do.view(plain(READ_WRITE)), do.set(done=[]), do.poll()),
        do.does("places a0", "show revoked", "show assigned a0", "seek a0=None", "resume a0"),
    ),
    "what was given stays known of a place that the library has no number for": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(replaced()), do.poll(), do.poll(a0=END)),
        (do.view(plain(NONE)), do.poll(), do.set(log_starts={A0: None}), do.view(replaced()), do.poll()),
        (do.poll(), do.rides(A0, END, READ)),
        automatic=False,
    ),
    "start of a partition that the application sought in stays": Story(
        (do.view(), do.poll(), do.assign(A0), do.call("sought", A0, END), do.view(plain(NONE)), do.poll()),
        (do.view(replaced()), do.poll(), do.set(done=[]), do.poll(), do.does("commit a0=0 given")),
        automatic=False,
    ),
    "what was given before a partition was hidden counts where it goes on at the same place": Story(
        (do.view(), do.poll(), do.assign(A0), do.call("committed", {A0: Committed(3)}), do.view(replaced())),
        (do.poll(a0=END), do.view(plain(NONE)), do.poll(), do.view(replaced()), do.poll(), do.set(done=[])),
        (do.poll(), do.does("commit a0=3 given")),
        automatic=False, names=("^a",), on_replace="named",
    ),
}  # fmt: skip
COMMITS = {
    "failed commit is looked up of a partition that began at its end": Story(
        (do.set(committed={A0: Committed(END)}), *joined(A0), do.call("doubted", [A0]), do.set(done=[])),
        (do.poll(), do.does("committed a0")),
        automatic=False,
    ),
    "commit below the start may be one from before the assignment, and is looked up": Story(
        (do.set(committed={A0: Committed(END)}), *joined(A0), do.set(done=[])),
        (do.call("committed", {A0: Committed(3)}), do.poll(), do.does("committed a0")),
        automatic=True,
    ),
    "failed commit is looked up of a partition that the application went back in": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.does("commit a0=5 read")),
        (do.call("sought", A0, 1), do.call("doubted", [A0]), do.poll(), do.does("committed a0", "commit a0=5 busy")),
        automatic=False,
    ),
    "failed commit is looked up at the end alone, and nothing is said without an answer": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.call("doubted", [A0]), do.set(silent={A0})),
        (do.poll(a0=4), do.does(), do.poll(a0=END), do.does("committed a0"), do.poll(0.05, a0=END), do.does()),
        automatic=False,
    ),
    "failed commit is not looked up before what is stored is committed": Story(
        (*joined(A0), do.set(stored={A0: END}), do.call("doubted", [A0]), do.poll(a0=END)),
        do.does("CommitStored", "commit a0=5 read"),
    ),
    "failed commit is looked up on a topic that was shrunk where a revocation may be shown": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S1), do.call("doubted", [S1]), do.set(done=[])),
        (do.poll(s1=END), do.does("committed s1")),
        automatic=False, sees_revocations=True, names=("s",),
    ),
    "failed commit is not looked up on a topic that was shrunk where nothing is said": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S1), do.call("doubted", [S1]), do.set(done=[])),
        (do.poll(s1=END), do.does()),
        automatic=False, names=("s",),
    ),
    "start that librdkafka decides is not known without a commit, and nothing is said": Story(
        (do.view(), do.poll(), do.set(silent={A0}), do.assign(A0), do.view(replaced()), do.poll()),
        (do.set(silent=set(), done=[]), do.poll(1.0), do.does("committed a0"), do.rides(A0, END, "", None)),
        (do.call("committed", {A0: Committed(END)}), do.poll(), do.does()),
        automatic=False,
    ),
    "start that librdkafka decides is not known without a commit, and is not committed": Story(
        (do.view(), do.poll(), do.set(silent={A0}), do.assign(A0), do.view(replaced()), do.poll()),
        (do.set(silent=set(), done=[]), do.poll(1.0, a0=END), do.does("committed a0")),
        automatic=False,
    ),
    "what the application was given is known though the library has no position": Story(
        (*joined(A0), do.poll(a0=END), do.poll(), do.call("committed", {A0: Committed(END)}), do.poll()),
        do.does("commit a0=0 given", "commit a0=5 read"),
        automatic=False,
    ),
    "library commits what is stored before an application that went back is noted": Story(
        (*joined(A0), do.set(stored={A0: END}, fails=[CommitStored]), do.poll(a0=END), do.does("CommitStored")),
        (do.call("sought", A0, 1), do.set(now_s=1.0), do.run(), do.does("CommitStored", "commit a0=5 busy")),
    ),
    "library commits what is stored though the application reads below it": Story(
        (*joined(A0), do.set(stored={A0: END}, fails=[CommitStored]), do.poll(a0=END), do.does("CommitStored")),
        (do.call("sought", A0, 1), do.poll(1.0, a0=2), do.does("CommitStored", "commit a0=5 busy")),
    ),
    "library commits what is stored once the application has polled, or has paused": Story(
        (*joined(A0), do.set(stored={A0: END}, fails=[CommitStored]), do.poll(a0=END), do.does("CommitStored")),
        (do.call("sought", A0, END), do.set(now_s=1.0), do.run(), do.does()),
        (do.call("pause", [A0]), do.run(), do.does("CommitStored", "commit a0=5 busy")),
    ),
    "library commits what it has stored beyond what the application was seen to be given": Story(
        (do.view(), do.poll(), do.assign(A0), do.view(plain(NONE)), do.poll(), do.set(log_starts={A0: END})),
        (do.set(begun={A0}, stored={A0: END}), do.view(replaced()), do.poll(), do.set(done=[])),
        (do.poll(), do.does("CommitStored", "commit a0=5 read")),
    ),
    "library commits what is stored of a partition that is shown again further back": Story(
        (*joined(A0), do.set(stored={A0: END}, fails=[CommitStored]), do.poll(a0=END), do.call("sought", A0, 1)),
        (do.view(plain(NONE)), do.poll(), do.set(begun={A0}), do.view(replaced()), do.poll(), do.set(done=[])),
        (do.poll(1.0), do.does("CommitStored", "commit a0=5 busy")),
    ),
    "library that stores nothing by itself commits again what the application has stored": Story(
        (*joined(A0), do.set(stored={A0: 3}), do.poll(a0=END), do.does("CommitStored", "commit a0=3 given")),
        (do.set(stored={A0: END}), do.call("stored", [A0]), do.poll(a0=END)),
        do.does("CommitStored", "commit a0=5 read"),
        stores=False,
    ),
    "commit that failed of what is stored is repeated, less and less often": Story(
        (*joined(A0), do.set(stored={A0: END}, fails=[CommitStored, CommitStored]), do.poll(a0=END)),
        (do.does("CommitStored"), do.poll(0.05, a0=END), do.does(), do.poll(0.05, a0=END), do.does("CommitStored")),
        (do.poll(0.15, a0=END), do.does(), do.poll(0.1, a0=END), do.does("CommitStored", "commit a0=5 read")),
    ),
    "commit of what is stored whose failure comes later is repeated": Story(
        (*joined(A0), do.set(stored={A0: END}, answers_later=True), do.poll(a0=END), do.does("CommitStored")),
        (do.hears(fails=True), do.poll(0.1, a0=END), do.does("CommitStored")),
    ),
    "commit that fails is repeated after as long as it took": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.set(fails=[Commit], takes_s=0.5)),
        (do.poll(a0=END), do.does("commit a0=5 read"), do.set(takes_s=0.0), do.poll(0.4, a0=END), do.does()),
        (do.poll(0.1, a0=END), do.does("commit a0=5 read")),
        automatic=False,
    ),
    "commit that fails again and again is repeated every ten seconds": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.set(fails=[Commit] * 9), do.poll(a0=END)),
        *[do.poll(LONGEST_RETRY_S, a0=END) for _ in range(9)],
        do.does(*["commit a0=5 read"] * 10),
        automatic=False,
    ),
    "commit of what is stored says nothing of a partition that delivered nothing": Story(
        (do.set(committed={A1: Committed(END)}), *joined(A0, A1)),
        (do.set(stored={A0: END}), do.poll(a0=END), do.does("CommitStored", "commit a0=5 read")),
    ),
    "application that leaves commits to the library is not said to be given more": Story(
        (*joined(A0, A1), do.call("committed", {A1: Committed(3)}), do.set(committed={A1: Committed(3)})),
        (do.poll(a0=END, a1=END), do.does("CommitStored", "committed a0 a1"), do.poll(SHORT_S, a0=END, a1=END)),
        do.does(),
        sees_revocations=True,
    ),
    "nothing is noted beside transactions where there is no commit": Story(
        (*joined(A0), do.poll(a0=END), do.does()), automatic=False, transactional=True,
    ),
    "metadata of commits of the application": Story(
        (*joined(A0), do.rides(A0, 3, ""), do.call("committed", {A0: Committed(3)}), do.rides(A0, END, "")),
        (do.rides(A0, END, BUSY, 4), do.rides(A0, END, "", 4, in_transaction=True)),
        do.rides(A0, END, READ, in_transaction=True),
        (do.call("pause", [A0]), do.rides(A0, END, BUSY), do.rides(A0, END, READ, in_transaction=True)),
        (do.resumes(A0, now={A0}), do.poll(a0=END), do.rides(A0, END, READ), do.set(done=[])),
        (do.rides(A0, 4, GIVEN), do.rides(A0, 4, "", in_transaction=True)),
        (do.call("committed", {A0: Committed(3)}), do.rides(A0, 4, "")),
        (do.call("committed", {A0: Committed(3, GIVEN)}), do.call("sought", A0, 1), do.rides(A0, 2, "", 2)),
        automatic=False,
    ),
    "commits of the application have no metadata before the end is known": Story(
        (*joined(A0, read_up_to={}), do.rides(A0, 3, ""), do.call("committed", {A0: Committed(3)})),
        do.rides(A0, 4, ""),
        automatic=False,
    ),
    "nothing is said of a partition that the application has declined": Story(
        (do.view(replaced()), do.poll(), do.set(committed={A1: Committed(3, GIVEN)}), do.choose({A0: 0})),
        (do.assign(A0, A1), do.set(done=[]), do.poll(), do.does()),
        automatic=False,
    ),
    "nothing is said before the library reads a partition from where it should": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.set(committed={A0: Committed(3)}, unready={A0})),
        (do.poll(a0=END), do.poll(SHORT_S, a0=END), do.set(done=[]), do.poll(a0=END), do.does()),
        (do.set(unready=set()), do.poll(0.1), do.does("seek a0=3", "resume a0")),
        automatic=False, sees_revocations=True,
    ),
    "start of a retired partition that was taken up at its end is committed": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.set(starts={S1: END}), do.assign(S0, S1), do.set(done=[])),
        (do.poll(), do.does("commit s1=5")),
        names=("s",),
    ),
    "start of a retired partition is not committed where the application goes back": Story(
        (do.view(), do.poll(), do.set(starts={S1: END}), do.assign(S0, S1), do.call("sought", S1, 1)),
        (do.view(shrunk(p1=END)), do.set(done=[]), do.poll(s1=2), do.does()),
        names=("s",), automatic=False,
    ),
    "start of a retired partition is not committed where it is not known": Story(
        (do.view(shrunk(p1=0)), do.poll(), do.set(silent={S1}), do.assign(S1), do.set(silent=set(), done=[])),
        (do.poll(1.0), do.does("committed s1"), do.poll(1.0), do.does()),
        names=("s",), automatic=False, sees_revocations=True,
    ),
    "start of a retired partition is not committed where a commit is in doubt": Story(
        (do.view(shrunk(p1=0)), do.poll(), do.assign(S1), do.call("doubted", [S1]), do.set(done=[])),
        (do.poll(), do.does()),
        names=("s",), automatic=False,
    ),
    "consumer without a group commits no start": Story(
        (do.view(shrunk(p1=0)), do.poll(), do.assign(S1), do.set(done=[]), do.poll(), do.does()),
        names=("s",), group="", traits=KAFKA_PYTHON,
    ),
    "library commits nothing by itself for a topic that was shrunk": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S1), do.set(done=[]), do.poll(s1=END), do.does()),
        names=("s",),
    ),
    "library that stores nothing commits what is stored on a topic that was shrunk before a revocation": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S1), do.set(done=[], stored={S1: 3}), do.poll(s1=END)),
        do.does("CommitStored"),
        names=("s",), stores=False, sees_revocations=True,
    ),
    "commit begins once the previous one has its result": Story(
        (*joined(A0, B0), do.call("committed", {A0: Committed(END)}), do.set(answers_later=True), do.poll(a0=END)),
        (do.does("commit a0=5 read"), do.view(replaced(moved=MOVED)), do.poll()),
        (do.does("places b0", "show revoked a0", "show assigned a0 b0", "seek b0=0", "resume b0"), do.poll(5.0)),
        (do.does(), do.hears(), do.poll(), do.does("committed b0 b1", "commit b0=0 the gate is open")),
        automatic=False,
    ),
}  # fmt: skip
REVOCATIONS = {
    "revocation is not shown where all is committed": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.set(done=[])),
        (do.poll(SHORT_S, a0=END), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown where a commit is in doubt": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.call("doubted", [A0]), do.set(silent={A0})),
        (do.poll(a0=END), do.set(done=[]), do.poll(SHORT_S, a0=END), do.does("committed a0")),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown to an application that was given nothing": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.call("sought", A0, END), do.poll()),
        (do.poll(SHORT_S), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown beside transactions": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.poll(a0=END), do.poll(SHORT_S, a0=END), do.does()),
        automatic=False, sees_revocations=True, transactional=True,
    ),
    "revocation is not shown once the group is let through": Story(
        (*joined(A0), do.call("committed", {A0: Committed(3)}), do.poll(a0=END), do.view(replaced(moved=MOVED))),
        (do.poll(SHORT_S), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown while an end of the old topic is not known": Story(
        (*joined(A0, A1, read_up_to={0: END}), do.call("committed", {A0: Committed(3)}), do.poll(a0=END)),
        (do.poll(SHORT_S, a0=END), do.does()),
        automatic=False, sees_revocations=True,
    ),
    "revocation is not shown while another retired partition is read": Story(
        (do.view(shrunk(p1=END, p2=END)), do.poll(), do.assign(S1, S2), do.call("committed", {S1: Committed(3)})),
        (do.set(done=[]), do.poll(s1=END, s2=4), do.poll(SHORT_S, s1=END, s2=4), do.does()),
        (do.poll(s1=END, s2=END), do.poll(SHORT_S, s1=END, s2=END)),
        do.does("show revoked s1 s2", "pause s1 s2", "restarts s1 s2", "show assigned s1 s2", "seek s1=0 s2=0",
                "resume s1 s2"),
        automatic=False, sees_revocations=True, names=("s",),
    ),
    "eager application is shown a revocation of all, and has all again from its commits": Story(
        (do.view(replaced()), do.poll(), do.set(committed={A0: Committed(3), S0: Committed(2)})),
        (do.assign(A0, B0, S0), do.set(done=[]), do.poll(a0=END), do.poll(SHORT_S, a0=END)),
        do.does("show revoked a0 s0", "pause a0 s0", "restarts a0 s0", "show assigned a0 s0", "seek a0=3 s0=2",
                "resume a0 s0"),
        (do.view(replaced(moved=MOVED)), do.set(done=[]), do.poll()),
        do.does("places b0", "show revoked a0 s0", "pause a0 s0", "restarts a0 s0", "show assigned a0 b0 s0",
                "seek a0=3 b0=0 s0=2", "resume a0 b0 s0", "committed b0 b1", "commit b0=0 the gate is open"),
        automatic=False, sees_revocations=True, names=("a", "s"),
    ),
    "revocation is shown again for an old topic that was not sealed, as often as callbacks raise for it": Story(
        (do.view(replaced(), replaced("s", "t", read_up_to={})), do.poll(), do.set(raises=4)),
        (do.set(committed={A0: Committed(3), S0: Committed(3)}), do.assign(A0, S0)),
        *[(do.poll(a0=END), do.poll(SHORT_S, a0=END))] * 3,
        (do.view(replaced(), replaced("s", "t")), do.poll(a0=END, s0=END), do.poll(SHORT_S, a0=END, s0=END)),
        (do.poll(a0=END, s0=END), do.set(done=[]), do.poll(SHORT_S, a0=END, s0=END)),
        do.does("show revoked a0 s0", "pause a0 s0", "restarts a0 s0", "show assigned a0 s0", "seek a0=3 s0=3",
                "resume a0 s0", "commit a0=3"),
        automatic=False, sees_revocations=True, names=("a", "s"),
    ),
    "revocation is shown once, though records were on their way": Story(
        (*joined(A0, A1), do.call("committed", {A0: Committed(3)}), do.poll(a0=END, a1=END)),
        (do.poll(SHORT_S, carrying=True, a0=END, a1=END), do.revoke(A0, A1), do.does("show revoked a0 a1")),
        automatic=False, sees_revocations=True,
    ),
    "revocation is shown once for an old topic, also of partitions that come later": Story(
        (*joined(A0), do.set(committed={A0: Committed(3), A1: Committed(3)}), do.call("committed", {A0: Committed(3)})),
        (do.poll(a0=END), do.poll(SHORT_S, a0=END), do.poll(a0=END), do.assign(A1), do.poll(a0=END, a1=END)),
        (do.set(done=[]), do.poll(SHORT_S, a0=END, a1=END), do.does()),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "revocation is shown again of a partition that is retired again": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.set(committed={S1: Committed(3)}), do.assign(S1), do.poll(s1=END)),
        (do.poll(SHORT_S, s1=END), do.poll(s1=END), do.view(shrunk(p1=8)), do.poll(s1=8), do.set(done=[])),
        (do.poll(SHORT_S, s1=8)),
        do.does("show revoked s1", "pause s1", "restarts s1", "show assigned s1", "seek s1=3", "resume s1"),
        automatic=False, sees_revocations=True, names=("s",), traits=COMMON,
    ),
    "revocation is shown again for another topic of the same name": Story(
        (*joined(A0), do.set(committed={A0: Committed(3)}), do.call("committed", {A0: Committed(3)})),
        (do.poll(a0=END), do.poll(SHORT_S, a0=END), do.poll(a0=END), do.view(replaced(topic_id="another"))),
        (do.poll(a0=END), do.set(done=[]), do.poll(SHORT_S, a0=END)),
        do.does("show revoked a0", "pause a0", "restarts a0", "show assigned a0", "seek a0=3", "resume a0",
                "commit a0=3"),
        automatic=False, sees_revocations=True, traits=COMMON,
    ),
    "eager revocation of an old topic is none of another one that is not sealed yet": Story(
        (do.view(replaced(), replaced("s", "t", read_up_to={})), do.poll()),
        (do.set(committed={A0: Committed(3), S0: Committed(3)}), do.assign(A0, S0), do.poll(a0=END)),
        (do.poll(SHORT_S, a0=END), do.view(replaced(), replaced("s", "t")), do.poll(a0=END, s0=END)),
        (do.set(done=[]), do.poll(SHORT_S, a0=END, s0=END)),
        do.does("show revoked a0 s0", "pause a0 s0", "restarts a0 s0", "show assigned a0 s0", "seek a0=3 s0=3",
                "resume a0 s0", "commit a0=3"),
        automatic=False, sees_revocations=True, names=("a", "s"),
    ),
}  # fmt: skip
NEW_TOPICS = {
    "commit of the application on a new topic is not set back by an answer of before": Story(
        (*joined(A0, B0, moved=MOVED), do.set(committed={}), do.call("committed", {B0: Committed(3)})),
        (do.poll(1.0), do.does("committed b0 b1"), do.poll(1.0), do.does("committed b0 b1")),
        automatic=False,
    ),
    "commit on a new topic counts that a request has overtaken": Story(
        (*joined(A0, B0, moved=MOVED), do.set(committed={B1: Committed(0)}), do.poll(1.0), do.does("committed b0 b1")),
        (do.poll(1.0), do.does()),
    ),
    "commit on a new topic that another program has made is not set back": Story(
        (*joined(A0, B0, moved=MOVED), do.set(committed={B0: Committed(END)}), do.poll(1.0), do.set(done=[])),
        (do.view(replaced(moved=MOVED), replaced("b", "c")), do.poll(b0=END)),
        do.does("commit b0=5 read", "topics c0", "subscribe a b c"),
        automatic=False,
    ),
    "start is not committed where the application commits when it is shown a revocation meanwhile": Story(
        (do.view(replaced(moved=MOVED), shrunk(p1=END)), do.poll(), do.assign(B0, S1), do.set(silent={B0, B1})),
        (do.set(committed={S1: Committed(3)}), do.call("committed", {S1: Committed(3)}), do.poll()),
        (do.poll(0.5, s1=END), do.set(silent=set(), takes_s=1.0, done=[])),
        (do.set(meanwhile={"show revoked": (do.call("committed", {B0: Committed(3)}),)}), do.poll(0.5, s1=END)),
        do.does("committed b0 b1", "show revoked s1", "pause s1", "restarts s1", "show assigned s1", "seek s1=3",
                "resume s1", "committed b0 b1"),
        traits=COMMON, automatic=False, sees_revocations=True, names=("a", "s"),
    ),
    "start that could not be committed is committed later": Story(
        (*joined(A0, B0), do.set(fails=[Commit]), do.view(replaced(moved=MOVED)), do.poll(), do.set(done=[])),
        (do.poll(0.5), do.does(), do.poll(0.5), do.does("committed b0 b1", "commit b0=0 the gate is open")),
        traits=COMMON,
    ),
    "starts of others that are not known are requested again after a while": Story(
        (*joined(A0, B0, moved=MOVED), do.poll(UNCOMMITTED_S - 1), do.set(starts={B1: None}, done=[]), do.poll(1.0)),
        (do.does("committed b0 b1", "other_starts b1"), do.set(starts={}), do.poll(1.0)),
        do.does("committed b0 b1", "other_starts b1", "committed b0 b1", "commit b1=0 the gate is open"),
    ),
    "withheld partition of a new topic is left to its owner for as long as another member's": Story(
        (do.view(replaced(moved=MOVED)), do.poll(), do.assign(A0, B0, withheld=(B0,)), do.set(done=[]), do.poll()),
        (do.does("committed b0 b1"), do.poll(UNCOMMITTED_S), do.does("committed b0 b1", "other_starts b0 b1",
                "committed b0 b1", "commit b0=0 the gate is open b1=0 the gate is open")),
    ),
    "new topic has all its commits only where each is known": Story(
        (do.set(committed={B0: Committed(0)}, silent={B1}), *joined(A0, B0, moved=MOVED), do.poll(1.0)),
        (do.does("committed b0 b1"), do.poll(1.0), do.does("committed b0 b1")),
    ),
    "commits on a new topic are complete, while another topic goes on": Story(
        (do.set(committed={B0: Committed(0), B1: Committed(0)}), do.view(replaced(moved=MOVED), shrunk(p1=0))),
        (do.poll(), do.assign(A0, B0), do.poll(), do.assign(S1), do.set(done=[]), do.poll(), do.does("commit s1=0")),
        (do.poll(UNCOMMITTED_S), do.does()),
        traits=COMMON, names=("a", "s"),
    ),
    "commit is looked up on a new topic that is replaced itself": Story(
        (do.set(committed={B0: Committed(0), B1: Committed(0)}), do.view(replaced(moved=MOVED)), do.poll()),
        (do.assign(B0, B1), do.poll(), do.view(replaced(moved=MOVED), replaced("b", "c")), do.poll()),
        (do.set(done=[], silent={B1}), do.call("doubted", [B0, B1]), do.poll(b0=END, b1=END)),
        do.does("committed b0 b1", "commit b0=0 given"),
        traits=COMMON, automatic=False,
    ),
    "commit of one partition says nothing of the others": Story(
        (do.view(replaced(moved=MOVED), replaced("b", "c")), do.poll(), do.assign(B0), do.poll(), do.set(done=[])),
        (do.call("doubted", [B0]), do.poll(0.5, b0=END), do.does("CommitStored", "committed b0")),
        (do.poll(0.5, b0=END), do.does("committed b0 b1")),
        traits=COMMON,
    ),
    "note of another topic does not keep a start from being committed": Story(
        (do.view(replaced(moved=MOVED), replaced("s", "t")), do.poll(), do.assign(B0, S1), do.set(silent={B0, B1, S1})),
        (do.poll(), do.call("committed", {S1: Committed(END)}), do.poll(0.95, s1=END), do.set(done=[])),
        (do.set(silent=set(), takes_s=0.2), do.poll(0.08, s1=END)),
        do.does("committed b0 b1", "commit s1=5 read", "commit b0=0 the gate is open"),
        traits=COMMON, automatic=False, names=("a", "s"),
    ),
    "starts of others are found on one new topic, while another one has all its commits": Story(
        (do.view(replaced(moved=MOVED), replaced("s", "t", moved=MOVED)), do.poll(), do.assign(B0, T0)),
        (do.set(committed={B0: Committed(0), B1: Committed(0)}, done=[]), do.poll()),
        (do.does("committed b0 b1 t0 t1", "commit t0=0 the gate is open"), do.poll(UNCOMMITTED_S)),
        do.does("committed t0 t1", "other_starts t1", "committed t0 t1", "commit t1=0 the gate is open"),
        traits=COMMON, names=("a", "s"),
    ),
    "nothing is committed on a new topic whose old topic is gone": Story(
        (do.view(replaced(moved=MOVED, released=True, gone=True)), do.poll(), do.assign(B0), do.set(done=[])),
        (do.poll(1.0), do.does()),
        traits=COMMON,
    ),
    "nothing is committed for a group that begins after the release of the old topic": Story(
        (do.view(replaced(released=True, groups=frozenset())), do.poll(), do.assign(B0), do.set(done=[])),
        (do.poll(1.0), do.does()),
        traits=COMMON, names=("b",),
    ),
    "starts are committed for a group that used the old topic, when all groups are let through": Story(
        (do.view(replaced(released=True, moved=Moved(all=True))), do.poll(), do.assign(B0), do.set(done=[])),
        (do.poll(), do.does("committed b0 b1", "commit b0=0 the gate is open")),
        traits=COMMON,
    ),
    "starts are committed before the release for a group that has not used the old topic": Story(
        (do.view(replaced(groups=frozenset())), do.poll(), do.assign(B0), do.set(done=[])),
        (do.poll(), do.does("committed b0 b1", "commit b0=0 the gate is open")),
        traits=COMMON, names=("b",),
    ),
    "start is committed of what was delivered where the application decides when": Story(
        (*delivered(), do.poll(1.0, b0=3), do.does("committed b0 b1", "commit b0=0 the gate is open")),
        automatic=False,
    ),
    "start is not committed of what was delivered where the library commits": Story(
        (*delivered(), do.poll(1.0, b0=3), do.does("committed b0 b1")),
    ),
    "start is not committed of what was delivered beside transactions": Story(
        (*delivered(), do.poll(1.0, b0=3), do.does("committed b0 b1")),
        automatic=False, transactional=True,
    ),
    "start of a new topic that librdkafka decides is not committed": Story(
        (do.view(replaced(moved=MOVED)), do.poll(), do.set(silent={B0}), do.assign(B0), do.set(silent=set(), done=[])),
        (do.poll(), do.does("committed b0 b1")),
    ),
    "start that the application has chosen is committed, if it is a number": Story(
        (do.view(replaced(moved=MOVED)), do.poll(), do.choose({B0: 7, B1: -2}), do.assign(B0, B1), do.set(done=[])),
        (do.poll(), do.does("committed b0 b1", "commit b0=7 the gate is open")),
    ),
    "nothing is committed on a new topic by a group that reads by names alone": Story(
        (*joined(A0, B0, moved=MOVED), do.poll(1.0), do.does()), names=("a", "b"), on_replace="named",
    ),
}  # fmt: skip
SUBSCRIPTIONS = {
    "new topic that the application has named is not looked up": Story(
        (do.view(replaced()), do.poll(), do.does("subscribe a b")), names=("a", "b"),
    ),
    "new topic under the name of a deleted one is looked up, though the application names it": Story(
        (do.view(replaced(topic_id="old", gone=True), replaced("b", "a")), do.poll()),
        do.does("topics a0 b0", "subscribe b a"),
    ),
    "member without an assignment requests no rebalance": Story(
        (do.view(replaced()), do.poll(), do.set(owned=set(), done=[]), do.poll(UNOWNED_S), do.poll(UNOWNED_S)),
        do.does(),
        traits=Traits(static=True),
    ),
    "member whose assignment was revoked requests no rebalance before it has the next one": Story(
        (*joined(A0), do.revoke(A0), do.set(owned=set(), done=[]), do.poll(UNOWNED_S), do.poll(UNOWNED_S)),
        do.does(),
        traits=Traits(static=True),
    ),
    "member that subscribes again requests no rebalance before it has an assignment": Story(
        (*joined(A0), do.call("unsubscribe"), do.call("unassigned_by_application")),
        (do.call("subscribe", ["a"], sees_revocations=False), do.set(owned=set(), done=[]), do.poll(UNOWNED_S)),
        (do.poll(UNOWNED_S), do.does("subscribe a b")),
        traits=Traits(static=True),
    ),
    "missing answer about the owner causes no rebalance": Story(
        (*joined(A0), do.set(silent={B0}, owned=set()), do.poll(UNOWNED_S), do.does("owned b0")),
        (do.poll(UNOWNED_S), do.does()),
        traits=Traits(static=True),
    ),
    "lookup of new topics that took long is repeated after as long": Story(
        (do.set(silent={B0}), do.view(replaced()), do.poll(), do.set(takes_s=3.0, done=[])),
        (do.poll(1.0), do.does("topics b0"), do.set(takes_s=0.0), do.poll(2.0), do.does()),
        (do.poll(1.0), do.does("topics b0")),
    ),
}  # fmt: skip
WATCHED = {
    "positions on an old topic are watched until the group's note is committed": Story(
        (do.view(), do.poll(), do.assign(A0, B0), do.watches(), do.view(replaced(read_up_to={0: END})), do.watches(A0)),
        (do.poll(a0=END), do.watches(A0), do.call("committed", {A0: Committed(3, READ)}), do.watches(A0)),
        (do.poll(a0=END), do.call("committed", {A0: Committed(END)}), do.watches(A0), do.poll(a0=END)),
        do.watches(),
        automatic=False,
    ),
    "positions are watched again of an application that goes back, or pauses": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END)}), do.poll(a0=END), do.watches()),
        (do.call("pause", [A0]), do.watches(A0), do.resumes(A0, now={A0}), do.watches(), do.call("sought", A0, 1)),
        do.watches(A0),
        automatic=False,
    ),
    "positions are not watched where the metadata is of the application": Story(
        (*joined(A0), do.call("committed", {A0: Committed(END, "mine")}), do.poll(a0=END), do.watches()),
        automatic=False,
    ),
    "positions are not watched of an old topic beyond which the group was let through": Story(
        (*joined(A0, A1), do.watches(A0, A1), do.view(replaced(moved=MOVED)), do.watches()),
    ),
    "positions are watched of a retired partition until it is committed": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S0, S1), do.watches(S1), do.poll(s1=END), do.watches(S1)),
        (do.call("committed", {S1: Committed(END)}), do.watches()),
        automatic=False, sees_revocations=True, names=("s",),
    ),
    "positions are watched of a retired partition to its end where it is shown no revocation": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S0, S1), do.watches(S1), do.poll(s1=END), do.watches()),
        automatic=False, names=("s",),
    ),
    "positions are watched of a retired partition to its end where the library commits": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S0, S1), do.watches(S1), do.poll(s1=END), do.watches()),
        sees_revocations=True, names=("s",),
    ),
    "positions are watched of a retired partition to its end beside transactions": Story(
        (do.view(shrunk(p1=END)), do.poll(), do.assign(S0, S1), do.watches(S1), do.poll(s1=END), do.watches()),
        automatic=False, transactional=True, sees_revocations=True, names=("s",),
    ),
    "positions are watched of a new topic until it has its commits": Story(
        (*joined(A0, B0), do.watches(A0), do.view(replaced(moved=MOVED)), do.poll(), do.watches(B0)),
        (do.set(committed={B0: Committed(0), B1: Committed(0)}), do.poll(1.0), do.watches()),
    ),
    "consumer without a group watches positions to the end of the old topic": Story(
        (*joined(A0, B0), do.watches(A0), do.poll(a0=END), do.watches()), traits=KAFKA_PYTHON, group="",
    ),
    "consumer without a group has read a topic only once it is replaced": Story(
        (do.view(TopicView("a", "id-a", (1, 1), (READ_ONLY, READ_ONLY), {0: END, 1: END})), do.poll()),
        (do.assign(A0, A1), do.poll(a0=END, a1=END), do.view(replaced(read_up_to={})), do.poll(), do.set(done=[])),
        (do.assign(B0), do.poll(), do.does("starts b0", "add b0=0", "pause b0")),
        traits=KAFKA_PYTHON, group="",
    ),
    "consumer without a group has not read a topic whose partitions are not known": Story(
        (do.view(replace(replaced(), modes=())), do.poll(), do.set(done=[]), do.assign(A0, B0)),
        do.does("show assigned a0", "starts a0 b0", "add a0=0 b0=0", "pause b0"),
        traits=KAFKA_PYTHON, group="",
    ),
    "positions are watched beside records that are on their way, and nothing is due": Story(
        (*joined(A0), do.poll(carrying=True, a0=3), do.does(), do.is_not_due(), do.watches(A0)),
    ),
}  # fmt: skip

STORIES = EVENTS | ASSIGNMENTS | PLACES | COMMITS | REVOCATIONS | NEW_TOPICS | SUBSCRIPTIONS | WATCHED


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_member(story: Story) -> None:
    story.run(Around)


def test_metadata_is_read_with_and_without_the_zero_byte_of_librdkafka() -> None:
    said = {READ: Note.READ, BUSY: Note.BUSY, GIVEN: Note.GIVEN, "": Note.NONE, OPENED: Note.OPENED, "x": Note.FOREIGN}
    for metadata, note in said.items():
        assert kind_of(metadata) is kind_of(metadata + "\0") is note

"""A member of a group, event by event: what happens, and what the client library is to do then."""

from __future__ import annotations

import pytest

from modeaware.clients.actions import Committed
from modeaware.clients.ends import SHORT_S
from modeaware.clients.joining import UNOWNED_S
from modeaware.clients.member import JOIN_S, Traits
from modeaware.clients.new_topics import UNCOMMITTED_S
from modeaware.notes import BUSY, GIVEN, OPENED, READ, Note, kind_of
from modeaware.topic_view import TopicView
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
    Around,
    do,
    joined,
    plain,
    replaced,
)
from tests.support.stories import Story

STORIES = {
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


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_a_member(story: Story) -> None:
    story.run(Around)


def test_metadata_is_read_with_and_without_the_zero_byte_of_librdkafka() -> None:
    said = {READ: Note.READ, BUSY: Note.BUSY, GIVEN: Note.GIVEN, "": Note.NONE, OPENED: Note.OPENED, "x": Note.FOREIGN}
    for metadata, note in said.items():
        assert kind_of(metadata) is kind_of(metadata + "\0") is note

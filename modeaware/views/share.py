"""A client's share of the views, given back once: when the client is closed, or dropped without that."""

from __future__ import annotations

import _thread
import logging
import os
import weakref

from modeaware.views.source import ViewListener, Views

log = logging.getLogger(__name__)


class Share:
    """Subscribes ``listener`` to ``views`` for as long as ``owner`` lives and has not released it.

    Args:
        owner: the client; neither this object nor ``listener`` may keep it alive.
        views: the handle to give back.
        listener: is told of changes.
    """

    def __init__(self, owner: object, views: Views, listener: ViewListener) -> None:
        self._views = views
        self._listener = listener
        self._finalizer = weakref.finalize(owner, _abandon, views, listener, os.getpid())
        self._finalizer.atexit = False  # whoever shares the views out ends them at exit
        views.subscribe(listener)

    def release(self) -> None:
        """Give the views back; the last ones stay in force. Idempotent."""
        if self._finalizer.detach() is not None:
            _release(self._views, self._listener)


def _release(views: Views, listener: ViewListener) -> None:
    views.unsubscribe(listener)
    views.close()


def _abandon(views: Views, listener: ViewListener, pid: int) -> None:
    # The garbage collector may run this, in any thread and in the middle of anything, so no lock may be taken here:
    # another thread does it. A forked child leaves its parent's alone.
    if os.getpid() != pid:
        return
    try:
        _thread.start_new_thread(_release, (views, listener))
    except RuntimeError as error:
        log.debug("the interpreter is exiting, which ends the views as well: %s", error)

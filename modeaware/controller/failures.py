"""What nobody foresaw in the work on one topic: it is told, and does not end the work on all others."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, RequestRefused

logger = logging.getLogger("modeaware.controller")

MAX_REMEMBERED = 1_000
"""How many are told apart: commands name topics as they like."""


class Failures:
    """Makes of an unexpected exception one that is dealt with: a ClusterError. Not thread-safe.

    Each is logged with its traceback: at ERROR, and at DEBUG while the same (by its type, and where it was raised)
    comes again.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[type[Exception], str]] = {}

    @contextmanager
    def isolated(self, what: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
        """The work of one topic. Not for the mode log, whose failures end the claim.

        Args:
            what: what is done, and on which topic.
            code: of the error that is made of an unexpected one.

        Raises:
            ClusterError: something unexpected was raised within.
            ClusterError, RequestRefused, ControllerFenced: as they were raised within.
        """
        try:
            yield
        except (ClusterError, RequestRefused, ControllerFenced):
            raise
        except Exception as error:  # told, and raised as what is tried again: every standby would fall over it in turn
            self._tell(what, error)
            raise ClusterError(f"{what} failed unexpectedly: {type(error).__name__}: {error}", code=code) from error
        self._told.pop(what, None)

    def _tell(self, what: str, error: Exception) -> None:
        kind = type(error), str(traceback.extract_tb(error.__traceback__)[-1])
        again = self._told.get(what) == kind
        if len(self._told) >= MAX_REMEMBERED:
            self._told.clear()
        self._told[what] = kind
        logger.log(logging.DEBUG if again else logging.ERROR, "%s failed unexpectedly", what, exc_info=error)

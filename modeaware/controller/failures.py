"""Unexpected errors: contained to the topic or the requests at hand, and logged."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from modeaware.callouts import get_logger
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, RequestRefused

logger = get_logger("modeaware.controller")

MAX_REMEMBERED_FAILURES = 1_000


class Failures:
    """Turns an unexpected exception into a ClusterError. Not thread-safe.

    Each exception is logged with its traceback: first at ERROR, then at DEBUG while its type and place stay the same.
    After a success, ERROR comes first again.
    """

    def __init__(self) -> None:
        self._logged: dict[str, tuple[type[Exception], str]] = {}

    @contextmanager
    def isolated(self, what: str, code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR) -> Iterator[None]:
        """Turn an unexpected error into a ClusterError. Not for appends to the mode log: their errors end the claim."""
        try:
            yield
        except (ClusterError, RequestRefused, ControllerFenced):
            raise
        except Exception as error:  # uncontained, it would end one active controller after the other
            kind = type(error), str(traceback.extract_tb(error.__traceback__)[-1])
            level = logging.DEBUG if self._logged.get(what) == kind else logging.ERROR
            if len(self._logged) >= MAX_REMEMBERED_FAILURES:
                self._logged.clear()
            self._logged[what] = kind
            logger.log(level, "%s failed unexpectedly", what, exc_info=error)
            raise ClusterError(f"{what} failed unexpectedly: {type(error).__name__}: {error}", code=code) from error
        self._logged.pop(what, None)

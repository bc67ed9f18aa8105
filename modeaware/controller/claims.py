"""Following the claim on the mode log: whom a standby sends people to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modeaware.errors import RecordError
from modeaware.modelog.reader import LogAbsent, LogRecord, LogRewound, read_to_end
from modeaware.modelog.records import CLAIM_KEY, ClaimRecord


class ClaimWatch:
    """The latest claim, read on from where the last look ended. One thread owns it.

    Args:
        conf: librdkafka configuration (``bootstrap.servers``, security settings).
        topic: the mode log.

    Attributes:
        claim: the latest claim that was seen; None without one.
        absent: whether the last look found no mode log.
        highest_epoch: of all claims that were ever seen, on a log that lost its tail, or was made again, too; 0: none.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._conf = dict(conf)
        self._topic = topic
        self._position = 0
        self.claim: ClaimRecord | None = None
        self.absent = False
        self.highest_epoch = 0

    def look(self, timeout_s: float) -> ClaimRecord | None:
        """Read what has been appended since the last look. A log that does not exist has no claim.

        Raises:
            NotAuthorized, ModeSourceError: it could not be read to its end within ``timeout_s``.
        """
        try:
            self._position = read_to_end(self._conf, self._topic, self._position, self._apply, timeout_s)
        except LogAbsent:
            self._position, self.claim, self.absent = 0, None, True
            return None
        except LogRewound:  # another log of this name: the claim was on the one before
            self._position, self.claim = 0, None
            self._position = read_to_end(self._conf, self._topic, 0, self._apply, timeout_s)
        self.absent = False
        return self.claim

    def _apply(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.key == CLAIM_KEY.encode() and record.value is not None:
                try:
                    self.claim = ClaimRecord.from_json(record.value)
                except RecordError:
                    self.claim = None  # one of a newer version, perhaps: nobody who could be named
                    continue
                self.highest_epoch = max(self.highest_epoch, self.claim.controller_epoch)


def describe_claim(claim: ClaimRecord | None) -> str:
    """Who was active last, for people. Whether it still is only the election tells."""
    if claim is None:
        return "no controller has claimed the mode log yet"
    name = claim.controller_id if not claim.host else f"{claim.controller_id} on host {claim.host}"
    if claim.address is None:
        return f"the last one, {name} (epoch {claim.controller_epoch}), has stopped, or takes no commands"
    return f"the last claim is that of {name} (epoch {claim.controller_epoch}), at {claim.address}"

"""Retrying requests to a controller: when, how long, and the message at the end.

Kafka's own clients retry a retriable error until the deadline of the call. Ours do the same, by three rules. They apply
to each *key* of the request: a topic, for example.

1. *Nothing was done*: a retriable refusal, or a request that was never sent. The request is retried with backoff until
   the deadline. Meanwhile another controller may take over (after the session timeout of the election's consumer,
   10 s), or the leaders of a new topic may be elected (in milliseconds).
2. *Outcome unknown*: the request may have been carried out. It is retried only if the call is repeatable: two runs have
   the effect of one. A shrink to a count is repeatable; an ``immediate_delete`` is not. If no later attempt succeeds,
   ``resolve`` may find the outcome in the key's present state; else the outcome stays unknown.
3. *Unknown topic*: retriable in Kafka, because a broker may not have the new topic yet. But a mistyped name gets the
   same answer. So the request is retried for ``unknown_topic_s`` after the first such answer of an unbroken row; then
   the error is final.
Every other error is final at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from modeaware.callouts import get_logger
from modeaware.clock import SYSTEM_CLOCK, Clock
from modeaware.errors import ClusterError, ControllerFenced, ErrorCode, ModeAwareError, ModeSourceError

logger = get_logger("modeaware.admin")

K = TypeVar("K")
V = TypeVar("V")

NOTICE_AFTER_S = 2.0
"""A call that has been retried for this long logs one line with the reason."""
JITTER = 0.2
"""Waits are longer or shorter by up to this share, as in Kafka (KIP-580), so that clients do not retry all at once."""

_NOT_DONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class Outcome(Enum):
    """The outcome of a request that ends in an error. See the rules at the top of the module."""

    FINAL = "final"
    NOT_DONE = "nothing was done"
    UNKNOWN = "outcome unknown"


def outcome_of(error: ModeAwareError) -> Outcome:
    """Classify an error by its class and code."""
    if isinstance(error, ModeSourceError) and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Outcome.FINAL  # no request was sent, and the reader of the mode log has already retried
    if isinstance(error, ControllerFenced) or error.code is ErrorCode.REQUEST_TIMED_OUT:
        return Outcome.UNKNOWN
    return Outcome.NOT_DONE if error.code in _NOT_DONE else Outcome.FINAL


class Deadline:
    """A moment on the monotonic clock by which some work must be done."""

    def __init__(self, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._at_s = clock.monotonic_s() + timeout_s

    def left_s(self) -> float:
        """Return the remaining seconds, but always above 0, so that the value can be a timeout."""
        return max(self._at_s - self.clock.monotonic_s(), 0.001)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self.clock.monotonic_s() >= self._at_s


@dataclass(frozen=True)
class RetryPolicy:
    """The length of waits, and when to give up. No IO, no clock.

    Attributes:
        backoff_s, backoff_max_s: the first wait and the longest wait; in between, each is twice the one before.
        unknown_topic_s: how long to retry while every answer is "unknown topic".
    """

    backoff_s: float = 0.1
    backoff_max_s: float = 1.0
    unknown_topic_s: float = 5.0

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> RetryPolicy:
        """Take the backoff from librdkafka's settings ``retry.backoff.ms`` and ``retry.backoff.max.ms``."""
        first_s = float(conf.get("retry.backoff.ms", cls.backoff_s * 1000)) / 1000
        longest_s = float(conf.get("retry.backoff.max.ms", cls.backoff_max_s * 1000)) / 1000
        return cls(first_s, max(first_s, longest_s))

    def wait_s(self, attempts: int, jitter: float) -> float:
        """Return the wait in seconds after ``attempts`` attempts (1 or more); ``jitter`` is from -1 to 1."""
        grown_s = self.backoff_s * 2.0 ** min(attempts - 1, 30)
        return min(grown_s, self.backoff_max_s) * (1 + JITTER * jitter)

    def may_retry(
        self, error: ModeAwareError, *, repeatable: bool, wait_s: float, left_s: float, unknown_s: float
    ) -> bool:
        """Decide whether to attempt again after ``error``.

        Args:
            repeatable: whether two runs of the request have the effect of one.
            wait_s: the backoff before the next attempt. If it is not less than ``left_s``, there is no attempt.
            left_s: the time to the deadline.
            unknown_s: for how long every answer has been "unknown topic".
        """
        outcome = outcome_of(error)
        if outcome is Outcome.FINAL or wait_s >= left_s:
            return False
        if outcome is Outcome.UNKNOWN:
            return repeatable
        return error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or unknown_s < self.unknown_topic_s


def outcome_unknown(_: object, last: ModeAwareError) -> ModeAwareError:
    """Return the error of a call with an attempt of unknown outcome; ``last`` is the last attempt's error."""
    if isinstance(last, ClusterError) and outcome_of(last) is Outcome.UNKNOWN:
        return last
    text: str = last.message  # it contains the remedy if the outcome of the last attempt is unknown
    if outcome_of(last) is not Outcome.UNKNOWN:
        text = (
            f"{text}; an earlier attempt got no answer and may have been carried out: describe the topic ('modeaware "
            "topics --describe') before a retry"
        )
    doubt = ClusterError(text, code=ErrorCode.REQUEST_TIMED_OUT, topic=last.topic)
    doubt.__cause__ = last
    return doubt


class Retrying:
    """The attempts of one call. For one thread.

    Args:
        deadline: no attempt begins after this moment.
        sleep: waits the given number of seconds; returns true if the caller has given up.
        jitter: returns a number from -1 to 1.
    """

    def __init__(
        self,
        deadline: Deadline,
        policy: RetryPolicy = RetryPolicy(),
        *,
        sleep: Callable[[float], object] = time.sleep,
        jitter: Callable[[], float] = lambda: random.uniform(-1, 1),
    ) -> None:
        self._deadline = deadline
        self._policy = policy
        self._sleep = sleep
        self._jitter = jitter
        self._began_s = self._now_s()
        self._attempts = 0
        self._noticed = False

    def each(
        self,
        keys: Collection[K],
        attempt: Callable[[Sequence[K]], Mapping[K, V | ModeAwareError]],
        *,
        repeatable: bool,
        resolve: Callable[[K, ModeAwareError], V | ModeAwareError] = outcome_unknown,
    ) -> dict[K, V | ModeAwareError]:
        """Call ``attempt`` with all keys, and again with those that may be retried. Return each key's last answer.

        Args:
            keys: topics, for example. A key to which ``attempt`` gives no answer keeps its last answer; a key without
                any answer is left out of the result.
            resolve: called with a key and its last error, for each key whose outcome is unknown and that did not
                succeed later.
        """
        answers: dict[K, V | ModeAwareError] = {}
        unknown_outcomes: set[K] = set()
        unknown_since: dict[K, float] = {}
        pending = list(keys)
        while pending:
            answers |= attempt(pending)
            self._attempts += 1
            now_s, left_s = self._now_s(), self._deadline.left_s()
            wait_s = self._policy.wait_s(self._attempts, self._jitter())
            again = []
            for key in pending:
                error = answers.get(key)
                if not isinstance(error, ModeAwareError):
                    continue
                if outcome_of(error) is Outcome.UNKNOWN:
                    unknown_outcomes.add(key)
                since_s = unknown_since.pop(key, now_s)
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_since[key] = since_s
                if self._policy.may_retry(
                    error, repeatable=repeatable, wait_s=wait_s, left_s=left_s, unknown_s=now_s - since_s
                ):
                    again.append(key)
            pending = again
            if pending:
                self._notice(answers[pending[0]], left_s)
                if self._sleep(wait_s):
                    break
        for key, answer in answers.items():
            if isinstance(answer, ModeAwareError):
                last = self._with_effort(answer)
                answers[key] = resolve(key, last) if key in unknown_outcomes else last
        return answers

    def call(self, attempt: Callable[[], V], *, repeatable: bool) -> V:
        """Call ``attempt``, a request without keys, and retry it by the same rules.

        Raises:
            ModeAwareError: the last attempt's error.
        """

        def one(_: Sequence[None]) -> dict[None, V | ModeAwareError]:
            try:
                return {None: attempt()}
            except ModeAwareError as error:
                return {None: error}

        answer = self.each([None], one, repeatable=repeatable, resolve=lambda _, last: last)[None]
        if isinstance(answer, ModeAwareError):
            raise answer
        return answer

    def _with_effort(self, last: ModeAwareError) -> ModeAwareError:
        """Return the error. If a further attempt might have helped, add the number of attempts to it."""
        if self._attempts == 1 or outcome_of(last) is Outcome.FINAL:
            return last
        text = f"{last.message} (gave up after {self._now_s() - self._began_s:.1f} s and {self._attempts} attempts)"
        error = type(last)(text, code=last.code, topic=last.topic, partition=last.partition)
        error.__cause__ = last
        return error

    def _notice(self, error: object, left_s: float) -> None:
        """Log a call that is retried for long; not for an unknown topic, because that soon ends in an error."""
        unknown = isinstance(error, ModeAwareError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not unknown and not self._noticed and self._now_s() - self._began_s >= NOTICE_AFTER_S:
            self._noticed = True
            logger.warning("%s; retrying for up to %.0f s more", error, left_s)

    def _now_s(self) -> float:
        return self._deadline.clock.monotonic_s()

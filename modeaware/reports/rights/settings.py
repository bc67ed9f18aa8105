"""What is needed and no right: a mode log that can be one, topics that are there, session timeouts, a controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modeaware.errors import ClusterError, ControllerUnavailable, ModeSourceError
from modeaware.librdkafka import KafkaError
from modeaware.modelog.reader import read_mode_log
from modeaware.modelog.topic import unfit, weakness
from modeaware.reports.rights.asking import Asked
from modeaware.reports.rights.findings import Setting, State, Verdict
from modeaware.reports.rights.needs import Role, Scope
from modeaware.wire.brokers.client import Brokers
from modeaware.wire.brokers.messages import DescribeConfigsRequest
from modeaware.wire.client import is_running

_READ_TIMEOUT_S = 10.0
_TOPIC_RESOURCE, _BROKER_RESOURCE = 2, 4
_SESSION = "modeaware.controller.session.timeout.ms"
_MIN_IN_SYNC = "min.insync.replicas"
_LEAST, _MOST = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


@dataclass(frozen=True)
class Settings:
    """Looks at them; each is one line of the check.

    Args:
        conf: librdkafka configuration.
        readable: whether the user may read the mode log.
    """

    brokers: Brokers
    scope: Scope
    asked: Asked
    conf: Mapping[str, Any]
    readable: bool

    def found(self) -> Iterator[Setting]:
        """
        Raises:
            ClusterError: no broker answers.
        """
        scope = self.scope
        if scope.reads_log:
            yield Setting(f"the mode log {scope.mode_log}", self._log())
        for name in dict.fromkeys(scope.topics):
            if self.asked.topics[name].shown:
                yield Setting(f"the topic {name}", self._topic(name))
        if scope.role is Role.CONTROLLER:
            yield Setting(f"{_SESSION}={scope.session_timeout_ms}", self._session())
            if str(self.conf.get("security.protocol", "")).upper() == "SSL":
                detail = "none with security.protocol=SSL, where it could not show the brokers who asks"
                yield Setting("the controller's endpoint", Verdict(State.UNKNOWN, detail))
        if scope.role is Role.OPERATOR and self.readable and self.asked.topics[scope.mode_log].partitions:
            yield Setting("the controller", self._controller())

    def _log(self) -> Verdict:
        """Whether there is a topic that can be the mode log, or one can be made."""
        name, seen = self.scope.mode_log, self.asked.topics[self.scope.mode_log]
        if not seen.shown:
            return Verdict(State.UNKNOWN, "this user may not see it")
        if seen.partitions is None:
            if self.asked.not_creatable is not None:
                return Verdict(State.FAIL, f"it cannot be made: {self.asked.not_creatable}")
            return Verdict(State.UNKNOWN, "not there yet: the first controller makes it, until then all is ReadWrite")
        configs = self._config(_TOPIC_RESOURCE, name, "cleanup.policy", _MIN_IN_SYNC)
        policy = configs.get("cleanup.policy")
        reason = unfit(name, seen.partitions, {"cleanup.policy": "compact" if policy is None else policy})
        if reason is not None:
            return Verdict(State.FAIL, reason)
        detail = "1 partition" if policy is None else "1 partition, compacted"
        if self.scope.role is Role.CONTROLLER and seen.replicas is not None:
            weak = weakness(seen.replicas, configs.get(_MIN_IN_SYNC), self.asked.brokers)
            detail += f", but {weak}" if weak is not None else ""
        return Verdict(State.PASS, detail)

    def _topic(self, name: str) -> Verdict:
        partitions = self.asked.topics[name].partitions
        if partitions is None:
            return Verdict(State.FAIL, "there is no such topic")
        detail = f"{partitions} partitions"
        if self.scope.role is not Role.CLIENT:
            policy = self._config(_TOPIC_RESOURCE, name, "cleanup.policy").get("cleanup.policy", "")
            detail += ", compacted: shrink it with --evacuate" if "compact" in policy else ""
        return Verdict(State.PASS, detail)

    def _session(self) -> Verdict:
        """Whether the brokers take members of the election with this session timeout."""
        told = self._config(_BROKER_RESOURCE, str(self.asked.node), _LEAST, _MOST)
        if _LEAST not in told or _MOST not in told:
            return Verdict(
                State.UNKNOWN, f"must lie within the brokers' {_LEAST} and its maximum, not told to this user"
            )
        fits = int(told[_LEAST]) <= self.scope.session_timeout_ms <= int(told[_MOST])
        return Verdict(State.PASS if fits else State.FAIL, f"the brokers take {told[_LEAST]} to {told[_MOST]}")

    def _controller(self) -> Verdict:
        """Whether one answers."""
        try:
            claim = read_mode_log(self.conf, self.scope.mode_log, _READ_TIMEOUT_S).claim
            running = is_running(self.conf, claim)
        except (ModeSourceError, ControllerUnavailable) as error:
            return Verdict(State.UNKNOWN, str(error))
        if running and claim is not None:
            return Verdict(State.PASS, f"answers at {claim.address}")
        return Verdict(State.UNKNOWN, "none answers: commands do its work then, and need the controllers' rights")

    def _config(self, kind: int, name: str, *keys: str) -> dict[str, str]:
        """Configs by name; empty where the user may not see them."""
        resource = DescribeConfigsRequest.DescribeConfigsResource
        wanted = resource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        request = DescribeConfigsRequest(resources=[wanted])
        try:
            node = self.asked.node if kind == _BROKER_RESOURCE else None
            (result,) = self.brokers.ask(request, node).results
        except ClusterError:  # who asks learns less, and is told so
            return {}
        if result.error_code != KafkaError.NO_ERROR:
            return {}
        return {config.name: str(config.value) for config in result.configs}

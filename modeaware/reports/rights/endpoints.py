"""Whether a client's bootstrap servers tell the modes: then it needs no right on the mode log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modeaware.reports.rights.findings import Setting, State, Verdict
from modeaware.reports.rights.needs import Role, Scope
from modeaware.wire.probe import Round

_STEP_S = 0.2


def over_the_wire(scope: Scope, conf: Mapping[str, Any]) -> tuple[Scope, Setting | None]:
    """The scope with the source that a client finds with ``auto``; how it fares with ``wire``, None where that is not
    its source.

    Args:
        conf: the librdkafka configuration of the client.
    """
    if scope.role is not Role.CLIENT or scope.mode_source == "log":
        return scope, None
    verdict = _asked(conf)
    if scope.mode_source == "auto" and verdict.state is not State.PASS:
        return scope, None
    return replace(scope, mode_source="wire"), Setting("the modes over the wire", verdict)


def _asked(conf: Mapping[str, Any]) -> Verdict:
    asking = Round(conf)
    try:
        while not asking.done and not any(offer.modes for offer in asking.offers.values()):
            asking.step(_STEP_S)
    finally:
        asking.close()
    telling = [server for server, offer in asking.offers.items() if offer.modes]
    if telling:
        return Verdict(State.PASS, f"told by {telling[0]}")
    failure = asking.failure()
    if failure is not None:
        return Verdict(State.UNKNOWN, str(failure))
    return Verdict(
        State.FAIL,
        "no bootstrap server tells them: add the address of the controller's endpoint to bootstrap.servers, or leave "
        "modeaware.mode.source=wire out",
    )

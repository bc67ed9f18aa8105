"""Settings for clients that know nothing of us, from the process's environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modeaware.config import CLIENT_SETTING_NAMES

NOT_TEXT = frozenset({"modeaware.resize_cb"})
"""A function: for ``install()`` alone."""


def variable_of(name: str) -> str:
    """The environment variable of a setting: ``MODEAWARE_MODE_LOG_TOPIC`` for ``modeaware.mode.log.topic``."""
    return name.upper().replace(".", "_")


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The client settings that ``environ`` gives. Other ``MODEAWARE_`` variables are no clients'."""
    found = {name: environ.get(variable_of(name)) for name in CLIENT_SETTING_NAMES if name not in NOT_TEXT}
    return {name: value for name, value in found.items() if value is not None}


def dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """``settings`` with names as Python has them (``modeaware_mode_log_topic``) in Kafka's form; others as they are."""
    known = {variable_of(name).lower(): name for name in CLIENT_SETTING_NAMES}
    return {known.get(name, name): value for name, value in settings.items()}

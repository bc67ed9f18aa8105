"""What the repository ships beside its packages agrees with the code: settings, deployments, the dashboard."""

from __future__ import annotations

import re
from pathlib import Path

from modeaware.adoption.installing import NOT_TEXT
from modeaware.config import (
    CLIENT_SETTINGS,
    CONTROLLER_CONFIGS,
    ClientConfig,
    ControllerConfig,
    parse_controller_config,
    read_properties,
    split_client_config,
)
from release.settings_file import SETTINGS_FILE, settings_file

# The settings file


def test_the_settings_file_is_what_the_code_makes() -> None:
    assert SETTINGS_FILE.read_text(encoding="utf-8") == settings_file(), "python -m release.settings_file"


def test_the_settings_file_has_every_setting_with_its_default(tmp_path: Path) -> None:
    text = re.sub(r"^#(?=[a-z._]+=.)", "", SETTINGS_FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    path = tmp_path / "all.properties"
    path.write_text(text, encoding="utf-8")
    settings = read_properties(path)
    names = set(CLIENT_SETTINGS) | set(CONTROLLER_CONFIGS)
    assert names - set(settings) == NOT_TEXT | {"modeaware.under.replicated.creation"}, "those without a text"
    controller = {name: settings[name] for name in CONTROLLER_CONFIGS if name in settings}
    assert parse_controller_config(controller) == ControllerConfig()
    clients = {name: settings[name] for name in CLIENT_SETTINGS if name in settings}
    assert split_client_config(clients) == (ClientConfig(), {})

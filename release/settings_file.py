"""``python -m release.settings_file`` writes ``deploy/modeaware.properties``: every setting, with its default.

The names and the defaults are those of the code, and the texts those of the docstrings of
:class:`~modeaware.config.ClientConfig` and :class:`~modeaware.config.ControllerConfig`. A unit test compares the file
with what this module makes.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from modeaware.adoption.installing import NOT_TEXT
from modeaware.config import CLIENT_SETTINGS, CONTROLLER_CONFIGS, ClientConfig, ControllerConfig

ROOT = Path(__file__).parents[1]
SETTINGS_FILE = ROOT / "deploy" / "modeaware.properties"
WIDTH = 100
HEAD = """\
# Every setting of modeaware with its default, for `--command-config FILE` of the controller and of all commands.
# Take the `#` from the front of a line to change a setting. The file holds a password: let its user alone read it.
# Made by `python -m release.settings_file`. docs/settings.md says which value counts where several are given.

# The brokers, and how to log in: librdkafka's settings, of which it has many more.
#bootstrap.servers=broker-1:9092,broker-2:9092
#security.protocol=SASL_SSL
#sasl.mechanism=SCRAM-SHA-512
#sasl.username=modeaware
#sasl.password=
#ssl.ca.location=/etc/ssl/certs/ca-certificates.crt
"""
CONTROLLERS = "Controllers. A command that runs no controller ignores them."
CLIENTS = "Clients, and the clients inside commands and controllers."
SHARED = "modeaware.mode.log.topic"


def settings_file() -> str:
    """Return the text of the file."""
    own = {name: field for name, (field, _) in CONTROLLER_CONFIGS.items() if name != SHARED}
    clients = {name: field for name, (field, _) in CLIENT_SETTINGS.items() if name not in NOT_TEXT}
    parts = [HEAD, *section(CONTROLLERS, ControllerConfig, own), *section(CLIENTS, ClientConfig, clients)]
    return "\n".join(parts)


def section(title: str, config: type[ControllerConfig | ClientConfig], settings: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of one class's settings (name -> field)."""
    texts = attribute_texts(config)
    defaults = {field.name: field.default for field in fields(config)}
    yield f"\n# {title}\n"
    for name, field in settings.items():
        yield textwrap.fill(meaning(texts[field], name), WIDTH, initial_indent="# ", subsequent_indent="# ")
        yield f"#{name}={value_text(defaults[field])}\n"


def attribute_texts(config: type) -> dict[str, str]:
    """Return the texts below ``Attributes:`` in the docstring of a class, each on one line, by the attribute's name."""
    _, _, block = (inspect.getdoc(config) or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", block, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def meaning(text: str, name: str) -> str:
    """Return what follows the setting's name and its default, without the markup of docstrings."""
    rest = re.sub(rf"^``{re.escape(name)}``(?: \(``.*?``\)| \(\w+\))?[,:]? ?", "", text)
    plain = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", rest).replace("``", "")
    return f"{plain[:1].upper()}{plain[1:]}"


def value_text(value: object) -> str:
    """Return a default as a properties file has it; nothing where there is none."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    SETTINGS_FILE.write_text(settings_file(), encoding="utf-8")

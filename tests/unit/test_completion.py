"""``modeaware completion``: the scripts, the names that they ask for, and what bash makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from modeaware import cli
from modeaware.cli import completion
from modeaware.cli.completion import SHELLS
from modeaware.cluster.group_listing import ListedGroup, Listing


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completion_script_has_every_command_and_asks_for_names(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [entry.name for entry in cli.COMMANDS if entry.name not in script] == []
    assert "modeaware completion topics " in script
    assert "modeaware completion groups " in script
    assert "HOST:PORT" not in script, "zsh reads two values from a colon"


class NamingCluster:
    """Has the names of a cluster; keeps the configuration that it was made with."""

    made_with: ClassVar[list[dict[str, Any]]] = []
    brokers = "those of the cluster"

    def __init__(self, conf: dict[str, Any], timeout_s: float) -> None:
        self.made_with.append(dict(conf))
        self.admin = self

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"orders": None, "__partition_modes": None, "clicks": None})

    def close(self) -> None:
        pass


def test_names_are_completed_from_the_brokers_of_the_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "Cluster", NamingCluster)
    monkeypatch.setattr(NamingCluster, "made_with", [])
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\n")
    line = ["modeaware", "shrink", "--command-config", str(file), "--bootstrap-server", "kafka:9092", "or"]
    assert cli.main(["completion", "topics", *line]) == 0
    assert capsys.readouterr().out == "clicks\norders\n"
    assert NamingCluster.made_with == [{"bootstrap.servers": "kafka:9092", "client.id": "me", "log_level": 0}]
    listed = {NamingCluster.brokers: Listing({"billing": ListedGroup("billing", "classic", "Stable", "consumer", 1)})}
    monkeypatch.setattr(completion, "list_groups", listed.__getitem__)
    monkeypatch.setenv("MODEAWARE_BOOTSTRAP_SERVERS", "of-environment:1")
    assert cli.main(["completion", "groups"]) == 0
    assert capsys.readouterr().out == "billing\n"


def test_without_brokers_no_name_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "topics", "modeaware", "shrink", "or"]) == 1
    assert capsys.readouterr().out == ""


IN_BASH = """\
modeaware() { [ "$2" = topics ] && printf 'orders\\nclicks\\n' || echo billing; }
source "$1"
exec 2>&1
COMP_LINE=$2 COMP_WORDS=($2)
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_modeaware modeaware "${COMP_WORDS[COMP_CWORD]}"
echo "${COMPREPLY[*]}"
"""


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("modeaware shr", "shrink"),
        ("modeaware shrink --par", "--partitions"),
        ("modeaware shrink or", "orders"),
        ("modeaware shrink --bootstrap-server kafka:9092 ", "orders clicks"),
        ("modeaware topics --describe --topic cl", "clicks"),
        ("modeaware groups require ", "billing"),
    ],
)
def test_bash_completes_what_is_typed(line: str, completed: str, tmp_path: Path) -> None:
    path = tmp_path / "completion.bash"
    path.write_text(completion.script("bash"), encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", IN_BASH, "bash", str(path), line], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (f"{completed}\n", "")

"""``modeaware completion``: scripts by which a shell completes commands, options, and names of topics and groups."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing

import shtab

from modeaware.cli import Command, whole_parser
from modeaware.cli.session import add_connection_options, connection, kafka_errors
from modeaware.cluster.cluster import Cluster
from modeaware.cluster.group_listing import list_groups

SHELLS = ("bash", "zsh", "fish")
KINDS = ("topics", "groups")
TIMEOUT_S = 3.0
"""How long brokers may take to list names. Short, because the user waits after the Tab key."""
_KIND_OF = {"topic": "topics", "topics": "topics", "group": "groups"}
_INTERNAL = "__"


class Completion(Command):
    """Prints a script; or the names of topics or groups, which the scripts request."""

    actions = (*SHELLS, *KINDS)
    epilog = """\
Load the script when a shell starts:
  bash   eval "$(modeaware completion bash)"                                  in ~/.bashrc
  zsh    modeaware completion zsh > DIRECTORY/_modeaware                      in a directory of $fpath
  fish   modeaware completion fish > ~/.config/fish/completions/modeaware.fish
Names of topics and groups are completed where the brokers are known: by --bootstrap-server or --command-config in the
line, or by MODEAWARE_BOOTSTRAP_SERVERS.
"""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        words = "|".join(self.actions)
        parser.add_argument("what", choices=self.actions, metavar=words, help="the shell, or the kind of names")
        parser.add_argument("line", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        print(script(args.what) if args.what in SHELLS else "\n".join(names(args.what, args.line)))
        return 0


def script(shell: str) -> str:
    """Return the script for one of :data:`SHELLS`."""
    parser = whole_parser()
    for action in _actions(parser):
        if isinstance(action.metavar, str):
            action.metavar = action.metavar.replace(":", " ")  # in zsh, HOST:PORT would be two values
        kind = _KIND_OF.get(action.dest)
        if kind is not None and action.nargs != 0:
            action.complete = _names_of(kind)  # type: ignore[attr-defined] # read by shtab
        elif "FILE" in str(action.metavar):
            action.complete = shtab.FILE  # type: ignore[attr-defined] # read by shtab
    return str(shtab.complete(parser, shell))


def names(kind: str, line: Sequence[str]) -> list[str]:
    """Return the names of topics or groups. A command line's options, or the environment, name the cluster.

    Raises:
        ConfigError, ClusterError: no broker is named, or none answers within :data:`TIMEOUT_S`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_connection_options(parser)
    conf = connection(parser.parse_known_args(line)[0]).conf
    with kafka_errors(f"list {kind}"), closing(Cluster(conf, timeout_s=TIMEOUT_S)) as cluster:
        if kind == "topics":
            listed = list(cluster.admin.list_topics(timeout=TIMEOUT_S).topics)
        else:
            listed = list(list_groups(cluster.brokers).groups)
    return sorted(name for name in listed if not name.startswith(_INTERNAL))


def _names_of(kind: str) -> dict[str, object]:
    """Return each shell's code that requests the names. The code passes on the line, for its connection options."""
    function, ask = f"_modeaware_{kind}", f"modeaware completion {kind}"
    # COMP_LINE, because bash splits its list of words at colons.
    bash = f'{function}() {{ compgen -W "$({ask} $COMP_LINE 2>/dev/null)" -- "$1"; }}'
    zsh = f'{function}() {{ compadd -- ${{(f)"$({ask} $words 2>/dev/null)"}} }}'
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({ask} (commandline -opc) 2>/dev/null)",
        "preamble": {"bash": bash, "zsh": zsh},
    }


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of all parsers below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)

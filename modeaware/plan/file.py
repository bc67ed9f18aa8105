"""The files that declare topics: their reader and their writer.

A key that is unknown or occurs twice is an error, with its line. docs/apply.md documents the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import Any, Concatenate, ParamSpec, TypeVar

import yaml

from modeaware.durations import parse_duration_ms
from modeaware.errors import ConfigError
from modeaware.lifecycle.commands import DeletePartitionsCommand
from modeaware.lifecycle.objections import is_topic_name
from modeaware.modelog.records import DRAINED, MAX_PARTITIONS, RETENTION, Reclaims
from modeaware.printable import printable, printable_lines
from modeaware.spelling import nearest

_P = ParamSpec("_P")
_T = TypeVar("_T")
VERSION = 1
_FILE = ("version", "topics")
_TOPIC = ("partitions", "replication_factor", "configs", "shrink", "replace", "keep_name", "evacuate")
_SHRINK = ("policy", "delay", "accept_state_loss")
_OTHERS_WORDS = {
    "replicas": "replication_factor",
    "replication": "replication_factor",
    "config": "configs",
    "settings": "configs",
    "delay_ms": "delay",
}
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_TAG = "tag:yaml.org,2002:"
_STR, _INT, _BOOL, _FLOAT, _NULL = (f"{_TAG}{kind}" for kind in ("str", "int", "bool", "float", "null"))
_MOST_REPLICAS = 32_767
_COMMENT_WIDTH = 118
_LONGEST_SHOWN = 250
"""The longest part of a text that a message shows. YAML aliases may repeat a long text in very many messages."""
_MOST_CONFIGS = 250
"""The most configs of a topic (brokers have some 40). This limits comparisons, even if YAML aliases repeat configs."""


POLICIES = (RETENTION, DRAINED)


@dataclass(frozen=True)
class ShrinkRules(Reclaims):
    """The rules for shrinking a topic, named like the options of ``modeaware shrink``.

    Attributes:
        delay_ms: under the policy ``drained``, the least time from the beginning of the shrink to the deletion of
            records. (Every group must also have consumed the records.) None under the policy ``retention``: only the
            topic's own retention deletes the records.
        accept_state_loss: groups that keep state per partition and may lose the state of keys that move.
    """

    delay_ms: int | None = None
    accept_state_loss: tuple[str, ...] = ()

    def command(self, topic: str, count: int) -> DeletePartitionsCommand:
        """Return the shrink of ``topic`` to ``count`` partitions."""
        return DeletePartitionsCommand(topic, count, self.delay_ms, False, self.accept_state_loss)


@dataclass(frozen=True)
class DesiredTopic:
    """One topic as a file declares it.

    Attributes:
        partitions: the number of writable partitions.
        replication_factor: None if the file has none: an existing topic keeps its own, a new one gets the default.
        configs: the configs in the file. The value None means that the cluster's default applies.
        shrink: the rules for a shrink. None if the file has none, so that the defaults apply.
        where: the file and line.
        replace: the new topic that replaces this one if the number of partitions differs. If None, partitions are
            retired or added instead.
        keep_name: whether the topic keeps its name if the number of partitions differs. Then an interim topic replaces
            this topic, and a topic of the old name replaces the interim topic.
        evacuate: whether a Spark job copies the latest values to the new topic, because this one is compacted.
    """

    name: str
    partitions: int
    replication_factor: int | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)
    shrink: ShrinkRules | None = None
    where: str = ""
    replace: str | None = None
    evacuate: bool = False
    keep_name: bool = False

    @property
    def shrink_rules(self) -> ShrinkRules:
        return self.shrink if self.shrink is not None else ShrinkRules()


def topics_text(
    batches: Mapping[str, Iterable[DesiredTopic]], *, head: str | None, why_renamed: Mapping[str, str]
) -> str:
    """Return a file that declares these topics, each batch below its title. Names are quoted: a name may be a number.

    Args:
        head: a comment on the whole file.
        why_renamed: topic -> why it does not keep its name; written as a comment.
    """
    lines = [f"# {line}" for line in wrap(printable(head or ""), _COMMENT_WIDTH)]
    lines += [f"version: {VERSION}", "topics:" if batches else "topics: {}"]
    for nth, (title, topics) in enumerate(batches.items(), 1):
        lines.append(f"  # batch {nth}: {title}")
        for topic in topics:
            why = f"  # {printable(why_renamed[topic.name])}" if topic.name in why_renamed else ""
            lines += [f'  "{topic.name}":', f"    partitions: {topic.partitions}"]
            lines += [f'    replace: "{topic.replace}"{why}'] if topic.replace is not None else []
            lines += ["    keep_name: true"] if topic.keep_name else []
    return "\n".join([*lines, ""])


def read_files(paths: Iterable[Path]) -> list[DesiredTopic]:
    """Return the topics of these files, in the order of the files.

    Raises:
        ConfigError: a file cannot be read, or does not have the format of docs/apply.md; or two files name one topic.
            The message has a line for each mistake, with its file and line.
    """
    declared: dict[str, DesiredTopic] = {}
    mistakes: list[str] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            mistakes.append(f"cannot read {path}: {error}")
            continue
        topics, wrong = read_topics(text, str(path))
        mistakes += wrong
        for topic in topics:
            if topic.name in declared:
                first = declared[topic.name].where
                mistakes.append(f"{topic.where}: topic {topic.name!r} is already declared in {first}")
            declared.setdefault(topic.name, topic)
    mistakes += _shared_new_topics(declared)
    if mistakes:
        raise ConfigError(printable_lines(mistakes))
    return list(declared.values())


def _shared_new_topics(topics: Mapping[str, DesiredTopic]) -> Iterator[str]:
    """Yield the mistakes in the names of new topics: names that several declarations share."""
    users: dict[str, DesiredTopic] = {}
    for topic in topics.values():
        if (name := topic.replace) is None:
            continue
        if name in topics:
            yield f"{topic.where}: replace: {name!r} is declared in {topics[name].where} as a topic of its own"
        if name in users:
            yield f"{topic.where}: replace: {name!r} already replaces {users[name].name!r}"
        users[name] = topic


def read_topics(text: str, name: str) -> tuple[list[DesiredTopic], list[str]]:
    """Return the topics of one file's text, and the file's mistakes, which begin with the file's ``name``."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)  # unlike loaded values, nodes have lines and duplicate keys
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        return [], [f"{name}{line}: invalid YAML: {error.problem or error.context}"]
    except (yaml.YAMLError, RecursionError) as error:
        return [], [f"{name}: invalid YAML: {' '.join(str(error).split())}"]
    reader = _Reader(name)
    return reader.topics(root), reader.mistakes


def _once(
    method: Callable[Concatenate[_Reader, yaml.Node, _P], _T],
) -> Callable[Concatenate[_Reader, yaml.Node, _P], _T]:
    """Make a method of the reader read a node once for the same positional arguments. Keyword arguments do not count:
    use them only for the text of mistakes, which may differ between the YAML aliases of a node."""

    @wraps(method)
    def once(self: _Reader, node: yaml.Node, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = method.__name__, id(node), args
        if key not in self.read:
            self.read[key] = method(self, node, *args, **kwargs)
        made: _T = self.read[key]
        return made

    return once


class _Reader:
    """Reads one file. Reading continues after a mistake, so that all mistakes are reported at once.

    A part of the file is read once, even if many YAML aliases point to it: a small file may have very many aliases.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.read: dict[object, Any] = {}  # of _once
        self.mistakes: list[str] = []

    def topics(self, root: yaml.Node | None) -> list[DesiredTopic]:
        if root is None:
            self.mistakes.append(f"{self._name}: the file is empty; 'version: {VERSION}' and 'topics' are needed")
            return []
        parts = self._mapping(root, "the file", _FILE)
        version = parts.get("version")
        if version is None or self._text(version) != str(VERSION):
            self._wrong(version or root, f"'version: {VERSION}' is needed, the version of the file format")
            return []
        if "topics" not in parts:
            self._wrong(root, "'topics' is needed")
            return []
        named, lines = self._keyed(parts["topics"], (), what="topics")
        topics = [self._topic(name, node, lines[name]) for name, node in named.items()]
        return [topic for topic in topics if topic is not None]

    def _topic(self, name: str, node: yaml.Node, line: int) -> DesiredTopic | None:
        where = f"{self._name}, line {line}"
        if not is_topic_name(name):
            self.mistakes.append(f"{where}: {_quoted(name)} is not a valid topic name")
        parts = self._mapping(node, f"topic {_quoted(name)}", _TOPIC)
        if "partitions" not in parts:
            if isinstance(node, yaml.MappingNode):
                self.mistakes.append(f"{where}: topic {_quoted(name)}: 'partitions' is needed")
            return None
        partitions = self._integer(parts["partitions"], "partitions", 1, MAX_PARTITIONS)
        factor = parts.get("replication_factor")
        replicas = None if factor is None else self._integer(factor, "replication_factor", 1, _MOST_REPLICAS)
        configs = self._configs(parts["configs"]) if "configs" in parts else {}
        shrink = self._shrink(parts["shrink"]) if "shrink" in parts else None
        replace = self._new_topic(name, parts["replace"]) if "replace" in parts else None
        evacuate = self._boolean(parts["evacuate"], "evacuate") if "evacuate" in parts else False
        keep_name = self._boolean(parts["keep_name"], "keep_name") if "keep_name" in parts else False
        if keep_name and ("replace" in parts or evacuate):
            self._wrong(parts["keep_name"], "keep_name: a topic that keeps its name has neither replace nor evacuate")
        if evacuate and "replace" not in parts:
            self._wrong(
                parts["evacuate"], "evacuate works only with replace: a compacted topic is replaced, never shrunk"
            )
        return DesiredTopic(name, partitions, replicas, configs, shrink, where, replace, evacuate, keep_name)

    def _new_topic(self, topic: str, node: yaml.Node) -> str | None:
        """Return the name of the new topic, or None if it is not valid."""
        name = self._valid_name(node)
        if name == topic:
            self._wrong(node, f"replace: the name of a new topic is needed, not {_quoted(name)}")
        return name

    @_once
    def _valid_name(self, node: yaml.Node) -> str | None:
        name = self._text(node)
        if is_topic_name(name):
            return name
        self._wrong(node, f"replace: the name of a new topic is needed, not {_quoted(name)}")
        return None

    @_once
    def _configs(self, node: yaml.Node) -> dict[str, str | None]:
        configs = self._mapping(node, "configs")
        if len(configs) > _MOST_CONFIGS:
            self._wrong(node, f"configs: {len(configs)} entries; a topic may have at most {_MOST_CONFIGS}")
            return {}
        return {name: self._config(value, name) for name, value in configs.items()}

    @_once
    def _config(self, node: yaml.Node, name: str) -> str | None:
        """Return a config's value for the brokers: the text in the file, because YAML would reformat numbers."""
        text = self._text(node)
        if node.tag == _NULL:
            return None
        if node.tag == _BOOL and text.lower() in ("true", "false"):
            return text.lower()
        if node.tag in (_STR, _FLOAT) or (node.tag == _INT and _INTEGER.fullmatch(text)):
            return text
        self._wrong(
            node,
            f"config {name[:_LONGEST_SHOWN]}: a text, a decimal number, true, false or null is needed; put any other "
            "value in quotes",
        )
        return ""

    @_once
    def _shrink(self, node: yaml.Node) -> ShrinkRules:
        parts = self._mapping(node, "shrink", _SHRINK)
        policy = self._policy(parts["policy"]) if "policy" in parts else RETENTION
        if "delay" in parts and policy == RETENTION:
            self._wrong(parts["delay"], f"delay works only with policy: {DRAINED}")
        delay_ms = None if policy == RETENTION else 0
        if "delay" in parts:
            delay_ms = self._duration_ms(parts["delay"], "delay")
        groups = self._groups(parts["accept_state_loss"]) if "accept_state_loss" in parts else ()
        return ShrinkRules(delay_ms, groups)

    @_once
    def _policy(self, node: yaml.Node) -> str:
        policy = self._text(node)
        if policy not in POLICIES:
            hint = (
                " (not in a file: modeaware shrink --immediate-delete deletes at once)" if "immediate" in policy else ""
            )
            self._wrong(node, f"policy: one of {', '.join(POLICIES)} is needed, not {_quoted(policy)}{hint}")
        return policy

    @_once
    def _groups(self, node: yaml.Node) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(node, "accept_state_loss: a list of groups is needed")
            return ()
        for item in node.value:
            if item.tag != _STR or not item.value:
                self._wrong(item, "accept_state_loss: a group's name is needed, in quotes where it looks like a number")
        return tuple(dict.fromkeys(self._text(item) for item in node.value))

    def _mapping(self, node: yaml.Node, what: str, known: tuple[str, ...] = ()) -> Mapping[str, yaml.Node]:
        """Return the values by their keys. If ``known`` is empty, any key is allowed."""
        return self._keyed(node, known, what=what)[0]

    @_once
    def _keyed(
        self, node: yaml.Node, known: tuple[str, ...], *, what: str
    ) -> tuple[dict[str, yaml.Node], dict[str, int]]:
        """Return the values by their keys, and the lines of the keys."""
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{what}: keys with values are needed")
            return {}, {}
        values: dict[str, yaml.Node] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = self._text(key)
            if not isinstance(key, yaml.ScalarNode) or key.tag == _NULL:
                self._wrong(key, f"{what}: a key has to be a text")
            elif name in values:
                self._wrong(key, f"{what}: {_quoted(name)} is already declared in line {lines[name]}")
            elif known and name not in known:
                self._wrong(key, f"{what}: unknown key {_quoted(name)}: {_hint(name, known)}")
            else:
                values[name], lines[name] = value, key.start_mark.line + 1
        return values, lines

    @_once
    def _integer(self, node: yaml.Node, what: str, least: int, most: int) -> int:
        text = self._text(node)
        if node.tag != _INT or not _INTEGER.fullmatch(text) or len(text) > 19 or not least <= int(text) <= most:
            self._wrong(node, f"{what}: a whole number from {least} to {most} is needed, not {_quoted(text)}")
            return least
        return int(text)

    @_once
    def _duration_ms(self, node: yaml.Node, what: str) -> int:
        try:
            return parse_duration_ms(self._text(node))
        except ValueError as error:
            self._wrong(node, f"{what}: {error}")
            return 0

    @_once
    def _boolean(self, node: yaml.Node, what: str) -> bool:
        text = self._text(node)
        if node.tag != _BOOL or text.lower() not in ("true", "false"):
            self._wrong(node, f"{what}: true or false is needed, not {_quoted(text)}")
        return text.lower() == "true"

    @staticmethod
    def _text(node: yaml.Node) -> str:
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def _wrong(self, node: yaml.Node, text: str) -> None:
        self.mistakes.append(f"{self._name}, line {node.start_mark.line + 1}: {text}")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")


def _hint(name: str, known: tuple[str, ...]) -> str:
    near = _OTHERS_WORDS[name] if _OTHERS_WORDS.get(name) in known else nearest(name[:_LONGEST_SHOWN], known)
    return f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"

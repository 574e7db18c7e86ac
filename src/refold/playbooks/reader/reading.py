"""Reads a map by its table: unknown keys, missing keys and wrong types are reported, values are converted."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.names import did_you_mean, meant
from refold.playbooks.bindings import Bindings
from refold.playbooks.language.tables import Key, Table
from refold.playbooks.problems import Place, Problem, Severity
from refold.playbooks.reader.templates import is_template
from refold.playbooks.yaml.text import MAX_PROBLEMS, Node
from refold.tool_api import ToolInfo

Secrets = Callable[[], Collection[str] | None]
"""Returns the names of all secrets; None if they cannot be listed."""


Sources = Callable[[], Mapping[str, ToolInfo]]
"""Returns the kinds of sources; called when a loop names one."""


class TooMany(Exception):
    """There are so many problems that reading stops."""


class Fields(Struct):
    """The converted values of a map, and the node they were read from."""

    node: Node
    values: dict[str, Any]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)


class ReadingOptions(Struct, frozen=True):
    """What a file is read with, and what all of its steps need to know of the whole of it."""

    language: str = "refold/v1"
    strict: bool = True  # whether what the engine would just skip is an error; else it is a warning
    playbook: str = ""  # its name
    keychain: tuple[dict[str, Any], ...] = ()  # its entries
    sealed: frozenset[str] = frozenset()  # steps whose result is secret
    child_reader: Any = None  # the playbooks that start one another
    catalog: Mapping[str, ToolInfo] = {}
    sources: Sources = dict
    bindings: Callable[[], Bindings] = Bindings  # called when a tool names an agent
    secrets: Secrets | None = None  # None: they are not checked
    needs_secrets: bool = True  # whether one that no provider has is an error


PLAIN = ReadingOptions()


class Reading:
    """A playbook that is being read, and its problems so far."""

    def __init__(
        self,
        source: str,
        tables: Mapping[str, Table],
        readers: Mapping[str, "Reader"],
        options: ReadingOptions = PLAIN,
    ) -> None:
        self.source, self.tables, self.readers = source, tables, readers
        self.problems: list[Problem] = []
        self.has_secrets = mentions_secrets(source)
        self.language, self.strict = options.language, options.strict
        self.playbook, self.keychain, self.sealed = options.playbook, options.keychain, options.sealed
        self.child_reader, self.catalog, self.sources = options.child_reader, options.catalog, options.sources
        self.bindings, self.secrets, self.needs_secrets = options.bindings, options.secrets, options.needs_secrets
        self._keys = {name: {key.name: key for key in table.keys} for name, table in tables.items()}
        self._needed = {name: [key for key in table.keys if key.required] for name, table in tables.items()}

    def say(self, problem: Problem) -> None:
        self.problems.append(problem)
        if len(self.problems) >= MAX_PROBLEMS:
            raise TooMany

    def at(self, node: Node, code: str, message: str, hint: str = "") -> None:
        self.say(Problem(code, message, node.place, hint, length=node.length))

    def at_key(self, node: Node, key: str, code: str, message: str, hint: str = "") -> None:
        self.say(Problem(code, message, node.place_of(key), hint, length=len(key)))

    def at_place(self, place: Place, code: str, message: str, hint: str = "", length: int = 1) -> None:
        self.say(Problem(code, message, place, hint, length=length))

    def warn(self, node: Node, code: str, message: str, hint: str = "") -> None:
        self.say(Problem(code, message, node.place, hint, "warning", node.length))

    def useless(self, node: Node, code: str, message: str, hint: str = "") -> None:
        """Report what a run would ignore, but what cannot be intended."""
        severity: Severity = "error" if self.strict else "warning"
        self.say(Problem(code, message, node.place, hint, severity, node.length))

    def warn_key(self, node: Node, key: str, code: str, message: str, hint: str = "") -> None:
        self.say(Problem(code, message, node.place_of(key), hint, "warning", len(key)))

    def failed(self) -> bool:
        return any(each.severity == "error" for each in self.problems)

    def table(self, node: Node, name: str) -> Fields:
        """Read a map by the table of that name."""
        table = self.tables[name]
        if not isinstance(node.value, dict):
            self.at(node, "wrong-type", f"{table.noun} must be a map, not {kind_of(node.value)}", _shape(table))
            return Fields(node, {})
        known, values = self._keys[name], {}
        misspelt = set()
        for word, child in node.nodes.items():
            key = known.get(word)
            if key is None:
                misspelt.add(self.unknown(node, word, table))
                continue
            if key.old:
                self.warn_key(node, word, "old-form", f"`{word}` is an old form", f"write {key.old}")
            value = self.readers[key.type](self, child, key)
            if value is not None:
                values[word] = value
        self._check_needed(node, table, misspelt)
        return Fields(node, values)

    def _check_needed(self, node: Node, table: Table, misspelt: set[str]) -> None:
        for key in self._needed[table.name]:
            if key.name not in node.nodes and key.name not in misspelt:
                self.missing(node, table.noun, key.name, key.example)
        if table.one_of:
            self._check_one_of(node, table, misspelt)

    def _check_one_of(self, node: Node, table: Table, misspelt: set[str]) -> None:
        given = [name for name in table.one_of if name in node.nodes]
        listed = either(table.one_of)
        if len(given) > 1:
            message = f"{table.noun} has either {listed}, not both"
            self.at_key(node, given[-1], "given-twice", message, "leave one of them out")
        elif not given and not misspelt.intersection(table.one_of):
            examples = [f"`{key.name}: {key.example}`" for key in table.keys if key.name in table.one_of]
            self.at_place(node.place, "missing-key", f"{table.noun} needs {listed}", f"add {' or '.join(examples)}")

    def unknown(self, node: Node, word: str, table: Table) -> str:
        """Report an unknown key, and return the key that was probably meant."""
        if word in table.old:
            hint = table.old[word]
            code = "unknown-key" if self.strict else "old-key"
            self.at_key(node, word, code, f"{table.noun} has no key `{word}` in {self.language}", hint)
            return next((key.name for key in table.keys if re.search(rf"\b{key.name}\b", hint)), "")
        names = [key.name for key in table.keys if not key.old]
        if table.is_open:
            message = f"{table.noun} has no key `{cut(word)}`; it has no effect"
            self.warn_key(node, word, "unknown-key", message, did_you_mean(word, names))
            return meant(word, names)
        self.at_key(node, word, "unknown-key", f"{table.noun} has no key `{cut(word)}`", did_you_mean(word, names))
        return meant(word, names)

    def missing(self, node: Node, noun: str, name: str, example: str) -> None:
        self.at_place(node.place, "missing-key", f"{noun} needs the key `{name}`", f"add `{name}: {example}`")

    def wrong(self, node: Node, key: Key, wanted: str) -> None:
        found = f"{node.value:g}" if isinstance(node.value, float) else kind_of(node.value)
        self.at(node, "wrong-type", f"`{key.name}` must be {wanted}, not {found}", self._mend(node, key))

    def _mend(self, node: Node, key: Key) -> str:
        if key.name == "on_failure" and isinstance(node.value, list):
            return f"the steps that run after a failure are `on_fail: [{', '.join(map(str, node.value[:5]))}]`"
        if is_template(node.value):
            return "a template is not allowed here"
        if node.value is None:
            return f"leave `{key.name}` out, or write `{key.name}: {key.example}`"
        if key.type in ("text", "texts", "step") and isinstance(node.value, bool | int | float):
            return f'put it in quotes: "{self.source[node.start.index : node.end.index]}"'
        return f"for example `{key.name}: {key.example}`"


def mentions_secrets(source: str) -> bool:
    """Return whether a file can have secrets; otherwise the search for them is skipped."""
    return "secret" in source or "keychain" in source


Reader = Callable[[Reading, Node, Key], Any]
"""Converts the value of a key, or reports what is wrong with it and returns None."""


def kind_of(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "true or false", type(None): "empty"}
    return names.get(type(value), "a number")


def _shape(table: Table) -> str:
    needed = [key for key in table.keys if key.required] or table.keys[:1]
    return "write it as `{" + ", ".join(f"{key.name}: {key.example}" for key in needed) + "}`"


def either(choices: Sequence[str]) -> str:
    *most, last = (f"`{choice}`" for choice in choices)
    return f"{', '.join(most)} or {last}" if most else last


def cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"

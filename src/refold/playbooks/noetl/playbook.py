"""Reads a NoETL file: its root keys, and what applies to all of its steps."""

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from refold.core.plan import Plan
from refold.names import did_you_mean
from refold.playbooks.noetl.readers import NOETL_READERS
from refold.playbooks.noetl.steps import Whole, arcs_of, read_step
from refold.playbooks.noetl.tables import TABLES
from refold.playbooks.noetl.tasks import Book
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading, ReadingOptions
from refold.playbooks.steps import PlaybookDraft, StepDraft
from refold.playbooks.yaml.text import Node

LANGUAGES = ("noetl.io/v2", "noetl.io/v10")
OTHER_KINDS = ("Agent", "Credential", "Mcp", "Subscription", "Tool")
NO_PLAYBOOK = "NoETL's kind `{}` is not a playbook, and Refold has nothing that runs it"
ROOT_KEYS = frozenset(key.name for key in TABLES["playbook"].keys) | TABLES["playbook"].old.keys()


def noetl_reading(source: str, options: ReadingOptions) -> Reading:
    return Reading(source, TABLES, NOETL_READERS, structs.replace(options, strict=False))


def of_another_kind(reading: Reading, root: Node) -> bool:
    """Report a file for NoETL's catalog that is not a playbook, which is not read as if it were one."""
    kind = root.nodes.get("kind")
    if kind is None or kind.value not in OTHER_KINDS:
        return False
    reading.at(kind, "bad-choice", "`kind` must be `Playbook`", NO_PLAYBOOK.format(kind.value))
    return True


def noetl_draft(reading: Reading, root: Node, catalog: Catalog) -> PlaybookDraft:
    extension = _extension(reading, root)
    fields = reading.table(_without(root, extension), "playbook")
    nothing = Fields(root, {})
    metadata: Fields = fields.get("metadata", nothing)
    executor: Fields = fields.get("executor", nothing)
    _check_executor(reading, executor, catalog)
    book = Book(catalog, _workbook(reading, fields), metadata.values, fields.get("workload", {}))
    keychain = tuple(node.value for node in fields.get("keychain", ()))
    steps = tuple(step.get("step", "") for step in fields.get("workflow", ()))
    whole = Whole(book, executor.get("spec", nothing), keychain, steps, _given(fields.get("workflow", ())))
    drafts = [read_step(reading, step, whole) for step in fields.get("workflow", [])]
    return PlaybookDraft(fields, drafts, _plan(fields, drafts, whole, extension))


def _given(steps: Iterable[Fields]) -> dict[str, frozenset[str]]:
    """For each step, the names that arcs pass to it."""
    found: dict[str, frozenset[str]] = {}
    for arc in (arc for step in steps for arc in arcs_of(step)):
        names = {**arc.get("args", {}), **arc.get("input", {})}
        found[arc.get("step")] = found.get(arc.get("step"), frozenset()).union(names)
    return found


def _extension(reading: Reading, root: Node) -> dict[str, Any]:
    """Keep unknown keys, because templates may read them."""
    extension = {key: value for key, value in root.value.items() if key not in ROOT_KEYS}
    for key in extension:
        hint = f"templates read it as `{key}`"
        reading.warn_key(root, key, "extension-key", f"a playbook has no key `{key}`; it is kept as it is", hint)
    return extension


def _without(root: Node, extension: dict[str, Any]) -> Node:
    nodes = {key: node for key, node in root.nodes.items() if key not in extension}
    return Node(root.value, root.start, root.end, root.style, nodes, root.keys)


def _check_executor(reading: Reading, executor: Fields, catalog: Catalog) -> None:
    if executor.get("profile", "auto") != "auto":
        hint = "leave it out: where a run is executed is chosen when it is started"
        reading.warn_key(executor.node, "profile", "no-effect", "`profile` has no effect here", hint)
    requires: Fields = executor.get("requires", Fields(executor.node, {}))
    for name in requires.get("tools", ()):
        if name not in catalog and name != "workbook":
            node = requires.node.nodes["tools"]
            reading.at(node, "unknown-tool", f"there is no tool `{name}`", did_you_mean(name, list(catalog)))


def _workbook(reading: Reading, fields: Fields) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for entry in fields.get("workbook", ()):
        name = entry.get("name")
        if name in found:
            message = f"two tasks of the workbook are called `{name}`"
            reading.at(entry.node.nodes["name"], "duplicate-task", message, "give one of them another name")
        if name is not None and "tool" in entry.values:
            found[name] = entry
    return found


def _plan(fields: Fields, drafts: list[StepDraft], whole: Whole, extension: dict[str, Any]) -> Plan:
    about = {key: whole.book.about.get(key) for key in ("path", "version")}
    return Plan(
        name=whole.book.about.get("name", ""),
        language="noetl",
        steps=tuple(draft.step for draft in drafts),
        entry=whole.spec.get("entry_step", ""),
        final_step=whole.final,
        defaults=fields.get("workload", {}),
        computed=True,
        constants={**extension, "$playbook": about},
    )

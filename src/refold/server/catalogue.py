"""The workflows that can be started: playbooks of a folder, playbooks that were stored, and Python workflows."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, json

from refold.core.plan import Plan
from refold.errors import InvalidPlan, NotFound
from refold.names import did_you_mean
from refold.playbooks.playbook import Playbook, read
from refold.python.load import describe_workflow
from refold.server.documents import Documents, Read
from refold.sources.catalog import installed_sources
from refold.tools.catalog import installed_tools
from refold.wiring.playbook_files import playbook

DEFINITIONS = "workflow"  # the kind of documents
ENDINGS = (".yaml", ".yml")


class StoredDefinition(Struct, frozen=True):
    """The text of a playbook that was stored through the API."""

    text: str
    by: str


class CatalogueEntry(Struct, frozen=True):
    """A workflow of the catalogue. One that cannot be read has the problem instead of a plan."""

    name: str
    origin: str  # "file", "stored" or "code"
    workflow: Any = None  # what the engine starts
    plan: Plan | None = None
    source: str = ""
    problem: str = ""
    version: int = 0  # of what is stored


class Catalogue:
    def __init__(self, documents: Documents, read: Read, folder: str, code: Mapping[str, tuple[Any, Plan]]) -> None:
        self._documents, self._read, self._folder, self._code = documents, read, folder, code
        self._files: dict[str, tuple[tuple[int, int], CatalogueEntry]] = {}

    async def entries(self) -> list[CatalogueEntry]:
        """All of them by name: what is stored wins over a file of the same name, and a file over code."""
        found = {name: CatalogueEntry(name, "code", workflow, plan) for name, (workflow, plan) in self._code.items()}
        for entry in await self._read(self._of_folder):
            found[entry.name] = entry
        for each in await self._documents.all(DEFINITIONS):
            stored = json.decode(each.data, type=StoredDefinition)
            found[each.id] = await self._read(lambda: stored_entry(each.id, stored, each.version))  # noqa: B023
        return sorted(found.values(), key=lambda entry: entry.name)

    async def find(self, name: str) -> CatalogueEntry:
        """Raises NotFound, or InvalidPlan if it cannot be read."""
        entries = {entry.name: entry for entry in await self.entries()}
        if name not in entries:
            raise NotFound(f"there is no workflow {name!r}; {did_you_mean(name, entries)}")
        if entries[name].problem:
            raise InvalidPlan([entries[name].problem])
        return entries[name]

    async def put(self, name: str, text: str, by: str, version: int) -> CatalogueEntry:
        """Store a playbook under its name. Raises InvalidPlan, or Conflict if it has another version."""
        definition = StoredDefinition(text, by)
        entry = await self._read(lambda: checked_entry(name, definition))
        new = await self._documents.put(DEFINITIONS, name, json.encode(definition), version)
        return CatalogueEntry(name, "stored", entry.workflow, entry.plan, text, "", new)

    def _of_folder(self) -> list[CatalogueEntry]:
        """Files that have not changed since the last look are not read again."""
        if not self._folder:
            return []
        try:
            names = sorted(each for each in os.listdir(self._folder) if each.endswith(ENDINGS))
        except OSError as error:
            raise NotFound(f"the folder of playbooks cannot be read: {error.strerror}") from None
        found: dict[str, tuple[tuple[int, int], CatalogueEntry]] = {}
        for name in names:
            path = os.path.join(self._folder, name)
            try:
                status = os.stat(path)
            except OSError:
                continue  # it was removed just now
            state = (status.st_mtime_ns, status.st_size)
            known = self._files.get(path)
            found[path] = known if known is not None and known[0] == state else (state, _file_entry(path))
        self._files = found
        return [entry for _, entry in found.values() if entry is not NOT_A_WORKFLOW]


NOT_A_WORKFLOW = CatalogueEntry("", "file")


def _file_entry(path: str) -> CatalogueEntry:
    try:
        with open(path, "rb") as opened:
            text = opened.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        return CatalogueEntry(os.path.basename(path), "file", problem=f"the file cannot be read: {error}")
    if _kind(text) == "Schedule":
        return NOT_A_WORKFLOW
    try:
        made = playbook(path)
    except InvalidPlan as error:
        name = os.path.basename(path)
        return CatalogueEntry(name, "file", source=text, problem=str(error).replace(path, name))
    return CatalogueEntry(made.plan.name, "file", made, made.plan, text)


def _kind(text: str) -> str:
    for line in text.splitlines():
        if line.startswith("kind:"):
            return line.removeprefix("kind:").strip().strip("'\"")
    return ""


def stored_entry(name: str, stored: StoredDefinition, version: int) -> CatalogueEntry:
    try:
        made = _read_text(name, stored.text)
    except InvalidPlan as error:
        return CatalogueEntry(name, "stored", source=stored.text, problem=str(error), version=version)
    return CatalogueEntry(name, "stored", made, made.plan, stored.text, version=version)


def checked_entry(name: str, definition: StoredDefinition) -> CatalogueEntry:
    """Raises InvalidPlan."""
    entry = checked_text(definition, name)
    if entry.name != name:
        raise InvalidPlan([f"the playbook is called {entry.name!r} (metadata.name), and its address {name!r}"])
    return entry


def checked_text(definition: StoredDefinition, name: str = "definition") -> CatalogueEntry:
    """Raises InvalidPlan."""
    made = _read_text(name, definition.text)
    return CatalogueEntry(made.plan.name, "stored", made, made.plan, definition.text)


def _read_text(name: str, text: str) -> Playbook:
    """Read a playbook that has no file: it can name no other files."""

    def no_files(path: str) -> bytes:
        raise NotFound(f"a stored playbook cannot name files, and this names {path}")

    return read(
        text.encode(), f"{name}.yaml", installed_tools(), no_files, sources=installed_sources, code=describe_workflow
    )

"""The files of a project that a `.wf` file names: agents, snippets, schemas and other workflows."""

import os
from collections.abc import Iterator

from msgspec import Struct

from refold.errors import RefoldError
from refold.playbooks.children import Load
from refold.playbooks.problems import InvalidPlaybook
from refold.playbooks.wf.nodes import stem
from refold.playbooks.yaml import text as yaml_text

ROOTS = (".conductor", ".claude")  # the folder that holds one of them is the root of a project
MARK = "---"


class BadPath(Exception):
    """A path is absolute, leads upward, or leaves the project."""


class AgentFile(Struct, frozen=True):
    """A file of an agent: what it says to whoever answers, and how it may act."""

    file: str
    prompt: str
    role: str = "reviewer"
    can_commit: bool = False
    model: str | None = None
    flaws: tuple[str, ...] = ()  # for warnings


NO_FILE = AgentFile("", "")


def project_of(file: str) -> str:
    """Return the nearest folder at or above a file that holds one of ROOTS, else the folder of the file."""
    own = folder = os.path.dirname(os.path.abspath(file))
    while not any(os.path.isdir(os.path.join(folder, root)) for root in ROOTS):
        above = os.path.dirname(folder)
        if above == folder:
            return own
        folder = above
    return folder


class Project:
    """Finds and reads files. `load` returns the bytes of a file, or raises a RefoldError."""

    def __init__(self, file: str, workflow: str, load: Load | None) -> None:
        self.folder = project_of(file)
        self.beside = os.path.dirname(file)
        self._own = f".conductor/workflows/{workflow}"
        self._load = load
        self._texts: dict[str, str | None] = {}
        self._agents: dict[tuple[str, tuple[str, ...]], AgentFile | None] = {}
        self._folders: dict[str, frozenset[str]] = {}
        self._agent_folders: list[tuple[str, bool]] | None = None

    def agent(self, name: str, is_path: bool, plugins: tuple[str, ...]) -> AgentFile | None:
        """Return the file of an agent. Raises BadPath."""
        if is_path:
            return self._as_agent(self._inside(name) if name.endswith(".md") else None)
        if self._agent_folders is None:
            self._agent_folders = self._find_agent_folders()
        if not self._agent_folders and not plugins:
            return None
        if (name, plugins) not in self._agents:
            self._agents[name, plugins] = self._named_agent(name, plugins, self._agent_folders)
        return self._agents[name, plugins]

    def _named_agent(self, name: str, plugins: tuple[str, ...], folders: list[tuple[str, bool]]) -> AgentFile | None:
        found, file = None, f"{name}.md"
        for folder, is_own in folders:
            if file in self._files_of(os.path.join(self.folder, folder) if is_own else folder):
                found = self._readable(f"{folder}/{file}") if is_own else os.path.join(folder, file)
            if found is not None:
                break
        if found is None and plugins:
            for plugin in plugins:
                check_path(plugin)
            found = self._first(f"{plugin}/agents/{file}" for plugin in plugins)
        return self._as_agent(found)

    def _find_agent_folders(self) -> list[tuple[str, bool]]:
        """Return the folders of agents that have files, and whether a folder is given from that of the project."""
        places = [f"{self._own}/agents", ".conductor/agents", ".claude/agents"]
        found = [(place, True) for place in places if self._files_of(os.path.join(self.folder, place))]
        beside = os.path.join(self.beside, "agents")
        return [*found, (beside, False)] if self._files_of(beside) else found

    def snippet(self, name: str) -> str | None:
        return self._named(name, "prompts", ".md")

    def schema(self, name: str) -> tuple[str, str] | None:
        """Return the text of a schema, and its file."""
        path = self._path_of(name, "schemas", ".yaml")
        text = self._text(path) if path is not None else None
        return None if path is None or text is None else (text, self.shown(path))

    def workflow(self, name: str) -> str | None:
        """Return the file of another workflow, as it is seen from here."""
        if f"{name}.wf" in self._files_of(self.beside):
            return os.path.join(self.beside, f"{name}.wf")
        return self._first([f".conductor/workflows/{name}.wf"])

    def shown(self, path: str) -> str:
        """Return a path as people know it, relative to the project."""
        return os.path.relpath(path, self.folder)

    def _named(self, name: str, kind: str, suffix: str) -> str | None:
        path = self._path_of(name, kind, suffix)
        return self._text(path) if path is not None else None

    def _path_of(self, name: str, kind: str, suffix: str) -> str | None:
        if "/" in name:
            return self._first([name])
        return self._first(f"{place}/{kind}/{name}{suffix}" for place in (self._own, ".conductor"))

    def _first(self, paths: "Iterator[str] | list[str]") -> str | None:
        return next((whole for path in paths if (whole := self._readable(path)) is not None), None)

    def _readable(self, path: str) -> str | None:
        """Return the whole path of a file of the project, if there is one. Raises BadPath."""
        check_path(path)
        folder, _, name = path.rpartition("/")
        if name not in self._files_of(os.path.join(self.folder, folder)):
            return None
        whole = self._inside(path)
        return whole if self._text(whole) is not None else None

    def _files_of(self, folder: str) -> frozenset[str]:
        """Return the names in a folder, which is read once."""
        found = self._folders.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder or "."))
            except OSError:
                found = frozenset()
            self._folders[folder] = found
        return found

    def _inside(self, path: str) -> str:
        """Return the whole path of a file of the project. Raises BadPath if it is outside of it."""
        check_path(path)
        whole = os.path.join(self.folder, path)
        root = os.path.realpath(self.folder)
        if os.path.commonpath([root, os.path.realpath(whole)]) != root:
            raise BadPath(f"`{path}` leads out of the project through a link")
        return os.path.relpath(whole) if not os.path.isabs(self.beside) else whole

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> str | None:
        try:
            data = self._load(path) if self._load is not None else None
        except (RefoldError, OSError):
            return None
        return None if data is None else data.decode("utf-8-sig", "replace").replace("\r\n", "\n")

    def _as_agent(self, path: str | None) -> AgentFile | None:
        text = self._text(path) if path is not None else None
        return None if path is None or text is None else read_agent(text, self.shown(path))


def check_path(path: str) -> None:
    """Raise BadPath if a path is absolute or leads upward."""
    if os.path.isabs(path) or path.startswith("~"):
        raise BadPath(f"`{path}` is absolute; a path begins in the folder of the project")
    if ".." in path.split("/"):
        raise BadPath(f"`{path}` leads upward, and a path stays in the folder of the project")


def read_agent(text: str, file: str) -> AgentFile:
    """Read an agent: Markdown, and before it perhaps a few keys between two lines `---`."""
    lines = text.split("\n")
    if lines[0].rstrip() != MARK:
        return AgentFile(file, text.strip())
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == MARK), 0)
    if not end:
        return AgentFile(file, text.strip(), flaws=(f"{file}: the `---` in its first line has no second one",))
    prompt = "\n".join(lines[end + 1 :]).strip()
    try:
        keys = yaml_text.read("\n".join(["", *lines[1:end]]), file).value
    except InvalidPlaybook as error:
        first = error.problems[0]
        return AgentFile(file, prompt, flaws=(f"{file}:{first.place.line}: {first.message}",))
    if keys is None:
        return AgentFile(file, prompt)
    if not isinstance(keys, dict):
        return AgentFile(file, prompt, flaws=(f"{file}: what stands between the lines `---` is a map",))
    flaws = [f"{file}: `{key}` is not read" for key in keys if key not in ("role", "can_commit", "model", "runtime")]
    role, commits, model = keys.get("role", "reviewer"), keys.get("can_commit", False), keys.get("model")
    if role not in ("reviewer", "actor"):
        flaws.append(f"{file}: `role` is reviewer or actor")
        role = "reviewer"
    if commits is not False and (commits is not True or role != "actor"):
        flaws.append(f"{file}: `can_commit` is true or false, and true only with `role: actor`")
        commits = False
    return AgentFile(file, prompt, role, commits, model if isinstance(model, str) else None, tuple(flaws))


def agent_key(name: str, is_path: bool) -> str:
    return stem(name) if is_path else name

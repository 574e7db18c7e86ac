"""What a call of an agent needs: its file, its snippets, its schema, and the tool that is bound to its name."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from refold.core.pipeline import Task
from refold.core.plan import Call
from refold.playbooks.bindings import bound_data, how_to_bind, with_environment
from refold.playbooks.wf.nodes import Scalar, stem
from refold.playbooks.wf.project import NO_FILE, AgentFile, BadPath, Project
from refold.playbooks.wf.reading import WfReading
from refold.playbooks.wf.schemas import BadSchema, read_schema
from refold.templates import paths_of
from refold.templates.output_blocks import answer_form, json_schema

COMPUTING = ("python", "function")  # kinds of tools that may read anything


class AgentWork(Struct, gc=False):
    """The work of a step that calls an agent, and its input."""

    work: Call
    input: dict[str, Any]


class Agents:
    def __init__(self, reading: WfReading, project: Project, reserved: Sequence[str]) -> None:
        self.reading, self.project, self.reserved = reading, project, list(reserved)
        self.given = reading.child_reader.identity  # that the caller of this file has given it
        self._schemas: dict[str, dict[str, Any] | None] = {}
        self._not_bound: set[tuple[str, str]] = set()
        self._tasks: dict[str, Task | None] = {}
        self._bound: dict[int, tuple[dict[str, Any], set[str] | None]] = {}  # by tool: its data, the inputs it reads

    def asked(
        self,
        agent: Scalar,
        is_path: bool,
        keys: dict[str, Any],
        output: Scalar | None,
        snippets: Sequence[Scalar],
    ) -> AgentWork:
        key = stem(agent.text) if is_path else agent.text
        task = self._task(key)
        file = self._file(agent, is_path, key, task is not None, keys.get("plugin_dirs", ()))
        rules = self._rules(output) if output is not None else None
        texts = [file.prompt, *map(self._snippet, snippets)]
        settings: dict[str, Any] = {"reads": "flow", "reserved": self.reserved}
        config: dict[str, Any] = {
            "agent": {"$plain": key},
            "prompt": {"$join": [*filter(None, texts), {"$plain": answer_form(rules)}]},
            "role": file.role,
            "can_commit": file.can_commit,
        }
        if file.model is not None:
            config["model"] = {"$plain": file.model}
        if rules is not None:
            settings["rules"] = rules
            config["schema"] = {"$plain": json_schema(rules)}
        if keys.get("retries"):
            settings["retries"] = keys["retries"]
        if "max_turns" in keys:
            config["max_turns"] = keys["max_turns"]
        if keys.get("plugin_dirs"):
            config["plugin_dirs"] = [{"$plain": each.text} for each in keys["plugin_dirs"]]
        name = keys.get("as") or self.given
        env = self.identity(agent, keys.get("as")) if name else {}
        if name:
            config["identity"] = {"$plain": name}
        if task is not None:
            if id(task) not in self._bound:
                names = _inputs_read(task.kind, [task.keys, task.input, task.rendered])
                self._bound[id(task)] = bound_data(task), names
            data, names = self._bound[id(task)]
            settings["bound"] = bound_data(with_environment(task, env)) if env else data
            if names is None:
                config["inputs"] = {"$variables": {}}
            elif names:
                config["inputs"] = {name: {"$variable": name} for name in sorted(names)}
        return AgentWork(Call("agent", settings), {"input": {}, "config": config})

    def _task(self, key: str) -> Task | None:
        """Return the tool that is bound to an agent."""
        if key not in self._tasks:
            self._tasks[key] = self.reading.bindings.agent(key)
        return self._tasks[key]

    def _file(self, agent: Scalar, is_path: bool, key: str, is_bound: bool, plugins: Sequence[Scalar]) -> AgentFile:
        try:
            found = self.project.agent(agent.text, is_path, tuple([each.text for each in plugins]))
        except BadPath as error:
            self.reading.at(agent, "bad-path", str(error), "write the path from the folder of the project")
            return NO_FILE
        if found is not None:
            for flaw in found.flaws:
                self.reading.warn(agent, "agent-file", flaw)
        elif is_path or not is_bound:
            hint = f"write `.conductor/agents/{agent.text}.md` or `agents/{agent.text}.md`"
            if is_path:
                hint = "the path begins in the folder of the project and ends with `.md`"
            else:
                hint += f"; or {how_to_bind('agents', agent.text)}"
            self.reading.at(agent, "unknown-agent", f"there is no agent `{agent.text}`", hint)
            return NO_FILE
        if not is_bound:
            self.not_bound("agents", key, agent)
        return NO_FILE if found is None else found

    def not_bound(self, section: str, name: str, at: Scalar) -> None:
        """Note a name that a run needs, but that a check of the file does not; each name once."""
        if (section, name) in self._not_bound:
            return
        self._not_bound.add((section, name))
        message = f"nothing answers for {SECTIONS[section]} `{name}`"
        problem = self.reading.problem("unbound", message, at.at, at.end, how_to_bind(section, name), "warning")
        self.reading.unbound.append(problem)

    def identity(self, at: Scalar, name: str | None) -> dict[str, Any]:
        """Return the variables of the environment of an identity: of this one, or of that of the caller."""
        if not name and not self.given:
            return {}
        env = self.reading.bindings.identity(name or self.given)
        if env is None and name:
            self.not_bound("identities", name, at)
        return dict(env or {})

    def _snippet(self, name: Scalar) -> str | None:
        try:
            text = self.project.snippet(name.text)
        except BadPath as error:
            self.reading.at(name, "bad-path", str(error), "write the path from the folder of the project")
            return None
        if text is None:
            hint = "write the path of a file" if "/" in name.text else f"write `.conductor/prompts/{name.text}.md`"
            self.reading.at(name, "unknown-snippet", f"there is no snippet `{name.text}`", hint)
            return None
        return text.strip()

    def _rules(self, name: Scalar) -> dict[str, Any] | None:
        if name.text in self._schemas:
            return self._schemas[name.text]
        self._schemas[name.text] = None
        try:
            found = self.project.schema(name.text)
        except BadPath as error:
            self.reading.at(name, "bad-path", str(error), "write the path from the folder of the project")
            return None
        if found is None:
            hint = "write the path of a file" if "/" in name.text else f"write `.conductor/schemas/{name.text}.yaml`"
            self.reading.at(name, "unknown-schema", f"there is no schema `{name.text}`", hint)
            return None
        text, file = found
        try:
            self._schemas[name.text] = read_schema(text, file)
        except BadSchema as error:
            message = f"{file}:{error.place.line}:{error.place.column}: {error.message}"
            self.reading.at(name, "bad-schema", message, f"correct {file}")
        return self._schemas[name.text]


SECTIONS = {"agents": "the agent", "identities": "the identity"}


def _inputs_read(kind: str, templates: Sequence[Any]) -> set[str] | None:
    """Return the variables that a bound tool reads as `inputs.name`; None: it may read all of them."""
    if kind in COMPUTING:
        return None
    names: set[str] = set()
    for path in (path for template in templates for path in paths_of(template)):
        if path[0] == "inputs":
            if len(path) == 1:
                return None
            names.add(path[1])
    return names

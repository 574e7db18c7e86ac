"""The work of each kind of node: what a step of the plan does, what it is given, and how its result is read."""

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Protocol

from msgspec import Struct, structs

from refold.core.pipeline import Rule, Task, TaskPipeline, Template
from refold.core.plan import Call, Fail, Gate, Wait, Work
from refold.names import did_you_mean
from refold.playbooks.bindings import Bindings, bound_data, how_to_bind
from refold.playbooks.jamjet.drafts import GraphDraft, NodeDraft
from refold.playbooks.jamjet.expressions import FILES, Expressions
from refold.playbooks.jamjet.fields import ReadFields
from refold.playbooks.jamjet.whole import read_beside, schema_in
from refold.playbooks.problems import Place
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.yaml.text import Node
from refold.schemas import schema_flaw
from refold.templates.jamjet.results import READS

OWN_TOOLS = ("jamjet.agents.tool_runtime", "dispatch_tool_calls")
OWN_DISPATCH = "refold.tools.python.tool_calls:dispatch"
DEFAULT_MODEL = "default_chat"


class NodeWork(Struct):
    """The work of a node. `info` says how its result is read; see `templates/jamjet/results.py`."""

    work: Work
    input: Template = None
    info: dict[str, Any] = {}
    bypassed: bool = False  # it only leads on
    names: tuple[str, ...] = ()  # by which policies know it
    result: dict[str, Any] | None = None  # JSON Schema of the data in its result
    model: tuple[str, ...] = ()  # names of the model that it asks


class Workshop:
    """Makes the work of nodes. What is not bound is reported at its place."""

    def __init__(self, reading: Reading, draft: GraphDraft, children: "ChildPlans") -> None:
        self.reading, self.draft, self.children = reading, draft, children
        self.expressions = Expressions(reading, draft.bare)
        self._bindings: Bindings | None = None
        self._beside: dict[str, Mapping[str, ReadFields]] = {}
        self._unbound: set[tuple[str, str, Place]] = set()  # section, name and place of what was reported

    @property
    def bindings(self) -> Bindings:
        if self._bindings is None:
            self._bindings = self.reading.bindings()
        return self._bindings

    def known(self, section: str, name: str) -> ReadFields | None:
        """Return what the file, or `models.yaml` or `tools.yaml` next to it, says of a model or a tool."""
        inside = self.draft.models if section == "models" else self.draft.tools
        if name in inside:
            return inside[name]
        if section not in self._beside:
            text = _file(self, f"{section}.yaml")
            self._beside[section] = {} if text is None else read_beside(self.reading, section, text)
        return self._beside[section].get(name)

    def made(self, node: NodeDraft) -> NodeWork:
        return KINDS[node.kind](self, node)

    def unbound(self, node: NodeDraft, field: str, code: str, what: str, section: str, name: str) -> NodeWork:
        place = node.place(field)
        message = f"{node.owner}: there is no {what} `{cut(name)}`, and none is bound"
        if (section, name, place.place) not in self._unbound:  # the nodes of an agent have one place
            self.reading.at(place, code, message, how_to_bind(section, name))
        self._unbound.add((section, name, place.place))
        return NodeWork(Fail("unbound", message))

    def arguments(self, node: NodeDraft) -> dict[str, Any]:
        mapped = self.expressions.mapping(node.given.get("input_mapping"), node.owner)
        if node.from_state is not None:
            for name, each in node.from_state.nodes.items():
                if isinstance(each.value, str):
                    mapped[name] = {"$value": f"state.{each.value}" if "." in each.value else f"state['{each.value}']"}
        return mapped

    def bound_work(self, node: NodeDraft, task: Task, input: Mapping[str, Any], **info: Any) -> NodeWork:
        """The work of a bound tool, with the keys that take its input if the binding does not say them."""
        keys = {**INPUT_KEYS.get(task.kind, {}), **task.keys}
        if task.keys.get("method") == "GET":
            keys = dict(task.keys)
        elif task.kind == "http" and any(name in task.keys for name in ("json", "body", "form", "data")):
            keys = {**task.keys, "method": task.keys.get("method", "POST")}
        task = structs.replace(task, name="call", keys=keys)
        given = {"input": {**input}, "scope": {"$plain": {}}}
        reads = task.kind if task.kind in READS else ""
        about = {"node": "function", **({"reads": reads} if reads else {}), **info}
        pipeline = TaskPipeline(tasks=(task,), single=True, timeout=node.timeout, keychain=keychain_of(task))
        return NodeWork(pipeline, given, about)

    def agent_tools(self) -> dict[str, Task]:
        """Return the tools that the model of an agent may choose; those that are not bound are reported."""
        found: dict[str, Task] = {}
        for name, place in self.draft.agent_tools.items():
            node = NodeDraft(name, "tool", place, place, ReadFields(place, {}))
            task = _named_tool(self, node, name)
            if task is None:
                message = f"there is no tool `{cut(name)}`, and none is bound"
                self.reading.at(place, "unknown-tool", message, how_to_bind("tools", name))
            elif isinstance(task, Task):
                found[name] = task
        return found

    def result_info(self, node: NodeDraft) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if node.key:
            info["key"] = node.key
        if node.fields is not None:
            info["fields"] = {name: key for name, key in node.fields.value.items() if isinstance(key, str)}
        return info


class ChildPlans(Protocol):
    """Finds the plans that nodes start as child runs."""

    def unit(self, node: Node, name: str, what: str) -> Work | None:
        """Return the child of this name, in this file or next to it; None if there is none. Problems are reported."""

    def version(self, name: str) -> str:
        """Return the version of a child that was found."""

    def is_itself(self, name: str) -> bool:
        """Whether a child that was found is the file that starts it."""


INPUT_KEYS: Mapping[str, dict[str, Any]] = {
    "http": {"method": "POST", "json": "{{ input }}"},
    "mcp": {"arguments": "{{ input }}"},
}


def _model(shop: Workshop, node: NodeDraft) -> NodeWork:
    ref = node.text("model_ref", DEFAULT_MODEL)
    known = shop.known("models", ref)
    actual = known.value("model", ref) if known is not None else ref
    bindings = shop.bindings
    task = bindings.models.get(ref) or bindings.model(actual)
    if task is None:
        return shop.unbound(node, "model_ref", "unknown-model", "model", "models", ref)
    schema = _schema_of(shop, node)
    info = {"node": "model", **shop.result_info(node)}
    if node.json or schema is not None:
        info["json"] = True
    input = {"messages": {"$messages": _messages(shop, node)}, "model": {"$plain": actual}}
    keys = dict(task.keys)
    if task.kind == "llm":
        keys = {"model": actual, "messages": "{{ input.messages }}", **_settings(known), **keys}
        if schema is not None or (node.json and node.given.value("structured_output")):
            keys.setdefault("json", schema if schema is not None else True)
        tools = _tools_of(shop, node)
        if tools:
            keys["options"] = {"tools": tools, **keys.get("options", {})}
    task = structs.replace(task, name="call", keys=keys)
    given = {"input": input, "scope": {"$plain": {}}}
    work = TaskPipeline(tasks=(task,), single=True, timeout=_timeout_of(node, known))
    return NodeWork(work, given, info, model=tuple(dict.fromkeys((ref, actual))))


def _schema_of(shop: Workshop, node: NodeDraft) -> dict[str, Any] | None:
    schema = schema_in(node.given.value("output_schema"))
    if schema is not None and (flaw := schema_flaw(schema)) is not None:
        shop.reading.at(node.place("output_schema"), "bad-value", f"{node.owner}: this is no JSON Schema: {flaw[1]}")
        return None
    return schema


def _checked(shop: Workshop, node: NodeDraft, work: NodeWork) -> NodeWork:
    """The work, whose result has to fit the schema of the node, if it has one."""
    schema = _schema_of(shop, node)
    made = work.work
    if schema is not None and isinstance(made, TaskPipeline):
        made = structs.replace(made, reads=work.info.get("reads", ""))
    return structs.replace(work, work=made, result=schema)


def _timeout_of(node: NodeDraft, known: ReadFields | None) -> float | None:
    if node.timeout is None and known is not None:
        node.timeout = known.seconds("timeout_secs")
    return node.timeout


def _settings(known: ReadFields | None) -> dict[str, Any]:
    found = () if known is None else ("temperature", "max_tokens")
    return {name: known.value(name) for name in found if known is not None and name in known}


def _messages(shop: Workshop, node: NodeDraft) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in (("system", "system_prompt"), ("prompt", "prompt_ref")):
        text = node.text(field)
        if field == "prompt_ref" and not text and field not in node.given and not shop.draft.bare:
            text = _file(shop, f"prompts/{node.id}.md") or ""
        elif text.endswith(FILES) and "\n" not in text:
            text = _file(shop, text) or text
        elif field in node.given:
            shop.expressions.text(node.given.found[field], node.owner)
        if text:
            found[name] = text
    return found


def _file(shop: Workshop, path: str) -> str | None:
    text: str | None = shop.reading.child_reader.text(path)
    return text


def _tools_of(shop: Workshop, node: NodeDraft) -> list[Any]:
    """The tools that a model may ask for: descriptions as they are, or names of tools of the file."""
    found: list[Any] = []
    for each in node.given.value("tools", ()):
        if isinstance(each, dict) and "function" in each:
            found.append(each)
            continue
        name = each.get("name") if isinstance(each, dict) else each
        known = shop.known("tools", name) if isinstance(name, str) else None
        about = {**(each if isinstance(each, dict) else {}), **({} if known is None else _described(known))}
        schema = about.get("input_schema") or about.get("parameters") or {"type": "object"}
        function = {"name": str(name), "description": about.get("description", ""), "parameters": schema}
        found.append({"type": "function", "function": function})
    return found


def _described(known: ReadFields) -> dict[str, Any]:
    return {name: known.value(name) for name in ("description", "input_schema") if name in known}


def _python(shop: Workshop, node: NodeDraft) -> NodeWork:
    module, function = node.text("module"), node.text("function")
    names = (f"{module}.{function}",)
    info = {"node": "function", **shop.result_info(node)}
    if (module, function) == OWN_TOOLS:
        node.tries, node.retry = None, None  # tools may have effects
        given = {
            name: {"$value": f"state.{name}"} for name in ("messages", "last_model_tool_calls", "last_model_output")
        }
        input = {"input": {**given, "tools": {"$input": "tools"}}, "config": {"$plain": {}}}
        return NodeWork(Call("python", {"entry": OWN_DISPATCH}), input, info, names=names)
    settings = {"entry": f"{module}:{function}", "takes": "whole"}
    input = {"input": {"$state": True}, "config": {"$plain": {}}}
    return _checked(shop, node, NodeWork(Call("python", settings), input, info, names=names))


def _tool(shop: Workshop, node: NodeDraft) -> NodeWork:
    ref = node.text("tool_ref", node.id)
    arguments, info = shop.arguments(node), shop.result_info(node)
    task = _named_tool(shop, node, ref)
    if isinstance(task, NodeWork):
        return task
    if task is None:
        return shop.unbound(node, "tool_ref", "unknown-tool", "tool", "tools", ref)
    work = shop.bound_work(node, task, arguments, **info)
    return _checked(shop, node, structs.replace(work, names=(ref,)))


def _named_tool(shop: Workshop, node: NodeDraft, name: str) -> "Task | NodeWork | None":
    """The tool of this name: as the file says, or as it is bound if the file has only its description."""
    known = shop.known("tools", name)
    return _tool_of(shop, node, known) if known is not None and "kind" in known else shop.bindings.tool(name)


def _tool_of(shop: Workshop, node: NodeDraft, known: ReadFields) -> "Task | NodeWork | None":
    """A tool of which the file says who runs it."""
    reference = known.value("reference", "")
    match known.value("kind"):
        case "python":
            module, sign, function = reference.partition(":")
            if not sign:
                module, _, function = reference.rpartition(".")
            return Task(name="call", kind="python", settings={"entry": f"{module}:{function}"})
        case "http":
            return Task(name="call", kind="http", keys={"url": reference})
        case "mcp":
            server, _, tool = reference.partition("/") if "/" in reference else reference.partition(":")
            return _on_server(shop, node, server, tool or node.id)
        case "grpc":
            place = known.found["kind"]
            message = f"{node.owner}: Refold does not call tools of kind `grpc`"
            shop.reading.at(place, "unsupported-node", message, "bind the tool to `shell` or `http`")
            return NodeWork(Fail("unbound", message))
    return None


def _on_server(shop: Workshop, node: NodeDraft, server: str, tool: str) -> "Task | NodeWork":
    """A tool of an MCP server: of the file, of `jamjet.toml` next to it, or of the bindings."""
    known = shop.draft.servers.get(server)
    keys: Mapping[str, Any] | None = shop.bindings.servers.get(server)
    keys = _server_keys(shop, node, server, known) if keys is None and known is not None else keys
    if keys is None and ("://" in server or "{{ keychain[" in server):
        keys = {"endpoint": server}
    if keys is None:
        keys = _from_toml(shop, server) or shop.bindings.server(server)
    if keys is None:
        return shop.unbound(node, "server", "unknown-server", "MCP server", "servers", server)
    return Task(name="call", kind="mcp", keys={**_with_variables(shop, node, keys), "tool": tool})


VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def _with_variables(shop: Workshop, node: NodeDraft, value: Any) -> Any:
    """Return the keys of a server with variables of the environment, which the worker reads as secrets."""
    if isinstance(value, Mapping):
        return {name: _with_variables(shop, node, each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_variables(shop, node, each) for each in value]
    if not isinstance(value, str):
        return value

    def read(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            message = f"{node.owner}: the environment has no variable `{found[1]}`, which its server needs"
            hint = f"set it before the run: `{found[1]}=… refold run FILE`"
            shop.reading.at(node.place("server"), "bad-value", message, hint)
        return from_environment(found[1])

    return VARIABLE.sub(read, value)


def _server_keys(shop: Workshop, node: NodeDraft, name: str, known: ReadFields) -> dict[str, Any] | None:
    if known.value("transport") == "web_socket":
        message = f"server `{cut(name)}`: Refold does not speak to servers by `web_socket`"
        shop.reading.at(known.found["transport"], "unsupported-node", message, "use `http_sse` or `stdio`")
        return {}
    if "url" in known:
        return {"endpoint": known.value("url"), **auth_keys(shop, known)}
    return _command_keys(known.value("command"), known.value("args", ()), known.value("env"))


def _command_keys(command: Any, args: Any, env: Any) -> dict[str, Any] | None:
    if not command:
        return None
    listed = [command] if isinstance(command, str) else list(command)
    return {"command": [*map(str, listed), *map(str, args)], **({"env": env} if env else {})}


ENTRY = "env_"
_ENTRIES = re.compile(r"keychain\['env_([^']+)'\]")


def keychain_of(task: Task) -> tuple[dict[str, Any], ...]:
    """Return the entries for variables of the environment that the keys of a task name."""
    names = dict.fromkeys(_ENTRIES.findall(str(task.keys)))
    return tuple({"name": ENTRY + name, "kind": "env", "map": {"value": name}} for name in names)


def from_environment(name: str) -> str:
    return f"{{{{ keychain[{quoted(ENTRY + name)}].value }}}}"


def auth_keys(shop: Workshop, known: ReadFields) -> dict[str, Any]:
    """How requests are authorised: by secrets from variables of the environment, which the worker reads."""
    auth = known.value("auth")
    if not isinstance(auth, dict):
        return {}
    match auth:
        case {"type": "bearer", "token_env": str(name)}:
            return {"auth": {"bearer": from_environment(name)}}
        case {"type": "api_key", "header": str(header), "key_env": str(name)}:
            return {
                "auth": {"api_key": {"header": header, "value": "{{ keychain[" + quoted(ENTRY + name) + "].value }}"}}
            }
    message = f"`auth` of type `{cut(str(auth.get('type')))}` is not supported without a binding"
    shop.reading.at(known.found["auth"], "unsupported-node", message, "bind the server, with `auth: {bearer: …}`")
    return {}


def _from_toml(shop: Workshop, server: str) -> dict[str, Any] | None:
    text = _file(shop, "jamjet.toml")
    if text is None:
        return None
    import tomllib

    try:
        listed = tomllib.loads(text).get("mcp_servers", [])
    except tomllib.TOMLDecodeError:
        return None
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("name") == server:
            if each.get("url"):
                return {"endpoint": each["url"]}
            return _command_keys(each.get("command"), each.get("args", ()), each.get("env"))
    return None


def _mcp(shop: Workshop, node: NodeDraft) -> NodeWork:
    tool = node.text("tool", node.id)
    arguments, info = shop.arguments(node), shop.result_info(node)
    task = _on_server(shop, node, node.text("server_url") or node.text("server"), tool)
    if isinstance(task, NodeWork):
        return task
    work = shop.bound_work(node, task, arguments, **info)
    return _checked(shop, node, structs.replace(work, names=(tool,)))


def _remote(shop: Workshop, node: NodeDraft) -> NodeWork:
    """A task for an agent that is somewhere else: sent, and asked for until it ends."""
    name, skill = node.text("remote_agent"), node.text("skill")
    known, address = shop.draft.remotes.get(name), node.text("agent_uri")
    task = shop.bindings.remote_agents.get(name)
    if task is None and (address or known is not None):
        url = address or (known.value("url") if known is not None else "")
        task = Task(name="call", kind="http", keys={"url": url, **(auth_keys(shop, known) if known else {})})
    task = task or (shop.bindings.remote_agent(name) if name else None)
    arguments, info = shop.arguments(node), shop.result_info(node)
    if task is None:
        return shop.unbound(node, "remote_agent", "unknown-agent", "remote agent", "remote_agents", name)
    if task.kind != "http" or "json" in task.keys:
        work = shop.bound_work(node, task, arguments, **info)
        return _checked(shop, node, structs.replace(work, names=(skill,)))
    work = shop.bound_work(node, task, {"arguments": arguments, "task": {"$task": node.id}}, **info)
    tasks, keychain = _a2a_tasks(task, skill), keychain_of(task)
    pipeline = TaskPipeline(tasks=tasks, timeout=node.timeout, keychain=keychain)
    work = structs.replace(work, work=pipeline, info={**work.info, "reads": "a2a"}, names=(skill,))
    return _checked(shop, node, work)


OK_INSIDE = "output.status == 'ok'"
OK = f"{{{{ {OK_INSIDE} }}}}"
STATE_OF_TASK = "(output.data.data.result.status.state | default(''))"


def _a2a_tasks(task: Task, skill: str) -> tuple[Task, ...]:
    task_id = "{{ input.task }}"
    part = {"type": "data", "data": "{{ input.arguments }}"}
    params = {"id": task_id, "skill": skill, "message": {"role": "user", "parts": [part]}}
    going = f"{{{{ {OK_INSIDE} and {STATE_OF_TASK} in ['submitted', 'working'] }}}}"
    send = structs.replace(
        task,
        name="send",
        keys={
            **task.keys,
            "method": "POST",
            "json": {"jsonrpc": "2.0", "id": "1", "method": "tasks/send", "params": params},
        },
        rules=(Rule(when=going, do="continue"), Rule(when=OK, do="break")),
    )
    get = structs.replace(
        task,
        name="get",
        keys={
            **task.keys,
            "method": "POST",
            "json": {"jsonrpc": "2.0", "id": "2", "method": "tasks/get", "params": {"id": task_id}},
        },
        rules=(Rule(when=going, do="retry", attempts=100_000, backoff="fixed", delay=2.0),),
    )
    return send, get


def _agent(shop: Workshop, node: NodeDraft) -> NodeWork:
    ref = node.text("agent_ref")
    arguments, info = shop.arguments(node), shop.result_info(node)
    child = shop.children.unit(node.place("agent_ref"), ref, "agent")
    if child is not None:
        return NodeWork(child, arguments or {"$plain": {}}, {"node": "function", **info}, names=(ref,))
    task = shop.bindings.agent(ref)
    if task is None:
        return shop.unbound(node, "agent_ref", "unknown-agent", "agent", "agents", ref)
    input = {**arguments, "prompt": {"$json": arguments}} if "prompt" not in arguments else arguments
    schema = _schema_of(shop, node)
    if schema is not None:
        task = _asked(task, ref, schema, [*input])
    return structs.replace(shop.bound_work(node, task, input, **info), names=(ref,))


def _asked(task: Task, ref: str, schema: dict[str, Any], names: list[str]) -> Task:
    """The tool `agent`, which asks the bound one again while its reply does not fit the schema."""
    given = {name: "{{ prompt }}" if name == "prompt" else f"{{{{ inputs[{name!r}] }}}}" for name in names}
    has_body = any(name in task.keys for name in ("json", "body", "form", "data"))
    own: dict[str, Any] = {}
    if task.kind == "mcp":
        own = {"arguments": given}
    elif task.kind == "http" and task.keys.get("method") != "GET":
        own = {"method": "POST"} if has_body else {"method": "POST", "json": given}
    bound = structs.replace(task, keys={**own, **task.keys})
    keys = {"agent": ref, "prompt": "{{ input.prompt }}", "inputs": "{{ input }}", "schema": schema}
    return Task(name="call", kind="agent", settings={"bound": bound_data(bound)}, keys=keys)


def _subgraph(shop: Workshop, node: NodeDraft) -> NodeWork:
    ref = node.text("workflow_ref")
    child = shop.children.unit(node.place("workflow_ref"), ref, "workflow")
    if child is None:
        message = f"{node.owner}: there is no workflow `{cut(ref)}` in this file or next to it"
        shop.reading.at(node.place("workflow_ref"), "unknown-agent", message, f"add a file {ref}.yaml")
        return NodeWork(Fail("unbound", message))
    wanted, found = node.text("workflow_version"), shop.children.version(ref)
    if wanted and found and wanted.partition("+")[0] != found.partition("+")[0]:
        message = f"{node.owner} wants version {wanted} of `{cut(ref)}`, and there is {found}"
        shop.reading.at(node.place("workflow_version"), "bad-value", message, "ask for the version that there is")
    outputs = node.given.get("output_mapping")
    mapped = {}
    for name, each in outputs.nodes.items() if outputs is not None else ():
        if isinstance(each.value, str):
            mapped[name] = shop.expressions.text_value(each, node.owner)
    return NodeWork(child, shop.arguments(node) or {"$plain": {}}, {"node": "child", "outputs": mapped})


def _gate(shop: Workshop, node: NodeDraft) -> NodeWork:
    described = node.given.get("description")
    if described is not None:
        shop.expressions.text(described, node.owner)
    prompt = node.text("description") or f"{node.id}?"
    seconds = node.timeout or node.given.seconds("timeout_secs") or shop.draft.approval_timeout
    node.timeout = None
    return NodeWork(Gate(prompt=prompt, timeout=seconds), info={"node": "gate"})


def _wait(shop: Workshop, node: NodeDraft) -> NodeWork:
    key = node.given.get("correlation_key")
    if key is not None:
        shop.expressions.text(key, node.owner)
    hours = node.given.value("timeout_hours")
    seconds = node.given.seconds("timeout_secs") if hours is None else hours * 3600
    seconds = node.timeout if seconds is None else seconds
    sort = node.text("waits") or ("timer" if key is None else "external_event")
    if not node.text("waits") and "workflow_id" in shop.draft.root.value:
        return NodeWork(Wait(seconds=0), info={"node": "wait"})  # the field that is missing was reported
    lacks = [name for name in _WAITS_NEED[sort] if (key if name == "correlation_key" else seconds) is None]
    if lacks:
        wanted = "an event or a time" if not node.text("waits") else " and ".join(f"`{name}`" for name in lacks)
        message = f"{node.owner} (wait) needs {wanted}"
        shop.reading.at(node.named, "missing-key", message, "add `event: NAME`, or `timeout: 30s`")
        return NodeWork(Wait(seconds=0), info={"node": "wait"})
    node.timeout = None
    signal = None if sort == "timer" or key is None else key.value
    info = {"node": "wait"}
    if sort == "external_event" and "on_timeout" not in node.given:
        node.timeout = seconds
        return NodeWork(Wait(signal=signal), info=info)
    return NodeWork(Wait(seconds=seconds, signal=signal), info=info)


_WAITS_NEED = {
    "timer": ("timeout_secs",),
    "external_event": ("correlation_key",),
    "either": ("correlation_key", "timeout_secs"),
}


def _join(shop: Workshop, node: NodeDraft) -> NodeWork:
    listed = node.given.get("wait_for")
    names = [each.value for each in listed.nodes] if listed is not None else []
    merge = node.given.value("merge_strategy", "collect")
    if merge == "all":
        merge = "collect"
    if isinstance(merge, dict):
        custom = merge.get("custom")
        reference = custom.get("function_ref") if isinstance(custom, dict) else custom
        if isinstance(reference, str) and ":" in reference:
            settings = {"entry": reference, "takes": "list"}
            input = {"input": {"list": {"$outputs": names}}, "config": {"$plain": {}}}
            return NodeWork(Call("python", settings), input, {"node": "joined"})
    if merge not in ("collect", "first"):
        message = f"`merge_strategy` of {node.owner} must be `collect`, `first`, or `{{custom: {{function_ref}}}}`"
        hint = did_you_mean(merge, ["collect", "first"]) if isinstance(merge, str) else "write `collect`"
        shop.reading.at(node.place("merge_strategy"), "bad-value", message, hint)
        merge = "collect"
    return NodeWork(Call(), None, {"node": "join", "of_nodes": names, "merge": merge}, bypassed=True)


def _leads_on(shop: Workshop, node: NodeDraft) -> NodeWork:
    return NodeWork(Call(), bypassed=True)


def _limit(shop: Workshop, node: NodeDraft) -> NodeWork:
    if shop.draft.partial:
        return NodeWork(Call(), bypassed=True)
    return NodeWork(Fail("limit_exceeded", "a limit of the run is used up"))


def _discovery(shop: Workshop, node: NodeDraft) -> NodeWork:
    """Fetch the card of an agent, which the state keeps."""
    url = node.text("agent_uri").rstrip("/") + CARD
    node.key = node.key or "discovered_agent"
    work = shop.bound_work(node, Task(name="call", kind="http", keys={"url": url, "method": "GET"}), {})
    return structs.replace(work, info={**work.info, **shop.result_info(node)})


CARD = "/.well-known/agent.json"


def _finalizer(shop: Workshop, node: NodeDraft) -> NodeWork:
    return structs.replace(_tool(shop, node), info={"node": "none"})


def acting(node: NodeDraft, tools: Mapping[str, Task]) -> NodeWork:
    """Run the tool that a model has chosen, with the arguments that it gave."""
    tasks = []
    rules = []
    for at, (name, task) in enumerate(tools.items()):
        keys = {**INPUT_KEYS.get(task.kind, {}), **task.keys}
        rules.append(Rule(when=f"{{{{ {CHOSEN} == {quoted(name)} }}}}", do="jump", to=f"tool_{at}"))
        tasks.append(structs.replace(task, name=f"tool_{at}", keys=keys, rules=(Rule(when=OK, do="break"),)))
    choose = Task(name="choose", kind="noop", rules=(*rules, Rule(do="fail")))
    reads = {f"tool_{at}": task.kind for at, task in enumerate(tools.values())}
    info = {"node": "function", "reads": "act", "kinds": reads, "key": node.key}
    given = {"input": {"$act": node.texts["reads"]}, "scope": {CHOSEN: {"$chosen": node.texts["reads"]}}}
    return NodeWork(TaskPipeline(tasks=(choose, *tasks), timeout=node.timeout), given, info)


def quoted(text: str) -> str:
    """Return a text as templates write it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


CHOSEN = "chosen_action"  # what the rules read, which is no argument of the tool


def allowed(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


KINDS: Mapping[str, Callable[[Workshop, NodeDraft], NodeWork]] = {
    "model": _model,
    "python_fn": _python,
    "tool": _tool,
    "condition": _leads_on,
    "parallel": _leads_on,
    "join": _join,
    "human_approval": _gate,
    "wait": _wait,
    "subgraph": _subgraph,
    "mcp_tool": _mcp,
    "a2a_task": _remote,
    "agent": _agent,
    "agent_discovery": _discovery,
    "finalizer": _finalizer,
    "limit_exceeded": _limit,
}

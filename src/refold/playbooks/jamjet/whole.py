"""Reads what holds for all nodes of a file: retry policies, times, models, tools, servers, policies and budgets."""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from refold.core.plan import Input, Retry
from refold.names import did_you_mean
from refold.playbooks.jamjet.drafts import CLASSES, GraphDraft, NamePolicy
from refold.playbooks.jamjet.fields import Field, ReadFields, read_fields
from refold.playbooks.jamjet.tables import RETRY_SHORT
from refold.playbooks.problems import InvalidPlaybook, Place, Problem
from refold.playbooks.reader.reading import Reading, cut, kind_of
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.text import Node
from refold.schemas import schema_flaw

RETRY = (
    Field("max_attempts", "whole", "tries, the first included", least=1),
    Field("backoff", "text", "how delays grow", choices=("constant", "fixed", "linear", "exponential")),
    Field("initial_delay", "duration", "the first delay", also=("base_delay", "initial_delay_secs")),
    Field("max_delay", "duration", "the longest delay", also=("max_delay_secs",)),
    Field("jitter", "any", "whether delays differ"),
    Field("retryable_on", "list", "classes of failures; none: any", also=("retryable_errors",)),
)
SHORT_RETRY = (*RETRY_SHORT, *RETRY[2:])
TIMEOUTS = (
    Field("node_timeout", "duration", "of one try", also=("node_timeout_secs",)),
    Field("workflow_timeout", "duration", "of the run", also=("workflow_timeout_secs",)),
    Field("heartbeat_interval", "duration", "has no effect", also=("heartbeat_interval_secs",)),
    Field("approval_timeout", "duration", "of approvals", also=("approval_timeout_secs",)),
)
MODEL = (
    Field("provider", "text", "who offers it"),
    Field("model", "text", "its name there"),
    Field("timeout_secs", "duration", "of one try", also=("timeout",)),
    Field("retry_policy", "text", "the name of a policy"),
    Field("temperature", "number", "its temperature"),
    Field("max_tokens", "whole", "the largest number of tokens in an answer", least=1),
)
TOOL = (
    Field("kind", "text", "what it is", True, choices=("python", "http", "grpc", "mcp")),
    Field("reference", "text", "a function, an address, or a tool of a server", True, also=("ref",)),
    Field("input_schema", "any", "JSON Schema of its arguments"),
    Field("output_schema", "any", "JSON Schema of its result, for readers; that of a node is what is checked"),
    Field("permissions", "list", "have no effect"),
    Field("description", "text", "for people and models"),
)
WHO_RUNS_IT = {"kind", "reference", "ref"}
SERVER = (
    Field("transport", "text", "how it is reached", choices=("stdio", "http_sse", "http", "web_socket")),
    Field("command", "any", "the program"),
    Field("args", "list", "its arguments"),
    Field("env", "map", "variables of its environment"),
    Field("url", "text", "its address"),
    Field("auth", "map", "how a request is authorised"),
    Field("name", "text", "its name"),
)
REMOTE = (
    Field("url", "text", "its address", True, also=("uri", "agent_uri")),
    Field("agent_card_path", "text", "where its card is"),
    Field("auth", "map", "how a request is authorised"),
    Field("description", "text", "for people"),
)
POLICY = (
    Field("blocked_tools", "names", "names that fail"),
    Field("require_approval_for", "names", "names that a person has to approve"),
    Field("model_allowlist", "names", "models that may be used; none: all"),
)
BUDGET = (
    Field("input_tokens", "number", "tokens that models read"),
    Field("output_tokens", "number", "tokens that models write"),
    Field("total_tokens", "number", "both"),
)
UNITS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "tokens"}
TYPES = {
    "str": "string",
    "string": "string",
    "text": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
    "list": "array",
    "array": "array",
    "dict": "object",
    "object": "object",
    "map": "object",
}


# A tool that is only described, for models: who runs it is in the bindings.
DESCRIBED_TOOL = tuple(structs.replace(field, needed=False) for field in TOOL)


def read_whole(reading: Reading, draft: GraphDraft, nodes: Mapping[str, Node], strict: bool = False) -> None:
    """Read the parts that are there, whatever form they stand in. If `strict`, each tool says who runs it."""
    draft.retries = {
        name: read_retry(reading, node, f"retry policy `{name}`")
        for name, node in _entries(reading, nodes, "retry_policies")
    }
    _read_timeouts(reading, draft, nodes.get("timeouts"))
    draft.models = _each(reading, nodes, "models", MODEL, "model")
    draft.tools = _each(reading, nodes, "tools", TOOL, "tool", strict)
    draft.servers = _each(reading, nodes, "mcp_servers", SERVER, "server")
    draft.remotes = _each(reading, nodes, "remote_agents", REMOTE, "remote agent")
    if "policy" in nodes and nodes["policy"].value is not None:
        draft.policy = read_policy(reading, nodes["policy"], "the workflow")
    _read_budget(reading, draft, nodes)
    _read_inputs(reading, draft, nodes.get("state_schema"))
    if "data_policy" in nodes and nodes["data_policy"].value is not None:
        reading.warn(nodes["data_policy"], "no-effect", "`data_policy` is not applied", "leave it out")
    again = nodes.get("continue_as_new")
    if again is not None and again.value is True:
        message = "`continue_as_new` is not supported"
        reading.at(again, "unsupported-node", message, "start the next run from the last node")


def _entries(reading: Reading, nodes: Mapping[str, Node], name: str) -> list[tuple[str, Node]]:
    node = nodes.get(name)
    if node is None or node.value is None:
        return []
    if isinstance(node.value, dict):
        return list(node.nodes.items())
    reading.at(node, "wrong-type", f"`{name}` must be a map, not {kind_of(node.value)}")
    return []


def _each(
    reading: Reading,
    nodes: Mapping[str, Node],
    name: str,
    fields: tuple[Field, ...],
    noun: str,
    strict: bool = False,
) -> dict[str, ReadFields]:
    found = {}
    for key, node in _entries(reading, nodes, name):
        if fields is MODEL and isinstance(node.value, str):  # a short form: the name at its provider
            found[key] = ReadFields(node, {"model": node})
        elif fields is TOOL and not strict and isinstance(node.value, dict) and not node.nodes.keys() & WHO_RUNS_IT:
            found[key] = read_fields(reading, node, DESCRIBED_TOOL, f"{noun} `{key}`", open=True)
        else:
            found[key] = read_fields(reading, node, fields, f"{noun} `{key}`", open=True)
    return found


def read_beside(reading: Reading, section: str, text: str) -> Mapping[str, ReadFields]:
    """Read the models or tools of a file of their own. What is wrong with it is said at the beginning of this one."""
    other = Reading(text, {}, {})
    try:
        root = yaml_text.read(text, f"{section}.yaml")
        nodes = root.nodes if isinstance(root.value, dict) and section in root.value else {section: root}
        noun, fields = ("model", MODEL) if section == "models" else ("tool", TOOL)
        found = _each(other, nodes, section, fields, noun)
    except InvalidPlaybook as error:
        other.problems, found = list(error.problems), {}
    for each in other.problems:
        message = f"{section}.yaml:{each.place.line}:{each.place.column}: {each.message}"
        reading.say(Problem(each.code, message, Place(1, 1), each.hint, each.severity))
    return found


def read_retry(reading: Reading, node: Node, owner: str) -> Retry:
    given = read_fields(reading, node, RETRY, owner, open=True)
    jitter = given.value("jitter", False)
    if not isinstance(jitter, bool | int | float):
        reading.at(node.nodes["jitter"], "wrong-type", f"`jitter` of {owner} must be true or false")
        jitter = False
    return Retry(
        attempts=given.value("max_attempts", 1),
        backoff=_backoff(given),
        delay=given.seconds("initial_delay") or 0.0,
        max_delay=given.seconds("max_delay"),
        jitter=0.5 if jitter else 0.0,
        on=_classes(reading, given, owner),
    )


EXCEPTION = re.compile(r"([A-Za-z_]\w*\.)*[A-Z]\w*")  # the name of a class, maybe with its module


def _classes(reading: Reading, given: ReadFields, owner: str) -> tuple[str, ...]:
    """Return the kinds of failures that are worth another try; none: all."""
    kinds: list[str] = []
    classes = given.get("retryable_on")
    for each in classes.nodes if classes is not None else ():
        custom = each.value.get("custom") if isinstance(each.value, dict) else None
        if isinstance(each.value, str) and each.value in CLASSES:
            kinds += CLASSES[each.value]
        elif isinstance(each.value, str) and EXCEPTION.fullmatch(each.value):
            kinds.append(each.value)
        elif isinstance(each.value, str):
            message = f"{owner}: {each.value!r} is no class of failures"
            hint = f"{did_you_mean(each.value, CLASSES)}; `{{custom: text}}` names another kind, or name an exception"
            reading.at(each, "bad-value", message, hint)
        elif isinstance(custom, str):
            kinds.append(custom)
        else:
            message = f"{owner}: a class is a word, or `{{custom: text}}`, not {kind_of(each.value)}"
            reading.at(each, "bad-value", message)
    return tuple(dict.fromkeys(kinds))


def _backoff(given: ReadFields) -> Any:
    backoff = given.value("backoff", "fixed")
    return "fixed" if backoff == "constant" else backoff


def read_short_retry(reading: Reading, node: Node, owner: str) -> Retry:
    """The tries that stand in a node of a graph or a list."""
    given = read_fields(reading, node, SHORT_RETRY, f"`retry` of {owner}")
    delay = given.value("delay_ms")
    longest = given.value("max_delay_ms")
    return Retry(
        attempts=given.value("max_attempts", 1),
        backoff=_backoff(given),
        delay=(given.seconds("initial_delay") or 0.0) if delay is None else delay / 1000,
        max_delay=given.seconds("max_delay") if longest is None else longest / 1000,
        jitter=0.5 if given.value("jitter") is True else 0.0,
        on=_classes(reading, given, f"`retry` of {owner}"),
    )


def _read_timeouts(reading: Reading, draft: GraphDraft, node: Node | None) -> None:
    if node is None or node.value is None:
        return
    given = read_fields(reading, node, TIMEOUTS, "`timeouts`", open=True)
    draft.node_timeout, draft.timeout = given.seconds("node_timeout"), given.seconds("workflow_timeout")
    draft.approval_timeout = given.seconds("approval_timeout")
    interval = given.get("heartbeat_interval")
    if interval is not None:
        reading.warn(interval, "no-effect", "`heartbeat_interval` has no effect", "leave it out")


def read_policy(reading: Reading, node: Node, owner: str) -> NamePolicy:
    given = read_fields(reading, node, POLICY, f"`policy` of {owner}", open=True)
    return NamePolicy(
        tuple(given.value("blocked_tools", ())),
        tuple(given.value("require_approval_for", ())),
        tuple(given.value("model_allowlist", ())),
    )


def _read_budget(reading: Reading, draft: GraphDraft, nodes: Mapping[str, Node]) -> None:
    tokens = nodes.get("token_budget")
    if tokens is not None and tokens.value is not None:
        given = read_fields(reading, tokens, BUDGET, "`token_budget`")
        draft.budget = {UNITS[name]: node.value for name, node in given.found.items()}
    cost = nodes.get("cost_budget_usd")
    if cost is not None and cost.value is not None:
        if isinstance(cost.value, bool) or not isinstance(cost.value, int | float) or cost.value < 0:
            if all(each.place != cost.place for each in reading.problems):  # a table may have said it
                reading.at(cost, "bad-value", "`cost_budget_usd` must be a number that is not negative")
        else:
            draft.budget["usd"] = cost.value
    step = nodes.get("on_budget_exceeded")
    if step is not None and isinstance(step.value, str):
        draft.on_budget = step


def schema_in(value: Any) -> dict[str, Any] | None:
    """Return a JSON Schema, which may be written as a text; None if it is none."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _schema_of(written: str) -> dict[str, Any]:
    """Return the schema of a type by name, such as `str` or `list[str]`; empty if there is none of this name."""
    outer, bracket, inner = written.partition("[")
    if not bracket:
        return {"type": TYPES[written]} if written in TYPES else {}
    if TYPES.get(outer) == "array" and inner.endswith("]"):
        items = _schema_of(inner[:-1])
        return {"type": "array", "items": items} if items else {}
    return {"type": "object"} if TYPES.get(outer) == "object" and inner.endswith("]") else {}


def _read_inputs(reading: Reading, draft: GraphDraft, node: Node | None) -> None:
    """A JSON Schema, or types by name; a text names code, and is not checked."""
    if node is None or node.value in (None, "", {}):
        return
    written = schema_in(node.value)
    if written is not None and isinstance(node.value, str):
        _read_json_schema(reading, draft, Node(written, node.start, node.end))
        return
    if isinstance(node.value, str):
        message = f"`state_schema`: `{cut(node.value)}` names code, which is not read; inputs are not checked"
        reading.warn(node, "no-effect", message, "write a JSON Schema, or `{name: str}`")
        return
    if not isinstance(node.value, dict):
        reading.at(node, "wrong-type", f"`state_schema` must be a map, not {kind_of(node.value)}")
        return
    schema = node.value
    if "properties" in schema or schema.get("type") == "object" or "$schema" in schema:
        _read_json_schema(reading, draft, node)
        return
    inputs = []
    for name, each in node.nodes.items():
        if isinstance(each.value, str) and (schema_of_type := _schema_of(each.value.rstrip("?"))):
            inputs.append(Input(name=name, schema=schema_of_type))
        elif isinstance(each.value, dict) and schema_flaw(each.value) is None:
            inputs.append(Input(name=name, schema=each.value))
            if "default" in each.value:
                draft.defaults[name] = each.value["default"]
        else:
            known = "str, int, float, bool, list, list[str], dict, or a JSON Schema"
            shown = cut(str(each.value)) if isinstance(each.value, str) else kind_of(each.value)
            reading.at(each, "bad-value", f"`state_schema.{name}`: `{shown}` is no type", f"there are {known}")
    draft.inputs = tuple(inputs)


def _read_json_schema(reading: Reading, draft: GraphDraft, node: Node) -> None:
    flaw = schema_flaw(node.value)
    if flaw is not None:
        reading.at(node, "bad-value", f"`state_schema` is not a JSON Schema: {flaw[1]}")
        return
    required = node.value.get("required", [])
    properties: Mapping[str, Any] = node.value.get("properties", {})
    names = dict.fromkeys([*properties, *(each for each in required if isinstance(each, str))])
    inputs = []
    for name in names:
        schema = properties.get(name, {})
        schema = schema if isinstance(schema, dict) else {}
        has_default = "default" in schema
        if has_default:
            draft.defaults[name] = schema["default"]
        inputs.append(Input(name=name, schema=schema, required=name in required and not has_default))
    draft.inputs = tuple(inputs)

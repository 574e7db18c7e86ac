"""What nodes give: from the result of a step to the output of its node, and to the patch of the state."""

import json as standard_json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import DecodeError, json

from refold.core.expressions import CannotEvaluate
from refold.core.read.template_scope import RunScope, step_value
from refold.core.state import BYPASSED, COMPLETED
from refold.templates.jamjet.conditions import plain, text_of
from refold.templates.jamjet.state import JamjetState

PATCH = "$patch"  # the template of a step's patch: what is known about the node

CHOOSES = "after"  # of a node that only chooses: the node before it, whose output its conditions read

Info = Mapping[str, Any]
"""What the plan says of a node: `node`, its sort; `reads`, whose result it is; `key`, `json`, `fields`, and others."""


def info_of(view: RunScope, s: int) -> Info:
    patch = view.graph.step(s).patch
    found: Info = patch[PATCH] if isinstance(patch, dict) and PATCH in patch else {}
    return found


def output_of(view: RunScope, s: int) -> Any:
    """Return the output of a node, as conditions and evaluations read it."""
    info = info_of(view, s)
    sort = info.get("node", "")
    if sort == "join":
        return {"result": outputs(view, info["of_nodes"], info["merge"])}
    if view.state.steps[s].life == BYPASSED or not view.has_result(s):
        return None
    raw = step_value(view.state, view.loaded, s)
    return OUTPUTS[sort](raw, info) if sort in OUTPUTS else plain(raw)


def outputs(view: RunScope, names: list[str], merge: str) -> Any:
    """Return the outputs of nodes that have ended in this pass: all of them in this order, or the first."""
    ended = [s for s in map(view.graph.index.__getitem__, names) if view.state.steps[s].life in (COMPLETED, BYPASSED)]
    if merge == "first":
        done = sorted((s for s in ended if view.has_result(s)), key=lambda s: view.state.steps[s].done_at)
        return output_of(view, done[0]) if done else None
    return [output_of(view, s) for s in ended]


def patch_of(view: RunScope, s: int, info: Info, state: JamjetState) -> Mapping[str, Any]:
    """Return the patch of a node that has completed. Raises CannotEvaluate with the kind of a failure."""
    raw = step_value(view.state, view.loaded, s)
    patch = PATCHES.get(info.get("node", ""))
    return {} if patch is None else patch(raw, info, state, view)


def data_of(raw: Any, info: Info) -> Any:
    """Return the data in the result of a tool."""
    sort = info.get("reads", "")
    if sort == "act":  # the tool that was chosen is the last of the tasks
        task, raw = [*raw.items()][-1] if isinstance(raw, Mapping) and "choose" in raw else ("", raw)
        sort = info["kinds"].get(task, "")
    reads = READS.get(sort)
    return plain(raw) if reads is None else reads(plain(raw))


NO_RESULT = object()


def checked_data(raw: Any, reads: str) -> Any:
    """Return the data that the schema of a node is about; NO_RESULT of a task that has not been completed."""
    if reads == "a2a":
        found = _last(plain(raw))
        if task_state(raw) not in ("", "completed") or (isinstance(found, dict) and found.get("error")):
            return NO_RESULT
    return data_of(raw, {"reads": reads})


def chosen(thought: Any) -> dict[str, Any]:
    """Return the arguments that a model gave with the name of a tool."""
    given = thought.get("input") if isinstance(thought, Mapping) else None
    return dict(given) if isinstance(given, Mapping) else {} if given is None else {"input": given}


def _http(raw: Any) -> Any:
    if isinstance(raw, dict) and "status_code" in raw:
        data = raw.get("data")
        return raw.get("text") if data is None else data
    return raw


def _mcp(raw: Any) -> Any:
    """Structured content, else text that is JSON, else text."""
    if not isinstance(raw, dict) or "result" not in raw or "text" not in raw:
        return raw
    result = raw["result"]
    if isinstance(result, dict) and result.get("structuredContent") is not None:
        return result["structuredContent"]
    return parsed(raw["text"])


def _answer(raw: Any) -> Any:
    """What an agent has answered, which fits its schema."""
    return raw["output"] if isinstance(raw, dict) and "output" in raw else raw


def _agent_task(raw: Any) -> Any:
    """The result of a task of an A2A agent: the data of its artifacts, or their text."""
    found = _last(raw)
    if isinstance(found, dict) and isinstance(found.get("result"), dict):
        found = found["result"]
    if not isinstance(found, dict) or "status" not in found:
        return found
    parts = [part for each in found.get("artifacts") or [] for part in each.get("parts") or []]
    if not parts and isinstance(found["status"], dict):
        parts = (found["status"].get("message") or {}).get("parts") or []
    data = [part["data"] for part in parts if isinstance(part, dict) and "data" in part]
    if data:
        return data[0] if len(data) == 1 else data
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return parsed("\n".join(texts)) if texts else found


ASKS = "input-required"


def task_state(raw: Any) -> str:
    """Return the state of a task of an A2A agent; empty if it says none."""
    found = _last(plain(raw))
    found = found.get("result", found) if isinstance(found, dict) else found
    status = found.get("status") if isinstance(found, dict) else None
    state = status.get("state") if isinstance(status, dict) else status
    return state if isinstance(state, str) else ""


def _last(raw: Any) -> Any:
    """Return the answer to the last request: a task that has not ended at once was asked for again."""
    if isinstance(raw, dict) and "send" in raw and raw.keys() <= {"send", "get"}:
        raw = raw.get("get") or raw["send"]
    return _http(raw)


def _printed(raw: Any) -> Any:
    """What a program has printed: JSON, else text."""
    if not isinstance(raw, dict) or "stdout" not in raw:
        return raw
    return parsed(raw["stdout"].strip())


def _text(raw: Any) -> Any:
    return raw.get("text", raw) if isinstance(raw, dict) and "finish_reason" in raw else raw


READS: Mapping[str, Callable[[Any], Any]] = {
    "http": _http,
    "mcp": _mcp,
    "a2a": _agent_task,
    "agent": _answer,
    "llm": _text,
    "shell": _printed,
    "container": _printed,
}


def parsed(text: Any) -> Any:
    """Return the JSON of a text, also inside the fence that models put around it; the text itself if it is none."""
    if not isinstance(text, str):
        return text
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and len(bare) > 6:
        bare = bare[3:-3].removeprefix("json").strip()
    if bare[:1] not in '{["-0123456789tfn':
        return text
    try:
        return json.decode(bare)
    except (DecodeError, RecursionError, UnicodeError):
        return text


_OF_MODELS = ("text", "content", "tool_calls", "finish_reason")


def answer_of(raw: Any) -> dict[str, Any]:
    """Return the answer of a model as `{content, model, finish_reason, tool_calls}`, whoever has given it."""
    found = _http(plain(raw))
    if isinstance(found, dict) and "stdout" in found:
        found = found["stdout"].strip()
    if not isinstance(found, dict) or not any(name in found for name in _OF_MODELS):
        found = {"content": found}
    content = found["content"] if "content" in found else found.get("text")
    calls = [_tool_call(each, number) for number, each in enumerate(found.get("tool_calls") or [])]
    return {
        "content": "" if content is None else text_of(content),
        "model": found.get("model"),
        "finish_reason": found.get("finish_reason") or ("tool_calls" if calls else "stop"),
        "tool_calls": calls,
    }


def _tool_call(call: Any, number: int) -> dict[str, Any]:
    called = call if isinstance(call, dict) else {}
    function = called["function"] if isinstance(called.get("function"), dict) else called
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError):  # then the tool gets the text, and can say what is wrong with it
            arguments = standard_json.loads(arguments) if arguments.strip() else {}
    return {
        "id": str(called.get("id", number)),
        "name": function.get("name", ""),
        "arguments": {} if arguments is None else arguments,
    }


def _model_output(raw: Any, info: Info) -> dict[str, Any]:
    answer = answer_of(raw)
    value = parsed(answer["content"]) if info.get("json") else answer["content"]
    if info.get("fields") is not None:
        own = value if info.get("json") and isinstance(value, dict) else {}
        return {**answer, "result": answer["content"], **own}
    return {**answer, info["key"]: value} if info.get("key") else answer


def _model_patch(raw: Any, info: Info, state: JamjetState, view: RunScope) -> dict[str, Any]:
    answer = answer_of(raw)
    value = parsed(answer["content"]) if info.get("json") else answer["content"]
    patch = {
        "last_model_output": answer["content"],
        "last_model_finish_reason": answer["finish_reason"],
        "last_model_tool_calls": answer["tool_calls"],
    }
    if info.get("key"):
        patch[info["key"]] = value
    own = value if info.get("json") and isinstance(value, dict) else {}
    return patch | _mapped(info, {"result": answer["content"], "content": answer["content"], **own}, value)


def _function_output(raw: Any, info: Info) -> dict[str, Any]:
    data = data_of(raw, info)
    return data if isinstance(data, dict) else {"result": data}


def _function_patch(raw: Any, info: Info, state: JamjetState, view: RunScope) -> dict[str, Any]:
    if info.get("reads") == "a2a":
        _check_task(raw, info)
    data, output = data_of(raw, info), _function_output(raw, info)
    if info.get("key"):
        return {info["key"]: data}
    return output if info.get("fields") is None else _mapped(info, output, data)


def _check_task(raw: Any, info: Info) -> None:
    """Fail a task that its agent has refused, or has not completed."""
    error = _last(plain(raw))
    error = error.get("error") if isinstance(error, dict) and "result" not in error else None
    if error:
        said = error.get("message", error) if isinstance(error, dict) else error
        raise CannotEvaluate(f"the agent has refused the task: {text_of(said)}", "refused")
    state = task_state(raw)
    if (state == ASKS and not info.get("asks")) or state in ("failed", "canceled", "cancelled", "rejected"):
        raise CannotEvaluate(f"the agent has ended the task as {state}", state)


def _mapped(info: Info, fields: Mapping[str, Any], whole: Any) -> dict[str, Any]:
    """Return the fields that `output_to_state` names under the keys that it names for them."""
    wanted: Mapping[str, str] = info.get("fields") or {}
    patch: dict[str, Any] = {}
    for field, key in wanted.items():
        if field in fields:
            patch[key] = fields[field]
        elif len(wanted) == 1:
            patch[key] = whole
        else:
            there = ", ".join(f"`{name}`" for name in fields) or "none"
            raise CannotEvaluate(
                f"the result has no field `{field}` for the state key `{key}`; it has {there}", "schema"
            )
    return patch


def _gate_output(raw: Any, info: Info) -> dict[str, Any]:
    option, feedback = raw.get("option"), raw.get("feedback")
    decision = {"approve": "approved", "reject": "rejected", None: info.get("undecided")}.get(option, option)
    comment = feedback.get("comment") if isinstance(feedback, dict) else feedback
    return {"decision": decision, "user_id": raw.get("by"), "comment": comment}


def _gate_patch(raw: Any, info: Info, state: JamjetState, view: RunScope) -> dict[str, Any]:
    """An edit that comes with an approval: the map `state_patch` of the feedback, or a feedback that is one."""
    feedback = raw.get("feedback")
    if raw.get("option") != "approve" or not isinstance(feedback, dict):
        return {}
    edit = feedback.get("state_patch", {key: value for key, value in feedback.items() if key != "comment"})
    return edit if isinstance(edit, dict) else {}


def _wait_output(raw: Any, info: Info) -> Any:
    payload = raw.get("value") if isinstance(raw, dict) else None
    return {} if payload is None else plain(payload)


def _wait_patch(raw: Any, info: Info, state: JamjetState, view: RunScope) -> dict[str, Any]:
    payload = _wait_output(raw, info)
    return payload if isinstance(payload, dict) else {}


OUTPUTS: dict[str, Callable[[Any, Info], Any]] = {
    "model": _model_output,
    "function": _function_output,
    "gate": _gate_output,
    "wait": _wait_output,
    "joined": lambda raw, info: {"result": plain(raw)},
}
Patching = Callable[[Any, Info, JamjetState, RunScope], Mapping[str, Any]]
PATCHES: dict[str, Patching] = {
    "model": _model_patch,
    "function": _function_patch,
    "gate": _gate_patch,
    "wait": _wait_patch,
}

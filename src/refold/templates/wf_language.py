"""The expression language of `.wf` plans: `{{name}}` in texts, and conditions that are one marker or one input.

A condition is a text: `step.marker`, the name of an input, `not` before one of them, or `counter < 3`. All else that
a plan needs is written as a map with one key that begins with `$`, which no file can contain; FORMS lists them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from refold.core.expressions import CannotEvaluate, Path, TemplateScope, step_into
from refold.core.plan import Call
from refold.core.read.template_scope import LoopResult, RunScope
from refold.templates.data import LARGEST, TOO_LARGE
from refold.templates.language import Templates
from refold.templates.output_blocks import Unfit, read_answer
from refold.templates.text import paths_of

HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
ENGINE_NAMES = (
    "workflow_run_id",
    "prior_context",
    "prior_contexts",
    "prior_output",
    "prior_output_file",
    "gate_feedback",
    "dry_run",
)
STATUS = "workflow_status"
CONSTANTS = "$wf"  # in the constants of a plan: the project's variables, and the inputs that the file declares
GIVEN = "$given"  # in the input of the run of an `always` block: results, contexts and exports of the run that it ends
RESULT = "result:"  # begins the key of the context under which the result of a step is
EMPTY: Mapping[str, Any] = {"markers": [], "context": "", "output": None}
COUNTED = re.compile(r"(\S+) (<|>=) ([0-9]+)")
PARTS = ("markers", "context", "output")
VARIABLE = re.compile(r"[A-Za-z0-9_]+")


def names_in(text: str) -> list[tuple[str, int]]:
    """Return the names that a text reads, each with the offset of its braces."""
    return [(found[1].strip(), found.start()) for found in HOLE.finditer(text)]


def shown(value: Any) -> str:
    """Return a value as it is put into a text: what is no text is written as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _or_nothing(name: str) -> str:
    return ""


def _quoted(value: str) -> str:
    """Return a value as one word of a shell."""
    return "'" + value.replace("'", "'\\''") + "'"


def rendered(
    text: str,
    scope: TemplateScope,
    unknown: Callable[[str], str] | None,
    as_text: Callable[[str], str] = str,
) -> str:
    """Put values into a text, once. Unknown names become what `unknown` returns; without it they stay."""
    if "{{" not in text:
        return text
    parts, at, size = [], 0, 0
    for found in HOLE.finditer(text):
        try:
            part = as_text(shown(_lookup(found[1].strip(), scope)))
        except (KeyError, CannotEvaluate, TypeError, LookupError):
            part = found[0] if unknown is None else unknown(found[1])
        parts += [text[at : found.start()], part]
        at = found.end()
        size += len(part)
        if size > LARGEST:
            raise CannotEvaluate(TOO_LARGE)
    return "".join([*parts, text[at:]])


def _lookup(name: str, scope: TemplateScope) -> Any:
    item, dot, field = name.partition(".")
    if item == "item" and dot:
        value = scope["item"]
        for part in field.split("."):
            value = step_into(value, part)
        return value
    return scope["variables"][name]


class Variables(Mapping[str, Any]):
    """Every variable of a run by its name, looked up when it is read. Later rules hide earlier ones from the bottom."""

    def __init__(self, view: RunScope) -> None:
        self.view = view
        self.about: Mapping[str, Any] = view.graph.plan.constants.get(CONSTANTS, {})
        self.given: Mapping[str, Any] = view.state.input.get(GIVEN, {})

    def __getitem__(self, name: str) -> Any:
        inputs = self.view.state.input
        if name in ENGINE_NAMES or name == STATUS:
            return self._engine(name)
        exports = self.exports()
        if name in exports:
            return exports[name]
        variables = self.about.get("variables", {})
        if name in variables:
            return variables[name]
        if name in inputs and name != GIVEN:
            return inputs[name]
        failure = self.view.ctx.get("failure") or {}  # what the agent of `on_fail` is told
        return failure[name] if name in failure else self._part(name)

    def _engine(self, name: str) -> Any:
        inputs, view = self.view.state.input, self.view
        if name in self.about.get("inputs", ()) and name in inputs:
            return inputs[name]
        if name == STATUS:
            if "status" in self.given:
                return self.given["status"]
            raise KeyError(name)
        if name == "workflow_run_id":
            return self.given.get("run", view.state.run)
        if name == "gate_feedback":
            return view.ctx.get("gate_feedback", self.given.get("gate_feedback", ""))
        if name == "dry_run":
            return "false"
        entries = self.contexts()
        if name == "prior_contexts":
            return json.dumps(entries, ensure_ascii=False)
        last = entries[-1] if entries else {}
        if name == "prior_context":
            return last.get("context", "")
        if name == "prior_output_file":
            return last.get("output_file") or ""
        output = next((each["structured_output"] for each in reversed(entries) if each["structured_output"]), None)
        return "" if output is None else shown(output)

    def _part(self, name: str) -> Any:
        """Return a part of a result or an input: `STEP.context`, `STEP.output.field`, `inputs.name`."""
        step, dot, path = name.partition(".")
        if not dot:
            raise KeyError(name)
        value: Any = None
        if step == "inputs" and path in self.view.state.input:
            return self.view.state.input[path]
        value = self.result(step)
        if value is None:
            raise KeyError(name)
        for part in path.split("."):
            if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            elif isinstance(value, Mapping):
                value = value[part]
            else:
                raise KeyError(name)
        return value

    def result(self, step: str) -> Mapping[str, Any] | None:
        """Return the latest result under this key."""
        key = f"{RESULT}{step}"
        found: Mapping[str, Any] | None = self.view.ctx.get(key)
        return found if key in self.view.ctx else self.given.get("results", {}).get(step)

    def contexts(self) -> list[Any]:
        own = [entry for _, entry in self.view.ctx.get("contexts", ())]
        return [*self.given.get("contexts", ()), *own]

    def exports(self) -> Mapping[str, str]:
        exports: Mapping[str, str] = self.view.ctx.get("exports") or self.given.get("exports", {})
        return exports

    def __iter__(self) -> Iterator[str]:
        inputs = (name for name in self.view.state.input if name != GIVEN)
        names = dict.fromkeys((*inputs, *self.about.get("variables", {}), *ENGINE_NAMES, *self.exports()))
        return iter([*names, STATUS] if "status" in self.given else names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class WfNames:
    """The names of a run: `variables`, and those that the engine has for arcs and items."""

    def __init__(self, view: RunScope) -> None:
        self.view, self.variables = view, Variables(view)

    def __getitem__(self, name: str) -> Any:
        return self.variables if name == "variables" else self.view[name]


class WfLanguage:
    """Implements `Evaluate`. Texts of bindings are templates as in playbooks, and stand under `$expr`."""

    def __init__(self) -> None:
        self._templates = Templates()

    def names(self, view: TemplateScope) -> TemplateScope:
        return WfNames(view) if isinstance(view, RunScope) else view

    def value(self, template: Any, view: TemplateScope) -> Any:
        return self._value(template, self.names(view))

    def truth(self, template: Any, view: TemplateScope) -> bool:
        scope = self.names(view)
        if isinstance(template, str):
            return _holds(template, scope)
        return bool(self._value(template, scope))

    def paths(self, template: Any) -> Sequence[Path]:
        return list(_paths(template))

    def _value(self, template: Any, scope: TemplateScope) -> Any:
        if isinstance(template, str):
            return rendered(template, scope, _or_nothing)
        if isinstance(template, dict):
            if len(template) == 1:
                (name,) = template
                if name.startswith("$"):
                    form = FORMS.get(name)
                    if form is None:
                        raise CannotEvaluate(f"{name} is not known here; a newer Refold may know it")
                    return form(self, template[name], scope)
            return {name: self._value(each, scope) for name, each in template.items()}
        if isinstance(template, list | tuple):
            return [self._value(each, scope) for each in template]
        return template

    def plain(self, template: Any, scope: TemplateScope) -> Any:
        return template

    def keep(self, template: Any, scope: TemplateScope) -> Any:
        """Texts in which unknown names stay as they are written."""
        return _each_text(template, lambda text: rendered(text, scope, None))

    def shell(self, text: str, scope: TemplateScope) -> str:
        """A text in which each value is quoted for the shell."""
        return rendered(text, scope, lambda name: "", _quoted)

    def expr(self, template: Any, scope: TemplateScope) -> Any:
        """A template of bindings; with `names`, these are values that it can read besides."""
        if not isinstance(template, dict) or template.keys() != {"names", "in"}:
            return self._templates.value(template, scope)
        return self._templates.value(template["in"], _With(self._value(template["names"], scope), scope))

    def variables(self, template: Any, scope: TemplateScope) -> dict[str, Any]:
        variables = scope["variables"]
        return {name: value for name, value in ((name, variables[name]) for name in variables) if value is not None}

    def environment(self, pairs: Mapping[str, str], scope: TemplateScope) -> dict[str, str]:
        """The variables of the environment of a script: the run's inputs, and those of the script over them."""
        env = {
            f"CONDUCTOR_{name.upper()}": shown(value).replace("\0", "")
            for name, value in _view(scope).state.input.items()
            if VARIABLE.fullmatch(name)
        }
        own = {name: rendered(text, scope, _or_nothing).replace("\0", "") for name, text in pairs.items()}
        return {**env, **own}

    def item(self, template: Mapping[str, Any], scope: TemplateScope) -> dict[str, Any]:
        """The inputs of a child for one item; its `id` and `ref` are computed by the bindings."""
        raw = scope["item"]
        fields = dict(raw) if isinstance(raw, Mapping) else {"value": raw}
        computed = {name: template[name] for name in ("ref", "id") if template.get(name) is not None}
        fields |= {name: self._templates.value(each, scope) for name, each in computed.items()}
        within = _With({"item": fields}, scope)
        return {name: rendered(text, within, None) for name, text in template["inputs"].items()}

    def after(self, key: str, scope: TemplateScope) -> dict[str, Any]:
        """The keys of the context that a step sets when it has succeeded: its result, and its exports if it has any."""
        answer, variables = _answer(scope), _variables(scope)
        found = {f"{RESULT}{key}": {name: answer[name] for name in PARTS}, "last": key}
        exports = _allowed(variables, answer["exports"])
        if exports:
            found["exports"] = {**variables.exports(), **exports}
            found["own_exports"] = {**(_view(scope).ctx.get("own_exports") or {}), **exports}
        return found

    def entry(self, template: Mapping[str, Any], scope: TemplateScope) -> list[Any]:
        """The entry in the list of contexts of the step that has just ended, as a list of one."""
        return [_entry(template, scope, _answer(scope))]

    def noted(self, template: Mapping[str, Any], scope: TemplateScope) -> dict[str, Any]:
        """What a branch leaves until its block ends."""
        answer = _answer(scope)
        return {"key": template["key"], **{name: answer[name] for name in (*PARTS, "exports")}}

    def branches(self, template: Mapping[str, Any], scope: TemplateScope) -> Any:
        """What the branches of a block have left, in the order of the file: their entries, exports or results."""
        variables: Variables = scope["variables"]
        ctx = _view(scope).ctx
        notes = [note for name in template["keys"] if (note := ctx.get(name)) is not None]
        match template["what"]:
            case "contexts":
                done = [note for note in notes if not note.get("empty")]
                return [_entry({**template, "key": note["key"]}, scope, note) for note in done]
            case "exports":
                merged = dict(variables.exports())
                for note in notes:
                    merged |= _allowed(variables, note.get("exports", {}))
                return merged
            case "last":
                ended = [note["key"] for note in notes if not note.get("empty")]
                return ended[-1] if ended else ctx.get("last")
            case _:
                note = next((each for each in reversed(notes) if each["key"] == template["key"]), None)
                return variables.result(template["key"]) if note is None else {name: note[name] for name in PARTS}

    def child(self, key: str, scope: TemplateScope) -> dict[str, Any]:
        """The keys of the context that a child run sets: its result, those of its own steps over it, its exports."""
        data, variables = _data(scope), _variables(scope)
        steps = data.get("steps", {})
        found = {f"{RESULT}{key}": _child_result(data), **{f"{RESULT}{name}": each for name, each in steps.items()}}
        exports = _allowed(variables, data.get("exports", {}))
        return {**found, "last": key, **({"exports": {**variables.exports(), **exports}} if exports else {})}

    def child_entries(self, template: Mapping[str, Any], scope: TemplateScope) -> list[Any]:
        """The entries in the list of contexts of a child run: those of its own steps, and its own."""
        data = _data(scope)
        theirs = [[False, entry] for entry in data.get("contexts", ())]
        return [*theirs, _entry(template, scope, _child_result(data))]

    def foreach(self, template: Mapping[str, Any], scope: TemplateScope) -> Any:
        """The result, or the entry in the list of contexts, of a loop over items."""
        fan = scope["output"]["data"]
        items = list(_items(fan)) if isinstance(fan, LoopResult) else []
        counts = {state: sum(each["status"] == state for each in items) for state in ("completed", "failed")}
        skipped = len(items) - sum(counts.values())
        context = (
            f"foreach {template['key']}: {counts['completed']} completed, {counts['failed']} failed,"
            f" {skipped} skipped of {len(items)} {template['over']}"
        )
        made = {"markers": [], "context": context, "output": {"items": items}}
        if template["what"] == "entry":
            return [_entry(template, scope, made)]
        return {f"{RESULT}{template['key']}": made, "last": template["key"]}

    def run_result(self, template: Mapping[str, Any], scope: TemplateScope) -> dict[str, Any]:
        """The result of a run: of its last step, and of all of them; for a parent also contexts and exports."""
        view, variables = _view(scope), _variables(scope)
        last = view.ctx.get("last")
        result = (variables.result(last) if last is not None else None) or EMPTY
        found = {name: result[name] for name in PARTS}
        steps = {key: value for key in template["keys"] if (value := variables.result(key)) is not None}
        if view.state.parent is None:
            return {**found, "steps": steps}
        contexts = [entry for own, entry in view.ctx.get("contexts", ()) if own]
        return {**found, "steps": steps, "contexts": contexts, "exports": dict(view.ctx.get("own_exports", {}))}

    def own_branch_exports(self, template: Mapping[str, Any], scope: TemplateScope) -> dict[str, str]:
        ctx = _view(scope).ctx
        merged: dict[str, str] = {**(ctx.get("own_exports") or {})}
        for name in template["keys"]:
            merged |= _allowed(_variables(scope), (ctx.get(name) or {}).get("exports", {}))
        return merged

    def always(self, template: Any, scope: TemplateScope) -> dict[str, Any]:
        """The input of the run of an `always` block: the inputs of this run, and all that it has done."""
        view, variables = _view(scope), _variables(scope)
        results = {
            key.removeprefix(RESULT): value for key, value in view.ctx.items() if key.startswith(RESULT) and value
        }
        given = {
            "results": results,
            "contexts": variables.contexts(),
            "exports": dict(variables.exports()),
            "gate_feedback": variables["gate_feedback"],
            "status": view.state.outcome or "completed",
            "run": view.state.run,
        }
        return {**view.state.input, GIVEN: given}

    def feedback(self, template: Any, scope: TemplateScope) -> str:
        """What the person at a gate has said or chosen, as a text."""
        data = scope["output"]["data"]
        data = data if isinstance(data, Mapping) else {}
        chosen = data.get("choices")
        if chosen:
            return ", ".join(map(shown, chosen))
        if data.get("option") is None:
            return shown(_variables(scope)["gate_feedback"])
        return shown(data["feedback"]) if data.get("feedback") is not None else ""

    def options(self, template: Mapping[str, str], scope: TemplateScope) -> Any:
        """The options of a gate that an earlier step has named."""
        result = _variables(scope).result(template["step"]) or {}
        output = result.get("output")
        found = output.get(template["field"]) if isinstance(output, Mapping) else None
        if isinstance(found, list) and found and all(isinstance(each, str) for each in found):
            return list(found)
        if isinstance(found, Mapping) and found and all(isinstance(each, str) for each in found.values()):
            return dict(found)
        name = f"{template['step']}.{template['field']}"
        raise CannotEvaluate(f"the options `{name}` are neither a list of texts nor a map of texts to labels")

    def output(self, template: Sequence[str], scope: TemplateScope) -> Any:
        """A field of the output of a step; raises CannotEvaluate if there is none."""
        step, field = template
        output = (_variables(scope).result(step) or {}).get("output")
        if not isinstance(output, Mapping) or field not in output:
            raise CannotEvaluate(f"the output of `{step}` has no `{field}`")
        return output[field]

    def known(self, step: str, scope: TemplateScope) -> bool:
        """Whether a step has left a result."""
        return bool(_variables(scope).result(step))

    def count(self, key: str, scope: TemplateScope) -> int:
        """A counter in the context, and one more."""
        number = _view(scope).ctx.get(key) or 0
        return int(number) + 1

    def variable(self, name: str, scope: TemplateScope) -> Any:
        """One variable, or null."""
        try:
            return _lookup(name, scope)
        except (LookupError, CannotEvaluate):
            return None

    def join(self, parts: Sequence[Any], scope: TemplateScope) -> str:
        """The parts of a prompt, each behind an empty line."""
        return "\n\n".join(text for part in parts if (text := str(self._value(part, scope))))

    def enough_succeeded(self, template: Mapping[str, Any], scope: TemplateScope) -> bool:
        """Whether fewer calls have failed than the limit."""
        ctx = _view(scope).ctx
        return sum(ctx.get(key) is not None for key in template["keys"]) < int(template["limit"])

    def failures(self, template: Mapping[str, Any], scope: TemplateScope) -> str:
        """What branches have failed, and why."""
        ctx = _view(scope).ctx
        failed = [str(ctx[key]) for key in template["keys"] if ctx.get(key) is not None]
        return f"{len(failed)} of {len(template['keys'])} calls failed{template['wanted']}: {'; '.join(failed)}"

    def named(self, template: Mapping[str, Any], scope: TemplateScope) -> str:
        return f"{template['name']}: {self._value(template['in'], scope)}"

    def is_error(self, kind: str, scope: TemplateScope) -> bool:
        return bool(self.error("kind", scope) == kind)

    def holds(self, template: Any, scope: TemplateScope) -> bool:
        """Whether a condition of bindings holds."""
        if isinstance(template, dict) and len(template) == 1 and next(iter(template)) in FORMS:
            return bool(self._value(template, scope))
        return self._templates.truth(template, scope)

    def either(self, templates: Sequence[Any], scope: TemplateScope) -> bool:
        return any(self.holds(each, scope) for each in templates)

    def pr_checks(self, template: Any, scope: TemplateScope) -> bool:
        """Whether there are checks of a pull request, and all have passed."""
        checks = _printed(scope)
        states = [each.get("state") for each in checks if isinstance(each, dict)] if isinstance(checks, list) else []
        return bool(states) and all(state in ("SUCCESS", "SKIPPED") for state in states)

    def pr_approval(self, template: Mapping[str, Any], scope: TemplateScope) -> bool:
        """Whether a pull request is approved: by its decision, or by enough people who are not its author."""
        about = _printed(scope)
        if not isinstance(about, dict):
            return False
        if template["mode"] == "review_decision":
            return bool(about.get("reviewDecision") == "APPROVED")
        author = _login(about)
        latest: dict[Any, str] = {}
        for review in about.get("reviews") or ():
            if isinstance(review, dict) and review.get("state") in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
                latest[_login(review)] = review["state"]
        approved = sum(state == "APPROVED" for who, state in latest.items() if who != author)
        return approved >= int(template["least"])

    def same(self, template: Mapping[str, str], scope: TemplateScope) -> Any:
        """How many passes in a row have ended with the markers of this one."""
        ctx, now = _view(scope).ctx, _markers(template["step"], scope)
        return int(ctx.get(template["same"]) or 0) + 1 if now == ctx.get(template["last"]) else 1

    def markers(self, step: str, scope: TemplateScope) -> list[str]:
        """The markers of a step, sorted, each once."""
        return _markers(step, scope)

    def error(self, field: str, scope: TemplateScope) -> Any:
        """A part of the error that an arc handles."""
        error = scope["error"]
        return step_into(error, field) if error is not None else None

    def kept(self, key: str, scope: TemplateScope) -> Any:
        """A value of the context."""
        return _view(scope).ctx.get(key)


FORMS: Mapping[str, Callable[[WfLanguage, Any, TemplateScope], Any]] = {
    f"${name}": getattr(WfLanguage, name)
    for name in [
        "plain",
        "keep",
        "shell",
        "expr",
        "variables",
        "environment",
        "item",
        "after",
        "entry",
        "noted",
        "branches",
        "own_branch_exports",
        "child",
        "child_entries",
        "foreach",
        "run_result",
        "always",
        "feedback",
        "options",
        "output",
        "known",
        "count",
        "same",
        "markers",
        "error",
        "kept",
        "variable",
        "join",
        "enough_succeeded",
        "failures",
        "named",
        "is_error",
        "holds",
        "either",
        "pr_checks",
        "pr_approval",
    ]
}


def _each_text(value: Any, render: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return render(value)
    if isinstance(value, Mapping):
        return {name: _each_text(each, render) for name, each in value.items()}
    return [_each_text(each, render) for each in value] if isinstance(value, list | tuple) else value


def _paths(template: Any) -> Iterator[Path]:
    """Yield what a template reads of the run, so that the items of a loop have it."""
    if isinstance(template, str):
        yield from (("variables", name) for name, _ in names_in(template) if not name.startswith("item."))
    elif isinstance(template, Mapping):
        if template.keys() == {"$plain"}:
            return
        if template.keys() == {"$expr"}:
            yield from paths_of(template["$expr"])
            return
        for each in template.values():
            yield from _paths(each)
    elif isinstance(template, list | tuple):
        for each in template:
            yield from _paths(each)


class _With:
    """A scope with further names."""

    def __init__(self, names: Mapping[str, Any], scope: TemplateScope) -> None:
        self._names, self._scope = names, scope

    def __getitem__(self, name: str) -> Any:
        return self._names[name] if name in self._names else self._scope[name]


def _view(scope: TemplateScope) -> RunScope:
    if not isinstance(scope, WfNames):
        raise CannotEvaluate("this cannot be read here")
    return scope.view


def _variables(scope: TemplateScope) -> Variables:
    variables: Variables = scope["variables"]
    return variables


def _data(scope: TemplateScope) -> Mapping[str, Any]:
    data = scope["output"]["data"]
    return data if isinstance(data, Mapping) else {}


def _printed(scope: TemplateScope) -> Any:
    """Return the JSON that a program has printed, or null."""
    try:
        return json.loads(_data(scope).get("stdout", ""))
    except (ValueError, RecursionError):
        return None


def _login(value: Mapping[str, Any]) -> Any:
    author = value.get("author")
    return author.get("login") if isinstance(author, Mapping) else None


def _answer(scope: TemplateScope) -> Mapping[str, Any]:
    """Return the answer of the step that has just ended. A fake may give its block, or the text of a program."""
    data, settings, script = scope["output"]["data"], {}, False
    if isinstance(data, Mapping) and data.keys() == {*PARTS, "exports"}:
        return data
    work = _view(scope).graph.step(scope["output"].s).work
    if isinstance(work, Call):
        settings, script = work.settings, work.tool == "shell"
    if script and isinstance(data, Mapping) and "stdout" in data:
        data = data["stdout"]
    value = dict(data) if isinstance(data, Mapping) else data if isinstance(data, str) else ""
    try:
        return read_answer(value, settings.get("rules"), (), script).result()
    except Unfit as error:
        raise CannotEvaluate(str(error)) from None


def _allowed(variables: Variables, exports: Mapping[str, str]) -> dict[str, str]:
    """Return the exports without names of the engine and of the project's variables."""
    refused = {*ENGINE_NAMES, STATUS, *variables.about.get("variables", {})}
    return {name: value for name, value in exports.items() if name not in refused}


def _entry(template: Mapping[str, Any], scope: TemplateScope, answer: Mapping[str, Any]) -> list[Any]:
    """Return an entry of the list of contexts, marked as that of a step of this run itself."""
    passes = template.get("passes")
    entry = {
        "step": template["key"],
        "iteration": max(0, int(_view(scope).ctx.get(passes) or 0) - 1) if passes else 0,
        "context": answer["context"],
        "markers": answer["markers"],
        "structured_output": answer["output"],
        "output_file": None,
    }
    return [True, entry]


def _child_result(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"markers": data.get("markers", []), "context": data.get("context", ""), "output": None}


def _items(fan: LoopResult) -> Iterator[dict[str, Any]]:
    for key, each in zip(fan["keys"], fan["items"], strict=True):
        result = each["result"]
        output = result.get("output") if isinstance(result, Mapping) else None
        yield {"item_id": key, "status": each["status"], "output": output}


def _markers(step: str, scope: TemplateScope) -> list[str]:
    return sorted(set((_variables(scope).result(step) or EMPTY)["markers"]))


def _holds(condition: str, scope: TemplateScope) -> bool:
    """Whether a marker is among those of a step, or an input is `true`; `not` before it turns it round. Conditions
    of loops compare a counter of the context with a number."""
    compared = COUNTED.fullmatch(condition)
    if compared is not None:
        count = int(_view(scope).ctx.get(compared[1]) or 0)
        return count < int(compared[3]) if compared[2] == "<" else count >= int(compared[3])
    negated = condition.startswith("not ")
    name = condition.removeprefix("not ")
    step, dot, marker = name.rpartition(".")
    if dot:
        return (marker in (_variables(scope).result(step) or EMPTY)["markers"]) != negated
    value = _view(scope).state.input.get(name)
    return (shown(value).lower() == "true") != negated

"""The language of plans that were read from JamJet files: implements `Evaluate`.

A template is data. A text may have `{{ … }}` in it. A map with a single key that begins with `$` is a form:

    $if, $unless   whether a way is taken: its condition holds, and none of those before it
    $timer, $asked, $action    further conditions of a way: how the visit has ended
    $judge         the messages for the judge of an evaluation; `$judged` is what it judges
    $value         the value of a condition
    $plain         a value as it is
    $map           a map whose keys begin with a dollar
    $act           the arguments for the tool that a model has chosen
    $input         an input of the run, as it was given
    $json          a value as JSON text
    $task          an id for this visit of a node
    $state         the whole state
    $output        the output of a node; `$outputs` those of several
    $messages      what a model is sent
    $patch         the keys that the result of a node changes
    $outcome       whether the run ends in this way
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from refold.core.expressions import CannotEvaluate, Path, TemplateScope
from refold.core.read.template_scope import RunScope, step_value
from refold.templates.jamjet import conditions, evaluations, results
from refold.templates.jamjet.conditions import plain
from refold.templates.jamjet.results import CHOOSES
from refold.templates.jamjet.state import JamjetState, about, keys_of
from refold.templates.language import Templates
from refold.templates.tokens import Wrong

GUARDS = frozenset({"$timer", "$asked", "$action"})
"""Forms that ask how a visit has ended: by a timer, with a question of an agent, with what an evaluation says."""


class JamjetNames:
    """What expressions can read: `state`, `output` of the visit that has just ended, and perhaps keys as bare names."""

    def __init__(self, view: RunScope) -> None:
        self.view = view
        self.state = JamjetState(view)
        self.bare = bool(about(view).get("bare"))

    def output(self) -> Any:
        ended = self.view.extra.get("output")
        return None if ended is None else self.output_of(ended.s)

    def own_fields(self) -> Any:
        """The output whose fields are bare names: a node that only chooses has none."""
        ended = self.view.extra.get("output")
        return None if ended is None or CHOOSES in results.info_of(self.view, ended.s) else self.output_of(ended.s)

    def output_of(self, s: int) -> Any:
        info = results.info_of(self.view, s)
        if CHOOSES in info:  # it looks at the output of the node before it
            return self.output_of(self.view.graph.index[info[CHOOSES]])
        if "of" in info:
            return self.output_of(self.view.graph.index[info["of"]])
        if info.get("node") != "eval":
            return results.output_of(self.view, s)
        raw = step_value(self.view.state, self.view.loaded, s)
        return evaluations.judged(raw, info, self.view, self.state, self.bare)

    def root(self, name: str) -> Any:
        if name == "state":
            return self.state
        if name == "output":
            return self.output()
        found = self.own_fields()
        if isinstance(found, Mapping) and name in found:
            return found[name]
        return self.state.get(name)

    def __getitem__(self, name: str) -> Any:
        """Look up a name of a text with expressions."""
        if name == "state":
            return self.state
        if self.bare and name in self.state:
            return self.state[name]
        raise CannotEvaluate(f"{name!r} is not defined")


class _FinalState(JamjetNames):
    """What expressions over the end of a child run read: `state` is that of the child."""

    def __init__(self, names: JamjetNames, final: Any) -> None:
        super().__init__(names.view)
        self.final = final if isinstance(final, dict) else {}

    def root(self, name: str) -> Any:
        return self.final if name == "state" else self.final.get(name)

    def __getitem__(self, name: str) -> Any:
        if name == "state":
            return self.final
        if self.bare and name in self.final:
            return self.final[name]
        raise CannotEvaluate(f"{name!r} is not defined")


class _Texts(Templates):
    """Texts with expressions, whose names are those of a JamJet run."""

    def __init__(self) -> None:
        super().__init__("chainable")

    def names(self, view: TemplateScope) -> TemplateScope:
        return view


class JamjetLanguage:
    def __init__(self) -> None:
        self._texts = _Texts()
        self._forms: dict[str, Callable[[Any, JamjetNames], Any]] = {
            "$value": self._condition,
            "$text": self._text,
            "$plain": lambda value, names: value,
            "$map": lambda pairs, names: {name: self._value(each, names) for name, each in pairs},
            "$act": lambda key, names: results.chosen(names.state.get(key)),
            "$chosen": lambda key, names: (names.state.get(key) or {}).get("action"),
            "$input": lambda name, names: names.view.state.input.get(name),
            "$json": lambda value, names: conditions.text_of(self._value(value, names)),
            "$judge": self._judge,
            "$judged": lambda info, names: evaluations.subject_of(names.view, info, names.state, names.bare).output,
            "$state": lambda value, names: names.state.whole(),
            "$output": lambda name, names: results.output_of(names.view, names.view.graph.index[name]),
            "$task": self._task,
            "$outputs": lambda given, names: results.outputs(names.view, given, "collect"),
            "$messages": self._messages,
            "$patch": self._patch,
        }

    def names(self, view: TemplateScope) -> TemplateScope:
        return view

    def value(self, template: Any, view: Any) -> Any:
        return plain(self._value(template, JamjetNames(view)))

    def truth(self, template: Any, view: Any) -> bool:
        if isinstance(template, dict) and ("$if" in template or GUARDS.intersection(template)):
            names = JamjetNames(view)
            if not all(self._guarded(form, wanted, names) for form, wanted in template.items() if form in GUARDS):
                return False
            if any(self._condition(each, names) for each in template.get("$unless", ())):
                return False
            return template.get("$if") is None or bool(self._condition(template["$if"], names))
        if isinstance(template, dict) and "$outcome" in template:
            return bool(view.state.outcome == template["$outcome"])
        return bool(template)

    def _guarded(self, form: str, wanted: Any, names: JamjetNames) -> bool:
        view, ended = names.view, names.view.extra["output"].s
        if form == "$action":
            return bool(names.state.get("eval_action") == wanted)
        raw = step_value(view.state, view.loaded, ended)
        if form == "$timer":
            return (isinstance(raw, Mapping) and raw.get("by") == "timer") is wanted
        return (results.task_state(raw) == results.ASKS) is wanted

    def _judge(self, given: Mapping[str, Any], names: JamjetNames) -> list[Any]:
        return evaluations.judge_messages(given, names.view, given["info"], names.state, names.bare)

    def _task(self, name: str, names: JamjetNames) -> str:
        """An id for what a node asks of somebody else in this visit, the same for all of its tries."""
        state, s = names.view.state, names.view.graph.index[name]
        return f"{state.run}-{s}-{state.steps[s].visits}"

    def paths(self, template: Any) -> Sequence[Path]:
        return ()

    def _value(self, template: Any, names: JamjetNames) -> Any:
        if isinstance(template, str):
            return self._text(template, names)
        if isinstance(template, (list, tuple)):
            return [self._value(each, names) for each in template]
        if not isinstance(template, dict):
            return template
        if len(template) == 1:
            (form, given), *_ = template.items()
            if form in self._forms:
                return self._forms[form](given, names)
        return {name: self._value(each, names) for name, each in template.items()}

    def _text(self, text: str, names: JamjetNames) -> Any:
        return self._texts.value(text, names)

    def _condition(self, text: str, names: JamjetNames) -> Any:
        try:
            return conditions.read(text, names.bare).value(names)
        except Wrong as wrong:
            raise CannotEvaluate(f"{wrong.message} (character {wrong.at + 1} of {text!r})") from None

    def _messages(self, given: Mapping[str, Any], names: JamjetNames) -> list[Any]:
        """The messages for a model: those of the state if there is no prompt."""
        system, prompt = given.get("system"), given.get("prompt")
        before = [] if system is None else [{"role": "system", "content": self._shown(system, names)}]
        if prompt:
            return [*before, {"role": "user", "content": self._shown(prompt, names)}]
        messages = names.state.get("messages")
        if not isinstance(messages, list) or not messages:
            raise CannotEvaluate("the model has no prompt, and the state has no `messages`")
        has_system = isinstance(messages[0], dict) and messages[0].get("role") == "system"
        return [*([] if has_system else before), *messages]

    def _shown(self, text: str, names: JamjetNames) -> str:
        value = self._text(text, names)
        return "" if value is None else conditions.text_of(value)

    def _patch(self, info: results.Info, names: JamjetNames) -> dict[str, Any]:
        view, ended = names.view, names.view.extra["output"].s
        if info.get("node") == "child":
            final = _FinalState(names, plain(step_value(view.state, view.loaded, ended)))
            return keys_of({key: self._value(each, final) for key, each in info["outputs"].items()}, names.state)
        if info.get("node") != "eval":
            return keys_of(results.patch_of(view, ended, info, names.state), names.state)
        raw = step_value(view.state, view.loaded, ended)
        patch = keys_of(evaluations.patch_of(raw, info, view, names.state, names.bare), names.state)
        again = patch["eval_action"] == "retry"
        return {**patch, evaluations.counter(info["name"]): evaluations.sent_back(info, view) + 1 if again else None}

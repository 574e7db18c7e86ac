"""Evaluations: what scorers say of the output of a node, and what follows when one of them is not satisfied."""

from collections.abc import Mapping
from typing import Any

from refold.core.expressions import CannotEvaluate
from refold.core.outcomes import SECOND
from refold.core.read.template_scope import RunScope
from refold.templates.jamjet import conditions
from refold.templates.jamjet.conditions import text_of
from refold.templates.jamjet.results import Info, answer_of, output_of, parsed
from refold.templates.jamjet.state import JamjetState

WORST, BEST = 1, 5  # scores of a judge
RETRY, ESCALATE, HALT, LOG = "retry_with_feedback", "escalate", "halt", "log_and_continue"


class EvaluationScope:
    """What expressions of an evaluation read: `output` is what is judged."""

    def __init__(self, state: JamjetState, output: Any, bare: bool) -> None:
        self.state, self.output, self.bare = state, output, bare

    def root(self, name: str) -> Any:
        if name == "state":
            return self.state
        if name == "output":
            return self.output
        if isinstance(self.output, Mapping) and name in self.output:
            return self.output[name]
        return self.state.get(name)


def subject_of(view: RunScope, info: Info, state: JamjetState, bare: bool) -> EvaluationScope:
    """Return what an evaluation judges: the value of its expression, or the output of the node before it."""
    before = info.get("subject")
    output = None if not before else output_of(view, view.graph.index[before])
    subject = EvaluationScope(state, output, bare)
    if info.get("expression"):
        subject.output = conditions.read(info["expression"], bare).value(subject)
    return subject


def judged(raw: Any, info: Info, view: RunScope, state: JamjetState, bare: bool) -> dict[str, Any]:
    """Return the output of an evaluation: `{passed, scorers}`."""
    subject = subject_of(view, info, state, bare)
    results = raw if isinstance(raw, Mapping) else {}
    scorers = [
        _scored(each, results.get(f"scorer_{at}"), subject, view, info) for at, each in enumerate(info["scorers"])
    ]
    return {"passed": all(each["passed"] for each in scorers), "scorers": scorers}


def _scored(
    scorer: Mapping[str, Any], raw: Any, subject: EvaluationScope, view: RunScope, info: Info
) -> dict[str, Any]:
    match scorer["type"]:
        case "assertion":
            failed = [text for text in scorer["checks"] if not conditions.read(text, subject.bare).value(subject)]
            return _verdict(scorer, not failed, f"not true: {'; '.join(failed)}" if failed else "")
        case "llm_judge":
            return _of_judge(scorer, raw)
        case "latency":
            took = _step(view, info).took * 1000 / SECOND
            over = took > scorer["threshold_ms"]
            why = f"it took {took:g} ms, and {scorer['threshold_ms']:g} ms are allowed" if over else ""
            return {**_verdict(scorer, not over, why), "score": took}
        case "cost":
            cost = _step(view, info).used.get("usd", 0)
            over = cost > scorer["threshold_usd"]
            why = f"it cost {cost:g} USD, and {scorer['threshold_usd']:g} are allowed" if over else ""
            return {**_verdict(scorer, not over, why), "score": cost}
        case _:
            return _of_code(scorer, raw)


def _step(view: RunScope, info: Info) -> Any:
    return view.state.steps[view.graph.index[info["subject"]]]


def _verdict(scorer: Mapping[str, Any], passed: bool, why: str) -> dict[str, Any]:
    return {"scorer": scorer["type"], "passed": passed, "score": None, "message": why}


def _of_judge(scorer: Mapping[str, Any], raw: Any) -> dict[str, Any]:
    """A judge answers `{score, reason}`; an answer that cannot be read is a failed judgement."""
    answer = parsed(answer_of(raw)["content"])
    score = answer.get("score") if isinstance(answer, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not WORST <= score <= BEST:
        return _verdict(scorer, False, "the answer of the judge cannot be read")
    reason = answer.get("reason", "")
    passed = score >= scorer["min_score"]
    why = "" if passed else f"the judge gave {score:g} of {BEST}, and {scorer['min_score']:g} are needed: {reason}"
    return {**_verdict(scorer, passed, why), "score": score, "reason": reason}


def _of_code(scorer: Mapping[str, Any], raw: Any) -> dict[str, Any]:
    """A scorer of its own returns a truth value, a number up to 1, or `{passed, message}`."""
    if isinstance(raw, Mapping) and "passed" in raw:
        message = raw.get("message", raw.get("reason", ""))
        passed = raw["passed"] is True
        return {**_verdict(scorer, passed, text_of(message)), **({"score": raw["score"]} if "score" in raw else {})}
    passed = bool(raw) if isinstance(raw, bool) else isinstance(raw, int | float) and raw >= 1
    return _verdict(scorer, passed, "" if passed else f"{scorer.get('module', 'the scorer')} is not satisfied")


def counter(node: str) -> str:
    """Return the key of the context that counts how often an evaluation has sent the work back."""
    return f"$eval.{node}"


def action_of(output: Mapping[str, Any], info: Info, view: RunScope) -> str:
    """Return what follows: `pass`, `retry`, `escalate` or `log`. Raises CannotEvaluate where the node fails."""
    if output["passed"]:
        return "pass"
    if info["on_fail"] == ESCALATE:
        return "escalate"
    if info["on_fail"] == LOG:
        return "log"
    if info["on_fail"] == RETRY and sent_back(info, view) < info["most"]:
        return "retry"
    messages = "; ".join(each["message"] for each in output["scorers"] if not each["passed"])
    raise CannotEvaluate(f"the evaluation failed: {messages}", "eval")


def sent_back(info: Info, view: RunScope) -> int:
    return int(view.ctx.get(counter(info["name"])) or 0)


def patch_of(raw: Any, info: Info, view: RunScope, state: JamjetState, bare: bool) -> dict[str, Any]:
    output = judged(raw, info, view, state, bare)
    action = action_of(output, info, view)
    patch = {"eval_passed": output["passed"], "eval_action": action, "eval_results": output["scorers"]}
    if action == "retry":
        patch["eval_feedback"] = [each["message"] for each in output["scorers"] if not each["passed"]]
    return patch


def judge_messages(given: Mapping[str, Any], view: RunScope, info: Info, state: JamjetState, bare: bool) -> list[Any]:
    """The prompt of a judge: the rubric, what is judged, and the form of the answer."""
    output = subject_of(view, info, state, bare).output
    system = (
        "You judge a piece of work by a rubric. Answer with JSON only, in the form"
        f' {{"score": {WORST} to {BEST}, "reason": "one sentence"}}.'
    )
    prompt = f"The rubric:\n{given['rubric']}\n\nThe work:\n{text_of(output)}"
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt}]

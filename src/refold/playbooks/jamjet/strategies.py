"""The strategies of agents, unrolled: the nodes of each, the ways between them, and the prompts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from refold.playbooks.jamjet.drafts import NodeDraft, Way
from refold.playbooks.jamjet.fields import ReadFields
from refold.playbooks.yaml.text import Node

LIMIT, FINALIZE, END = "__limit_exceeded__", "__finalize__", "end"
COST = "state.__cost_exceeded__"
FINISH = "FINISH"


class AgentDraft(Struct):
    """An agent as it was read. `rounds` is the most rounds that it may go through."""

    id: str
    strategy: str
    goal: str
    model: str
    rounds: int
    config: Mapping[str, Any]
    tools: Mapping[str, Mapping[str, Any]]  # what is known about each
    node: Node


class Unrolled:
    """Collects the nodes of an unrolled strategy, in the order in which they are written."""

    def __init__(self, agent: AgentDraft) -> None:
        self.agent = agent
        self.nodes: dict[str, NodeDraft] = {}

    def model(self, name: str, key: str, prompt: str, to: str, model: str = "") -> None:
        node = self._node(name, "model", [self._way(to)])
        node.texts = {"model_ref": model or self.agent.model, "prompt_ref": prompt, "system_prompt": self._system()}
        node.key, node.json = key, True
        node.retry = self._text("llm_default")

    def choice(self, name: str, *ways: tuple[str, str]) -> None:
        """A condition node: conditions and targets; the last one has no condition."""
        self._node(name, "condition", [self._way(to, words) for words, to in ways])

    def act(self, name: str, think: str, to: str) -> None:
        node = self._node(name, "act", [self._way(to)])
        node.texts = {"reads": think}
        node.key = f"__{name.strip('_')}_output__"

    def limit(self) -> None:
        self._node(LIMIT, "limit_exceeded", [self._way(END)])

    def end(self, reads: str) -> None:
        prompt = self._goal() + reads + "Write the final answer. Answer with nothing but the answer itself."
        self.model(FINALIZE, "result", prompt, END)
        if any(way.to == LIMIT for node in self.nodes.values() for way in node.ways):
            self.limit()

    def prompt(self, what: str, reads: str, form: str, at: int | None = None, most: int | None = None) -> str:
        turn = "" if at is None else f"This is round {at + 1} of {most}.\n"
        answer = f"Answer with JSON only, in the form {form}." if form else "Answer with nothing but the work itself."
        return f"{self._goal()}{turn}{reads}{what}\n{answer}"

    def tools(self) -> str:
        if not self.agent.tools:
            return ""
        lines = [f"- {name}: {about.get('description', 'a tool')}" for name, about in self.agent.tools.items()]
        return "The tools:\n" + "\n".join(lines) + "\n"

    def _goal(self) -> str:
        return f"The goal: {self.agent.goal}\n"

    def _system(self) -> str:
        return f"You are the agent {self.agent.id}. You work towards one goal, step by step."

    def _way(self, to: str, words: str = "") -> Way:
        return Way(to, self.agent.node, words=words)

    def _text(self, text: str) -> Node:
        return Node(text, self.agent.node.start, self.agent.node.end)

    def _node(self, name: str, kind: str, ways: list[Way]) -> NodeDraft:
        place = self.agent.node
        node = NodeDraft(name, kind, place, place, ReadFields(place, {}), ways)
        self.nodes[name] = node
        return node


def shown(title: str, key: str) -> str:
    """Return the part of a prompt that shows a value of the state, if it is there."""
    return f"{{% if state.{key} %}}{title}: {{{{ state.{key} }}}}\n{{% endif %}}"


def _plan_and_execute(made: Unrolled) -> None:
    agent = made.agent
    most = agent.rounds
    verifier = agent.config.get("verifier_model")
    form = '{"steps": ["what to do first", "what to do next"]}'
    made.model(
        "__plan__",
        "__plan__",
        made.prompt(f"Make a plan of at most {most} steps.", made.tools(), form),
        "__cost_guard_0__",
    )
    reads = shown("The plan", "__plan__")
    for i in range(most):
        following = f"__cost_guard_{i + 1}__" if i + 1 < most else FINALIZE
        guard = (f"state.__plan__.steps[{i}] == null", FINALIZE)
        made.choice(f"__cost_guard_{i}__", guard, (COST, LIMIT), ("", f"__step_{i}__"))
        what = f"Do step {i + 1} of the plan: {{{{ state.__plan__.steps[{i}] }}}}"
        prompt = made.prompt(what, made.tools() + reads, "", i, most)
        made.model(f"__step_{i}__", f"__step_{i}_output__", prompt, f"__verify_{i}__" if verifier else following)
        reads += shown(f"The outcome of step {i + 1}", f"__step_{i}_output__")
        if verifier:
            form = '{"passed": true, "score": 0.0 to 1.0, "feedback": "what is missing"}'
            prompt = made.prompt(f"Judge the outcome of step {i + 1}.", reads, form, i, most)
            made.model(f"__verify_{i}__", f"__verify_{i}_result__", prompt, following, str(verifier))
            reads += shown(f"The verdict on step {i + 1}", f"__verify_{i}_result__")
    made.end(reads)


def _react(made: Unrolled) -> None:
    most, tools = made.agent.rounds, list(made.agent.tools)
    reads = made.tools()
    for i in range(most):
        actions = f"the name of a tool, or {FINISH}" if tools else f"what to do, or {FINISH}"
        form = f'{{"thought": "…", "action": "{actions}", "input": {{"argument": "value"}}}}'
        think = f"__think_{i}_output__"
        prompt = made.prompt("Think about what to do next.", reads, form, i, most)
        made.model(f"__think_{i}__", think, prompt, f"__react_guard_{i}__")
        reads += shown(f"Thought {i + 1}", think)
        finish = (f"state.{think}.action == '{FINISH}'", FINALIZE)
        if i + 1 == most:
            made.choice(f"__react_guard_{i}__", finish, (COST, LIMIT), ("", FINALIZE))
            break
        acts = [(f"state.{think}.action in {_listed(tools)}", f"__act_{i}__")] if tools else []
        made.choice(f"__react_guard_{i}__", finish, (COST, LIMIT), *acts, ("", f"__observe_{i}__"))
        if tools:
            made.act(f"__act_{i}__", think, f"__observe_{i}__")
            reads += shown(f"What the tool of thought {i + 1} returned", f"__act_{i}_output__")
        form = '{"observation": "…", "progress": "…"}'
        prompt = made.prompt("Say what was observed, and how far the goal is reached.", reads, form, i, most)
        made.model(f"__observe_{i}__", f"__observe_{i}_output__", prompt, f"__think_{i + 1}__")
        reads += shown(f"Observation {i + 1}", f"__observe_{i}_output__")
    made.end(reads)


def _listed(names: Sequence[str]) -> str:
    quoted = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in names)
    return f"[{quoted}]"


def _rounds(agent: AgentDraft) -> int:
    most = agent.config.get("max_rounds", 3)
    return max(1, min(most if isinstance(most, int) else 3, agent.rounds))


def _critic(made: Unrolled) -> None:
    threshold = made.agent.config.get("pass_threshold", 0.8)
    model = str(made.agent.config.get("critic_model", ""))
    form = '{"score": 0.0 to 1.0, "passed": true or false, "feedback": "what to do better"}'
    what = f"Judge the draft. It passes with a score of at least {threshold}."
    _improved(made, _Words("__draft__", "__draft_output__", "critic", "verdict", "draft", what, form, model))


def _reflection(made: Unrolled) -> None:
    threshold = made.agent.config.get("pass_threshold", 0.8)
    form = '{"score": 0.0 to 1.0, "passed": true or false, "gaps": ["…"], "suggestions": ["…"]}'
    what = f"Look back at the work. It passes with a score of at least {threshold}."
    _improved(made, _Words("__execute__", "__execute_output__", "reflect", "verdict", "work", what, form, ""))


class _Words(Struct):
    """What critic and reflection call the same things."""

    first: str
    key: str
    judge: str
    verdict: str
    work: str
    what: str
    form: str
    model: str


def _improved(made: Unrolled, words: _Words) -> None:
    most = _rounds(made.agent)
    made.model(
        words.first,
        words.key,
        made.prompt(f"Write the first {words.work}.", made.tools(), ""),
        f"__{words.judge}_0__",
    )
    reads = shown(f"The {words.work}", words.key)
    for i in range(most):
        verdict = f"__{words.judge}_{i}_{words.verdict}__"
        prompt = made.prompt(words.what, reads, words.form, i, most)
        is_last = i + 1 == most
        gate = FINALIZE if is_last else f"__{words.judge}_gate_{i}__"
        made.model(f"__{words.judge}_{i}__", verdict, prompt, gate, words.model)
        reads += shown(f"Verdict {i + 1}", verdict)
        if is_last:
            break
        made.choice(gate, (f"state.{verdict}.passed == true", FINALIZE), ("", f"__revise_{i}__"))
        prompt = made.prompt(f"Write the {words.work} again, better.", reads, "", i, most)
        made.model(f"__revise_{i}__", f"__revise_{i}_output__", prompt, f"__{words.judge}_{i + 1}__")
        reads += shown(f"The {words.work} after verdict {i + 1}", f"__revise_{i}_output__")
    made.end(reads)


def _consensus(made: Unrolled) -> None:
    count = made.agent.config.get("num_agents", 3)
    count = max(1, count if isinstance(count, int) else 3)
    reads = ""
    for i in range(count):
        following = f"__cost_guard_{i}__" if i + 1 < count else "__vote__"
        prompt = made.prompt("Find your own answer.", made.tools(), "", i, count)
        made.model(f"__agent_{i}__", f"__agent_{i}_output__", prompt, following)
        reads += shown(f"Answer {i + 1}", f"__agent_{i}_output__")
        if i + 1 < count:
            made.choice(following, (COST, LIMIT), ("", f"__agent_{i + 1}__"))
    form = '{"votes": [1, 2, 1], "winner": 1}'
    made.model("__vote__", "__vote_result__", made.prompt("Vote for one of the answers.", reads, form), "__judge__")
    reads += shown("The vote", "__vote_result__")
    judge = str(made.agent.config.get("judge_model", ""))
    prompt = made.prompt("Decide which answer it is, and say why.", reads, "")
    made.model("__judge__", "__judge_output__", prompt, FINALIZE, judge)
    made.end(reads + shown("The decision", "__judge_output__"))


def _debate(made: Unrolled) -> None:
    most, judge = _rounds(made.agent), str(made.agent.config.get("judge_model", ""))
    prompt = made.prompt("Propose an answer.", made.tools(), "")
    made.model("__propose__", "__propose_output__", prompt, "__counter_0__")
    reads = shown("The proposal", "__propose_output__")
    for i in range(most):
        prompt = made.prompt("Argue against the last proposal.", reads, "", i, most)
        made.model(f"__counter_{i}__", f"__counter_{i}_output__", prompt, f"__judge_{i}__")
        reads += shown(f"Counter-argument {i + 1}", f"__counter_{i}_output__")
        form = '{"settled": true or false, "score": 0.0 to 1.0, "ruling": "…"}'
        ruling, is_last = f"__judge_{i}_ruling__", i + 1 == most
        prompt = made.prompt("Judge the debate.", reads, form, i, most)
        made.model(f"__judge_{i}__", ruling, prompt, FINALIZE if is_last else f"__judge_gate_{i}__", judge)
        reads += shown(f"Ruling {i + 1}", ruling)
        if is_last:
            break
        made.choice(f"__judge_gate_{i}__", (f"state.{ruling}.settled == true", FINALIZE), ("", f"__cost_guard_{i}__"))
        made.choice(f"__cost_guard_{i}__", (COST, LIMIT), ("", f"__respond_{i}__"))
        prompt = made.prompt("Answer the counter-argument, and improve the proposal.", reads, "", i, most)
        made.model(f"__respond_{i}__", f"__respond_{i}_output__", prompt, f"__counter_{i + 1}__")
        reads += shown(f"Response {i + 1}", f"__respond_{i}_output__")
    made.end(reads)


STRATEGIES: Mapping[str, Callable[[Unrolled], None]] = {
    "plan-and-execute": _plan_and_execute,
    "react": _react,
    "critic": _critic,
    "reflection": _reflection,
    "consensus": _consensus,
    "debate": _debate,
}


def unrolled(agent: AgentDraft) -> dict[str, NodeDraft]:
    made = Unrolled(agent)
    STRATEGIES[agent.strategy](made)
    return made.nodes

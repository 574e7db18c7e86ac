"""Makes agents by chance, and writes each as an agent file, as a unit of a fleet, or as the unrolled graph in IR.

What an agent does is told a second time here, as a plain procedure for each strategy (`Walk`), and a third time as the
graph that JamJet's own compilers write (`_as_ir`). Neither has any code of the reader or the engine.
"""

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

STRATEGIES = ("plan-and-execute", "react", "critic", "reflection", "consensus", "debate")
MADE = (*STRATEGIES, "react", "react", "debate", "plan-and-execute")  # more of those that can end in many ways
FORMS = ("agent", "fleet", "ir")
LIMIT, FINALIZE = "__limit_exceeded__", "__finalize__"
TRIED_AGAIN = ("rate_limit", "timeout", "server_error")  # by the policy of models, with three tries in all
TRIES = 3
ROUNDS = (1, 2, 3, 4, 4, 5)
COSTS = (0.125, 0.25, 5.0)


class Agent(NamedTuple):
    form: str
    strategy: str
    rounds: int  # `max_iterations`
    config: dict[str, Any]
    tools: list[str]
    cost: float  # `max_cost_usd`
    partial: bool  # `on_limit_exceeded: return_partial`
    state: dict[str, Any]
    answers: dict[str, Any]
    uses: set[str]

    @property
    def name(self) -> str:
        return "one" if self.form == "fleet" else "a"

    @property
    def exactly(self) -> bool:
        """Whether it runs as it stands, without what Refold adds to a strategy."""
        return self.form == "ir"

    @property
    def steps(self) -> int:
        """The most rounds of plan-and-execute and react."""
        return self.rounds if self.exactly else min(self.rounds, self.config.get("max_steps", self.rounds))

    @property
    def looks(self) -> int:
        """The most rounds of critic, reflection and debate."""
        return min(int(self.config.get("max_rounds", 3)), self.steps)


def agent(seed: int) -> Agent:
    rng = random.Random(seed)
    strategy, form = MADE[seed % len(MADE)], FORMS[seed // len(MADE) % 3]
    config: dict[str, Any] = {}
    uses = {strategy, form}

    def told(name: str, value: Any, often: float = 0.4) -> None:
        if rng.random() < often:
            config[name] = value
            uses.add(name)

    if strategy in ("plan-and-execute", "react"):
        told("max_steps", rng.randint(1, 5), 0.5)
    if strategy == "plan-and-execute":
        told("verifier_model", "judging", 0.6)
    if strategy in ("critic", "reflection", "debate"):
        told("max_rounds", rng.randint(1, 5), 0.6)
    if strategy == "consensus":
        told("num_agents", rng.randint(1, 4), 0.6)
    if strategy in ("consensus", "debate"):
        told("judge_model", "judging")
    if strategy == "critic":
        told("critic_model", "judging", 0.7)
    if strategy in ("critic", "reflection"):
        told("pass_threshold", 0.9)
    tools = ["look", "count"][: rng.choice([0, 1, 2, 2])]
    uses |= {"tools"} if tools else set()
    partial = form != "ir" and rng.random() < 0.8
    made = Agent(form, strategy, rng.choice(ROUNDS), config, tools, rng.choice(COSTS), partial, {"q": "why"}, {}, uses)
    for name, kind in nodes_of(made).items():
        if kind:
            made.answers[name] = _answers(rng, made, kind)
    return made


def _answers(rng: random.Random, made: Agent, kind: str) -> list[Any]:
    """What a node says, after some tries that fail."""
    if kind == "act":
        return [rng.choice([7, {"found": [1, 2]}, "seven"])]
    contents: dict[str, list[Any]] = {
        "plan": [*({"steps": ["s"] * rng.randint(0, made.rounds)} for _ in range(4)), "no plan"],
        "think": [
            {"thought": "t", "action": word}
            for word in ("FINISH", "FINISH", "FINISH", *["look", "count"] * 4, "x", None)
        ],
        "verdict": [{"passed": passed, "score": 0.5} for passed in (True, True, False, "true", None)] + ["no JSON"],
        "ruling": [{"settled": settled} for settled in (True, True, True, True, False, 1)] + [{"ruling": "on"}],
        "text": ["words", {"a": {"b": 1}}, "more words"],
    }
    content = rng.choice(contents[kind])
    failing: list[Any] = []
    if rng.random() < 0.07:
        fails = rng.choice([*TRIED_AGAIN, "io_error"])
        failing = [{"fail": fails}] * rng.choice([1, 1, 2, 3])
    prices = [0.0, 0.0, 0.25] if kind in ("think", "ruling") else [0.0, 0.125, 0.25]
    return [*failing, {"content": content, "usd": rng.choice(prices)}]


def nodes_of(made: Agent) -> dict[str, str]:
    """All nodes that something can lead to, with what they say; empty for those that say nothing."""
    found: dict[str, str] = {}
    match made.strategy:
        case "plan-and-execute":
            found["__plan__"] = "plan"
            for i in range(made.steps):
                found |= {f"__cost_guard_{i}__": "", f"__step_{i}__": "text"}
                found |= {f"__verify_{i}__": "text"} if "verifier_model" in made.config else {}
        case "react":
            for i in range(made.steps):
                found |= {f"__think_{i}__": "think", f"__react_guard_{i}__": ""}
                if i + 1 < made.steps:
                    found |= {f"__act_{i}__": "act"} if made.tools and not made.exactly else {}
                    found[f"__observe_{i}__"] = "text"
        case "critic" | "reflection":
            first, judge = {"critic": ("__draft__", "critic"), "reflection": ("__execute__", "reflect")}[made.strategy]
            found[first] = "text"
            for i in range(made.looks):
                found[f"__{judge}_{i}__"] = "verdict"
                if i + 1 < made.looks:
                    found |= {f"__{judge}_gate_{i}__": "", f"__revise_{i}__": "text"}
        case "consensus":
            count = made.config.get("num_agents", 3)
            for i in range(count):
                found[f"__agent_{i}__"] = "text"
                found |= {f"__cost_guard_{i}__": ""} if i + 1 < count else {}
            found |= {"__vote__": "text", "__judge__": "text"}
        case "debate":
            found["__propose__"] = "text"
            for i in range(made.looks):
                found |= {f"__counter_{i}__": "text", f"__judge_{i}__": "ruling"}
                if i + 1 < made.looks:
                    found |= {f"__judge_gate_{i}__": "", f"__cost_guard_{i}__": "", f"__respond_{i}__": "text"}
    return {**found, FINALIZE: "text"}


class Ended(Exception):
    """The run is over before its last node."""


class Walk:
    """Does what an agent does, one node after the other."""

    def __init__(self, made: Agent) -> None:
        self.made = made
        self.visits: list[str] = []
        self.state = dict(made.state)
        self.spent = 0.0
        self.status = "completed"
        self.error: list[str] | None = None
        self.seen: set[str] = set()  # what happened, for the count of constructs
        try:
            {
                "plan-and-execute": self.plan_and_execute,
                "react": self.react,
                "critic": self.critic,
                "reflection": self.reflection,
                "consensus": self.consensus,
                "debate": self.debate,
            }[made.strategy]()
            self.model(FINALIZE, "result")
        except Ended:
            pass

    @property
    def skipped(self) -> list[str]:
        return sorted(name for name in nodes_of(self.made) if name not in self.visits)

    def model(self, name: str, key: str) -> Any:
        self.visits.append(name)
        *failing, answer = self.made.answers[name]
        for tried, each in enumerate(failing, 1):
            if each["fail"] not in TRIED_AGAIN or tried == TRIES:
                self.seen.add("a model that fails")
                self.fail(name, {"io_error": "connection"}.get(each["fail"], each["fail"]))
            self.seen.add("another try")
        content = answer["content"]
        self.spent += answer["usd"]
        text = content if isinstance(content, str) else json.dumps(content)
        self.state |= {"last_model_output": text, "last_model_finish_reason": "stop", "last_model_tool_calls": []}
        self.state[key] = without_nulls(content)
        return content

    def fail(self, *error: str) -> None:
        self.status, self.error = "failed", list(error)
        raise Ended

    def guard(self, name: str) -> None:
        self.visits.append(name)
        self.check()

    def check(self) -> None:
        if self.spent <= self.made.cost:
            return
        self.visits.append(LIMIT)
        if self.made.partial:
            self.seen.add("return_partial")
            raise Ended
        self.seen.add("limit_exceeded")
        self.fail(LIMIT, "limit_exceeded")

    def plan_and_execute(self) -> None:
        plan = self.model("__plan__", "__plan__")
        planned = len(plan["steps"]) if isinstance(plan, dict) else 0
        for i in range(self.made.steps):
            self.visits.append(f"__cost_guard_{i}__")
            if i >= planned and not self.made.exactly:
                self.seen.add("no more steps")
                return
            self.check()
            self.model(f"__step_{i}__", f"__step_{i}_output__")
            if "verifier_model" in self.made.config:
                self.model(f"__verify_{i}__", f"__verify_{i}_result__")

    def react(self) -> None:
        for i in range(self.made.steps):
            action = self.model(f"__think_{i}__", f"__think_{i}_output__")["action"]
            self.visits.append(f"__react_guard_{i}__")
            if action == "FINISH" and not self.made.exactly:
                self.seen.add("FINISH")
                return
            self.check()
            if i + 1 == self.made.steps:
                self.seen.add("the last guard")
                return
            if action in self.made.tools and not self.made.exactly:
                self.seen.add("a tool acts")
                self.visits.append(f"__act_{i}__")
                self.state[f"__act_{i}_output__"] = self.made.answers[f"__act_{i}__"][0]
            self.model(f"__observe_{i}__", f"__observe_{i}_output__")

    def critic(self) -> None:
        self.model("__draft__", "__draft_output__")
        self.improve("critic")

    def reflection(self) -> None:
        self.model("__execute__", "__execute_output__")
        self.improve("reflect")

    def improve(self, judge: str) -> None:
        for i in range(self.made.looks):
            verdict = self.model(f"__{judge}_{i}__", f"__{judge}_{i}_verdict__")
            if i + 1 == self.made.looks:
                self.seen.add("the last judgement")
                return
            self.visits.append(f"__{judge}_gate_{i}__")
            if isinstance(verdict, dict) and verdict["passed"] is True:
                self.seen.add("passed")
                return
            self.model(f"__revise_{i}__", f"__revise_{i}_output__")

    def consensus(self) -> None:
        count = self.made.config.get("num_agents", 3)
        for i in range(count):
            self.model(f"__agent_{i}__", f"__agent_{i}_output__")
            if i + 1 < count:
                self.guard(f"__cost_guard_{i}__")
        self.model("__vote__", "__vote_result__")
        self.model("__judge__", "__judge_output__")

    def debate(self) -> None:
        self.model("__propose__", "__propose_output__")
        for i in range(self.made.looks):
            self.model(f"__counter_{i}__", f"__counter_{i}_output__")
            ruling = self.model(f"__judge_{i}__", f"__judge_{i}_ruling__")
            if i + 1 == self.made.looks:
                self.seen.add("the last judgement")
                return
            self.visits.append(f"__judge_gate_{i}__")
            if ruling.get("settled") is True:
                self.seen.add("settled")
                return
            self.guard(f"__cost_guard_{i}__")
            self.model(f"__respond_{i}__", f"__respond_{i}_output__")


def without_nulls(value: Any) -> Any:
    """What a patch leaves of a map: null deletes."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


def written(made: Agent) -> str:
    if made.form == "ir":
        return json.dumps(_as_ir(made), indent=1)
    about: dict[str, Any] = {"strategy": made.strategy, "goal": "answer {{ state.q }}", "tools": made.tools}
    about |= {"strategy_config": made.config} if made.config else {}
    about |= {"on_limit_exceeded": "return_partial"} if made.partial else {}
    rest = {
        "model": "small",
        "limits": {"max_iterations": made.rounds, "max_cost_usd": made.cost, "timeout_seconds": 36000},
    }
    if made.form == "agent":
        return yaml.safe_dump({"agent": {"id": "a", **about, **rest}}, sort_keys=False)
    about["uses"] = [f"tool:{name}" for name in about.pop("tools")]
    other = {"strategy": "critic", "goal": "another", "uses": ["agent:one"]}
    catalog = {name: {"description": f"can {name}"} for name in made.tools}
    fleet = {"version": 1, "defaults": rest, "tools": catalog, "agents": {"one": about, "other": other}}
    return yaml.safe_dump(fleet, sort_keys=False)


def _as_ir(made: Agent) -> dict[str, Any]:
    ways: dict[str, list[tuple[str, str]]] = {}  # node -> conditions and targets
    keys: dict[str, str] = {}

    def model(name: str, key: str, to: str) -> None:
        ways[name], keys[name] = [("", to)], key

    def choice(name: str, condition: str, then: str, otherwise: str) -> None:
        ways[name] = [(condition, then), ("", otherwise)]

    def guard(name: str, otherwise: str) -> None:
        choice(name, "state.__cost_exceeded__", LIMIT, otherwise)

    unrolled: dict[str, Callable[[], None]] = {
        "plan-and-execute": lambda: _plan_ir(made, model, guard),
        "react": lambda: _react_ir(made, model, guard),
        "critic": lambda: _judged_ir(made, model, choice, "__draft__", "__draft_output__", "critic"),
        "reflection": lambda: _judged_ir(made, model, choice, "__execute__", "__execute_output__", "reflect"),
        "consensus": lambda: _consensus_ir(made, model, guard),
        "debate": lambda: _debate_ir(made, model, choice, guard),
    }
    unrolled[made.strategy]()
    model(FINALIZE, "result", "end")
    nodes: dict[str, Any] = {}
    for name, each in ways.items():
        if name in keys:
            kind = {"type": "model", "model_ref": "small", "prompt_ref": f"do {name}", "output_schema": keys[name]}
            labels = {"jamjet.strategy.node": name.strip("_")}
            nodes[name] = {"id": name, "kind": kind, "retry_policy": "llm_default", "labels": labels}
        else:
            branches = [{"condition": condition or None, "target": to} for condition, to in each]
            nodes[name] = {"id": name, "kind": {"type": "condition", "branches": branches}}
    nodes[LIMIT] = {"id": LIMIT, "kind": {"type": "limit_exceeded"}}
    ways[LIMIT] = [("", "end")]
    edges = [{"from": name, "to": to, "condition": on or None} for name, each in ways.items() for on, to in each]
    return {
        "workflow_id": made.name,
        "version": "0.1.0+0123456789ab",
        "state_schema": "",
        "start_node": next(iter(nodes)),
        "nodes": nodes,
        "edges": edges,
        "retry_policies": {},
        "models": {},
        "tools": {},
        "mcp_servers": {},
        "remote_agents": {},
        "timeouts": {"workflow_timeout": 36000},
        "strategy_metadata": {"strategy": made.strategy, "limits": {"max_cost_usd": made.cost}},
    }


def _plan_ir(made: Agent, model: Any, guard: Any) -> None:
    model("__plan__", "__plan__", "__cost_guard_0__")
    for i in range(made.rounds):
        following = f"__cost_guard_{i + 1}__" if i + 1 < made.rounds else FINALIZE
        guard(f"__cost_guard_{i}__", f"__step_{i}__")
        checked = "verifier_model" in made.config
        model(f"__step_{i}__", f"__step_{i}_output__", f"__verify_{i}__" if checked else following)
        if checked:
            model(f"__verify_{i}__", f"__verify_{i}_result__", following)


def _react_ir(made: Agent, model: Any, guard: Any) -> None:
    for i in range(made.rounds):
        model(f"__think_{i}__", f"__think_{i}_output__", f"__react_guard_{i}__")
        guard(f"__react_guard_{i}__", f"__observe_{i}__" if i + 1 < made.rounds else FINALIZE)
        if i + 1 < made.rounds:
            model(f"__observe_{i}__", f"__observe_{i}_output__", f"__think_{i + 1}__")


def _judged_ir(made: Agent, model: Any, choice: Any, first: str, key: str, judge: str) -> None:
    model(first, key, f"__{judge}_0__")
    for i in range(made.looks):
        gate, verdict = f"__{judge}_gate_{i}__", f"__{judge}_{i}_verdict__"
        model(f"__{judge}_{i}__", verdict, gate if i + 1 < made.looks else FINALIZE)
        if i + 1 < made.looks:
            choice(gate, f"state.{verdict}.passed == true", FINALIZE, f"__revise_{i}__")
            model(f"__revise_{i}__", f"__revise_{i}_output__", f"__{judge}_{i + 1}__")


def _consensus_ir(made: Agent, model: Any, guard: Any) -> None:
    count = made.config.get("num_agents", 3)
    for i in range(count):
        model(f"__agent_{i}__", f"__agent_{i}_output__", f"__cost_guard_{i}__" if i + 1 < count else "__vote__")
        if i + 1 < count:
            guard(f"__cost_guard_{i}__", f"__agent_{i + 1}__")
    model("__vote__", "__vote_result__", "__judge__")
    model("__judge__", "__judge_output__", FINALIZE)


def _debate_ir(made: Agent, model: Any, choice: Any, guard: Any) -> None:
    model("__propose__", "__propose_output__", "__counter_0__")
    for i in range(made.looks):
        gate, ruling = f"__judge_gate_{i}__", f"__judge_{i}_ruling__"
        model(f"__counter_{i}__", f"__counter_{i}_output__", f"__judge_{i}__")
        model(f"__judge_{i}__", ruling, gate if i + 1 < made.looks else FINALIZE)
        if i + 1 < made.looks:
            choice(gate, f"state.{ruling}.settled == true", FINALIZE, f"__cost_guard_{i}__")
            guard(f"__cost_guard_{i}__", f"__respond_{i}__")
            model(f"__respond_{i}__", f"__respond_{i}_output__", f"__counter_{i + 1}__")

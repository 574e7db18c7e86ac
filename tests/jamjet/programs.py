"""Makes graphs by chance, and writes each as a file of one of JamJet's forms.

A graph is plain data here: nodes in an order in which only loops lead back, each with its ways. Work is made up: a node
has one answer for each try. Nodes side by side write different keys, so that the end does not depend on their order.
"""

import json
import random
from typing import Any, NamedTuple

import yaml

Test = tuple[Any, ...]
"""A condition as a tree: `("==", ("state", "k"), 5)`."""

CHILD = """\
workflow: {id: child, version: 0.1.0, start: inner}
nodes:
  inner: {type: python_fn, module: app, function: inner}
"""
CHILD_ANSWER = {"inner_done": True}
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")


class Program(NamedTuple):
    form: str
    nodes: list[dict[str, Any]]
    given: dict[str, Any]
    state: dict[str, Any]
    policy: dict[str, list[str]]
    uses: set[str]


class _Maker:
    def __init__(self, seed: int, form: str) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[dict[str, Any]] = []
        self.given: dict[str, Any] = {"answers": {}, "gates": {}, "waits": {}}
        self.state = {"n0": self.rng.randint(0, 5), "word": self.rng.choice(["red", "blue"]), "user": {"name": "Ada"}}
        self.keys: list[tuple[tuple[str, ...], Any]] = [(("n0",), 3), (("word",), "red"), (("user", "name"), "Ada")]
        self.policy: dict[str, list[str]] = {}
        self.uses: set[str] = set()
        self.form, self.count, self.seed = form, 0, seed

    def fresh(self, word: str) -> str:
        self.count += 1
        return f"{word}_{self.count}"

    def sequence(self, depth: int, after: str, alone: bool, length: int | None = None) -> str:
        """Write some blocks one after the other; return the first node."""
        kinds = [self.kind(depth, alone) for _ in range(length or self.rng.randint(1, 3))]
        entries = [self.fresh(kind) for kind in kinds]
        for kind, entry, following in zip(kinds, entries, [*entries[1:], after], strict=True):
            getattr(self, f"_{kind}")(entry, following, depth, alone)
        return entries[0]

    def kind(self, depth: int, alone: bool) -> str:
        flat = ["work", "work", "tool", "branchwork", "timer", "mapped"]
        if alone:
            flat += ["model", "gate", "judge", "merge", "flaky", "flaky", "child", "guarded"]
            flat += ["hold"] if self.form != "ir" else []  # the IR cannot say what follows when nothing comes
            flat += ["limited"]
        deep = ["choice", "fork", "loop"] if depth else []
        return self.rng.choice(flat + deep * 3)

    def add(self, id: str, kind: str, ways: list[tuple[Test | None, str]], **more: Any) -> dict[str, Any]:
        node = {"id": id, "kind": kind, "ways": ways, **more}
        self.nodes.append(node)
        self.uses.add(kind)
        return node

    def test(self) -> Test:
        """A condition over keys that are certain, or certainly missing."""
        rng = self.rng
        match rng.randint(0, 7):
            case 0:
                self.uses.add("not")
                return ("not", self.test())
            case 1:
                word = rng.choice(["and", "or"])
                self.uses.add(word)
                return (word, self.test(), self.test())
            case 2:
                self.uses.add("missing")
                return ("==", ("state", "nowhere", "at_all"), None)
            case 3:
                self.uses.add("len")
                return (rng.choice(["<", ">="]), ("len", ("state", "word")), rng.randint(2, 5))
        path, value = rng.choice(self.keys)
        operator = rng.choice(OPERATORS)
        self.uses.add(operator)
        if operator in ("in", "not in"):
            return (operator, ("state", *path), [value, rng.choice(["red", 1, None])])
        other = rng.choice([value, rng.randint(0, 6), str(value)])
        return (operator, ("state", *path), other)

    def remember(self, alone: bool, *path: str, value: Any) -> None:
        if alone:
            self.keys.append((path, value))

    # blocks

    def _work(self, id: str, after: str, depth: int, alone: bool) -> None:
        value = self.rng.choice([1, 2, "red", True, None, [1], {"a": {"b": 1}}])
        answer: Any = {f"k_{id}": value, f"m_{id}": {"x": 1, "y": {"z": 2}}}
        self.given["answers"][id] = [answer]
        self.remember(alone, f"m_{id}", "y", "z", value=2)
        self.add(id, "python_fn", [(None, after)])

    def _tool(self, id: str, after: str, depth: int, alone: bool) -> None:
        key = f"t_{id}"
        self.given["answers"][id] = [self.rng.choice([7, {"v": 7}, "seven"])]
        self.add(id, "tool", [(None, after)], key=key, by=self.by())
        self.uses.add("output_key")

    def by(self) -> str:
        """Work that somebody else does: all of it is read alike."""
        by = self.rng.choice(["tool", "mcp_tool", "a2a_task", "agent"])
        self.uses.add(by)
        return by

    def _mapped(self, id: str, after: str, depth: int, alone: bool) -> None:
        """The result goes to state keys field by field where the form can say that, else to one key."""
        self.given["answers"][id] = [{"one": 1, "two": {"deep": 2}}]
        self.add(id, "tool", [(None, after)], fields={"one": f"f_{id}", "two": f"g_{id}"}, by=self.by())

    def _merge(self, id: str, after: str, depth: int, alone: bool) -> None:
        """A patch of a map that is there: merged key by key, null deletes."""
        self.given["answers"][id] = [{"user": {"age": self.rng.randint(1, 9), "gone": None}, "nothing": None}]
        self.add(id, "python_fn", [(None, after)])
        self.uses.add("deep merge")

    def _model(self, id: str, after: str, depth: int, alone: bool) -> None:
        text = self.rng.choice(["yes", "no", "SCORE: 4"])
        self.given["answers"][id] = [text]
        key = f"a_{id}" if self.rng.random() < 0.7 else ""
        if key:
            self.remember(alone, key, value=text)
        self.add(id, "model", [(None, after)], **({"key": key} if key else {}))

    def _branchwork(self, id: str, after: str, depth: int, alone: bool) -> None:
        """Work whose own edges have conditions."""
        score = self.rng.randint(0, 3)
        self.given["answers"][id] = [{f"score_{id}": score}]
        other = self.fresh("work")
        test = (self.rng.choice(["==", ">="]), ("output", f"score_{id}"), self.rng.randint(0, 3))
        ways: list[tuple[Test | None, str]] = [(test, other), (None, after)]
        if self.rng.random() < 0.3:
            ways = [(test, other), (("not", test), after)]
        self.add(id, "python_fn", ways)
        self.uses.add("edge condition")
        self._work(other, after, depth, False)

    def _choice(self, id: str, after: str, depth: int, alone: bool) -> None:
        count = self.rng.randint(1, 2)
        ways: list[tuple[Test | None, str]] = []
        self.add(id, "condition", ways)
        saved = list(self.keys)
        for _ in range(count):
            test = self.test()
            ways.append((test, self.sequence(depth - 1, after, alone)))
            self.keys = list(saved)
        if self.rng.random() < 0.75:
            other = self.sequence(depth - 1, after, alone) if self.rng.random() < 0.5 else after
            ways.append((None, other))
            self.keys = list(saved)
            if self.rng.random() < 0.3:
                ways.insert(0, ways.pop())  # the default is the last wherever it stands

    def _fork(self, id: str, after: str, depth: int, alone: bool) -> None:
        join = self.fresh("join")
        branches: list[str] = []
        node = self.add(id, "parallel", [])
        saved = list(self.keys)
        for _ in range(self.rng.randint(2, 3)):
            branches.append(self.sequence(0, join, False, 1))
            self.keys = list(saved)
        node["ways"] = [(None, branch) for branch in branches]
        ends = [each["id"] for each in self.nodes if any(to == join for _, to in each["ways"])]
        merge: Any = self.rng.choice(["collect", "first", {"custom": {"function_ref": "app:merge"}}])
        self.uses.add(f"join {merge if isinstance(merge, str) else 'custom'}")
        self.add(join, "join", [(None, after)], wait_for=ends, merge=merge)

    def _limited(self, id: str, after: str, depth: int, alone: bool) -> None:
        """A way that ends the run, which is seldom taken."""
        limit = self.fresh("limit")
        test = self.test() if self.rng.random() < 0.15 else ("==", ("state", "nowhere"), 1)
        self.add(id, "condition", [(test, limit), (None, after)])
        self.add(limit, "limit_exceeded", [(None, "end")])

    def _loop(self, id: str, after: str, depth: int, alone: bool) -> None:
        """The work counts; the condition goes back until it has counted far enough."""
        key, most = f"c_{id}", self.rng.randint(1, 3)
        self.given["answers"][id] = [{key: number} for number in range(1, most + 1)]
        gate = self.fresh("gate_of")
        inner = self.fresh("work")
        self.add(id, "python_fn", [(None, inner)])
        self._work(inner, gate, depth, False)
        test = (">=", ("state", key), most)
        ways: list[tuple[Test | None, str]] = [(test, after), (None, id)]
        if self.rng.random() < 0.5:
            ways = [(("not", test), id), (None, after)]
        self.add(gate, "condition", ways)
        self.uses.add("loop")

    def _gate(self, id: str, after: str, depth: int, alone: bool) -> None:
        decision = self.rng.choice(["approve", "approve", "reject", "timeout"])
        self.given["gates"][id] = [decision]
        other = self.fresh("work")
        more: dict[str, Any] = {}
        ways: list[tuple[Test | None, str]] = [(None, after)]
        if decision == "timeout" or self.rng.random() < 0.3:
            more = {"timeout": 3600, "fallback": other}
        if decision == "reject" and self.rng.random() < 0.8:
            ways = [(("==", ("output", "decision"), "rejected"), other), (None, after)]
        self.add(id, "human_approval", ways, **more)
        self.uses.add(f"gate {decision}")
        if any(to == other for _, to in ways) or more:
            self._work(other, after, depth, False)

    def _hold(self, id: str, after: str, depth: int, alone: bool) -> None:
        comes = self.rng.random() < 0.5
        other = self.fresh("work")
        more = {"event": f"event {id}", "timeout": 60, "on_timeout": other}
        if comes:
            self.given["waits"][id] = [{"event": {f"paid_{id}": 12}}]
        self.add(id, "wait", [(None, after)], **more)
        self.uses.add("event" if comes else "wait timeout")
        self._work(other, after, depth, False)

    def _timer(self, id: str, after: str, depth: int, alone: bool) -> None:
        self.add(id, "wait", [(None, after)], timeout=self.rng.randint(1, 90))
        self.uses.add("timer")

    def _judge(self, id: str, after: str, depth: int, alone: bool) -> None:
        judge = self.fresh("eval")
        scores = [self.rng.randint(0, 3) for _ in range(3)]
        self.given["answers"][id] = [{f"v_{id}": score} for score in scores]
        kinds = ["retry_with_feedback", "log_and_continue", "halt", "escalate"]
        on_fail = kinds[(self.seed // 3 + self.count) % len(kinds)]
        self.add(id, "python_fn", [(None, judge)])
        test = (">=", ("output", f"v_{id}"), 2)
        self.add(judge, "eval", [(None, after)], test=test, on_fail=on_fail, most=2, subject=id)
        self.uses.add(f"eval {on_fail}")
        if on_fail == "escalate":
            self.given["gates"][f"{judge}.escalation"] = [self.rng.choice(["approve", "approve", "reject"])]

    def _flaky(self, id: str, after: str, depth: int, alone: bool) -> None:
        fails = self.rng.choice(["timeout", "io_error", "odd_error"])
        count = self.rng.randint(1, 3)
        self.given["answers"][id] = [{"fail": fails}] * count + [{f"k_{id}": count}]
        policy = [*TRIES][(self.seed // 3 + self.count) % len(TRIES)]
        self.add(id, "python_fn", [(None, after)], retry=policy)
        self.uses.add(f"policy {policy}")

    def _child(self, id: str, after: str, depth: int, alone: bool) -> None:
        self.add(id, "subgraph", [(None, after)], gives={f"x_{id}": ("state", "n"), f"d_{id}": ("state", "inner_done")})

    def _guarded(self, id: str, after: str, depth: int, alone: bool) -> None:
        """A tool that a policy blocks, or that a person has to allow."""
        ref = f"danger.{id}"
        if self.rng.random() < 0.3:
            self.policy.setdefault("blocked_tools", []).append(f"danger.{id[:4]}*{id[4:]}")
            self.uses.add("blocked")
        else:
            self.policy.setdefault("require_approval_for", []).append(ref)
            self.given["gates"][f"{id}.approval"] = [self.rng.choice(["approve", "approve", "reject"])]
            self.uses.add("approval")
        self.given["answers"][id] = [{f"k_{id}": 1}]
        self.add(id, "tool", [(None, after)], ref=ref)


POLICIES = {
    "mine": {
        "max_attempts": 3,
        "backoff": "fixed",
        "initial_delay": 0,
        "max_delay": 0,
        "jitter": False,
        "retryable_on": ["timeout"],
    }
}
TRIES = {
    "mine": (3, {"timeout"}),
    "io_default": (5, {"timeout", "io_error"}),
    "fast": (2, None),
    "no_retry": (1, set()),
}


def program(seed: int) -> Program:
    form = ("ir", "graph", "list")[seed % 3]
    maker = _Maker(seed, form)
    first = maker.fresh("judge")
    if seed % 3 == 1:
        maker._judge(first, maker.sequence(2, "end", True, maker.rng.randint(2, 4)), 0, True)
        maker.nodes = maker.nodes[-2:] + maker.nodes[:-2]
    else:
        maker.sequence(2, "end", True, maker.rng.randint(3, 6))
    reached = _reached(maker.nodes)
    nodes = [node for node in maker.nodes if node["id"] in reached]
    for run_on in ("success", "failure", "always"):
        if form != "list" and maker.rng.random() < 0.3:
            nodes.append({"id": f"final_{run_on}", "kind": "finalizer", "run_on": run_on, "ways": []})
            maker.uses.add(f"finalizer {run_on}")
    maker.uses.add(form)
    return Program(form, nodes, maker.given, maker.state, maker.policy, maker.uses)


def _reached(nodes: list[dict[str, Any]]) -> set[str]:
    known = {node["id"]: node for node in nodes}
    found, todo = {nodes[0]["id"]}, [nodes[0]["id"]]
    while todo:
        node = known[todo.pop()]
        for to in [to for _, to in node["ways"]] + [node.get("fallback"), node.get("on_timeout")]:
            if to in known and to not in found:
                found.add(to)
                todo.append(to)
    return found


def text_of(test: Any) -> str:
    """The text of a condition."""
    if not isinstance(test, tuple):
        return json.dumps(test)
    match test:
        case ("state" | "output", *names):
            return ".".join([test[0], *names])
        case ("not", inner):
            return f"not ({text_of(inner)})"
        case ("and" | "or" as word, left, right):
            return f"({text_of(left)}) {word} ({text_of(right)})"
        case ("len", inner):
            return f"len({text_of(inner)})"
        case (operator, left, right):
            return f"{text_of(left)} {operator} {text_of(right)}"
    raise AssertionError(test)


def written(made: Program) -> str:
    return {"ir": _as_ir, "graph": _as_graph, "list": _as_list}[made.form](made)


def _as_ir(made: Program) -> str:
    nodes: dict[str, Any] = {}
    edges: list[dict[str, Any]] = []
    for node in made.nodes:
        kind, extra = _ir_kind(node)
        nodes[node["id"]] = {"id": node["id"], "kind": kind, **extra}
        if node["kind"] == "finalizer":
            continue
        ways = node["ways"]
        for test, to in ways:
            condition = None if test is None or node["kind"] == "condition" else text_of(test)
            edges.append({"from": node["id"], "to": to, "condition": condition})
    whole = {
        "workflow_id": "w",
        "version": "1.0.0",
        "state_schema": "",
        "start_node": made.nodes[0]["id"],
        "nodes": nodes,
        "edges": edges,
        "retry_policies": POLICIES,
        "models": {},
        "tools": {},
        "mcp_servers": {},
        "remote_agents": {},
        **({"policy": made.policy} if made.policy else {}),
    }
    return json.dumps(whole, indent=2)


def _ir_kind(node: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    extra = {"retry_policy": node["retry"]} if "retry" in node else {}
    match node["kind"]:
        case "python_fn":
            return {"type": "python_fn", "module": "app", "function": node["id"], "output_schema": ""}, extra
        case "tool":
            by = node.get("by", "tool")
            streams = {"stream": False} if by == "a2a_task" else {}
            kind = {"type": by, **_called(node), "input_mapping": {}, "output_schema": _key(node), **streams}
            return kind, _labels(node)
        case "limit_exceeded":
            return {"type": "limit_exceeded"}, {}
        case "model":
            kind = {"type": "model", "model_ref": "m", "prompt_ref": "p", "output_schema": _key(node)}
            return kind, _labels(node)
        case "condition":
            branches = [
                {"condition": None if test is None else text_of(test), "target": to} for test, to in node["ways"]
            ]
            return {"type": "condition", "branches": branches}, {}
        case "parallel":
            return {"type": "parallel", "branches": [to for _, to in node["ways"]]}, {}
        case "join":
            return {"type": "join", "wait_for": node["wait_for"], "merge_strategy": node["merge"]}, {}
        case "human_approval":
            return {
                "type": "human_approval",
                "description": "go on?",
                "timeout_secs": node.get("timeout"),
                "fallback_node": node.get("fallback"),
            }, {}
        case "wait":
            return {"type": "wait", "condition": "timer", "timeout_secs": node["timeout"]}, {}
        case "eval":
            scorers = [{"type": "assertion", "checks": [text_of(node["test"])]}]
            return {
                "type": "eval",
                "scorers": scorers,
                "on_fail": node["on_fail"],
                "max_retries": node["most"],
            }, {}
        case "subgraph":
            outputs = {key: text_of(path) for key, path in node["gives"].items()}
            return {
                "type": "subgraph",
                "workflow_ref": "child",
                "input_mapping": {"n": "state.n0"},
                "output_mapping": outputs,
            }, {}
        case "finalizer":
            return {"type": "finalizer", "tool_ref": "clean", "run_on": node["run_on"]}, {}
    raise AssertionError(node)


def _called(node: dict[str, Any]) -> dict[str, Any]:
    """Whom work that is done elsewhere names."""
    name = node.get("ref", node["id"])
    match node.get("by", "tool"):
        case "mcp_tool":
            return {"server": "s", "tool": name}
        case "a2a_task":
            return {"remote_agent": "r", "skill": name}
        case "agent":
            return {"agent_ref": name}
    return {"tool_ref": name}


def _key(node: dict[str, Any]) -> str:
    return str(node.get("key", ""))


def _labels(node: dict[str, Any]) -> dict[str, Any]:
    return {"labels": {"jamjet.strategy.node": "x"}} if "key" in node else {}


def _as_graph(made: Program) -> str:
    nodes: dict[str, Any] = {}
    for node in made.nodes:
        nodes[node["id"]] = _graph_node(node)
    whole: dict[str, Any] = {"workflow": {"id": "w", "version": "0.1.0"}, "nodes": nodes, "retry_policies": POLICIES}
    if made.policy:
        whole["policy"] = made.policy
    return yaml.safe_dump(whole, sort_keys=False, width=1000)


def _graph_node(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": node["kind"]}
    if "key" in node:
        found["output_key"] = node["key"]
    if "retry" in node:
        found["retry_policy"] = node["retry"]
    match node["kind"]:
        case "python_fn":
            found |= {"module": "app", "function": node["id"]}
        case "tool":
            found |= {"type": node.get("by", "tool"), **_called(node)}
        case "model":
            found |= {"model": "m", "prompt": "p"}
        case "condition":
            listed = [{"if": text_of(test), "next": to} for test, to in node["ways"] if test is not None]
            default = [to for test, to in node["ways"] if test is None]
            return {"type": "branch", "conditions": listed, **({"default": default[0]} if default else {})}
        case "parallel":
            return {"type": "parallel", "branches": [to for _, to in node["ways"]]}
        case "join":
            found |= {"wait_for": node["wait_for"], "merge": node["merge"]}
        case "human_approval":
            found |= {name: node[name] for name in ("timeout", "fallback") if name in node}
        case "wait":
            found |= {name: node[name] for name in ("event", "timeout", "on_timeout") if name in node}
        case "eval":
            scorers = [{"type": "assertion", "check": text_of(node["test"])}]
            found |= {"scorers": scorers, "on_fail": node["on_fail"], "max_retries": node["most"]}
        case "subgraph":
            outputs = {key: text_of(path) for key, path in node["gives"].items()}
            found |= {"workflow_ref": "child", "input": {"n": "{{ state.n0 }}"}, "output": outputs}
        case "finalizer":
            return {"type": "finalizer", "tool_ref": "clean", "run_on": node["run_on"]}
    ways = node["ways"]
    if [test for test, _ in ways if test is not None]:
        found["next"] = [{"else": to} if test is None else {"to": to, "when": text_of(test)} for test, to in ways]
    elif ways != [(None, "end")]:
        found["next"] = ways[0][1] if len(ways) == 1 else [to for _, to in ways]
    return found


def _as_list(made: Program) -> str:
    nodes = []
    for node in made.nodes:
        found = _graph_node(node)
        kind = {"branch": "condition"}.get(found["type"], found["type"])
        config = {
            key: value for key, value in found.items() if key not in ("type", "next", "retry_policy", "output_key")
        }
        if kind == "tool":
            config["fn"] = config.pop("tool_ref")
        if kind == "model":
            config["prompt_template"] = config.pop("prompt")
        for name in ("conditions", "default", "branches"):
            config.pop(name, None)
        if "fields" in node:
            config["output_to_state"] = node["fields"]
        elif "key" in node:
            config["output_to_state"] = {"result": node["key"]}
        edges = [{"to": to, **({} if test is None else {"condition": text_of(test)})} for test, to in node["ways"]]
        if kind == "parallel":
            edges = [{"to": to} for _, to in node["ways"]]
        each = {"id": node["id"], "kind": kind, "config": config, "edges": edges}
        if "retry" in node:
            each["retry_policy"] = node["retry"]
        nodes.append(each)
    workflow: dict[str, Any] = {
        "id": "w",
        "start_node": made.nodes[0]["id"],
        "nodes": nodes,
        "retry_policies": POLICIES,
    }
    if made.policy:
        workflow["policy"] = made.policy
    return yaml.safe_dump({"workflow": workflow}, sort_keys=False, width=1000)

"""A small interpreter of graphs as `programs.py` makes them, without any code of the reader or the engine."""

from collections import Counter
from typing import Any

from tests.jamjet.programs import CHILD_ANSWER, TRIES, Program

END = "end"


class Failed(Exception):
    """A node has failed."""

    def __init__(self, node: str, kind: str) -> None:
        self.node, self.kind = node, kind
        super().__init__(node, kind)


class Interpreter:
    """Runs one node after the other. Ways that are not taken are dead; a node with only dead ways is skipped."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes = {node["id"]: node for node in program.nodes if node["kind"] != "finalizer"}
        self.order = list(self.nodes)
        self.state: dict[str, Any] = merge(program.state, {})
        self.tries: Counter[str] = Counter()
        self.visits: Counter[str] = Counter()
        self.sent_back: Counter[str] = Counter()
        self.outputs: dict[str, Any] = {}
        self.life: dict[str, str] = {}
        self.taken: dict[tuple[str, str], bool] = {}
        self.status = "completed"
        self.error: list[str] | None = None
        self.back = [(origin, to) for origin, to in self.edges() if self.order.index(to) <= self.order.index(origin)]
        self.skipped: set[str] = set()

    def edges(self) -> list[tuple[str, str]]:
        found = []
        for node in self.nodes.values():
            leads = [to for _, to in node["ways"]] + [node.get("fallback"), node.get("on_timeout")]
            if node["kind"] == "eval" and node["on_fail"] == "retry_with_feedback":
                leads.append(node["subject"])
            found += [(node["id"], to) for to in dict.fromkeys(leads) if to in self.nodes]
        return found

    def run(self) -> None:
        try:
            while self.advance():
                pass
            self.skipped = {name for name in self.nodes if not self.visits[name]}
        except Failed as failed:
            self.status, self.error = "failed", [failed.node, failed.kind]
        for node in self.program.nodes:
            if node["kind"] == "finalizer":
                wanted = {"success": "completed", "failure": "failed"}.get(node["run_on"], self.status)
                self.visits[node["id"]] += wanted == self.status

    def advance(self) -> bool:
        """Enter or skip the first node whose ways are all known."""
        for name in self.order:
            if name in self.life:
                continue
            known = [self.taken.get(edge) for edge in self.edges() if edge[1] == name and edge not in self.back]
            if None in known and not (self.nodes[name].get("merge") == "first" and True in known):
                continue
            if name != self.order[0] and not any(known):
                self.settle(name, "skipped", [])
            else:
                self.visits[name] += 1
                self.settle(name, "done", self.enter(self.nodes[name]))
            return True
        return False

    def settle(self, name: str, life: str, ways: list[str]) -> None:
        self.life[name] = life
        for edge in self.edges():
            if edge[0] == name:
                self.taken[edge] = edge[1] in ways
        for edge in self.back:
            if edge[0] == name and self.taken[edge]:
                self.again(edge[1], name)

    def again(self, head: str, tail: str) -> None:
        """Another pass: what is between the head and the tail is open again, and so are the ways out of it."""
        first, last = self.order.index(head), self.order.index(tail)
        inside = {name for name in self.order[first : last + 1] if self.leads(head, name) and self.leads(name, tail)}
        for name in inside:
            self.life.pop(name, None)
        for edge in self.edges():
            if edge[0] in inside:
                self.taken.pop(edge, None)

    def leads(self, origin: str, to: str) -> bool:
        found, todo = {origin}, [origin]
        while todo:
            here = todo.pop()
            for edge in self.edges():
                if edge[0] == here and edge not in self.back and edge[1] not in found:
                    found.add(edge[1])
                    todo.append(edge[1])
        return to in found

    def enter(self, node: dict[str, Any]) -> list[str]:
        kind, name = node["kind"], node["id"]
        if kind == "condition":
            return self.first(node["ways"], None)
        if kind == "parallel":
            return [to for _, to in node["ways"]]
        if kind == "human_approval":
            return self.decide(node)
        if kind == "wait":
            return self.wait(node)
        if kind == "eval":
            return self.judge(node)
        if kind == "subgraph":
            child = {"n": self.state.get("n0"), **CHILD_ANSWER}
            for key, path in node["gives"].items():
                self.state = merge(self.state, {key: child.get(path[1])})
        elif kind == "limit_exceeded":
            raise Failed(name, "limit_exceeded")
        elif kind != "join":
            self.work(node)
        return self.first(node["ways"], self.outputs.get(name))

    def first(self, ways: list[Any], output: Any) -> list[str]:
        if all(test is None for test, _ in ways):
            return [to for _, to in ways]
        for test, to in ways:
            if test is not None and value(test, self.state, output):
                return [to]
        return [to for test, to in ways if test is None][:1]

    def work(self, node: dict[str, Any]) -> None:
        name = node["id"]
        if "ref" in node:
            self.allow(node)
        answers = self.program.given["answers"].get(name, ["ok" if node["kind"] == "model" else {}])
        most, classes = TRIES[node["retry"]] if "retry" in node else (1, None)
        for attempt in range(1, most + 1):
            answer = answers[min(self.tries[name], len(answers) - 1)]
            self.tries[name] += 1
            if not (isinstance(answer, dict) and "fail" in answer):
                self.patch(node, answer)
                return
            if attempt == most or (classes is not None and answer["fail"] not in classes):
                kind = str(answer["fail"])
                raise Failed(name, {"io_error": "connection"}.get(kind, kind))

    def allow(self, node: dict[str, Any]) -> None:
        asked = f"{node['id']}.approval"
        if any(
            "*" in each and node["id"] in each.replace("*", "") for each in self.program.policy.get("blocked_tools", [])
        ):
            raise Failed(node["id"], "policy")
        if asked in self.program.given["gates"]:
            self.visits[asked] += 1
            if self.program.given["gates"][asked] == ["reject"]:
                self.visits[node["id"]] -= 1
                raise Failed(asked, "rejected")

    def patch(self, node: dict[str, Any], answer: Any) -> None:
        output = answer if isinstance(answer, dict) else {"result": answer}
        patch: dict[str, Any] = output
        if node["kind"] == "model":
            output = {"content": answer}
            patch = {"last_model_output": answer, "last_model_finish_reason": "stop", "last_model_tool_calls": []}
            if "key" in node:
                patch[node["key"]] = answer
        elif "key" in node:
            patch = {node["key"]: answer}
        elif "fields" in node and self.program.form == "list":
            patch = {key: answer[field] for field, key in node["fields"].items()}
        self.outputs[node["id"]] = output
        self.state = merge(self.state, patch)

    def decide(self, node: dict[str, Any]) -> list[str]:
        decision = self.program.given["gates"][node["id"]][0]
        if decision == "timeout":
            return [node["fallback"]]
        asks = any(test is not None for test, _ in node["ways"])
        if decision == "reject" and not asks:
            raise Failed(node["id"], "rejected")
        words = {"approve": "approved", "reject": "rejected"}
        return self.first(node["ways"], {"decision": words[decision]})

    def wait(self, node: dict[str, Any]) -> list[str]:
        events = self.program.given["waits"].get(node["id"])
        if "event" in node and events is None:
            return [node["on_timeout"]]
        if events is not None:
            self.state = merge(self.state, events[0]["event"])
        return self.first(node["ways"], {})

    def judge(self, node: dict[str, Any]) -> list[str]:
        name = node["id"]
        passed = bool(value(node["test"], self.state, self.outputs[node["subject"]]))
        action = "pass"
        if not passed:
            on_fail = node["on_fail"]
            if on_fail == "retry_with_feedback" and self.sent_back[name] < node["most"]:
                action = "retry"
            elif on_fail in ("log_and_continue", "escalate"):
                action = {"log_and_continue": "log"}.get(on_fail, on_fail)
            else:
                raise Failed(name, "eval")
        self.sent_back[name] = self.sent_back[name] + 1 if action == "retry" else 0
        self.state = merge(self.state, {"eval_passed": passed, "eval_action": action})
        if action == "retry":
            return [node["subject"]]
        if action == "escalate":
            gate = f"{name}.escalation"
            self.visits[gate] += 1
            if self.program.given["gates"][gate] == ["reject"]:
                raise Failed(gate, "rejected")
        return [to for _, to in node["ways"]]


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396, as the text of the standard has it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, each in patch.items():
        if each is None:
            if name in result:
                del result[name]
        else:
            result[name] = merge(result.get(name), each)
    return result


def value(test: Any, state: Any, output: Any) -> Any:
    if not isinstance(test, tuple):
        return test
    if test[0] in ("state", "output"):
        found = state if test[0] == "state" else output
        for name in test[1:]:
            found = found.get(name) if isinstance(found, dict) else None
        return found
    given = [value(each, state, output) for each in test[1:]]
    match test[0]:
        case "not":
            return not given[0]
        case "and":
            return given[0] and given[1]
        case "or":
            return given[0] or given[1]
        case "len":
            return len(given[0]) if isinstance(given[0], (str, list, dict)) else None
        case "==":
            return equal(*given)
        case "!=":
            return not equal(*given)
        case "in":
            return any(equal(given[0], each) for each in given[1])
        case "not in":
            return not any(equal(given[0], each) for each in given[1])
    kinds = {type(each) for each in given}
    if not (kinds == {str} or kinds <= {int, float}):
        return False
    compare = {"<": -1, ">": 1}[test[0][0]]
    sign = (given[0] > given[1]) - (given[0] < given[1])
    return sign == compare or (test[0].endswith("=") and sign == 0)


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return set(left) == set(right) and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(equal(*each) for each in zip(left, right, strict=True))
    return type(left) is type(right) and bool(left == right)

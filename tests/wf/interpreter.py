"""A second, small implementation of `.wf`: it reads a program and says what a run of it does. It shares no code with
Refold, and knows the language from its description alone."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

TOKEN = re.compile(
    r'\s+|//[^\n]*|(?:#|--)[^\n]*|;|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>[A-Za-z_][A-Za-z0-9_-]*)'
    r"|(?P<number>[0-9]+(?:ms|s|m|h)?)|(?P<mark>[{}\[\],=.])",
    re.DOTALL,
)
HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
BLOCK = re.compile(r"<<<FLOW_OUTPUT>>>\s*(?=[{\[`])")
HUMAN = ("human_approval", "human_review")


class Words:
    """The words of a text, taken one after the other."""

    def __init__(self, text: str) -> None:
        self.words: list[tuple[str, str]] = []
        for found in TOKEN.finditer(text):
            if found.lastgroup == "text":
                inner = re.sub(r"\\(.)", lambda each: {"n": "\n", "t": "\t"}.get(each[1], each[1]), found[0][1:-1])
                self.words.append(("text", inner))
            elif found.lastgroup:
                self.words.append((found.lastgroup, found[0]))
        self.words.append(("end", ""))
        self.at = 0

    def see(self, ahead: int = 0) -> str:
        return "\0" if self.words[self.at + ahead][0] == "text" else self.words[self.at + ahead][1]

    def take(self) -> str:
        self.at += 1
        return self.words[self.at - 1][1]

    def eat(self, word: str) -> None:
        assert self.take() == word, self.words[self.at - 3 : self.at + 3]


def parse(text: str) -> dict[str, Any]:
    """Return a workflow as plain data."""
    words = Words(text)
    words.eat("workflow")
    flow: dict[str, Any] = {"name": words.take(), "inputs": {}, "body": [], "always": []}
    words.eat("{")
    while words.see() != "}":
        if words.see() == "meta":
            words.take()
            _pairs_in_braces(words)
        elif words.see() == "inputs":
            words.take()
            _inputs(words, flow["inputs"])
        elif words.see() == "always":
            words.take()
            flow["always"] += _body(words)
        else:
            flow["body"].append(_node(words))
    return flow


def _inputs(words: Words, inputs: dict[str, Any]) -> None:
    words.eat("{")
    while words.see() != "}":
        declared: dict[str, Any] = {}
        inputs[words.take()] = declared
        while words.see() in ("required", "boolean", "default", "description"):
            word = words.take()
            if word in ("default", "description"):
                words.eat("=")
                declared[word] = words.take()
            else:
                declared[word] = True
    words.take()


def _pairs(words: Words) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    while words.words[words.at][0] == "word" and words.see(1) == "=":
        key = words.take()
        words.take()
        pairs[key] = _value(words)
        if words.see() == ",":
            words.take()
    return pairs


def _pairs_in_braces(words: Words) -> dict[str, Any]:
    words.eat("{")
    pairs = _pairs(words)
    words.eat("}")
    return pairs


def _value(words: Words) -> Any:
    if words.see() == "[":
        words.take()
        items = []
        while words.see() != "]":
            items.append(_value(words))
            if words.see() == ",":
                words.take()
        words.take()
        return items
    if words.see() == "{":
        return _pairs_in_braces(words)
    word = words.take()
    if words.see() == "." and words.words[words.at - 1][0] == "word":
        words.take()
        return f"{word}.{words.take()}"
    return word


def _body(words: Words) -> list[Any]:
    words.eat("{")
    nodes = []
    while words.see() != "}":
        nodes.append(_node(words))
    words.take()
    return nodes


def _test(words: Words) -> str:
    name = words.take()
    if words.see() == ".":
        words.take()
        return f"{name}.{words.take()}"
    return name


def _node(words: Words) -> dict[str, Any]:
    kind = words.take()
    if kind == "call" and words.see() == "workflow":
        words.take()
        node: dict[str, Any] = {"kind": "child", "name": words.take(), "keys": {}}
        if words.see() == "{":
            words.take()
            node["keys"] = _pairs(words)
            if words.see() == "inputs":
                words.take()
                node["keys"]["inputs"] = _pairs_in_braces(words)
                node["keys"] |= _pairs(words)
            words.eat("}")
        return node
    if kind == "call":
        quoted = words.words[words.at][0] == "text"
        name = words.take()
        name = name.rsplit("/", 1)[-1].removesuffix(".md") if quoted else name
        return {"kind": "call", "name": name, "keys": _pairs_in_braces(words) if words.see() == "{" else {}}
    if kind in ("if", "unless"):
        node = {"kind": kind, "test": _test(words), "body": _body(words), "else": []}
        if words.see() == "else":
            words.take()
            node["else"] = _body(words)
        return node
    if kind == "always":
        return {"kind": "do", "keys": {}, "body": _body(words)}
    if kind == "while":
        test = _test(words)
        return {"kind": "while", "test": test, **_keyed_body(words)}
    if kind == "do":
        node = {"kind": "do", **_keyed_body(words)}
        if words.see() == "while":
            words.take()
            node |= {"kind": "until", "test": _test(words)}
        return node
    if kind == "parallel":
        return {"kind": kind, **_keyed_body(words)}
    return {"kind": kind, "name": words.take(), "keys": _pairs_in_braces(words)}


def _keyed_body(words: Words) -> dict[str, Any]:
    words.eat("{")
    keys, nodes = _pairs(words), []
    while words.see() != "}":
        nodes.append(_node(words))
    words.take()
    return {"keys": keys, "body": nodes}


class Failed(Exception):
    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


class World:
    """The answers that are made up, and what was done with them."""

    def __init__(self, given: Mapping[str, Any], others: Sequence[str], schemas: Mapping[str, Any]) -> None:
        self.given, self.schemas = given, schemas
        self.flows = {flow["name"]: flow for flow in map(parse, others)}
        self.made: dict[tuple[str, str], int] = {}
        self.calls: list[Any] = []
        self.gates: list[list[str]] = []
        self.passes: list[list[Any]] = []
        self.runs: list[list[str]] = []
        self.skipped: list[str] = []
        self.items: dict[str, dict[str, str]] = {}
        self.env: dict[str, str] = {}
        self.run = ""

    def answer(self, section: str, name: str) -> Any:
        answers = self.given.get(section, {}).get(name, [{} if section != "gates" else "approve"])
        number = self.made[section, name] = self.made.get((section, name), 0) + 1
        return answers[min(number, len(answers)) - 1]


def interpret(text: str, given: Mapping[str, Any], others: Sequence[str] = (), schemas: Any = None, inputs: Any = None):  # type: ignore[no-untyped-def]
    """Return what a run does, in the words of the vectors."""
    world = World(given, others, schemas or {})
    flow = parse(text)
    missing = [name for name in needed(flow) if name not in (inputs or {})]
    if missing:
        return {"status": "refused", "names": missing[0]}, world
    run = Run(world, flow, dict(inputs or {}))
    return {"status": run.status, "kind": run.kind}, world


def needed(flow: Mapping[str, Any]) -> list[str]:
    return [name for name, each in flow["inputs"].items() if not each.get("boolean") and "default" not in each]


def shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Run:
    """One run, from its beginning to its end."""

    def __init__(self, world: World, flow: Mapping[str, Any], inputs: dict[str, Any]) -> None:
        self.world = world
        defaults = {
            n: d.get("default", "false") for n, d in flow["inputs"].items() if d.get("boolean") or "default" in d
        }
        self.inputs = {**defaults, **inputs}
        self.results: dict[str, dict[str, Any]] = {}
        self.own: dict[str, dict[str, Any]] = {}
        self.contexts: list[dict[str, Any]] = []
        self.own_contexts: list[dict[str, Any]] = []
        self.exports: dict[str, str] = {}
        self.own_exports: dict[str, str] = {}
        self.feedback, self.last, self.how = "", "", ""
        self.loops: list[int] = []
        self.status, self.kind = "completed", ""
        try:
            self.body(flow["body"], [])
        except Failed as failed:
            self.status, self.kind = "failed", failed.kind
        kept = dict(self.results), list(self.contexts), dict(self.exports), self.last
        self.how = self.status
        with suppress(Failed):
            self.body(flow["always"], [])
        self.results, self.contexts, self.exports, self.last = kept

    def body(self, nodes: Sequence[Any], blocks: list[Any]) -> None:
        for node in nodes:
            getattr(self, f"do_{node['kind']}".replace("do_if", "do_test").replace("do_unless", "do_test"))(
                node, blocks
            )

    # Names

    def lookup(self, name: str) -> Any:
        if name == "workflow_status" and self.how:
            return self.how
        last = self.contexts[-1] if self.contexts else {}
        engine = {"prior_context": last.get("context", ""), "gate_feedback": self.feedback, "dry_run": "false"}
        for names in (self.exports, engine, self.inputs):
            if name in names:
                return names[name]
        step, _, part = name.partition(".")
        if step == "inputs" and part in self.inputs:
            return self.inputs[part]
        if step in self.results and part in ("context", "markers", "output"):
            return self.results[step][part]
        return None

    def fill(self, text: str, keep: bool = False, quote: bool = False, item: Any = None) -> str:
        def put(found: re.Match[str]) -> str:
            name = found[1].strip()
            value = item.get(name[5:]) if item is not None and name.startswith("item.") else self.lookup(name)
            if value is None:
                return found[0] if keep else ""
            return "'" + shown(value).replace("'", "'\\''") + "'" if quote else shown(value)

        return HOLE.sub(put, text)

    def holds(self, test: str) -> bool:
        step, dot, marker = test.partition(".")
        if dot:
            return marker in self.results.get(step, {}).get("markers", [])
        return shown(self.inputs.get(step, "false")).lower() == "true"

    # What steps leave

    def leave(self, key: str, result: dict[str, Any], exports: Mapping[str, str], context: bool = True) -> None:
        self.results[key] = self.own[key] = result
        self.last = key
        self.exports |= exports
        self.own_exports |= exports
        if context:
            entry = {"step": key, "context": result["context"], "iteration": self.loops[-1] if self.loops else 0}
            self.contexts.append(entry)
            self.own_contexts.append(entry)

    def nothing(self, key: str) -> None:
        self.leave(key, {"markers": [], "context": "", "output": None}, {}, context=False)

    # Calls

    def ask(self, section: str, name: str, schema: Any, calls: list[Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the result and the exports of one try."""
        calls.append(name)
        answer = self.world.answer(section, name)
        if "fail" in answer:
            raise Failed("failed")
        if "text" in answer:
            block = block_of(answer["text"])
        else:
            own = {key: answer[key] for key in ("markers", "context") if key in answer}
            block = {**own, **(answer.get("output") or {}), **answer.get("exports", {})}
        if schema is not None and not fits({"type": "object", "fields": schema["fields"]}, block):
            raise Failed("schema")
        if block is None:
            text = answer["text"][:2000] if section == "scripts" else ""
            return {"markers": [], "context": text, "output": None}, {}
        exports = {n: v for n, v in block.items() if isinstance(v, str) and n not in ("markers", "context")}
        if schema is not None:
            return {"markers": derived(schema, block), "context": told(schema, block), "output": block}, exports
        return {"markers": block.get("markers", []), "context": block.get("context", ""), "output": block}, exports

    def tries(self, node: Any, section: str, name: str, schema: Any, calls: list[Any]) -> Any:
        for left in range(int(node["keys"].get("retries", 0)), -1, -1):
            try:
                return self.ask(section, name, schema, calls)
            except Failed:
                if not left:
                    raise
        raise AssertionError

    def schema(self, node: Any, blocks: Sequence[Any]) -> Any:
        names = [keys["output"] for keys in (*blocks, node["keys"]) if "output" in keys]
        return self.world.schemas.get(names[-1], {"fields": {}}) if names else None

    def worked(self, node: Any, key: str, section: str, name: str, schema: Any) -> None:
        try:
            result, exports = self.tries(node, section, name, schema, self.world.calls)
        except Failed as failed:
            self.lost(node, key, failed)
        else:
            self.leave(key, result, exports)

    def lost(self, node: Any, key: str, failed: Failed) -> None:
        on_fail = node["keys"].get("on_fail")
        if on_fail == "continue":
            self.world.skipped.append(key)
            self.nothing(key)
            return
        if on_fail is not None:
            try:
                result, exports = self.ask("agents", on_fail, None, self.world.calls)
                self.leave(on_fail, result, exports)
            except Failed:
                pass
        raise failed

    def do_call(self, node: Any, blocks: list[Any]) -> None:
        self.worked(node, node["name"], "agents", node["name"], self.schema(node, blocks))

    def do_script(self, node: Any, blocks: list[Any]) -> None:
        keys = node["keys"]
        self.world.run = self.fill(keys["run"], quote=True)
        self.world.env = {name: self.fill(text) for name, text in keys.get("env", {}).items()}
        stem = self.world.run.split()[0].rsplit("/", 1)[-1].partition(".")[0]
        self.worked(node, node["name"], "scripts", stem, None)

    def do_parallel(self, node: Any, blocks: list[Any]) -> None:
        keys, inner = node["keys"], [*blocks, node["keys"]]
        calls: list[Any] = []
        bad, kept = 0, []
        active = [call for call in node["body"] if "if" not in call["keys"] or self.holds(call["keys"]["if"])]
        self.world.skipped += [call["name"] for call in node["body"] if call not in active]
        for call in active:
            try:
                done = self.tries(call, "agents", call["name"], self.schema(call, inner), calls)
                kept.append((call["name"], *done))
            except Failed:
                on_fail = call["keys"].get("on_fail")
                if on_fail == "continue":
                    self.world.skipped.append(call["name"])
                else:
                    bad += 1
                    if on_fail is not None:
                        with suppress(Failed):
                            self.ask("agents", on_fail, None, calls)
                kept.append((call["name"], None, None))
        if calls:
            self.world.calls.append(sorted(calls))
        last = self.last
        for name, result, exports in kept:
            if result is None:
                self.results[name] = self.own[name] = {"markers": [], "context": "", "output": None}
            else:
                self.leave(name, result, exports)
                last = name
        self.last = last
        if len(node["body"]) - bad < int(keys.get("min_success", len(node["body"]))):
            raise Failed("branches_failed")

    # Blocks

    def do_test(self, node: Any, blocks: list[Any]) -> None:
        self.body(node["body"] if self.holds(node["test"]) == (node["kind"] == "if") else node["else"], blocks)

    def do_do(self, node: Any, blocks: list[Any]) -> None:
        self.body(node["body"], [*blocks, node["keys"]])

    def do_while(self, node: Any, blocks: list[Any]) -> None:
        self.loop(node, blocks, first=self.holds(node["test"]))

    def do_until(self, node: Any, blocks: list[Any]) -> None:
        self.loop(node, blocks, first=True)

    def loop(self, node: Any, blocks: list[Any], first: bool) -> None:
        keys, passes, again = node["keys"], 0, first
        ends: list[set[str]] = []
        step = node["test"].partition(".")[0]
        try:
            while again:
                stuck = int(keys.get("stuck_after", 0))
                if stuck and len(ends) >= stuck and all(each == ends[-1] for each in ends[-stuck:]):
                    raise Failed("stuck")
                if passes == int(keys["max_iterations"]):
                    if keys.get("on_max_iter") == "continue":
                        break
                    raise Failed("max_iterations")
                self.loops.append(passes)
                passes += 1
                try:
                    self.body(node["body"], blocks)
                finally:
                    self.loops.pop()
                ends.append(set(self.results.get(step, {}).get("markers", [])))
                again = self.holds(node["test"])
        except Failed as failed:
            if failed.kind not in ("stuck", "max_iterations") or self.loops_failed(failed):
                raise
            self.world.passes.append([node["test"], passes])
            failed.args = ("noted",)
            raise
        self.world.passes.append([node["test"], passes])

    def loops_failed(self, failed: Failed) -> bool:
        """Whether the failure is that of a loop inside."""
        return failed.args == ("noted",)

    # Gates

    def do_gate(self, node: Any, blocks: list[Any]) -> None:
        name, keys = node["name"], node["keys"]
        if name == "quality_gate":
            self.quality(keys)
            return
        assert name in HUMAN
        answer = self.world.answer("gates", name)
        option, feedback = next(iter(answer.items())) if isinstance(answer, dict) else (answer, "")
        self.world.gates.append([name, option])
        if option == "reject":
            raise Failed("rejected")
        if option == "timeout":
            if keys.get("on_timeout") != "continue":
                raise Failed("timeout")
            return
        self.feedback = feedback

    def quality(self, keys: Any) -> None:
        if keys["source"] not in self.results:
            self.world.gates.append(["quality_gate", "no source"])
            raise Failed("quality")
        output = self.results[keys["source"]]["output"]
        value = output.get("confidence", 0) if isinstance(output, dict) else 0
        value = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
        well = value >= int(keys["threshold"])
        self.world.gates.append(["quality_gate", "ok" if well else "below"])
        if not well and keys.get("on_fail") != "continue":
            raise Failed("quality")

    # Children

    def start(self, name: str, inputs: Mapping[str, str]) -> "Run":
        place = len(self.world.runs)
        self.world.runs.append([name, ""])
        run = Run(self.world, self.world.flows[name], dict(inputs))
        self.world.runs[place][1] = run.status
        return run

    def do_child(self, node: Any, blocks: list[Any]) -> None:
        name, keys = node["name"], node["keys"]
        inputs = {key: self.fill(text, keep=True) for key, text in keys.get("inputs", {}).items()}
        for left in range(int(keys.get("retries", 0)), -1, -1):
            run = self.start(name, inputs)
            if run.status == "completed":
                break
            if not left:
                self.lost(node, name, Failed("child_failed"))
                return
        result = run.results.get(run.last, {"markers": [], "context": ""})
        self.contexts += run.own_contexts
        self.leave(name, {"markers": result["markers"], "context": result["context"], "output": None}, {})
        self.results |= run.own
        self.exports |= run.own_exports

    def do_foreach(self, node: Any, blocks: list[Any]) -> None:
        keys, name = node["keys"], node["name"]
        given: dict[str, Any] = {}
        for item in self.world.given.get("items", {}).get(keys["over"], []):
            given.setdefault(item["id"], item)
        ordered, policy = keys.get("ordered") == "true", keys.get("on_child_fail")
        before: dict[str, set[str]] = {
            key: set(item.get("after", [])) & given.keys() if ordered else set() for key, item in given.items()
        }
        states: dict[str, str] = {}
        self.world.items[name] = states
        if _circle(before):
            raise Failed("order")
        while ready := [key for key in given if key not in states and before[key] <= _well(states)]:
            key = ready[0]
            inputs = {n: self.fill(t, keep=True, item=given[key]) for n, t in keys.get("inputs", {}).items()}
            states[key] = self.start(keys["workflow"], inputs).status
            if states[key] == "failed" and policy == "halt":
                states |= {other: "cancelled" for other in given if other not in states}
        states |= {key: "skipped" for key in given if key not in states}
        counts = {state: list(states.values()).count(state) for state in ("completed", "failed")}
        if counts["failed"]:
            raise Failed("items_failed")
        skipped = len(given) - sum(counts.values())
        context = (
            f"foreach {name}: {counts['completed']} completed, {counts['failed']} failed, {skipped} skipped"
            f" of {len(given)} {keys['over']}"
        )
        self.leave(name, {"markers": [], "context": context, "output": None}, {})


def _well(states: Mapping[str, str]) -> set[str]:
    return {key for key, state in states.items() if state == "completed"}


def _circle(before: Mapping[str, set[str]]) -> bool:
    left = dict(before)
    while free := [key for key, keys in left.items() if not keys & left.keys()]:
        for key in free:
            del left[key]
    return bool(left)


def block_of(text: str) -> dict[str, Any] | None:
    """Return the last block of a text, as far as the programs of the tests need it."""
    starts = [found.end() for found in BLOCK.finditer(text)]
    end = text.find("<<<END_FLOW_OUTPUT>>>", starts[-1]) if starts else -1
    if end < 0:
        return None
    inner = text[starts[-1] : end].strip().strip("`").removeprefix("json").strip()
    inner = re.sub(r",(\s*[}\]])", r"\1", inner)
    value = json.loads(inner)
    return value if isinstance(value, dict) else None


TYPES: dict[str, Any] = {"string": str, "number": (int, float), "boolean": bool, "array": list, "object": dict}


def fits(field: Any, value: Any) -> bool:
    if isinstance(field, str):
        field = {"type": field}
    kind = field.get("type", "object")
    if kind.startswith("enum"):
        return value in [each.strip() for each in kind[5:-1].split(",")]
    if not isinstance(value, TYPES[kind]) or (kind == "number" and isinstance(value, bool)):
        return False
    if kind == "array" and isinstance(field.get("items"), dict):
        return all(fits({"type": "object", "fields": field["items"]}, each) for each in value)
    for name, each in field.get("fields", {}).items():
        bare = name.removesuffix("?")
        if (bare not in value and not name.endswith("?")) or (bare in value and not fits(each, value[bare])):
            return False
    return True


def derived(schema: Any, value: Mapping[str, Any]) -> list[str]:
    if "markers" not in schema:
        return ["not_approved"] if value.get("approved") is False else []
    return sorted(name for name, rule in schema["markers"].items() if _follows(rule, value))


def _follows(rule: str, value: Mapping[str, Any]) -> bool:
    listed = re.fullmatch(r"(\w+)(?:\[(\w+) == (\w+)\])?\.length > (\d+)", rule)
    if listed is not None:
        field, key, wanted, least = listed.groups()
        found = [each for each in value.get(field, []) if key is None or each.get(key) == wanted]
        return field in value and len(found) > int(least)
    field, op, wanted = rule.split(" ", 2)
    if field not in value:
        return False
    if op in "<>":
        return bool(value[field] < float(wanted) if op == "<" else value[field] > float(wanted))
    return shown(value[field]) == wanted


def told(schema: Any, value: Mapping[str, Any]) -> str:
    texts = sorted(name.removesuffix("?") for name, field in schema["fields"].items() if field == "string")
    return next((value[name] for name in ("context", "summary", *texts) if isinstance(value.get(name), str)), "")

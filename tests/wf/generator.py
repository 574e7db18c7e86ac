"""Makes programs in `.wf` with the answers that they get, each from the number of its seed."""

import random
from collections import Counter
from typing import Any

from tests.wf.programs import Program

AGENTS = ("plan", "build", "look", "test", "ship")
SCRIPTS = ("fetch", "pack")
MARKERS = ("open", "bad", "late")
SCHEMA = {
    "fields": {"level": "enum(low, high)", "confidence": "number", "note?": "string"},
    "markers": {"open": "level == high", "late": "confidence < 50"},
}
FILLS = ("{{who}}", "{{ prior_context }}", "{{gate_feedback}}", "{{nobody}}", "{{branch}}", "{{inputs.who}}")


class Generator:
    """Writes one program. `used` counts the constructs in it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.used: Counter[str] = Counter()
        self.known: list[str] = []  # keys of steps that may have run
        self.others: list[str] = []
        self.items: dict[str, list[Any]] = {}
        self.judged = False
        self.nodes = 0

    def program(self) -> Program:
        body = self.body(0, self.random.randint(3, 6), 2)
        finally_ = ""
        if self.chance(0.35):
            self.use("always of the file")
            script = 'script bye { run = "bye.sh {{workflow_status}}" env = { HOW = "{{workflow_status}}" } }'
            inner = self.body(1, self.random.randint(1, 2), 1, simple=True)
            finally_ = f"  always {{\n{inner}    {script}\n  }}\n"
        inputs = '  inputs { who default = "it\'s me"  deep boolean  need }\n'
        text = f'workflow main {{\n  meta {{ title = "T" }}\n{inputs}{body}{finally_}}}\n'
        given: dict[str, Any] = {
            "agents": {name: self.answers() for name in (*AGENTS, "mend")},
            "scripts": {name: self.answers(script=True) for name in SCRIPTS},
            "gates": {name: self.decisions() for name in ("human_approval", "human_review")},
        }
        given["agents"]["judge"] = [self.judgement() for _ in range(3)]
        inputs_given = {"need": "n"} | (
            {"deep": self.random.choice(["true", "TRUE", "no"])} if self.chance(0.5) else {}
        )
        return Program(
            text=text, others=self.others, schemas={"verdict": SCHEMA}, inputs=inputs_given, items=self.items, **given
        )

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def use(self, construct: str) -> None:
        self.used[construct] += 1

    # Answers

    def answers(self, script: bool = False) -> list[Any]:
        return [self.answer(script) for _ in range(self.random.randint(1, 5))]

    def answer(self, script: bool) -> dict[str, Any]:
        if self.chance(0.12):
            return {"fail": "no"}
        markers = [name for name in MARKERS if self.chance(0.35)]
        context = self.random.choice(["one", "two {{who}}", ""])
        if script and self.chance(0.4):
            self.use("block in a text")
            block = f'{{"markers": {str(markers).replace(chr(39), chr(34))}, "context": "{context}",}}'
            return {"text": f"log\n<<<FLOW_OUTPUT>>>\n```json\n{block}\n```\n<<<END_FLOW_OUTPUT>>>\n"}
        answer: dict[str, Any] = {"markers": markers, "context": context}
        if self.chance(0.3):
            self.use("exports")
            answer["exports"] = {"branch": self.random.choice(["b1", "b2"])}
        return answer

    def judgement(self) -> dict[str, Any]:
        if self.chance(0.2):
            return {"output": {"level": "none"}}
        level = self.random.choice(["low", "high"])
        return {
            "output": {"level": level, "confidence": self.random.choice([20, 60, 90.5]), "note": "n", "markers": []}
        }

    def decisions(self) -> list[Any]:
        return [self.random.choice(["approve", "approve", {"approve": "say"}, "timeout", "reject"]) for _ in range(4)]

    # Nodes

    def body(self, depth: int, count: int, deepest: int, simple: bool = False) -> str:
        margin = "  " * (depth + 1)
        return "".join(f"{margin}{self.node(depth, deepest, simple)}\n" for _ in range(count))

    def node(self, depth: int, deepest: int, simple: bool) -> str:
        kinds = ["call", "call", "call", "script", "if"]
        if not simple:
            kinds += ["parallel", "gate", "quality", "judge"]
            kinds += ["child", "foreach"] if depth < 2 else []
        if depth < deepest:
            kinds += ["if", "while", "until", "until", "do", *(["block"] if depth else [])]
        kind = self.random.choice(kinds)
        return str(getattr(self, f"make_{kind}")(depth, deepest, simple))

    def test(self) -> str:
        if self.known and self.chance(0.8):
            return f"{self.random.choice(self.known)}.{self.random.choice(MARKERS)}"
        self.use("boolean input")
        return "deep"

    def make_call(self, depth: int, deepest: int, simple: bool) -> str:
        name = self.random.choice(AGENTS)
        keys = []
        if self.chance(0.3):
            self.use("retries")
            keys.append(f"retries = {self.random.randint(1, 2)}")
        if self.chance(0.35):
            self.use("on_fail = continue")
            keys.append("on_fail = continue")
        elif self.chance(0.2):
            self.use("on_fail = agent")
            keys.append("on_fail = mend")
        self.use("call")
        self.known.append(name)
        return f"call {name}" + (f" {{ {self.joined(keys)} }}" if keys else "")

    def joined(self, keys: list[str]) -> str:
        return self.random.choice(["  ", ", "]).join(keys)

    def make_judge(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("schema")
        self.known.append("judge")
        self.judged = True
        return f'call judge {{ output = "verdict" retries = {self.random.randint(0, 1)} }}'

    def make_quality(self, depth: int, deepest: int, simple: bool) -> str:
        if not self.judged:
            return self.make_judge(depth, deepest, simple)
        self.use("quality gate")
        on_fail = self.random.choice(["", " on_fail = continue"])
        return f"gate quality_gate {{ source = judge threshold = {self.random.choice([0, 50, 80])}{on_fail} }}"

    def make_script(self, depth: int, deepest: int, simple: bool) -> str:
        name = self.random.choice(SCRIPTS)
        self.use("script")
        fills = [self.random.choice(FILLS) for _ in range(3)]
        if self.known:
            fills.append(f"{{{{{self.random.choice(self.known)}.markers}}}}")
        on_fail = self.random.choice(["", " on_fail = continue", " retries = 1"])
        self.known.append(name)
        env = f'env = {{ A = "<{fills[0]}>" B = "{fills[1]}{fills[-1]}" }}'
        return f'script {name} {{ run = "{name}.sh {fills[2]} {{{{need}}}}" {env}{on_fail} }}'

    def make_if(self, depth: int, deepest: int, simple: bool) -> str:
        word = self.random.choice(["if", "unless"])
        self.use(word)
        test = self.test()
        margin = "  " * (depth + 1)
        made = f"{word} {test} {{\n{self.body(depth + 1, self.random.randint(0, 2), deepest, simple)}{margin}}}"
        if self.chance(0.4):
            self.use("else")
            made += f" else {{\n{self.body(depth + 1, 1, deepest, simple)}{margin}}}"
        return made

    def passes(self) -> str:
        keys = [f"max_iterations = {self.random.randint(1, 3)}"]
        if self.chance(0.6):
            self.use("on_max_iter = continue")
            keys.append("on_max_iter = continue")
        if self.chance(0.4):
            self.use("stuck_after")
            keys.append("stuck_after = 2")
        return "  ".join(keys)

    def make_while(self, depth: int, deepest: int, simple: bool) -> str:
        if not self.known:
            return self.make_call(depth, deepest, simple)
        self.use("while")
        test = f"{self.random.choice(self.known)}.{self.random.choice(MARKERS)}"
        margin = "  " * (depth + 1)
        inner = self.body(depth + 1, self.random.randint(1, 2), deepest, simple)
        return f"while {test} {{ {self.passes()}\n{inner}{margin}}}"

    def make_until(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("do … while")
        margin = "  " * (depth + 1)
        inner = self.body(depth + 1, self.random.randint(1, 2), deepest, simple)
        inner += f"{margin}  {self.make_call(depth, deepest, simple)}\n"
        test = f"{self.random.choice(self.known)}.{self.random.choice(MARKERS)}"
        return f"do {{ {self.passes()}\n{inner}{margin}}} while {test}"

    def make_do(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("do")
        margin = "  " * (depth + 1)
        inner = self.body(depth + 1, self.random.randint(1, 2), deepest, simple)
        # A plain block before a `while` would be read as the body of that loop.
        return f"do {{\n{inner}{margin}}}\n{margin}{self.make_call(depth, deepest, simple)}"

    def make_block(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("always in a body")
        margin = "  " * (depth + 1)
        return f"always {{\n{self.body(depth + 1, 1, deepest, simple)}{margin}}}"

    def make_parallel(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("parallel")
        names = self.random.sample(AGENTS, self.random.randint(2, 3))
        slow = self.chance(0.6)
        keys, calls = [], []
        if slow:
            self.use("fail_fast = false")
            keys.append("fail_fast = false")
        if self.chance(0.5):
            self.use("min_success")
            keys.append(f"min_success = {self.random.randint(0, len(names))}")
        known = list(self.known)
        for name in names:
            own = []
            if known and self.chance(0.3):
                self.use("if of a call")
                own.append(f'if = "{self.random.choice(known)}.{self.random.choice(MARKERS)}"')
            if slow and self.chance(0.3):
                own.append("retries = 1")
            if self.chance(0.25):
                self.use("on_fail = continue in parallel")
                own.append("on_fail = continue")
            elif slow and self.chance(0.25):
                self.use("on_fail = agent in parallel")
                own.append("on_fail = mend")
            calls.append(f"call {name}" + (f" {{ {self.joined(own)} }}" if own else ""))
        self.known += names
        return f"parallel {{ {' '.join(keys)}  {'  '.join(calls)} }}"

    def make_gate(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("human gate")
        name = self.random.choice(["human_approval", "human_review"])
        keys = ['prompt = "go on, {{who}}?"', "timeout = 2h"]
        if self.chance(0.5):
            self.use("on_timeout = continue")
            keys.append("on_timeout = continue")
        return f"gate {name} {{ {self.joined(keys)} }}"

    def kid(self) -> str:
        """Write another workflow, and return its name."""
        name = f"kid{len(self.others)}"
        inner = Generator(self.random.randrange(1 << 30))
        self.others.append("")  # its place
        body = inner.body(2, self.random.randint(1, 3), 2, simple=True)
        finally_ = '  always { script pack { run = "pack.sh" env = { K = "{{workflow_status}}" } } }\n'
        always = finally_ if self.chance(0.3) else ""
        inputs = '  inputs { need  who default = "kid"  deep boolean }\n'
        self.others[int(name[3:])] = f"workflow {name} {{\n{inputs}{body}{always}}}\n"
        self.known += list(dict.fromkeys(inner.known))
        self.used += inner.used
        return name

    def make_child(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("call workflow")
        name = self.kid()
        self.known.append(name)
        given = 'inputs { need = "{{who}}+{{nobody}}" }'
        tries = self.random.choice(["", "retries = 1 ", "on_fail = continue "])
        if "retries" in tries:
            self.use("retries of a child")
        return f"call workflow {name} {{ {tries}{given} }}"

    def make_foreach(self, depth: int, deepest: int, simple: bool) -> str:
        self.use("foreach")
        place = len(self.known)
        workflow = self.kid()
        del self.known[place:]  # the steps of its runs leave nothing here
        name, over = f"each{len(self.others)}", f"things{len(self.others)}"
        ids = [f"i{n}" for n in range(self.random.randint(0, 4))]
        self.random.shuffle(ids)
        items: list[dict[str, Any]] = [{"id": each, "colour": self.random.choice(["red", "blue"])} for each in ids]
        if items and self.chance(0.3):
            self.use("a second item with the same id")
            items.append(dict(self.random.choice(items)))
        keys = [f"over = {over}", "max_parallel = 1", f"workflow = {workflow}"]
        if self.chance(0.5):
            self.use("ordered")
            keys.append("ordered = true")
            for number, item in enumerate(items[: len(ids)]):
                if self.chance(0.5):
                    item["after"] = [each for each in (*ids[number + 1 :], "elsewhere") if self.chance(0.5)]
        if self.chance(0.3):
            self.use("halt")
            keys.append("on_child_fail = halt")
        self.items[over] = items
        self.known.append(name)
        return f'foreach {name} {{ {"  ".join(keys)}  inputs = {{ need = "{{{{item.id}}}}-{{{{item.colour}}}}" }} }}'

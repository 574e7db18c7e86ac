"""Block programs: made at random, written as playbooks, and carried out by an interpreter of a page."""

import random
from collections import Counter
from typing import Any

from msgspec import Struct, json

Item = dict[str, Any]
STEPS = 14  # in one program, about
HEAD = {"apiVersion": "refold/v1", "kind": "Playbook", "metadata": {"name": "blocks"}}


class Program(Struct):
    items: list[Item]
    fails: dict[str, list[int]]  # step -> the visits in which it fails
    region: dict[str, int]  # step -> the innermost branch that it stands in

    def text(self) -> str:
        """As a playbook: JSON is YAML. The counters begin at nothing."""
        zero = {f"ctx.c_{name}": 0 for name in self.region}
        start = {"step": "start", "set": zero, "next": "main"}
        main = {"if": "{{ visit == 1 }}", "name": "main", "then": self.items}
        return json.encode({**HEAD, "workflow": [start, main]}).decode()


class Maker:
    """Conditions read counters of steps that no other branch is at work on."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.steps = self.blocks = self.regions = 0
        self.program = Program([], {}, {})

    def make(self) -> Program:
        self.program.items = self.some(4, [], 0)
        return self.program

    def some(self, depth: int, known: list[str], region: int) -> list[Item]:
        items: list[Item] = []
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            items.append(self.item(depth, known, region))
        if len(items) > 1 and "step" not in items[0] and self.chance.random() < 0.3:
            items[0]["next"] = {"arcs": [{"step": name_of(items[1]), "on": "failure"}]}
        return items

    def item(self, depth: int, known: list[str], region: int) -> Item:
        if not depth or self.steps >= STEPS or self.chance.random() < 0.35:
            return self.step(known, region)
        self.blocks += 1
        makers = [self.loop, self.loop, self.choice, self.choice, self.parallel]
        return self.chance.choice(makers)(f"block_{self.blocks}", depth - 1, known, region)

    def step(self, known: list[str], region: int) -> Item:
        self.steps += 1
        name = f"s{self.steps}"
        known.append(name)
        self.program.region[name] = region
        if self.chance.random() < 0.15:
            self.program.fails[name] = self.chance.sample([1, 2, 3, 4], 2)
        return {
            "step": name,
            "tool": {"kind": "shell", "script": name},
            "set": {f"ctx.c_{name}": f"{{{{ c_{name} + 1 }}}}"},
        }

    def condition(self, known: list[str], least: int = 1) -> str:
        if not known:
            return "{{ run.name == 'nobody' }}"
        sign = self.chance.choice(["<", ">="])
        return f"{{{{ ctx.c_{self.chance.choice(known)} {sign} {self.chance.randrange(least, 4)} }}}}"

    def loop(self, name: str, depth: int, known: list[str], region: int) -> Item:
        word = self.chance.choice(["while", "until"])
        before = list(known)
        body = self.some(depth, known, region)
        readable = known if word == "until" else [*before, *known]
        loop: Item = {word: self.condition(readable), "name": name, "do": body}
        loop["max_iterations"] = self.chance.choice([1, 2, 3, 4])
        loop["on_max"] = self.chance.choice(["continue", "continue", "fail"])
        if self.chance.random() < 0.3 and known:
            loop |= {
                "stuck_after": self.chance.choice([1, 2]),
                "stuck_on": f"{{{{ ctx.c_{self.chance.choice(known)} }}}}",
            }
        return loop

    def choice(self, name: str, depth: int, known: list[str], region: int) -> Item:
        block: Item = {"if": self.condition(known), "name": name, "then": self.some(depth, known, region)}
        if self.chance.random() < 0.4:
            block["elif"] = [{"if": self.condition(known), "then": self.some(depth, known, region)}]
        if self.chance.random() < 0.6:
            block["else"] = self.some(depth, known, region)
        return block

    def parallel(self, name: str, depth: int, known: list[str], _region: int) -> Item:
        branches, learnt = {}, []
        for number in range(self.chance.choice([1, 2, 2, 3])):
            self.regions += 1
            here = list(known)
            branches[f"b{number}"] = self.some(depth, here, self.regions)
            learnt += here[len(known) :]
        known += learnt
        block: Item = {"parallel": name, "branches": branches}
        if self.chance.random() < 0.5:
            block["min_success"] = self.chance.randrange(0, len(branches) + 1)
        return block


def name_of(item: Item) -> str:
    name: str = item.get("step") or item.get("parallel") or item["name"]
    return name


class Failed(Exception):
    pass


class Interpreter:
    """What a program does, said once more, plainly."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.trace: list[str] = []
        self.visits: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def outcome(self) -> str:
        """Nothing, or who failed."""
        try:
            self.run(self.program.items)
        except Failed as failed:
            return str(failed)
        return ""

    def run(self, items: list[Item]) -> None:
        for item in items:
            try:
                self.item(item)
            except Failed:
                if not isinstance(item.get("next"), dict):
                    raise

    def item(self, item: Item) -> None:
        if "step" in item:
            self.step(item["step"])
        elif "parallel" in item:
            self.parallel(item)
        elif "if" in item:
            self.choice(item)
        else:
            self.loop(item)

    def step(self, name: str) -> None:
        self.visits[name] += 1
        self.trace.append(name)
        if self.visits[name] in self.program.fails.get(name, ()):
            raise Failed(name)
        self.done[name] += 1

    def holds(self, condition: str) -> bool:
        left, sign, right = condition.strip("{} ").split()
        if left == "run.name":
            return False
        count = self.done[left.removeprefix("ctx.c_")]
        return count < int(right) if sign == "<" else count >= int(right)

    def choice(self, item: Item) -> None:
        for each in [item, *item.get("elif", [])]:
            if self.holds(each["if"]):
                return self.run(each["then"])
        return self.run(item.get("else", []))

    def parallel(self, item: Item) -> None:
        failed = 0
        for body in item["branches"].values():
            try:
                self.run(body)
            except Failed:
                failed += 1
        if len(item["branches"]) - failed < item.get("min_success", len(item["branches"])):
            raise Failed(item["parallel"])

    def loop(self, item: Item) -> None:
        passes, same, last = 0, 0, -1
        while "until" in item or self.holds(item["while"]):
            if passes == item["max_iterations"]:
                if item["on_max"] == "fail":
                    raise Failed(f"{item['name']}.limit")
                return
            passes += 1
            self.run(item["do"])
            if "stuck_on" in item:
                now = self.done[item["stuck_on"].strip("{} ").removeprefix("ctx.c_")]
                same = same + 1 if passes > 1 and now == last else 0
                last = now
                if same == item["stuck_after"]:
                    raise Failed(f"{item['name']}.stuck")
            if "until" in item and self.holds(item["until"]):
                return

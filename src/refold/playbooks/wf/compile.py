"""Writes the tree of a `.wf` file as a plan: steps and arcs, blocks with additional steps that only connect them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from refold.core.pipeline import Task, TaskPipeline
from refold.core.plan import (
    VISIT_LIMIT,
    Arc,
    Call,
    Child,
    Fail,
    Input,
    Loop,
    Plan,
    Poll,
    Quality,
    Retry,
    Source,
    Step,
    Work,
    plan_hash,
)
from refold.core.plan import Gate as GateWork
from refold.playbooks.bindings import BoundGate, how_to_bind, with_environment
from refold.playbooks.wf.agents import Agents
from refold.playbooks.wf.checks import fallback_key
from refold.playbooks.wf.keys import DAY, HUMAN_GATES, PR_APPROVAL, QUALITY
from refold.playbooks.wf.nodes import (
    Block,
    ChildCall,
    Do,
    File,
    Foreach,
    Gate,
    ListValue,
    MapValue,
    Node,
    Pair,
    Parallel,
    Scalar,
    Script,
    Test,
    Value,
    key_of,
    walk,
)
from refold.playbooks.wf.nodes import Call as AgentCall
from refold.playbooks.wf.nodes import Loop as LoopNode
from refold.playbooks.wf.reading import WfReading
from refold.templates.wf_language import CONSTANTS, EMPTY, ENGINE_NAMES, RESULT

MOST_VISITS = 1_000_000_000
MOST_LOOKS = 1_000_000
REFUSED = frozenset(
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "PATH",
        "PYTHONPATH",
        "RUBYLIB",
        "NODE_PATH",
        "GH_TOKEN",
    ]
)
LANGUAGE = "wf"

FindChild = Callable[[Scalar, str], Plan | None]
"""Returns the plan of another workflow under an identity, or None if that was reported. Empty: that of this one."""


class Site(Struct, frozen=True):
    """The surroundings of a node: what its calls inherit, the loop around it, and how often it may be visited."""

    passes: str | None = None  # the key of the counter of the innermost loop
    output: Scalar | None = None
    snippets: tuple[Scalar, ...] = ()
    times: int = 1

    def inside(self, keys: Mapping[str, Any]) -> "Site":
        """Return the surroundings of what stands in a block with these keys."""
        if "output" not in keys and "with" not in keys:
            return self
        return structs.replace(
            self, output=keys.get("output", self.output), snippets=(*self.snippets, *keys.get("with", ()))
        )


class Compiler:
    """Compiles one list of nodes. `places` gets the offset of each step in the text."""

    def __init__(self, reading: WfReading, agents: Agents, find_child: FindChild, gh: bool) -> None:
        self.reading, self.agents, self._find_child, self._gh = reading, agents, find_child, gh
        self.steps: list[Step] = []
        self.places: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._taken: dict[str, int] = {}
        self._end = ""

    def plan(self, file: File, body: list[Node], name: str, constants: dict[str, Any]) -> Plan:
        nodes = walk(body)
        self._name_all(nodes)
        entry = self._body(body, "", Site()) or self._finish()
        keys = list(filter(None, map(key_of, nodes)))
        fallbacks = [node.keys["on_fail"] for node in nodes if isinstance(node.keys.get("on_fail"), Scalar)]
        keys += [fallback_key(each) for each in fallbacks if each.text != "continue"]
        inputs = tuple(
            Input(
                name=each.name.text,
                schema={"description": each.description} if each.description else {},
                required=each.required,
            )
            for each in file.inputs
        )
        return Plan(
            name=name,
            language=LANGUAGE,
            steps=tuple(self.steps),
            entry=entry,
            inputs=inputs,
            defaults={each.name.text: each.default for each in file.inputs if each.default is not None},
            constants=constants,
            result={"$run_result": {"keys": list(dict.fromkeys(keys))}},
        )

    # Names

    def _name_all(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case AgentCall():
                    self._names[id(node)] = self.free(node.key)
                case Test() | LoopNode():
                    self._names[id(node)] = self._block_name(node.word)
                case Parallel():
                    self._names[id(node)] = self._block_name("parallel")
                case Do() | Block():
                    pass
                case Gate():
                    self._names[id(node)] = self.free(node.name.text)
                case _:
                    self._names[id(node)] = self.free(key_of(node))

    def free(self, name: str) -> str:
        """Return a name for a step: the name itself, then `name@2`, `name@3`."""
        name = name.replace("/", "_").replace("#", "_")
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else self.free(f"{name}@{count}")

    def _block_name(self, word: str) -> str:
        number = self._taken[f"{word}_"] = self._taken.get(f"{word}_", 0) + 1
        return self.free(f"{word}_{number}")

    # Steps

    def _add(self, node: Node, name: str, site: Site, arcs: Sequence[Arc] = (), **more: Any) -> str:
        limit = min(VISIT_LIMIT * site.times, MOST_VISITS)
        self.steps.append(Step(name=name, arcs=tuple(arcs), visit_limit=limit, **more))
        self.places[name] = node.at
        return name

    def _router(self, node: Node, name: str, site: Site, arcs: Sequence[Arc], **more: Any) -> str:
        """A step without work: it is bypassed, which takes no time and no worker, and its arcs are followed."""
        return self._add(node, name, site, arcs, when=False, **more)

    def _fail(self, node: Node, name: str, site: Site, kind: Any, message: Any) -> str:
        return self._add(node, name, site, work=Fail(kind=kind, message=message))

    def _finish(self) -> str:
        """Return the last step of the plan, which does nothing; some arcs need a step to lead to."""
        if not self._end:
            self._end = self.free("run.end")
            self.steps.append(Step(name=self._end, when=False, visit_limit=MOST_VISITS))
        return self._end

    def _to(self, after: str) -> tuple[Arc, ...]:
        return (Arc(to=after),) if after else ()

    def _body(self, nodes: Sequence[Node], after: str, site: Site) -> str:
        """Compile nodes that follow each other; return the step where they begin, or `after` if there are none."""
        entries = [after] * (len(nodes) + 1)
        for number in range(len(nodes) - 1, -1, -1):
            entries[number] = self._entry(nodes[number]) or entries[number + 1]
        for node, following in zip(nodes, entries[1:], strict=True):
            self._node(node, following, site)
        return entries[0]

    def _entry(self, node: Node) -> str:
        """Return the first step of a node; empty if it has none."""
        match node:
            case Do() | Block():
                return next(filter(None, map(self._entry, node.body)), "")
            case LoopNode():
                return f"{self._names[id(node)]}.begin"
            case Parallel():
                return f"{self._names[id(node)]}.fork"
            case Test():
                return f"{self._names[id(node)]}.check"
            case Gate() if node.name.text == QUALITY:
                return f"{self._names[id(node)]}.check"
            case _:
                return self._names[id(node)]

    def _node(self, node: Node, after: str, site: Site) -> None:
        match node:
            case AgentCall():
                self._call(node, after, site)
            case ChildCall():
                self._child(node, after, site)
            case Test():
                self._test(node, after, site)
            case LoopNode():
                self._loop(node, after, site)
            case Do():
                self._body(node.body, after, site.inside(node.keys))
            case Block():
                self._body(node.body, after, site)
            case Parallel():
                self._parallel(node, after, site)
            case Gate():
                self._gate(node, after, site)
            case Script():
                self._script(node, after, site)
            case Foreach():
                self._foreach(node, after, site)

    # Calls, scripts and children

    def _call(self, node: AgentCall, after: str, site: Site) -> None:
        inner = site.inside(node.keys)
        asked = self.agents.asked(node.agent, node.agent.quoted, node.keys, inner.output, inner.snippets)
        self._worked(node, after, site, node.key, asked.work, asked.input, node.keys.get("timeout"))

    def _script(self, node: Script, after: str, site: Site) -> None:
        work, given = self._script_work(node)
        self._worked(node, after, site, node.name.text, work, given, node.keys.get("timeout"))

    def _script_work(self, node: Script) -> tuple[Work, dict[str, Any]]:
        settings = {"reads": {"reserved": self.agents.reserved}, "cwd": self.agents.project.folder}
        env = {pair.key: pair.value.text for pair in self._env(node)}
        command = ["sh", "-c", {"$shell": node.keys.get("run", "")}]
        identity = self.agents.identity(node.name, node.keys.get("as"))
        if not identity:
            return Call("shell", settings), {"input": {}, "config": {"command": command, "env": {"$environment": env}}}
        # What an identity holds may be a secret, which only a worker reads: it renders the keys, in the language of
        # bindings, from values that are rendered when the step is issued.
        names = [*(f"CONDUCTOR_{each.upper()}" for each in self.reading.inputs), *env]
        keys = {
            "command": ["sh", "-c", "{{ input.run }}"],
            "env": {**identity, **{name: f"{{{{ input.env['{name}'] | default('') }}}}" for name in names}},
        }
        task = Task(name=node.name.text, kind="shell", settings=settings, keys=keys)
        given = {"run": command[2], "env": {"$environment": env}}
        return TaskPipeline(tasks=(task,), single=True), {"input": given}

    def _env(self, node: Script) -> list[Any]:
        kept = []
        for pair in node.keys.get("env", ()):
            if pair.key in REFUSED:
                message = f"a script may not set `{pair.key}`"
                self.reading.report("refused-variable", message, pair.at, pair.at + len(pair.key), "", "warning")
            else:
                kept.append(pair)
        return kept

    def _child(self, node: ChildCall, after: str, site: Site) -> None:
        identity = node.keys.get("as", "")
        self.agents.identity(node.name, identity)
        plan = self._find_child(node.name, identity)
        pairs = node.keys.get("inputs", ())
        if plan is not None:
            self._check_inputs(plan, pairs, node.name)
        name, key = self._names[id(node)], node.name.text
        self._add(
            node,
            name,
            site,
            [*self._to(after), *self._on_fail(node, name, key, after, site)],
            work=Child(plan=plan_hash(plan) if plan is not None else ""),
            input={pair.key: {"$keep": pair.value.text} for pair in pairs},
            retry=_tries(node.keys),
            patch={"$child": key},
            append={"contexts": {"$child_entries": {"key": key, "passes": site.passes}}},
        )

    def _check_inputs(self, plan: Plan, pairs: Sequence[Pair], at: Scalar) -> None:
        """Report inputs that a child needs, and warn of those that it does not declare."""
        given = {pair.key for pair in pairs}
        missing = [each.name for each in plan.inputs if each.required and each.name not in given]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            hint = f'add `inputs = {{ {missing[0]} = "…" }}`'
            self.reading.at(at, "missing-input", f"`{plan.name}` needs {names}", hint)
        declared = {each.name for each in plan.inputs}
        for pair in pairs:
            if pair.key not in declared:
                message = f"`{plan.name}` does not declare the input `{pair.key}`"
                self.reading.report("unknown-input", message, pair.at, pair.at + len(pair.key), "", "warning")

    def _worked(
        self, node: Any, after: str, site: Site, key: str, work: Work, given: Any, timeout: float | None
    ) -> None:
        """Add a step whose answer leaves markers and context."""
        name = self._names[id(node)]
        self._add(
            node,
            name,
            site,
            [*self._to(after), *self._on_fail(node, name, key, after, site)],
            work=work,
            input=given,
            retry=_tries(node.keys),
            timeout=timeout,
            patch={"$after": key},
            append={"contexts": {"$entry": {"key": key, "passes": site.passes}}},
        )

    def _on_fail(self, node: Node, name: str, key: str, after: str, site: Site) -> list[Arc]:
        """Return the arcs for a step that has failed with its last try."""
        on_fail = node.keys.get("on_fail")
        if on_fail is None:
            return []
        if on_fail.text == "continue":
            sets = {f"{RESULT}{key}": {"$plain": dict(EMPTY)}, "last": {"$plain": key}}
            return [Arc(to=after or self._finish(), on="failure", set=sets)]
        to = f"{name}.failed"
        fallback = self._fallback(node, name, key, on_fail, site, Arc(to=to, on="both"))
        self._fail(node, to, site, {"$kept": "failed_kind"}, {"$kept": "failed"})
        return [fallback]

    def _fallback(self, node: Node, name: str, key: str, on_fail: Scalar, site: Site, onward: Arc) -> Arc:
        """Add the agent that `on_fail` names; return the arc that leads to it."""
        is_path = on_fail.quoted and "/" in on_fail.text
        asked = self.agents.asked(on_fail, is_path, {}, None, ())
        other = fallback_key(on_fail)
        step = self._add(
            node,
            f"{name}.on_fail",
            site,
            [onward],
            work=asked.work,
            input=asked.input,
            patch={"$after": other},
            append={"contexts": {"$entry": {"key": other, "passes": site.passes}}},
        )
        message = {"$error": "message"}
        failure = {
            "failed_step": {"$plain": key},
            "failure_reason": message,
            "retry_count": node.keys.get("retries", 0),
        }
        sets = {"failure": failure, "failed": message, "failed_kind": {"$error": "kind"}}
        return Arc(to=step, on="failure", set=sets)

    # Conditions and loops

    def _test(self, node: Test, after: str, site: Site) -> None:
        name = self._names[id(node)]
        negated = node.word == "unless"
        body, otherwise = (self._start(each, after) for each in (node.body, node.otherwise))
        when = f"not {node.condition.text}" if negated else node.condition.text
        arcs = [Arc(to=body or self._finish(), when=when), *self._to(otherwise)]
        self._router(node, f"{name}.check", site, arcs)
        self._body(node.body, after, site)
        self._body(node.otherwise, after, site)

    def _start(self, nodes: Sequence[Node], after: str) -> str:
        return next(filter(None, map(self._entry, nodes)), after)

    def _loop(self, node: LoopNode, after: str, site: Site) -> None:
        name, most = self._names[id(node)], node.keys.get("max_iterations", 1)
        stuck, step = node.keys.get("stuck_after"), node.condition.text.partition(".")[0]
        passes, same, last = (f"{name}.{part}" for part in ("passes", "same", "last"))
        begin, check, again = f"{name}.begin", f"{name}.check", f"{name}.again"
        first = check if node.word == "while" else f"{name}.pass"
        inner = structs.replace(site, passes=passes, times=min(site.times * most, MOST_VISITS))
        sets: dict[str, Any] = {passes: 0, **({same: 0, last: None} if stuck else {})}
        end = after or self._finish()

        def pass_() -> None:
            ways = [Arc(to=f"{name}.stuck", when=f"{same} >= {stuck}")] if stuck else []
            ways.append(
                Arc(
                    to=self._start(node.body, again if stuck else check),
                    when=f"{passes} < {most}",
                    set={passes: {"$count": passes}},
                )
            )
            fails = node.keys.get("on_max_iter", "fail") == "fail"
            self._router(node, f"{name}.pass", inner, [*ways, Arc(to=f"{name}.limit" if fails else end)])

        def check_() -> None:
            arcs = [Arc(to=f"{name}.pass", when=node.condition.text), Arc(to=end)]
            self._router(node, check, inner, arcs)

        self._router(node, begin, site, [Arc(to=first, set=sets)])
        parts = (check_, pass_) if node.word == "while" else (pass_,)
        for part in parts:
            part()
        self._body(node.body, again if stuck else check, inner)
        if stuck:
            compared = {same: {"$same": {"step": step, "same": same, "last": last}}, last: {"$markers": step}}
            self._router(node, again, inner, [Arc(to=check, set=compared)])
        if node.word == "do":
            check_()
        if node.keys.get("on_max_iter", "fail") == "fail":
            counted = f"{most:,} passes" if most > 1 else "1 pass"
            message = f"`{name}` has gone through {counted}, as many as `max_iterations` allows, and is not done"
            self._fail(node, f"{name}.limit", inner, "max_iterations", {"$plain": message})
        if stuck:
            message = f"`{name}` is stuck: the markers of `{step}` were the same after {stuck} passes in a row"
            self._fail(node, f"{name}.stuck", inner, "stuck", {"$plain": message})

    # Parallel

    def _parallel(self, node: Parallel, after: str, site: Site) -> None:
        """fork -> calls -> merge, which takes what they leave and decides."""
        name, count = self._names[id(node)], len(node.calls)
        merge = f"{name}.merge"
        enough = min(node.keys.get("min_success", count), count)
        too_many = count - enough + 1
        may_fail = sum(each.keys.get("on_fail", NEVER).text != "continue" for each in node.calls)
        fast = node.keys.get("fail_fast", True) and too_many <= may_fail
        notes, failed = [f"{name}.{n}" for n in range(count)], [f"{name}.failed.{n}" for n in range(count)]
        inner, end = site.inside(node.keys), after or self._finish()
        join, stop = (f"{name}.join", f"{name}.stop") if fast else (merge, merge)
        soon = stop if too_many > 1 else merge
        blank = {**dict.fromkeys(notes), **dict.fromkeys(failed)}
        arcs = [Arc(to=self._names[id(each)], set=blank if not n else {}) for n, each in enumerate(node.calls)]
        self._router(node, f"{name}.fork", site, arcs or [Arc(to=merge)], mode="inclusive")
        for number, call in enumerate(node.calls):
            branch = self._names[id(call)]
            lost = f"{branch}.ended" if fast else merge
            self._branch(call, inner, join, lost, notes[number], failed[number])
            if fast:
                self._router(call, lost, site, [Arc(to=soon), Arc(to=join)], mode="inclusive")
        if fast:
            self._router(node, join, site, [Arc(to=merge)])
        if fast and too_many > 1:
            self._router(node, stop, site, [Arc(to=merge)], join=too_many)
        keys = list(dict.fromkeys(each.key for each in node.calls))
        sets: dict[str, Any] = {
            f"{RESULT}{key}": {"$branches": {"what": "result", "key": key, "keys": notes}} for key in keys
        }
        sets["last"] = {"$branches": {"what": "last", "keys": notes}}
        sets["exports"] = {"$branches": {"what": "exports", "keys": notes}}
        sets["own_exports"] = {"$own_branch_exports": {"keys": notes}}
        added = {"contexts": {"$branches": {"what": "contexts", "keys": notes, "passes": site.passes}}}
        well = Arc(to=end, when={"$enough_succeeded": {"keys": failed, "limit": too_many}}, set=sets, append=added)
        ways = [well, Arc(to=f"{name}.failed", set=sets, append=added)]
        self._router(node, merge, site, ways, join="race" if fast else "all")
        wanted = f", and {enough} must go well" if enough < count else ""
        self._fail(node, f"{name}.failed", site, "branches_failed", {"$failures": {"keys": failed, "wanted": wanted}})

    def _branch(self, call: AgentCall, site: Site, join: str, lost: str, note: str, failed: str) -> None:
        inner, name = site.inside(call.keys), self._names[id(call)]
        asked = self.agents.asked(call.agent, call.agent.quoted, call.keys, inner.output, inner.snippets)
        nothing = {"$plain": {"key": call.key, **EMPTY, "exports": {}, "empty": True}}
        why = {"$named": {"name": call.key, "in": {"$error": "message"}}}
        on_fail = call.keys.get("on_fail")
        if on_fail is None:
            arc = Arc(to=lost, on="failure", set={note: nothing, failed: why})
        elif on_fail.text == "continue":
            arc = Arc(to=join, on="failure", set={note: nothing})
        else:
            reason = {"$named": {"name": call.key, "in": {"$kept": "failed"}}}
            onward = Arc(to=lost, on="both", set={note: nothing, failed: reason})
            arc = self._fallback(call, name, call.key, on_fail, site, onward)
        condition = call.keys.get("if")
        self._add(
            call,
            name,
            site,
            [Arc(to=join), arc],
            when=condition.text if condition is not None else None,
            work=asked.work,
            input=asked.input,
            retry=_tries(call.keys),
            timeout=call.keys.get("timeout"),
            set={note: {"$noted": {"key": call.key}}},
        )

    # Gates

    def _gate(self, node: Gate, after: str, site: Site) -> None:
        if node.name.text == QUALITY:
            self._quality(node, after, site)
        elif node.name.text in HUMAN_GATES:
            self._human(node, after, site)
        else:
            self._poll(node, after, site)

    def _human(self, node: Gate, after: str, site: Site) -> None:
        keys = node.keys
        work = GateWork(
            prompt=keys.get("prompt", ""),
            timeout=keys.get("timeout", DAY),
            on_timeout=keys.get("on_timeout", "fail"),
            min_approvals=keys.get("min_approvals", 1),
        )
        options = keys.get("options")
        if options is not None:
            work = structs.replace(work, **self._choices(options))
        sets: dict[str, Any] = {"gate_feedback": {"$feedback": {}}}
        self._add(node, self._names[id(node)], site, self._to(after), work=work, set=sets)

    def _choices(self, options: Value) -> dict[str, Any]:
        """Return what can be chosen, beside approval and refusal."""
        match options:
            case ListValue():
                return {"choices": {"$plain": [each.text for each in options.items if isinstance(each, Scalar)]}}
            case MapValue():
                texts = {each.key: each.value.text for each in options.pairs if isinstance(each.value, Scalar)}
                return {"choices": {"$plain": texts}}
            case Scalar():
                step, _, field = options.text.partition(".")
                return {"choices": {"$options": {"step": step, "field": field}}}

    def _quality(self, node: Gate, after: str, site: Site) -> None:
        name, keys = self._names[id(node)], node.keys
        source = keys["source"].text if "source" in keys else ""
        self._router(
            node,
            f"{name}.check",
            site,
            [Arc(to=name, when={"$known": source}), Arc(to=f"{name}.no_source")],
        )
        work = Quality(
            source={"$output": [source, "confidence"]},
            threshold=keys.get("threshold", 0),
            on_fail=keys.get("on_fail", "fail"),
        )
        self._add(node, name, site, self._to(after), work=work)
        message = f"`{source}` has not run, so that there is nothing to compare with the threshold"
        self._fail(node, f"{name}.no_source", site, "quality", {"$plain": message})

    def _poll(self, node: Gate, after: str, site: Site) -> None:
        name, keys, kind = self._names[id(node)], node.keys, node.name.text
        bound = self.reading.bindings.gate(kind) or self._built_in(kind, keys)
        env = self.agents.identity(node.name, keys.get("as"))
        if bound is None:
            self.reading.at(
                node.name, "unknown-gate", f"nothing answers for the gate `{kind}`", how_to_bind("gates", kind)
            )
            return
        names = {
            "gate": {"$plain": kind},
            "prompt": keys.get("prompt", ""),
            "min_approvals": keys.get("min_approvals", 1),
            "mode": keys.get("mode", "min_approvals"),
            "identity": {"$plain": keys.get("as") or self.agents.given or None},
            "inputs": {"$variables": {}},
        }
        arcs = [Arc(to=after or self._finish(), when={"$holds": bound.approved}), Arc(to=f"{name}.rejected")]
        if keys.get("on_timeout", "fail") == "continue":
            arcs.append(Arc(to=after or self._finish(), on="failure", when={"$is_error": "timeout"}))
        self._add(
            node,
            name,
            site,
            arcs,
            work=TaskPipeline(tasks=(with_environment(bound.check, env),), single=True),
            input={"input": names},
            poll=Poll(
                until={"$either": [bound.approved, bound.rejected]},
                every=bound.every,
                timeout=keys.get("timeout", DAY),
            ),
            retry=Retry(attempts=MOST_LOOKS, delay=bound.every),
        )
        self._fail(node, f"{name}.rejected", site, "rejected", {"$plain": f"the gate `{kind}` was rejected"})

    def _built_in(self, kind: str, keys: Mapping[str, Any]) -> BoundGate | None:
        """Return the gates that the program `gh` answers for, if it is installed."""
        if not self._gh or kind not in ("pr_checks", PR_APPROVAL):
            return None
        arguments = ["checks", "--json", "state"] if kind == "pr_checks" else ["view", "--json", GH_REVIEWS]
        shell = {"command": ["gh", "pr", *arguments], "cwd": self.agents.project.folder}
        task = Task(name=kind, kind="shell", keys=shell)
        about = {"mode": keys.get("mode", "min_approvals"), "least": keys.get("min_approvals", 1)}
        form = {"$pr_checks": {}} if kind == "pr_checks" else {"$pr_approval": about}
        return BoundGate(check=task, approved=form)

    # Foreach

    def _foreach(self, node: Foreach, after: str, site: Site) -> None:
        keys, key = node.keys, node.name.text
        plan = self._find_child(keys["workflow"], "") if "workflow" in keys else None
        if plan is not None:
            self._check_inputs(plan, keys.get("inputs", ()), keys["workflow"])
        over = keys["over"].text if "over" in keys else ""
        bound = self.reading.bindings.item_source(over)
        if bound is None:
            if "over" in keys:
                message = f"nothing answers for the items `{over}`"
                self.reading.at(keys["over"], "unknown-provider", message, how_to_bind("items", over))
            return
        ordered = keys.get("ordered", False)
        if ordered and bound.after is None:
            message = f"`{over}` does not say which items wait for others, so that they have no order"
            self.reading.at(node.values["ordered"], "bad-value", message, "bind `after` of these items")
        names = {"scope": _tree(keys.get("scope", ())), "filter": _tree(keys.get("filter", ())), "inputs": VARIABLES}
        source = structs.replace(bound.source, settings={"$expr": {"names": names, "in": bound.source.settings}})
        inputs = {pair.key: pair.value.text for pair in keys.get("inputs", ())}
        about = {"key": key, "over": over, "passes": site.passes}
        self._add(
            node,
            self._names[id(node)],
            site,
            self._to(after),
            work=Child(plan=plan_hash(plan) if plan is not None else ""),
            input={"$item": {"id": bound.id, "ref": bound.ref, "inputs": inputs}},
            loop=_loop(keys, source, bound.id, bound.after if ordered else None),
            patch={"$foreach": {**about, "what": "result"}},
            append={"contexts": {"$foreach": {**about, "what": "entry"}}},
        )


NEVER = Scalar("", 0, 0)
GH_REVIEWS = "author,reviews,reviewDecision"
VARIABLES: dict[str, Any] = {"$variables": {}}


def _loop(keys: Mapping[str, Any], source: Source, id: Any, after: Any) -> Loop:
    failures: Literal["all", "halt"] = "halt" if keys.get("on_child_fail") == "halt" else "all"
    return Loop(
        source=source,
        iterator="item",
        key={"$expr": id},
        after=None if after is None else {"$expr": after},
        max_in_flight=keys.get("max_parallel", 1),
        on_item_error=failures,
        on_cycle="drop" if keys.get("on_cycle") == "warn" else "fail",
        on_unknown="drop",
    )


def _tree(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: Value) -> Any:
    match value:
        case Scalar():
            return value.text
        case ListValue():
            return [_plain(each) for each in value.items]
        case MapValue():
            return _tree(value.pairs)


def _tries(keys: Mapping[str, Any]) -> Retry:
    return Retry(attempts=1 + keys["retries"]) if keys.get("retries") else Retry()


def constants_of(file: File, variables: Mapping[str, Any]) -> dict[str, Any]:
    about: dict[str, Any] = {"inputs": [each.name.text for each in file.inputs]}
    if variables:
        about["variables"] = dict(variables)
    return {CONSTANTS: about}


def reserved_names(variables: Mapping[str, Any]) -> list[str]:
    return [*ENGINE_NAMES, "workflow_status", *variables]

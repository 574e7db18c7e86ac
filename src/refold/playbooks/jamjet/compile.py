"""From the draft of a graph to a plan: a step for each node, an arc for each way."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import structs

from refold.core.pipeline import Task
from refold.core.plan import Arc, Child, Fail, Gate, Plan, Retry, Step, Wait
from refold.names import did_you_mean
from refold.playbooks.jamjet.checks import ahead, certain, check_graph, is_apart, reached
from refold.playbooks.jamjet.drafts import EMPTY, NAMED, GraphDraft, NodeDraft, Way
from refold.playbooks.jamjet.evaluation import evaluation
from refold.playbooks.jamjet.graph import REJECTED
from refold.playbooks.jamjet.work import ChildPlans, NodeWork, Workshop, acting, allowed
from refold.playbooks.problems import Place
from refold.playbooks.reader.reading import Reading, cut
from refold.templates.jamjet.evaluations import ESCALATE, HALT, LOG, RETRY
from refold.templates.jamjet.results import CHOOSES, PATCH
from refold.templates.jamjet.state import ABOUT

APPROVAL = ".approval"
ESCALATION = ".escalation"
FAILED_SCORERS = (
    "{% for each in state.eval_results %}{% if not each.passed %}{{ each.message }}; {% endif %}{% endfor %}"
)
ESCALATES = {"$action": "escalate"}
UNDECIDED = "output.decision == null"
_OUTPUT = re.compile(r"\boutput\b")
_DECISION = re.compile(r"\bdecision\b")


def compile_graph(reading: Reading, draft: GraphDraft, children: ChildPlans) -> Plan:
    """Return the plan. Problems are reported; where there are some, the plan is not to be used."""
    check_graph(reading, draft)
    return _Compiler(reading, draft, Workshop(reading, draft, children)).plan()


class NodePlaces(Mapping[str, Place]):
    """Where nodes and their fields stand: `steps.fetch`, `steps.fetch.prompt_ref`; found when somebody asks."""

    def __init__(self, draft: GraphDraft) -> None:
        self._draft = draft

    def __getitem__(self, path: str) -> Place:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[str, Place]:
        found: dict[str, Place] = {}
        for node in self._draft.nodes.values():
            found[f"steps.{node.id}"] = node.named.place
            found |= {f"steps.{node.id}.{name}": each.place for name, each in node.given.found.items()}
        return found


class _Compiler:
    def __init__(self, reading: Reading, draft: GraphDraft, shop: Workshop) -> None:
        self.reading, self.draft, self.shop = reading, draft, shop
        self.entered: dict[str, str] = {}  # node -> the step where it is entered, if that is another one
        self.finalizers: dict[str, list[str]] = {"success": [], "failure": [], "always": []}
        self.waited: dict[str, list[str]] = {}  # node -> joins that wait for it without an edge
        self.steps: list[Step] = []

    def plan(self) -> Plan:
        draft = self.draft
        there = reached(draft)
        acts = self.shop.agent_tools()
        nodes = [node for node in draft.nodes.values() if node.kind and (node.id in there or is_apart(draft, node))]
        nodes = [node for node in nodes if node.kind != "end"]
        self._note_joins()
        works = {node.id: self._made(node, acts) for node in nodes}
        self._refuse_endless()
        for node in nodes:
            self._note_approval(node, works[node.id])
        for node in nodes:
            self._add(node, works[node.id])
        about = {"bare": draft.bare, "cost_limit": draft.cost_limit}
        first, *others = self.finalizers["success"] or [""]
        return Plan(
            name=draft.name,
            language="jamjet",
            steps=tuple(self.steps),
            entry=self.entered.get(draft.start, draft.start),
            final_step=first,
            on_fail=tuple(self.finalizers["failure"]),
            always=(*others, *self.finalizers["always"]),
            timeout=draft.timeout,
            budget=draft.budget,
            on_budget=draft.on_budget.value if draft.on_budget is not None else "fail",
            defaults=draft.defaults,
            inputs=draft.inputs,
            constants={ABOUT: {name: value for name, value in about.items() if value not in (None, False)}},
            result={"$state": True},
        )

    def _refuse_endless(self) -> None:
        """Report nodes that start this file again, whatever a run comes to."""
        for node in certain(self.draft):
            field = {"agent": "agent_ref", "subgraph": "workflow_ref"}.get(node.kind)
            if field is not None and self.shop.children.is_itself(node.text(field)):
                message = f"{node.owner} starts this file again, and no condition comes before it: it would never end"
                hint = "put a condition before it, or name another file or agent"
                self.reading.at(node.place(field), "circle", message, hint)

    def _made(self, node: NodeDraft, acts: dict[str, Task]) -> NodeWork:
        if node.kind == "act":
            return acting(node, acts)
        if node.kind == "eval":
            return evaluation(self.shop, node, self._before(node))
        made = self.shop.made(node)
        if node.kind == "condition" and any(_OUTPUT.search(str(way.text)) for way in node.ways):
            before = self._before(node)
            return structs.replace(made, info={CHOOSES: before[0]}) if len(before) == 1 else made
        return made

    def _before(self, node: NodeDraft) -> list[str]:
        return [each.id for each in self.draft.nodes.values() if any(way.to == node.id for way in each.ways)]

    def _note_joins(self) -> None:
        ways = ahead(self.draft)
        for node in self.draft.nodes.values():
            targets = {name for name, _ in node.targets()}
            for name in ways[node.id]:
                if name not in targets:
                    self.waited.setdefault(node.id, []).append(name)

    def _note_approval(self, node: NodeDraft, work: NodeWork) -> None:
        if self._verdict(node, work) == "asked":
            self.entered[node.id] = node.id + APPROVAL

    def _verdict(self, node: NodeDraft, work: NodeWork) -> str:
        """What policies say of a node: that of the node first."""
        for policy in (node.policy, self.draft.policy):
            if allowed(work.names, policy.blocked):
                return "blocked"
            if allowed(work.names, policy.asked):
                return "asked"
        models = node.policy.models or self.draft.policy.models
        return "blocked" if work.model and models and not allowed(work.model, models) else ""

    def _add(self, node: NodeDraft, work: NodeWork) -> None:
        verdict = self._verdict(node, work)
        if node.kind == "finalizer":
            run_on = node.text("run_on", "always")
            is_second = run_on == "success" and bool(self.finalizers["success"])
            self.finalizers[run_on].append(node.id)
            step = self._step(node, work, verdict)
            self.steps.append(structs.replace(step, when={"$outcome": "completed"}) if is_second else step)
            return
        step = self._step(node, work, verdict)
        if work.info.get("on_fail") == ESCALATE:
            self.steps.append(structs.replace(step, arcs=(*step.arcs, Arc(to=node.id + ESCALATION, when=ESCALATES))))
            self.steps.append(self._escalation(node, step))
            return
        if verdict == "asked":
            name = work.names[0]
            prompt = f"May node {node.id} use {name}?"
            gate = Gate(prompt={"$plain": prompt}, timeout=self.draft.approval_timeout)
            asks = Step(name=node.id + APPROVAL, work=gate, arcs=(Arc(to=node.id),), join=step.join)
            self.steps.append(asks)
            step = structs.replace(step, join="all")
        self.steps.append(step)

    def _step(self, node: NodeDraft, work: NodeWork, verdict: str) -> Step:
        ways = [] if is_apart(self.draft, node) else self.shop.expressions.ways(node.ways, node.owner)
        work, mode, arcs = self._arcs(node, work, ways)
        if verdict == "blocked":
            name = (work.names or work.model)[0]
            work = NodeWork(Fail("policy", {"$plain": f"the policy does not allow {node.id} to use {name}"}))
        is_first = node.kind == "join" and node.given.value("merge_strategy") == "first"
        return Step(
            name=node.id,
            work=work.work,
            input=work.input,
            when=False if work.bypassed else None,
            mode=mode,
            join="any" if is_first else "all",
            arcs=arcs,
            no_match="quiet" if node.kind == "condition" else "end",
            patch={PATCH: work.info} if work.info else None,
            result=work.result,
            retry=self._retry(node, work),
            timeout=self._timeout(node, work),
        )

    def _timeout(self, node: NodeDraft, work: NodeWork) -> float | None:
        if isinstance(work.work, Wait):
            return node.timeout
        if isinstance(work.work, Gate | Fail) or work.bypassed:
            return None
        if node.timeout is None and isinstance(work.work, Child):
            return self.draft.node_timeout if "timeouts" in self.draft.root.value else None
        return self.draft.node_timeout if node.timeout is None else node.timeout

    def _retry(self, node: NodeDraft, work: NodeWork) -> Retry:
        if node.tries is not None:
            return node.tries
        if node.retry is None or not node.retry.value:
            return EMPTY
        name = node.retry.value
        found = self.draft.retries.get(name, NAMED.get(name))
        if found is None:
            hint = did_you_mean(name, [*self.draft.retries, *NAMED])
            self.reading.at(node.retry, "unknown-policy", f"{node.owner}: there is no policy `{cut(name)}`", hint)
        return found or EMPTY

    def _to(self, name: str) -> str:
        return self.entered.get(name, name)

    def _arcs(
        self, node: NodeDraft, work: NodeWork, ways: list[tuple[Way, str]]
    ) -> tuple[NodeWork, Any, tuple[Arc, ...]]:
        if isinstance(work.work, Gate):
            return self._gate_arcs(node, work, work.work, ways)
        if node.kind == "eval":
            return self._eval_arcs(node, work, ways)
        guard: dict[str, Any] = {}
        first: list[Arc] = []
        leads = node.given.get("on_timeout") if isinstance(work.work, Wait) else node.given.get("on_input_required")
        if leads is not None:
            form = "$timer" if isinstance(work.work, Wait) else "$asked"
            guard = {form: False}
            first = [] if self.draft.is_end(leads.value) else [Arc(to=self._to(leads.value), when={form: True})]
            if form == "$asked":
                work = structs.replace(work, info={**work.info, "asks": True})
        extra = [Arc(to=self._to(name)) for name in self.waited.get(node.id, ())]
        mode, arcs = self._routed(ways, guard, bool(extra))
        return work, mode, (*first, *arcs, *extra)

    def _eval_arcs(
        self, node: NodeDraft, work: NodeWork, ways: list[tuple[Way, str]]
    ) -> tuple[NodeWork, Any, tuple[Arc, ...]]:
        """An evaluation that sends the work back has an arc to the node before it."""
        guard = {} if work.info["on_fail"] in (LOG, HALT) else {"$action": "pass"}
        extra = [Arc(to=self._to(name)) for name in self.waited.get(node.id, ())]
        mode, arcs = self._routed(ways, guard, bool(extra))
        first: tuple[Arc, ...] = ()
        if work.info["on_fail"] == RETRY and work.info["subject"]:
            first = (Arc(to=self._to(work.info["subject"]), when={"$action": "retry"}),)
        return work, mode, (*first, *arcs, *extra)

    def _escalation(self, node: NodeDraft, step: Step) -> Step:
        """A person decides whether the run goes on after an evaluation that has failed."""
        prompt = f"The evaluation {node.id} failed: {FAILED_SCORERS}Go on?"
        arcs = tuple(_without_action(arc) for arc in step.arcs)
        gate = Gate(prompt=prompt, timeout=self.draft.approval_timeout)
        patch = {PATCH: {"node": "escalation", "of": node.id}}
        return Step(name=node.id + ESCALATION, work=gate, mode=step.mode, arcs=arcs, patch=patch)

    def _routed(
        self, ways: list[tuple[Way, str]], guard: dict[str, Any], all_of: bool = False, unless: tuple[str, ...] = ()
    ) -> tuple[Any, tuple[Arc, ...]]:
        """All ways if none has a condition, else the first whose condition holds, and then the first without one."""
        conditional = [(way, text) for way, text in ways if text]
        if not conditional:
            when = _when("", unless, guard)
            names = dict.fromkeys(way.to for way, _ in ways if not self.draft.is_end(way.to))
            return "inclusive", tuple(Arc(to=self._to(name), when=when) for name in names)
        default = [(way, text) for way, text in ways if not text][:1]
        before, arcs = list(unless), []
        for way, text in (*conditional, *default):
            if not self.draft.is_end(way.to):
                arcs.append(Arc(to=self._to(way.to), when=_when(text, tuple(before), guard)))
            if text and (all_of or self.draft.is_end(way.to)):
                before.append(text)
        return "inclusive" if all_of else "exclusive", tuple(arcs)

    def _gate_arcs(
        self, node: NodeDraft, work: NodeWork, gate: Gate, ways: list[tuple[Way, str]]
    ) -> tuple[NodeWork, Any, tuple[Arc, ...]]:
        asks = any(way.words == REJECTED or (not way.words and _DECISION.search(text)) for way, text in ways)
        gate = structs.replace(gate, refuse=() if asks else ("reject",))
        leads = node.given.get("fallback_node") or node.given.get("on_timeout")
        info, later = dict(work.info), list[Arc]()
        unless: tuple[str, ...] = ()
        if leads is not None and gate.timeout is None:
            message = f"{node.owner} waits without a limit, so that this has no effect"
            self.reading.warn(leads, "no-effect", message, "add `timeout: 48h`")
        elif leads is not None and leads.value == "reject" and "reject" not in self.draft.nodes:
            gate = structs.replace(gate, on_timeout="continue" if asks else "refuse")
            info["undecided"] = "rejected"
        elif leads is not None and self.draft.is_end(leads.value):
            gate, unless = structs.replace(gate, on_timeout="continue"), (UNDECIDED,)
        elif leads is not None:
            gate = structs.replace(gate, on_timeout="goto")
            later = [Arc(to=self._to(leads.value), on="timeout")]
        extra = [Arc(to=self._to(name)) for name in self.waited.get(node.id, ())]
        mode, arcs = self._routed(ways, {}, bool(extra), unless)
        return structs.replace(work, work=gate, info=info), mode, (*arcs, *extra, *later)


def _without_action(arc: Arc) -> Arc:
    when = (
        {form: value for form, value in arc.when.items() if form != "$action"} if isinstance(arc.when, dict) else None
    )
    return structs.replace(arc, when=when or None)


def _when(text: str, unless: tuple[str, ...], guard: dict[str, Any]) -> Any:
    if not text and not unless:
        return guard or None
    return {"$if": text or None, **({"$unless": list(unless)} if unless else {}), **guard}

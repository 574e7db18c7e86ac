"""Reads a playbook: YAML text to a plan with the positions of its parts, or everything that is wrong with it."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

from msgspec import Struct, structs

from refold.core.plan import Plan, WorkerWork
from refold.names import did_you_mean, label_flaw
from refold.playbooks.bindings import Bindings
from refold.playbooks.blocks.compile import compile_blocks
from refold.playbooks.budgets import Budget
from refold.playbooks.checks.graph import check_arcs, check_graph, check_names
from refold.playbooks.checks.secrets import check_secrets, sealed_steps
from refold.playbooks.checks.templates import Names, check_templates
from refold.playbooks.children import ChildReader, Load
from refold.playbooks.inputs import check_defaults
from refold.playbooks.key_types import READERS, block_word
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.noetl.playbook import LANGUAGES, NO_PLAYBOOK, noetl_draft, noetl_reading, of_another_kind
from refold.playbooks.problems import InvalidPlaybook, Place, Problem, in_order
from refold.playbooks.python_workflows import FindWorkflow
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import (
    Fields,
    Reading,
    ReadingOptions,
    Secrets,
    Sources,
    TooMany,
    cut,
    kind_of,
    mentions_secrets,
)
from refold.playbooks.steps import Places, PlaybookDraft, StepDraft, read_step
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node

LANGUAGE = "refold/v1"
WORD = re.compile(r"[^\W\d]\w*")
WF = ".wf"  # the ending of files in the language of runkon-flow
JAMJET_SIGNS = frozenset(
    {
        "workflow_id",
        "start_node",
        "nodes",
        "edges",
        "agent",
        "agents",
        "workflows",
        "policy",
        "models",
        "tools",
        "mcp",
        "a2a",
        "retry_policies",
        "timeouts",
        "defaults",
    }
)
"""Keys of which one shows that a file is JamJet's, although it has no workflow."""


class Playbook(Struct, frozen=True):
    """`places` has the positions of parts in the file, by paths such as `steps.fetch` and `steps.fetch.tool.code`."""

    plan: Plan
    file: str
    source: str
    places: Mapping[str, Place]
    warnings: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = {}
    children: tuple["Playbook", ...] = ()  # all that it starts, and all that they start
    code: tuple[str, ...] = ()  # Python workflows among them, as module:name; whoever runs it needs their code
    unbound: tuple[Problem, ...] = ()  # names that a run needs an answer for, and nothing is bound to

    def labels(self) -> dict[str, str]:
        """The labels of its runs, from its metadata."""
        labels = self.metadata.get("labels")
        if not isinstance(labels, dict) or not labels:
            return {}
        texts = {name: _label(value) for name, value in labels.items()}
        return {} if label_flaw(texts) else texts


def _label(value: Any) -> str:
    return {True: "true", False: "false", None: ""}[value] if isinstance(value, bool | None) else str(value)


class Lookups(TypedDict, total=False):
    """Functions that find what a playbook names; each is called only if the playbook needs it.

    `secrets` returns the names of all secrets, so that other names are errors, or warnings without `needs_secrets`.
    `sources` returns the kinds of sources,
    `code` finds Python workflows, and `bindings` returns which tools answer for agents and other names. `unit` names
    one of several workflows in a file.
    """

    secrets: Secrets | None
    needs_secrets: bool
    sources: Sources
    code: FindWorkflow
    bindings: Callable[[], Bindings]
    unit: str | None


def read(
    text: str | bytes,
    file: str,
    catalog: Catalog,
    load: Load | None = None,
    **asked: Unpack[Lookups],
) -> Playbook:
    """Raise InvalidPlaybook with every error and warning that was found; `load` reads the files of children."""

    def read_one(text: str | bytes, file: str, child_reader: ChildReader[Playbook]) -> Playbook:
        child_reader.begin(file)
        try:
            return _read(text, file, catalog, child_reader, asked)
        finally:
            child_reader.end()

    child_reader: ChildReader[Playbook] = ChildReader(load, read_one, asked.get("secrets"), asked.get("code"))
    playbook = read_one(text, file, child_reader)
    if not child_reader.playbooks and not child_reader.python_workflows:
        return playbook
    workflows = child_reader.python_workflows.values()
    coded = [Playbook(plan, workflow.target, "", {}) for workflow in workflows for plan in workflow.plans]
    code = tuple(workflow.target for workflow in workflows)
    return structs.replace(playbook, children=(*child_reader.playbooks.values(), *coded), code=code)


def _read(
    text: str | bytes, file: str, catalog: Catalog, child_reader: ChildReader[Playbook], asked: Lookups
) -> Playbook:
    source = (yaml_text.decode(text, file) if isinstance(text, bytes) else text).removeprefix("\ufeff")
    if file.endswith(WF):
        return _read_wf(source, file, child_reader, asked)
    root = yaml_text.read(source, file)
    form = _jamjet_form(root)
    if form:
        return _read_jamjet(source, root, form, file, catalog, child_reader, asked)
    language = root.value.get("apiVersion") if isinstance(root.value, dict) else None
    older = language in LANGUAGES
    options = _options(source, root, str(language) if older else LANGUAGE, catalog, child_reader, asked)
    reading = noetl_reading(source, options) if older else Reading(source, TABLES, READERS, options)
    playbook = None
    try:
        if not of_another_kind(reading, root) if older else _is_ours(reading, root):
            playbook = (noetl_draft if older else _draft)(reading, root, catalog)
            check(reading, playbook)
    except TooMany:
        pass  # a hundred of them are enough to begin with
    problems = in_order(reading.problems) if reading.problems else ()
    if playbook is None or reading.failed():
        raise InvalidPlaybook(problems, file, source)
    metadata = root.value.get("metadata", {})
    return Playbook(playbook.plan, file, source, Places(source, playbook), problems, metadata)


def _options(
    source: str, root: Node, language: str, catalog: Catalog, child_reader: ChildReader[Playbook], asked: Lookups
) -> ReadingOptions:
    whole = root.value if isinstance(root.value, dict) and language == LANGUAGE else {}
    metadata, keychain = whole.get("metadata"), whole.get("keychain")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return ReadingOptions(
        language=language,
        playbook=name if isinstance(name, str) else "",
        keychain=tuple(keychain) if isinstance(keychain, list) else (),
        sealed=sealed_steps(root) if mentions_secrets(source) else frozenset(),
        child_reader=child_reader,
        catalog=catalog,
        sources=asked.get("sources", dict),
        bindings=asked.get("bindings", Bindings),
        secrets=child_reader.secrets,
        needs_secrets=asked.get("needs_secrets", True),
    )


def _read_wf(source: str, file: str, child_reader: ChildReader[Playbook], asked: Lookups) -> Playbook:
    from refold.playbooks.wf.reader import read_wf  # loaded only for such files

    found = read_wf(source, file, child_reader, asked.get("bindings", Bindings))
    own = f"{file}#as {child_reader.identity}" if child_reader.identity else file
    for plan in found.inner:
        child_reader.playbooks[f"{own}#{plan.name}"] = Playbook(plan, file, found.source, {})
    return Playbook(found.plan, file, found.source, found.places, found.warnings, found.metadata, unbound=found.unbound)


def _jamjet_form(root: Node) -> str:
    """Return the form of a JamJet file by what is in it; `other` if it has no workflow, empty if it is not JamJet's."""
    keys = root.value
    if not isinstance(keys, dict) or "apiVersion" in keys:
        return ""
    if "workflow_id" in keys and "nodes" in keys:
        return "ir"
    workflow = keys.get("workflow")
    if isinstance(workflow, dict) and isinstance(keys.get("nodes"), dict):
        return "graph"
    if isinstance(workflow, dict) and isinstance(workflow.get("nodes"), list):
        return "list"
    if isinstance(keys.get("agent"), dict):
        return "agent"
    if isinstance(keys.get("agents"), dict) or isinstance(keys.get("workflows"), dict):
        return "fleet"
    if "metadata" in keys:
        return ""
    return "other" if JAMJET_SIGNS.intersection(keys) or isinstance(workflow, dict) else ""


def _read_jamjet(
    source: str, root: Node, form: str, file: str, catalog: Catalog, child_reader: ChildReader[Playbook], asked: Lookups
) -> Playbook:
    from refold.playbooks.jamjet.reader import read_jamjet  # loaded only for such files

    bindings = asked.get("bindings", Bindings)
    options = ReadingOptions("jamjet", child_reader=child_reader, catalog=catalog, bindings=bindings)
    reading = Reading(source, {}, {}, options)
    found = None
    try:
        unit = asked.get("unit") if len(child_reader.above) == 1 else None
        found = read_jamjet(reading, root, form, unit)
    except TooMany:
        pass  # a hundred of them are enough to begin with
    problems = in_order(reading.problems)
    if found is None or reading.failed():
        raise InvalidPlaybook(problems, file, source)
    for each in found.children:
        child_reader.playbooks[f"{file}#{each.plan.name}"] = Playbook(each.plan, file, source, each.places)
    return Playbook(found.plan, file, source, found.places, problems, found.metadata)


def _is_ours(reading: Reading, root: Node) -> bool:
    """Report a file in another language, which is not read as if it were in this one."""
    if not isinstance(root.value, dict):
        hint = f"a playbook begins with `apiVersion: {LANGUAGE}`"
        reading.at(root, "wrong-type", f"a playbook must be a map, not {kind_of(root.value)}", hint)
        return False
    language = root.nodes.get("apiVersion")
    if language is None or not isinstance(language.value, str) or language.value == LANGUAGE:
        return True
    hint = did_you_mean(language.value, [LANGUAGE, *LANGUAGES])
    kind = root.value.get("kind")
    if language.value.startswith("noetl.io/") and isinstance(kind, str) and kind != "Playbook":
        hint = NO_PLAYBOOK.format(cut(kind))
    reading.at(language, "unknown-language", f"`{cut(language.value)}` is not a language that Refold can read", hint)
    return False


def _draft(reading: Reading, root: Node, catalog: Catalog) -> PlaybookDraft:
    fields = reading.table(root, "playbook")
    if "inputs" in fields.values:
        check_defaults(reading, fields)
    drafts, blocks = _steps(reading, fields, catalog)
    plan = _plan(fields, drafts)
    return PlaybookDraft(fields, drafts, structs.replace(plan, entry=blocks.get(plan.entry, plan.entry)), blocks)


def _steps(reading: Reading, fields: Fields, catalog: Catalog) -> tuple[list[StepDraft], dict[str, str]]:
    items: list[Fields] = fields.get("workflow", [])
    if not any(block_word(item.node) for item in items):
        return [with_result(reading, read_step(reading, step, catalog)) for step in items], {}
    final = [name for name, _ in PlaybookDraft(fields, [], Plan(name="", steps=())).finalizers()]
    return compile_blocks(reading, items, lambda step: with_result(reading, read_step(reading, step, catalog)), final)


def _plan(fields: Fields, drafts: list[StepDraft]) -> Plan:
    nothing, budget = Fields(fields.node, {}), fields.get("budget", Budget({}))
    spec = fields.get("executor", nothing).get("spec", nothing)
    return Plan(
        name=fields.get("metadata", nothing).get("name", ""),
        language="refold",
        steps=tuple(draft.step for draft in drafts),
        entry=spec.get("entry_step", ""),
        final_step=spec.get("final_step", ""),
        on_failure=fields.get("on_failure", "drain"),
        always=tuple(name for name, _ in fields.get("always", ())),
        on_fail=tuple(name for name, _ in fields.get("on_fail", ())),
        timeout=fields.get("timeout"),
        budget=budget.limits,
        on_budget=budget.exceeded,
        defaults=fields.get("workload", {}),
        inputs=fields.get("inputs", ()),
    )


def check(reading: Reading, playbook: PlaybookDraft) -> None:
    """Run all checks; the graph is checked only if every name in it is valid."""
    if check_names(reading, playbook):
        check_graph(reading, playbook)
    check_arcs(reading, playbook)
    names = Names(playbook)
    check_templates(reading, playbook, names)
    check_tools(reading, playbook, names)
    if reading.has_secrets:
        check_secrets(reading, playbook)


def check_tools(reading: Reading, playbook: PlaybookDraft, names: Names) -> None:
    for draft in playbook.drafts if reading.strict else ():
        node = draft.fields.get("tool")
        if isinstance(node, Node) and isinstance(node.value, dict):
            _check(reading, draft, node)
            _check_names(reading, draft, node, names)


def _check_names(reading: Reading, draft: StepDraft, node: Node, names: Names) -> None:
    """Python code gets the names that its step binds, and nothing else of the run."""
    info = reading.catalog.get(node.value["kind"]) if isinstance(node.value.get("kind"), str) else None
    code = node.value.get("code")
    if info is None or info.names_read is None or not isinstance(code, str):
        return
    words = {*WORD.findall(code)} - draft.bound
    of_the_run = (words & names.inputs) | (words & names.ctx) | (words & names.steps)
    for name, line, column in info.names_read(node.value) if of_the_run else ():
        if name in of_the_run:
            place = place_inside(reading.source, node.nodes["code"], line, column)
            hint = f'add `input: {{{name}: "{{{{ {name} }}}}"}}`'
            message = f"the code reads `{name}`, which only templates can read here"
            reading.say(Problem("unbound-name", message, place, hint, "warning", len(name)))


def _check(reading: Reading, draft: StepDraft, node: Node) -> None:
    kind = node.value.get("kind")
    info = reading.catalog.get(kind) if isinstance(kind, str) else None
    if info is None or info.check_bound is None:
        return
    for found in info.check_bound(node.value, draft.bound):
        child = node.nodes.get(found.key, node.nodes["kind"])
        place = place_inside(reading.source, child, found.line, found.column) if found.line else child.place
        reading.say(Problem(found.code, found.message, place, found.hint))


def with_result(reading: Reading, draft: StepDraft) -> StepDraft:
    """Return the step with the schema of its result, if it declares one."""
    output: Fields | None = draft.fields.get("output")
    if output is None or not output.get("schema"):
        return draft
    if not isinstance(draft.step.work, WorkerWork):
        message = "`output` has no effect where no worker takes part"
        hint = "declare it in the playbook that is started, or leave it out"
        reading.at_key(draft.node, "output", "no-effect", message, hint)
        return draft
    draft.step = structs.replace(draft.step, result=output.get("schema"))
    return draft

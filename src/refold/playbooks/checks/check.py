"""All checks of a whole playbook, and the check that a tool gets the input it needs."""

import re

from msgspec import structs

from refold.core.plan import WorkerWork
from refold.playbooks.checks.graph import check_arcs, check_graph, check_names
from refold.playbooks.checks.secrets import check_secrets
from refold.playbooks.checks.templates import Names, check_templates
from refold.playbooks.problems import Problem
from refold.playbooks.reader.reading import Fields, Reading
from refold.playbooks.steps import PlaybookDraft, StepDraft
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node

WORD = re.compile(r"[^\W\d]\w*")


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


def check(reading: Reading, playbook: PlaybookDraft) -> None:
    """Run all checks; the graph is checked only if every name in it is valid."""
    if check_names(reading, playbook):
        check_graph(reading, playbook)
    check_arcs(reading, playbook)
    names = Names(playbook)
    check_templates(reading, playbook, names)
    check_tools(reading, playbook, names)
    check_secrets(reading, playbook)

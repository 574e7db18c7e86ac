"""A playbook, read: YAML text to a plan, with the place of everything, or all that is wrong with it."""

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from msgspec import Struct, structs

from refold.core.plan import Plan
from refold.names import did_you_mean
from refold.playbooks.blocks.bodies import block_word
from refold.playbooks.blocks.compiling import compile_blocks
from refold.playbooks.budgets import Budget
from refold.playbooks.checks.check import check, with_result
from refold.playbooks.checks.secrets import sealed_steps
from refold.playbooks.children import Family, Load
from refold.playbooks.inputs import check_defaults
from refold.playbooks.key_types import READERS
from refold.playbooks.language.playbook import TABLES
from refold.playbooks.noetl.playbook import LANGUAGES, noetl_reading, noetl_sketch
from refold.playbooks.problems import InvalidPlaybook, Place, Problem, in_order
from refold.playbooks.python_workflows import Code
from refold.playbooks.reader.kinds import Catalog
from refold.playbooks.reader.reading import Fields, Reading, Secrets, Sources, TooMany, cut, kind_of
from refold.playbooks.sketch import Places, Sketch
from refold.playbooks.steps import Draft, read_step
from refold.playbooks.yaml import text as yaml_text
from refold.playbooks.yaml.text import Node

LANGUAGE = "refold/v1"


class Playbook(Struct, frozen=True):
    """`places` knows where things stand in the file: `steps.fetch`, `steps.fetch.tool.code`."""

    plan: Plan
    file: str
    source: str
    places: Mapping[str, Place]
    warnings: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = {}
    children: tuple["Playbook", ...] = ()  # all that it starts, and all that they start
    code: tuple[str, ...] = ()  # Python workflows among them, as module:name; whoever runs it needs their code


class Asked(TypedDict, total=False):
    """Who is asked for what a playbook names, and only when it does.

    `secrets` knows the names of all that there are: others are errors then. `sources` knows the kinds of them, and
    `code` the workflows in Python.
    """

    secrets: Secrets | None
    sources: Sources
    code: Code


def read(
    text: str | bytes,
    file: str,
    catalog: Catalog,
    load: Load | None = None,
    **asked: Unpack[Asked],
) -> Playbook:
    """Raises InvalidPlaybook with every error and warning that was found; `load` gets the files of its children."""

    def read_one(text: str | bytes, file: str, family: Family[Playbook]) -> Playbook:
        family.begin(file)
        try:
            return _read(text, file, catalog, family, asked.get("sources", dict))
        finally:
            family.end()

    family: Family[Playbook] = Family(load, read_one, asked.get("secrets"), asked.get("code"))
    found = read_one(text, file, family)
    if not family.known and not family.coded:
        return found
    coded = [Playbook(plan, each.target, "", {}) for each in family.coded.values() for plan in each.plans]
    code = tuple(each.target for each in family.coded.values())
    return structs.replace(found, children=(*family.known.values(), *coded), code=code)


def _read(text: str | bytes, file: str, catalog: Catalog, family: Family[Playbook], sources: Sources) -> Playbook:
    source = yaml_text.decode(text, file) if isinstance(text, bytes) else text
    root = yaml_text.read(source, file)
    language = root.value.get("apiVersion") if isinstance(root.value, dict) else None
    older = language in LANGUAGES
    reading = noetl_reading(source, str(language)) if older else Reading(source, TABLES, READERS)
    reading.sealed = sealed_steps(reading, root)
    reading.family, reading.catalog, reading.secrets = family, catalog, family.secrets
    reading.sources = sources
    sketch = None
    try:
        if older or _is_ours(reading, root):
            sketch = (noetl_sketch if older else _sketch)(reading, root, catalog)
            check(reading, sketch)
    except TooMany:
        pass  # a hundred of them are enough to begin with
    problems = in_order(reading.problems)
    if sketch is None or reading.failed():
        raise InvalidPlaybook(problems, file, source)
    metadata = root.value.get("metadata", {})
    return Playbook(sketch.plan, file, source, Places(source, sketch), problems, metadata)


def _is_ours(reading: Reading, root: Node) -> bool:
    """What is written in another language is not read as if it were this one."""
    if not isinstance(root.value, dict):
        hint = f"a playbook begins with `apiVersion: {LANGUAGE}`"
        reading.at(root, "wrong-type", f"a playbook must be a map, not {kind_of(root.value)}", hint)
        return False
    language = root.nodes.get("apiVersion")
    if language is None or not isinstance(language.value, str) or language.value == LANGUAGE:
        return True
    hint = did_you_mean(language.value, [LANGUAGE, *LANGUAGES])
    reading.at(language, "unknown-language", f"`{cut(language.value)}` is no language that can be read", hint)
    return False


def _sketch(reading: Reading, root: Node, catalog: Catalog) -> Sketch:
    fields = reading.table(root, "playbook")
    check_defaults(reading, fields)
    reading.playbook = fields.get("metadata", Fields(root, {})).get("name", "")
    reading.keychain = tuple(entry.value for entry in fields.get("keychain", ()))
    drafts, blocks = _steps(reading, fields, catalog)
    plan = _plan(fields, drafts)
    return Sketch(fields, drafts, structs.replace(plan, entry=blocks.get(plan.entry, plan.entry)), blocks)


def _steps(reading: Reading, fields: Fields, catalog: Catalog) -> tuple[list[Draft], dict[str, str]]:
    items: list[Fields] = fields.get("workflow", [])
    if not any(block_word(item.node) for item in items):
        return [with_result(reading, read_step(reading, step, catalog)) for step in items], {}
    final = [name for name, _ in Sketch(fields, [], Plan(name="", steps=())).finalizers()]
    return compile_blocks(reading, items, lambda step: with_result(reading, read_step(reading, step, catalog)), final)


def _plan(fields: Fields, drafts: list[Draft]) -> Plan:
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

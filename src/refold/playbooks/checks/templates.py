"""Checks of templates: their syntax, and whether every name in them is valid at that place."""

import re

from refold.names import WORDS
from refold.playbooks.checks.template_reads import Finding, Names, Path, Reads
from refold.playbooks.draft import PlaybookDraft
from refold.playbooks.problems import Problem, Severity
from refold.playbooks.reader.reading import Reading
from refold.playbooks.reader.templates import templates_in
from refold.playbooks.steps import Scope, StepDraft
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.templates import Use, problem_of, uses_of

EXPECTED = ("not-before", "maybe-missing")  # what a default or a test takes care of
MEND = "mend the template; this is where it stops making sense"
_PATH = r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)*"
_SUM = rf"(?:{_PATH}|\d{{1,9}})(?: *[-+*] *(?:{_PATH}|\d{{1,9}}))*"
SIMPLE = re.compile(rf"\{{\{{ *({_SUM}(?: *(?:==|!=|<=?|>=?) *(?:{_SUM}|'[^'\\{{}}]*'))?) *\}}\}}", re.ASCII)
"""Matches a path, or a sum or a comparison of paths: certainly valid syntax, and its names are found quickly."""
NAMED = re.compile(rf"'[^']*'|\d+|({_PATH})", re.ASCII)


def check_templates(reading: Reading, playbook: PlaybookDraft, names: Names) -> None:
    if playbook.plan.language == "noetl":
        _check_syntax(reading, playbook)
        return
    reads, has_forms = Reads(playbook, names, reading.catalog), "$let" in reading.source
    for draft in playbook.drafts:
        for value in draft.values:
            for node in templates_in(value.node):
                if not _is_plainly_good(node.value, reads, draft, value.scope):
                    _check(reading, node, reads, draft, value.scope)
        if has_forms:
            _let_forms(reading, draft)


def _check_syntax(reading: Reading, playbook: PlaybookDraft) -> None:
    """In NoETL files an undefined name is not an error; a template that cannot be parsed is one."""
    for key, node in playbook.fields.node.nodes.items():
        if key not in ("metadata", "executor"):
            for each in templates_in(node):
                _is_broken(reading, each, "chainable")


def _is_plainly_good(text: str, reads: Reads, draft: StepDraft, scope: Scope) -> bool:
    """Whether a template is certainly valid: most are texts with a few known paths, which is quick to see."""
    expressions = SIMPLE.findall(text)
    if text.count("{") != 2 * len(expressions):
        return False
    for path in (path for each in expressions for path in NAMED.findall(each) if path):
        names_in_it = tuple(path.split("."))
        if names_in_it[0] in WORDS or reads.finding(names_in_it, draft, scope) is not None:
            return False
    return True


def _check(reading: Reading, node: Node, reads: Reads, draft: StepDraft, scope: Scope) -> None:
    if _is_broken(reading, node):
        return
    for use in uses_of(node.value):
        found = reads.finding(use.path, draft, scope)
        if found is not None and not (use.soft and found.code in EXPECTED):
            _say(reading, node, use, found)


def _is_broken(reading: Reading, node: Node, undefined: str = "strict") -> bool:
    problem = problem_of(node.value, undefined)
    if problem is None:
        return False
    place = place_inside(reading.source, node, problem.line, problem.column)
    reading.at_place(place, "template-syntax", problem.message, problem.hint or MEND)
    return True


def _say(reading: Reading, node: Node, use: Use, found: Finding) -> None:
    """Report a path; where a default or a test handles a missing value, it is only a warning."""
    place = place_inside(reading.source, node, use.line, use.column + _before_last(node, use, found.path))
    severity: Severity = "warning" if use.soft else found.severity
    length = len(found.path[-1])
    reading.say(Problem(found.code, found.message, place, found.hint, severity, length))


def _before_last(node: Node, use: Use, path: Path) -> int:
    """The distance from the beginning of the path to its last part."""
    line = node.value.split("\n")[use.line - 1][use.column - 1 :]
    at = len(path[0]) if len(path) > 1 else 0
    for name in path[1:]:
        found = re.compile(rf"\W{re.escape(name)}(?!\w)").search(line, at)
        if found is None:
            return 0
        at = found.end()
    return at - len(path[-1]) if len(path) > 1 else 0


def _let_forms(reading: Reading, draft: StepDraft) -> None:
    """Refuse the keys that the engine itself uses in the input of a step."""
    todo = [value.node for value in draft.values]
    while todo:
        node = todo.pop()
        if isinstance(node.value, dict) and node.value.keys() == {"$let", "$in"}:
            message = "a map of exactly `$let` and `$in` has a meaning of its own"
            reading.at(node, "reserved-form", message, "add a key, or name one of them otherwise")
        inside = node.nodes.values() if isinstance(node.nodes, dict) else node.nodes
        todo.extend(each for each in inside if each.nodes)

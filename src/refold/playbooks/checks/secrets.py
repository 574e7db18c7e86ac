"""Checks of secrets: the keychain, steps whose result is secret, and where secrets may be used."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.names import did_you_mean
from refold.playbooks.language.tables import Key
from refold.playbooks.problems import Place, Problem, Severity
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.reader.templates import is_secret, is_template
from refold.playbooks.steps import PlaybookDraft, StepDraft
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node
from refold.templates import Use, uses_of

SINGLE = "a single secret needs no entry: write `{secret: NAME}` where it is used"
KINDS = ("static", "bearer", "env", "file", "credential", "credential_ref", "oauth2", "secret_manager")
"""The kinds that need no cloud; a NoETL file may name others, which fail when they are used."""
CLOSED = ("run", "source", "key", "outcome")  # scopes that are evaluated where nothing is opened
OPENED = "read it in `input` or in the keys of a tool; a worker opens it there"


def read_entries(reading: Reading, node: Node, key: Key) -> list[Node] | None:
    """Read the keychain: maps with a name and a kind, each name once."""
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of entries")
        return None
    found: dict[str, Node] = {}
    for each in node.nodes:
        entry = each.value if isinstance(each.value, dict) else {}
        if "secret" in entry and "kind" not in entry:
            reading.at_key(each, "secret", "unknown-key", "an entry of the keychain has no key `secret`", SINGLE)
            continue
        for word, example in (("name", "api"), ("kind", "bearer")):
            if not isinstance(entry.get(word), str):
                reading.missing(each, "an entry of the keychain", word, example)
        if isinstance(entry.get("kind"), str) and entry["kind"] not in KINDS and reading.strict:
            message = f"the keychain knows no kind `{cut(entry['kind'])}`"
            is_single = entry["kind"] in ("secret", "secrets", "stored")
            reading.at(
                each.nodes["kind"], "bad-choice", message, SINGLE if is_single else did_you_mean(entry["kind"], KINDS)
            )
        if entry.get("name") in found:
            message = f"two entries of the keychain are called `{cut(str(entry['name']))}`"
            reading.at(each.nodes["name"], "duplicate-entry", message, "give one of them another name")
        if isinstance(entry.get("name"), str):
            found[entry["name"]] = each
    return list(found.values())


def sealed_steps(root: Node) -> frozenset[str]:
    """The steps of a file whose result is secret: it is stored so that only tools can read it."""
    found: set[str] = set()
    if not isinstance(root.value, dict) or "workflow" not in root.nodes:
        return frozenset()
    todo = [root.nodes["workflow"]]
    while todo:
        node = todo.pop()
        value = node.value
        if isinstance(value, dict) and isinstance(value.get("step"), str):
            output = value.get("output")
            if isinstance(output, dict) and output.get("secret") is True:
                found.add(value["step"])
        todo.extend(_inside(node))
    return frozenset(found)


class Named(Struct, frozen=True):
    """A path in a template of a step, and its position."""

    path: tuple[str, ...]
    step: str
    closed: bool  # it stands where nothing is opened
    node: Node
    use: Use | None = None  # in the text of the node; None: the node itself is the name of a secret

    def place(self, source: str, part: int) -> Place:
        """The position of the first name in the path (0), or of the second (1)."""
        if self.use is None:
            return self.node.place
        before = len(self.path[0]) + 1 if part else 0
        return place_inside(source, self.node, self.use.line, self.use.column + before)


def check_secrets(reading: Reading, playbook: PlaybookDraft) -> None:
    """Check every template of every step, each once."""
    named = [each for draft in playbook.drafts for each in _named(reading, draft)]
    _check_known(reading, named)
    _check_entries(reading, named, [entry.value["name"] for entry in playbook.fields.get("keychain", ())])
    _check_sealed(reading, named)


def _named(reading: Reading, draft: StepDraft) -> Iterator[Named]:
    """The paths in the templates of a step, and its secrets by reference as paths."""
    closed = [value.node for value in draft.values if value.scope in CLOSED]
    apart = {id(node) for node in closed}
    todo = [*((node, True) for node in closed), *([(draft.node, False)] if id(draft.node) not in apart else [])]
    while todo:
        node, is_closed = todo.pop()
        if is_secret(node.value):
            yield Named(("secrets", node.value["secret"]), draft.name, is_closed, node.nodes["secret"])
        elif is_template(node.value):
            for use in uses_of(node.value, "strict" if reading.strict else "chainable"):
                yield Named(use.path, draft.name, is_closed, node, use)
        todo.extend((each, is_closed) for each in _inside(node) if is_closed or id(each) not in apart)


def _inside(node: Node) -> Iterable[Node]:
    return node.nodes.values() if isinstance(node.nodes, dict) else node.nodes


def _check_known(reading: Reading, named: Iterable[Named]) -> None:
    """Check that every named secret exists.

    The providers are asked only if a secret is named; if they cannot list their secrets, nothing is reported.
    """
    wanted = [(each.path[1], each) for each in named if each.path[0] == "secrets" and len(each.path) > 1]
    known = reading.secrets() if wanted and reading.secrets is not None else None
    if known is None:
        return
    for name, each in wanted:
        if name not in known:
            message = f"no provider has a secret `{cut(name)}`"
            hint = did_you_mean(name, sorted(known)) if known else f"`refold secret set {name}` keeps one"
            severity: Severity = "error" if reading.needs_secrets else "warning"
            place = each.place(reading.source, 1)
            reading.say(Problem("unknown-secret", message, place, hint, severity, len(name)))


def _check_entries(reading: Reading, named: Iterable[Named], entries: list[str]) -> None:
    """Check that every named entry of the keychain exists."""
    for each in named:
        if each.path[0] == "keychain" and len(each.path) > 1 and each.path[1] not in entries:
            message = f"the keychain has no entry `{cut(each.path[1])}`"
            reading.at_place(
                each.place(reading.source, 1), "unknown-entry", message, did_you_mean(each.path[1], entries)
            )


def _check_sealed(reading: Reading, named: Iterable[Named]) -> None:
    """Check that no condition and no `set` reads a result that is secret."""
    for each in named if reading.sealed and reading.strict else ():
        path = each.path[1:] if each.path[0] == "steps" else each.path
        own = each.step in reading.sealed and path[:1] == ("output",) and len(path) > 2
        if each.closed and (own or (len(path) > 1 and path[0] in reading.sealed)):
            message = f"the result of `{each.step if own else path[0]}` is secret, and cannot be read here"
            reading.at_place(each.place(reading.source, 0), "sealed-result", message, OPENED, len(path[0]))

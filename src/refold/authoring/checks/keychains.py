"""The keychain of a playbook: entries by name, from which tools take credentials when they are run."""

from refold.authoring.inside import place_inside
from refold.authoring.names import did_you_mean
from refold.authoring.problems import Problem
from refold.authoring.reading import Reading, cut
from refold.authoring.sketch import Sketch
from refold.authoring.tables import Key
from refold.authoring.template_text import templates
from refold.authoring.yaml_text import Node
from refold.templates import uses_of

KINDS = ("static", "bearer", "env", "file", "credential", "credential_ref", "oauth2", "secret_manager")
"""Those that need no cloud; a NoETL file may name others, which fail when they are used."""


def read_entries(reading: Reading, node: Node, key: Key) -> list[Node] | None:
    """Maps with a name and a kind, each name once."""
    if not isinstance(node.value, list):
        reading.wrong(node, key, "a list of entries")
        return None
    found: dict[str, Node] = {}
    for each in node.nodes:
        entry = each.value if isinstance(each.value, dict) else {}
        for word, example in (("name", "api"), ("kind", "bearer")):
            if not isinstance(entry.get(word), str):
                reading.missing(each, "an entry of the keychain", word, example)
        if isinstance(entry.get("kind"), str) and entry["kind"] not in KINDS and reading.strict:
            message = f"the keychain knows no kind `{cut(entry['kind'])}`"
            reading.at(each.nodes["kind"], "bad-choice", message, did_you_mean(entry["kind"], KINDS))
        if entry.get("name") in found:
            message = f"two entries of the keychain are called `{cut(str(entry['name']))}`"
            reading.at(each.nodes["name"], "duplicate-entry", message, "give one of them another name")
        if isinstance(entry.get("name"), str):
            found[entry["name"]] = each
    return list(found.values())


def check_keychain(reading: Reading, sketch: Sketch) -> None:
    """Whoever names an entry names one that is there."""
    names = [entry.value["name"] for entry in sketch.fields.get("keychain", ())]
    for draft in sketch.drafts if reading.has_secrets else ():
        for node in templates(draft.node):
            for use in uses_of(node.value, "strict" if reading.strict else "chainable"):
                if use.path[0] == "keychain" and len(use.path) > 1 and use.path[1] not in names:
                    column = use.column + len("keychain.")
                    place = place_inside(reading.source, node, use.line, column)
                    message = f"the keychain has no entry `{cut(use.path[1])}`"
                    reading.say(Problem("unknown-entry", message, place, did_you_mean(use.path[1], names)))

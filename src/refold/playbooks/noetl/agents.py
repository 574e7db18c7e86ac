"""Reads the tool `agent` of a NoETL file: who answers is bound as in any other file; agents of frameworks are refused.

What NoETL means by this kind is an object of a Python module, which it builds and calls by the habits of a framework.
"""

from refold.core.pipeline import Task
from refold.playbooks.bindings import BINDINGS_FILE
from refold.playbooks.reader.kinds import Catalog, read_kind
from refold.playbooks.reader.reading import Reading, cut
from refold.playbooks.tools import settings_of
from refold.playbooks.yaml.text import Node

FRAMEWORK = (
    *("framework", "entrypoint", "entrypoint_mode", "entrypoint_args", "invoke_method", "invoke_kwargs"),
    *("payload", "on_failure", "wait_timeout_seconds"),
)
"""Keys that only NoETL's agents have."""


def read_agent(reading: Reading, node: Node, name: str, apart: frozenset[str], catalog: Catalog) -> Task | None:
    """The task, without what all tasks have, whose keys are those of `apart`. Problems are reported, each once."""
    theirs = next((key for key in FRAMEWORK if key in node.nodes), None)
    if theirs is not None:
        _refuse(reading, node, theirs)
        return None
    own = {key: child for key, child in node.nodes.items() if key not in apart or key == "kind"}
    found = read_kind(reading, Node(node.value, node.start, node.end, node.style, own, node.keys), catalog)
    if found is None:
        return None
    static = found.static()
    return Task(
        name=name,
        kind="agent",
        settings=settings_of(reading, found),
        keys={key: value for key, value in found.values.items() if key not in static},
    )


def _refuse(reading: Reading, node: Node, theirs: str) -> None:
    framework, entry = _text(node, "framework"), cut(_text(node, "entrypoint"))
    if framework == "noetl":
        message = "an agent that is a playbook is started by the tool `playbook`"
        hint = f"write `{{kind: playbook, path: {entry or '…'}}}`, and its inputs under `input`"
    else:
        of = f" of the framework `{cut(framework)}`" if framework not in ("", "custom") else ""
        message = f"Refold does not build an agent{of} from its entry point, as `{theirs}` asks for"
        function = entry if entry and _text(node, "entrypoint_mode") == "callable" else "MODULE:FUNCTION"
        bound = f'`agents: {{NAME: {{kind: python, entry: "{function}"}}}}` in {BINDINGS_FILE}'
        hint = f"write `agent: NAME` and `prompt: …`, and {bound}, with a function that calls it"
    reading.at_key(node, theirs, "unsupported-tool", message, hint)


def _text(node: Node, key: str) -> str:
    child = node.nodes.get(key)
    return child.value if child is not None and isinstance(child.value, str) else ""

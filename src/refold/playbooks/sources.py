"""Reads the source of a loop: its keys, checked against its kind, and the settings of its pages."""

from typing import Any

from msgspec import Struct, structs

from refold.core.plan import Source
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.kinds import SOURCE, KindValues, read_kind
from refold.playbooks.reader.reading import Reading
from refold.playbooks.reader.templates import literal
from refold.playbooks.tools import retry_of
from refold.playbooks.yaml.text import Node

FILES = frozenset({"path", "pattern", "database"})  # keys that are seen from the folder of the playbook


class LoopSource(Struct, frozen=True):
    """A source, and the nodes that may contain templates."""

    source: Source
    rendered: list[Node]


def read_source(reading: Reading, node: Node, key: Key) -> LoopSource | None:
    kind_values = read_kind(reading, node, reading.sources(), SOURCE)
    if kind_values is None:
        return None
    lent, static = _lent(reading, node, kind_values, key.of), kind_values.static()
    source = Source(kind=kind_values.info.kind, settings=_settings(reading, kind_values), timeout=lent.get("timeout"))
    if lent.get("retry") is not None:
        source = structs.replace(source, retry=retry_of(lent["retry"]))
    if lent.get("page") is not None:
        source = structs.replace(source, page=lent["page"])
    return LoopSource(source, [kind_values.keys[name] for name in kind_values.values if name not in static])


def _lent(reading: Reading, node: Node, kind_values: KindValues, table: str) -> dict[str, Any]:
    """The settings of pages, which all kinds have; a kind may have its own keys of these names."""
    known = {key.name: key for key in reading.tables[table].keys}
    own = {key.name for key in kind_values.info.keys}
    names = [name for name in SOURCE.lent if name in node.nodes and name not in own]
    return {name: reading.readers[known[name].type](reading, node.nodes[name], known[name]) for name in names}


def _settings(reading: Reading, kind_values: KindValues) -> dict[str, Any]:
    """The keys of the kind; static ones are quoted, so that rendering does not change them."""
    static = kind_values.static()
    settings = {name: literal(value) if name in static else value for name, value in kind_values.values.items()}
    beside = {"folder": literal(reading.child_reader.folder())} if FILES & settings.keys() else {}
    return {**settings, **beside}

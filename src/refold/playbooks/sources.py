"""The source of a loop: its keys held against its kind, and what the engine is told of its pages."""

from typing import Any

from msgspec import Struct, structs

from refold.core.plan import Source
from refold.playbooks.language.tables import Key
from refold.playbooks.reader.kinds import SOURCE, Described, read_described
from refold.playbooks.reader.reading import Reading
from refold.playbooks.reader.templates import literal
from refold.playbooks.rules import retry_of
from refold.playbooks.yaml.text import Node

FILES = frozenset({"path", "pattern", "database"})  # keys that are seen from the folder of the playbook


class Sourced(Struct, frozen=True):
    """A source, and the nodes that may hold templates."""

    source: Source
    rendered: list[Node]


def read_source(reading: Reading, node: Node, key: Key) -> Sourced | None:
    described = read_described(reading, node, reading.sources(), SOURCE)
    if described is None:
        return None
    lent, static = _lent(reading, node, described, key.of), described.static()
    source = Source(kind=described.info.kind, settings=_settings(reading, described), timeout=lent.get("timeout"))
    if lent.get("retry") is not None:
        source = structs.replace(source, retry=retry_of(lent["retry"]))
    if lent.get("page") is not None:
        source = structs.replace(source, page=lent["page"])
    return Sourced(source, [described.keys[name] for name in described.told if name not in static])


def _lent(reading: Reading, node: Node, described: Described, table: str) -> dict[str, Any]:
    """What is said of pages, whatever kind they are of; a kind may have its own keys of these names."""
    known = {key.name: key for key in reading.tables[table].keys}
    own = {key.name for key in described.info.keys}
    names = [name for name in SOURCE.lent if name in node.nodes and name not in own]
    return {name: reading.readers[known[name].type](reading, node.nodes[name], known[name]) for name in names}


def _settings(reading: Reading, described: Described) -> dict[str, Any]:
    """The keys of its kind; those that are taken as they are written come out so when all are rendered."""
    static = described.static()
    settings = {name: literal(value) if name in static else value for name, value in described.told.items()}
    beside = {"folder": literal(reading.family.folder())} if FILES & settings.keys() else {}
    return {**settings, **beside}

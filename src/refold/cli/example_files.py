"""The examples that come with Refold: each is a folder with a playbook of its name, and what that needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

import refold
from refold.authoring.names import did_you_mean
from refold.authoring.yaml_text import Node, read
from refold.errors import NotFound

FOLDER = Path(refold.__file__).parent / "examples"
STARTER = "hello"
COMMAND = "$ "


class Example(Struct, frozen=True):
    """What is known of an example without running it."""

    name: str
    about: str
    tools: tuple[str, ...]
    notes: tuple[str, ...]  # the comment that opens its playbook: what to run, with `$ ` before it, and what to know

    @property
    def commands(self) -> list[str]:
        return [line.removeprefix(COMMAND) for line in self.notes if line.startswith(COMMAND)]


def names() -> list[str]:
    """The starter first."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/*.yaml") if path.stem == path.parent.name)
    return sorted(found, key=lambda name: name != STARTER)


def known(name: str) -> str:
    if name not in names():
        raise NotFound(f"there is no example {name!r}; {did_you_mean(name, names())}")
    return name


def example(name: str) -> Example:
    text = (FOLDER / name / f"{name}.yaml").read_text(encoding="utf-8")
    head, _, _ = text.partition("\napiVersion:")
    notes = tuple(line.removeprefix("# ") for line in head.splitlines())
    data = read(text, name)
    return Example(name, data.value["metadata"]["description"], tuple(dict.fromkeys(_kinds(data))), notes)


def files(name: str) -> dict[str, bytes]:
    """What is in its folder, by the paths that it has there: the playbook first."""
    folder = FOLDER / name
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    paths.sort(key=lambda path: path != folder / f"{name}.yaml")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _kinds(node: Node, is_tool: bool = False) -> Iterator[str]:
    """The kinds of tools in a playbook, in its order."""
    if isinstance(node.nodes, dict):
        kind: Any = node.value.get("kind") if is_tool else None
        if isinstance(kind, str):
            yield kind
        for key, each in node.nodes.items():
            yield from _kinds(each, key in ("tool", "check"))
    else:
        for each in node.nodes:
            yield from _kinds(each, is_tool)

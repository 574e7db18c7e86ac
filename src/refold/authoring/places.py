"""Where the parts of a playbook stand, by their paths: looked up only when something is to be shown."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from refold.authoring.inside import place_inside
from refold.authoring.problems import Place
from refold.authoring.sketch import Sketch
from refold.authoring.yaml_text import Node


class Places(Mapping[str, Place]):
    """`steps.fetch`, `steps.fetch.next`, `steps.fetch.tool.code`."""

    def __init__(self, source: str, sketch: Sketch) -> None:
        self._source, self._sketch = source, sketch

    def __getitem__(self, path: str) -> Place:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[str, Place]:
        found = {}
        for draft in self._sketch.drafts:
            path = f"steps.{draft.name}"
            found[path] = draft.node.nodes["step"].place
            found |= {f"{path}.{key}": node.place for key, node in draft.node.nodes.items()}
            tool = draft.node.nodes.get("tool")
            if tool is not None and isinstance(tool.value, dict):
                found |= {f"{path}.tool.{key}": self._text_place(node) for key, node in tool.nodes.items()}
        return found

    def _text_place(self, node: Node) -> Place:
        """Of a block, where its text begins, so that a line of it can be counted from there."""
        return place_inside(self._source, node, 1, 1) if node.style in ("|", ">") else node.place

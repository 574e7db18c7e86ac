"""A playbook as it was read: its fields, its steps and its plan, and the positions of its parts in the file."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from refold.core.plan import Plan
from refold.playbooks.problems import Place
from refold.playbooks.reader.reading import Fields
from refold.playbooks.steps import StepDraft
from refold.playbooks.yaml.positions import place_inside
from refold.playbooks.yaml.text import Node


class PlaybookDraft(Struct):
    fields: Fields
    drafts: list[StepDraft]
    plan: Plan
    blocks: dict[str, str] = {}  # the name of each, and the step where it is entered

    def draft(self, name: str) -> StepDraft:
        return next(draft for draft in self.drafts if draft.name == name)

    def names(self) -> list[str]:
        return [draft.name for draft in self.drafts if draft.name]

    def written(self) -> list[str]:
        """The names in the file: those of steps and blocks, not those of generated steps."""
        return [*(draft.name for draft in self.drafts if draft.name and not draft.block), *self.blocks]

    def finalizers(self) -> list[tuple[str, Node]]:
        """The steps that run at the end, and the nodes that name them."""
        found = [*self.fields.get("always", ()), *self.fields.get("on_fail", ())]
        last, budget = self.executor("final_step"), self.fields.get("budget")
        found += [(last.value, last)] if last is not None else []
        return [*found, (budget.exceeded, budget.step)] if budget is not None and budget.step is not None else found

    def executor(self, key: str) -> Node | None:
        """The node of the step that `executor.spec` names under this key, if any."""
        executor: Fields | None = self.fields.get("executor")
        spec: Fields | None = executor.get("spec") if executor is not None else None
        return spec.node.nodes[key] if spec is not None and key in spec.values else None


class Places(Mapping[str, Place]):
    """`steps.fetch`, `steps.fetch.next`, `steps.fetch.tool.code`."""

    def __init__(self, source: str, playbook: PlaybookDraft) -> None:
        self._source, self._draft = source, playbook

    def __getitem__(self, path: str) -> Place:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    @cached_property
    def _found(self) -> dict[str, Place]:
        found = {}
        for draft in self._draft.drafts:
            path = f"steps.{draft.name}"
            found[path] = draft.node.nodes["step"].place
            found |= {f"{path}.{key}": node.place for key, node in draft.node.nodes.items()}
            tool = draft.node.nodes.get("tool")
            if tool is not None and isinstance(tool.value, dict):
                found |= {f"{path}.tool.{key}": self._text_place(node) for key, node in tool.nodes.items()}
        return found

    def _text_place(self, node: Node) -> Place:
        """The position of a value; of a block scalar, that of its text, so that lines can be counted from there."""
        return place_inside(self._source, node, 1, 1) if node.style in ("|", ">") else node.place

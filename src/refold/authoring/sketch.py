"""A playbook between text and plan: what was read, beside the nodes it was read from."""

from msgspec import Struct

from refold.authoring.reading import Fields
from refold.authoring.steps import Draft
from refold.authoring.yaml_text import Node
from refold.core.plan import Plan


class Sketch(Struct):
    fields: Fields
    drafts: list[Draft]
    plan: Plan
    blocks: dict[str, str] = {}  # the name of each, and the step where it is entered

    def draft(self, name: str) -> Draft:
        return next(draft for draft in self.drafts if draft.name == name)

    def names(self) -> list[str]:
        return [draft.name for draft in self.drafts if draft.name]

    def written(self) -> list[str]:
        """Names that the file has given: those of steps and blocks, not of what was made for blocks."""
        return [*(draft.name for draft in self.drafts if draft.name and not draft.block), *self.blocks]

    def finalizers(self) -> list[tuple[str, Node]]:
        """Steps that the file calls for at the end, and where."""
        found = [*self.fields.get("always", ()), *self.fields.get("on_fail", ())]
        last, budget = self.executor("final_step"), self.fields.get("budget")
        found += [(last.value, last)] if last is not None else []
        return [*found, (budget.exceeded, budget.step)] if budget is not None and budget.step is not None else found

    def executor(self, key: str) -> Node | None:
        """The step that `executor.spec` names under this key, if it does."""
        executor: Fields | None = self.fields.get("executor")
        spec: Fields | None = executor.get("spec") if executor is not None else None
        return spec.node.nodes[key] if spec is not None and key in spec.told else None

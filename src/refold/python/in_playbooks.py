"""A Python workflow as playbooks know it: its plans, and what it declares of its inputs."""

from typing import Any

from refold.core.plan import START, Input
from refold.errors import InvalidValue
from refold.playbooks.python_workflows import PythonWorkflow
from refold.python.definition import Definition, family
from refold.python.field_types import check, declared, needed
from refold.python.workflow import FLOW


def coded(definition: Definition) -> PythonWorkflow:
    """The parameters of a flow have names; the fields of a start event have types too."""
    inputs, start = definition.inputs, definition.classes[START]
    wanted = inputs.needed if _is_flow(definition) else needed(start)
    hints = declared(start)

    def misfit(name: str, value: Any) -> str:
        try:
            check(value, hints.get(name, Any), name)
        except InvalidValue as error:
            return str(error).removeprefix(f"{name}: ")
        return ""

    return PythonWorkflow(
        target=definition.home,
        plans=tuple(each.plan for each in family(definition)),
        inputs=tuple(Input(name=name, required=name in wanted) for name in inputs.names),
        others=inputs.others,
        misfit=misfit,
    )


def _is_flow(definition: Definition) -> bool:
    return any(hasattr(body.function, FLOW) for body in definition.bodies.values())
